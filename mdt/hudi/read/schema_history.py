"""Earlier schemas of a table whose columns Hudi may have renamed.

With ``hoodie.schema.on.read.enable``, Hudi numbers the columns, and a file has the names of its own
time. The folder ``.hoodie/.schema`` has ``<instant>.schemacommit`` files. Each is JSON with all
schemas up to its instant (Apache Hudi, ``SerDeHelper.java``). mdt matches columns by name, so it
refuses tables where a name does not always mean the same column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mdt.errors import Unsupported
from mdt.hudi.file_names import HUDI
from mdt.hudi.read.fields import Fields, parse_json
from mdt.hudi.read.objects import TableObjects, read_listed
from mdt.limits import INSTANT_BYTES_MAX

LATEST_SCHEMA = "latest_schema"
"""Key of the newest schema in a commit's private entries, for tables that number their columns."""

_FOLDER = f"{HUDI}/.schema"
_EXTENSION = ".schemacommit"
_CHILDREN = (("element_id", "element"), ("key_id", "key"), ("value_id", "value"))
"""Number and type of the parts of lists and maps."""


def refuse_renamed_columns(objects: TableObjects) -> None:
    """Raise Unsupported if a column was renamed, or dropped and added again. Raises Corrupt."""
    files = [info for info in objects.list_dir(_FOLDER) if info.path.endswith(_EXTENSION)]
    if not files:
        return
    newest = max(files, key=lambda info: info.path)
    data = read_listed(objects, newest.path, newest.size, INSTANT_BYTES_MAX)
    name_of: dict[int, str] = {}
    number_of: dict[str, int] = {}
    for schema in parse_json(data, newest.path).records("schemas"):
        for number, name in _numbered(schema):
            if name_of.setdefault(number, name) != name:
                _refuse(f"column {name_of[number]!r} had or has the name {name!r}")
            if number_of.setdefault(name, number) != number:
                _refuse(f"column {name!r} was dropped and added again")


def _refuse(problem: str) -> None:
    raise Unsupported(
        f"{problem}, which mdt cannot read",
        hint="rewrite the table with Hudi, so that all files have the names of today",
    )


def _numbered(schema: Fields) -> Iterator[tuple[int, str]]:
    """Yield the number and the path of each field, also of fields in structs, lists and maps."""
    types: list[tuple[str, Any]] = [("", schema.values)]
    while types:
        prefix, type = types.pop()
        if not isinstance(type, dict):
            continue  # the name of a plain type
        fields = Fields(type, schema.path)
        for field in fields.records("fields"):
            name = prefix + field.text("name")
            yield field.number("id"), name
            types.append((f"{name}.", field.values.get("type")))
        for number, part in _CHILDREN:
            if part in type:
                yield fields.number(number), prefix + part
                types.append((f"{prefix}{part}.", type[part]))
