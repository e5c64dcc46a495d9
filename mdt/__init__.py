"""Apache Hudi tables from Python, without a JAR, with indexes that pay.

``mdt.create`` and ``mdt.open`` return a :class:`Table`; ``mdt.read`` returns a Spark DataFrame.
"""

from indexes.functions import register as function
from mdt import config, errors

# The package mdt.read comes before the function: loaded later, by the first scan, it would take the function's name.
from mdt import read as _package  # noqa: F401
from mdt.errors import Conflict, Corrupt, Internal, Invalid, MdtError, Missing, Unavailable, Unsupported
from mdt.table import Table, create, open, read
from mdt.write_result import WriteResult

__version__ = "0.1.0"

__all__ = [
    "Conflict",
    "Corrupt",
    "Internal",
    "Invalid",
    "MdtError",
    "Missing",
    "Table",
    "Unavailable",
    "Unsupported",
    "WriteResult",
    "config",
    "create",
    "errors",
    "function",
    "open",
    "read",
]


def __dir__() -> list[str]:
    """Return the public names; the modules that the package has loaded for itself are not among them."""
    return sorted([*__all__, "__version__"])
