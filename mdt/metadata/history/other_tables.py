"""What stands at a path where no table of ours is: another kind of table, files, nothing; said with
what can be done.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mdt.errors import Corrupt, Invalid, MdtError, Missing
from mdt.hudi import properties
from mdt.metadata.files import paths
from mdt.metadata.history import foreign_writers
from mdt.stores.storage import Storage

_CREATE = "mdt.create(path, schema, key=[...]) makes a table; check the path for typing errors"
_LOAD = "load its rows into a new table: mdt.create(new_path, schema, key=[...]).bulk_insert(rows)"
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What is at a path that holds no table of ours.

    ``kind``: "file", "hudi", "delta", "iceberg", "parquet", "directory" or "nothing".  ``text``:
    the same in words. ``hint``: what can be done with it.
    """

    kind: str
    text: str
    hint: str


def no_table(storage: Storage) -> MdtError:
    """Return the error of opening a table where there is none of ours.

    Missing if one was here and its log has lost its first record, else Invalid.
    """
    if storage.list_dir(paths.log_dir()):
        return Missing(
            "the first commit record is gone, and without compacted metadata nothing says what the"
            " table is",
            path=paths.commit(0),
            hint="restore .hoodie/.mdt from a copy; a Hudi reader still reads the rows",
        )
    found = finding(storage)
    return Invalid(f"{storage.url} is not a table of mdt: {found.text}", hint=found.hint)


def refuse_to_create(storage: Storage) -> None:
    """Raise Invalid if a new table may not be put here: a table, files or directories are in the
    way.

    Names that begin with a dot are not.
    """
    if storage.size(paths.commit(0)) is not None or storage.list_dir(paths.log_dir()):
        raise Invalid(f"{storage.url} is a table of mdt already", hint="mdt.open(path) opens it")
    other = _other_table(storage)
    if other is not None:
        raise Invalid(
            f"{storage.url} is no place for a new table: {other.text}",
            hint=f"choose another path, or {other.hint}",
        )
    found = [name for name in storage.children("") if not name.startswith(".")]
    if found:
        raise Invalid(
            f"{storage.url} is not empty: it has {_listed(found)}",
            hint="choose another path: a table needs a directory of its own",
        )


def finding(storage: Storage) -> Finding:
    """Return what is at a path that holds no table of ours."""
    other = _other_table(storage)
    if other is not None:
        return other
    children = storage.children("")
    parquet = [name for name in children if name.endswith((".parquet", ".pq"))]
    if parquet:
        create = (
            f"mdt create NEW_PATH --like {parquet[0]} --key COLUMN, then mdt upsert NEW_PATH"
            " FILE..."
        )
        return Finding(
            "parquet",
            f"it is a directory with {_listed(parquet)}",
            f"make a table of them: {create}",
        )
    if children:
        return Finding("directory", f"it is a directory with {_listed(children)}", _CREATE)
    near = difflib.get_close_matches(_name(storage), storage.neighbours(), n=_NAMES_SHOWN)
    near = [name for name in near if name != _name(storage)]
    beside = f"; near it there is {' and '.join(near)}" if near else ""
    return Finding("nothing", f"nothing is there{beside}", _CREATE)


def _other_table(storage: Storage) -> Finding | None:
    """Return the file or the table of another kind at a path, None if there is neither."""
    if storage.is_file():
        hint = "give the directory of a table; pyarrow.parquet.read_table reads a Parquet file"
        return Finding("file", "it is a file", hint)
    try:
        found = foreign_writers.read_properties(storage)
    except Corrupt as error:
        text = f"it is a Hudi table whose properties cannot be read: {error.message}"
        return Finding("hudi", text, "repair hoodie.properties")
    if found is not None:
        hint = (
            "read it with a Hudi reader (hudi.HudiTable(path).read(), or Hudi on Spark), and"
            f" {_LOAD}"
        )
        return Finding("hudi", f"it is {_hudi(found)}", hint)
    if storage.list_dir("_delta_log"):
        hint = f"read it (deltalake.DeltaTable(path).to_pyarrow_table()), and {_LOAD}"
        return Finding("delta", "it is a Delta table", hint)
    if any(info.path.endswith(".metadata.json") for info in storage.list_dir("metadata")):
        return Finding(
            "iceberg",
            "it is an Iceberg table",
            f"read it (pyiceberg, or iceberg_scan of duckdb), and {_LOAD}",
        )
    return None


def _hudi(found: dict[str, str]) -> str:
    """Return in words what kind of Hudi table another writer has made."""
    version, table_type = (
        found.get(properties.VERSION, "unknown"),
        found.get(properties.TYPE, "of unknown type"),
    )
    keys = found.get("hoodie.table.recordkey.fields")
    return (
        f"a Hudi table of another writer, {found.get(properties.NAME, 'without a name')!r}, version"
        f" {version}, {table_type}{f', key {keys}' if keys else ''}; mdt cannot adopt it yet"
    )


def _name(storage: Storage) -> str:
    return storage.url.rstrip("/").rpartition("/")[2]


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
