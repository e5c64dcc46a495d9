"""Apache Hudi tables from Python, without a JAR, with indexes that pay.

``mdt.create`` and ``mdt.open`` return a :class:`Table`; ``mdt.read`` returns a Spark DataFrame.
"""

from indexes.functions import register as function
from mdt import config, errors
from mdt.errors import Conflict, Corrupt, Internal, Invalid, MdtError, Missing, Unavailable, Unsupported
from mdt.table import Table, create, open, read
from mdt.write.result import WriteResult

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
