"""Tables: create, open, read, write and maintain them."""

from mdt.table.table import Table, adopt, create, open, register, release, repair

__all__ = ["Table", "adopt", "create", "open", "register", "release", "repair"]
