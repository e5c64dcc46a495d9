"""Apache Hudi tables from Python, without a JAR, with indexes that pay.

``mdt.create`` and ``mdt.open`` return a :class:`Table`; ``mdt.read`` returns a Spark DataFrame.

>>> schema = pa.schema({"id": pa.string(), "city": pa.string(), "fare": pa.float64()})
>>> t = mdt.create("new_table", schema, key=["id"], indexes=["bitmap(city)"])
>>> rows = [{"id": "a", "city": "Oslo", "fare": 9.5}, {"id": "b", "city": "Rome", "fare": 4.0}]
>>> t.upsert(rows).inserted
2
>>> t.upsert({"id": ["b"], "city": ["Rome"], "fare": [4.5]}).updated
1
>>> t = mdt.open("new_table")
>>> t.scan("city = 'Rome' and fare < 5", columns=["id", "fare"]).to_arrow().to_pylist()
[{'id': 'b', 'fare': 4.5}]
>>> t.get("a"), t.get("z")
({'id': 'a', 'city': 'Oslo', 'fare': 9.5}, None)
>>> t.get(["b", "z"], columns=["fare"]).to_pylist()
[{'fare': 4.5}, {'fare': None}]
>>> t.delete({"id": ["a", "z"]}).missing
1
>>> t.history()["operation"].to_pylist()
['create', 'upsert', 'upsert', 'delete']
>>> t.check().problems  # every invariant of the directory, verified
()
"""

from indexes.functions import register as function
from mdt import config, errors
from mdt.errors import (
    Conflict,
    Corrupt,
    Expired,
    Internal,
    Invalid,
    MdtError,
    Missing,
    Unavailable,
    Unsupported,
)
from mdt.filters.named_column import Col, col
from mdt.source import read, warm
from mdt.table import Table, adopt, create, open, register, release, repair
from mdt.write.result import MergeResult, WriteResult

__version__ = "0.1.0"

__all__ = [
    "Col",
    "Conflict",
    "Corrupt",
    "Expired",
    "Internal",
    "Invalid",
    "MdtError",
    "MergeResult",
    "Missing",
    "Table",
    "Unavailable",
    "Unsupported",
    "WriteResult",
    "adopt",
    "col",
    "config",
    "create",
    "errors",
    "function",
    "open",
    "read",
    "register",
    "release",
    "repair",
    "warm",
]


def __dir__() -> list[str]:
    """Return the public names, without the modules that the package itself imports."""
    return sorted([*__all__, "__version__"])
