"""What users see: create and open a table, write to it, scan it, look after it."""

from mdt.table.table import Table, create, open, repair

__all__ = ["Table", "create", "open", "repair"]
