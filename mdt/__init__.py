"""Apache Hudi tables from Python, without a JAR, with indexes that pay.

``mdt.create`` and ``mdt.open`` return a :class:`Table`; ``mdt.read`` returns a Spark DataFrame.
"""

# The package mdt.read comes first: loaded later, by the first scan, it would take the name of the function.
from mdt import read as _package  # noqa: F401
from mdt.errors import Conflict, Corrupt, Internal, Invalid, MdtError, Unavailable, Unsupported
from mdt.table import Table, WriteResult, create, open, read

__version__ = "0.1.0"

__all__ = [
    "Conflict",
    "Corrupt",
    "Internal",
    "Invalid",
    "MdtError",
    "Table",
    "Unavailable",
    "Unsupported",
    "WriteResult",
    "create",
    "open",
    "read",
]
