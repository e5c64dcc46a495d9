"""Tables: create, open, read, write and maintain them."""

from mdt.table.table import Table, create, open, repair

__all__ = ["Table", "create", "open", "repair"]
