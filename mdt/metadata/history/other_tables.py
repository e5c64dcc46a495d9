"""Identifies the content of a path that is not an mdt table, with a hint for the user."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mdt.errors import Corrupt, Invalid, MdtError, Missing
from mdt.hudi import properties
from mdt.metadata.files import paths
from mdt.metadata.history import foreign_writers
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage

_CREATE = (
    "check the path, or create a table with mdt.create(path, schema, key=[...]), in SQL CREATE"
    " TABLE … (columns) USING mdt OPTIONS (key …) LOCATION …"
)
_LOAD = "load its rows into a new table: mdt.create(new_path, schema, key=[...]).bulk_insert(rows)"
_NAMES_SHOWN = 3
_ADOPTED_VERSION = 6
"""Version of the tables that can be adopted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The content of a path that is not an mdt table.

    ``kind`` is "file", "hudi", "delta", "iceberg", "parquet", "directory" or "nothing".  ``text``
    describes it in words, and ``hint`` suggests the next step.
    """

    kind: str
    text: str
    hint: str


def not_a_table(storage: Storage) -> MdtError:
    """Return the error for opening a path without an mdt table.

    Missing if the log exists and lacks its first record, else Invalid.
    """
    is_released = storage.size(paths.RELEASED) is not None
    if storage.list_dir(paths.LOG_DIR) and not is_released:
        return Missing(
            "the first commit record is missing, and there is no checkpoint to define the table",
            path=paths.commit(0),
            hint="restore .hoodie/.mdt from a backup; Hudi readers can still read the rows",
        )
    content = describe_path(storage)
    error = Invalid(f"{storage.url} is not an mdt table: {content.text}", hint=content.hint)
    return error.of_others() if content.kind == "hudi" else error


def require_same(storage: Storage, snapshot: Snapshot, instant: str) -> None:
    """Raise Invalid if ``instant`` is not the newest of a snapshot: another table, or an older
    copy, is in the place of the one that was read.
    """
    if snapshot.last_instant != instant:
        raise Invalid(
            f"commit {snapshot.seq} of {storage.url} is not that of {instant} that was read: a"
            " table or a backup has taken its place",
            hint="open the table again with mdt.open",
        )


def refuse_to_create(storage: Storage) -> None:
    """Raise Invalid if a table, files or directories are in the way of a new table.

    Names that begin with a dot are ignored.
    """
    if storage.size(paths.commit(0)) is not None or storage.list_dir(paths.LOG_DIR):
        raise Invalid(f"{storage.url} is already an mdt table", hint="mdt.open(path) opens it")
    table = _other_table(storage)
    if table is not None:
        raise Invalid(
            f"{storage.url} cannot hold a new table: {table.text}",
            hint=f"choose another path, or {table.hint}",
        )
    children = [name for name in storage.children("") if not name.startswith(".")]
    if children:
        raise Invalid(
            f"{storage.url} is not empty: it has {_list_names(children)}",
            hint="choose another path: a table needs a directory of its own",
        )


def describe_path(storage: Storage) -> Finding:
    """Return the content of a path that is not an mdt table."""
    table = _other_table(storage)
    if table is not None:
        return table
    children = storage.children("")
    parquet = [name for name in children if name.endswith((".parquet", ".pq"))]
    if parquet:
        create = (
            f"mdt create NEW_PATH --like {parquet[0]} --key COLUMN, then mdt upsert NEW_PATH"
            " FILE..."
        )
        return Finding(
            "parquet",
            f"it is a directory with {_list_names(parquet)}",
            f"create a table from them: {create}",
        )
    if children:
        return Finding("directory", f"it is a directory with {_list_names(children)}", _CREATE)
    near = difflib.get_close_matches(_name(storage), storage.neighbours(), n=_NAMES_SHOWN)
    near = [name for name in near if name != _name(storage)]
    beside = f"; similar names nearby: {', '.join(near)}" if near else ""
    return Finding("nothing", f"it is empty or does not exist{beside}", _CREATE)


def _other_table(storage: Storage) -> Finding | None:
    """Return the file or the table of another format at a path, or None."""
    if storage.is_file():
        hint = "give the directory of a table; pyarrow.parquet.read_table reads a Parquet file"
        return Finding("file", "it is a file", hint)
    try:
        hudi_properties = foreign_writers.read_properties(storage)
    except Corrupt as error:
        text = f"it is a Hudi table whose properties cannot be read: {error.message}"
        return Finding("hudi", text, "repair hoodie.properties")
    if hudi_properties is not None:
        hint = f"read it with mdt.open(path), and {_LOAD}"
        if hudi_properties.get(properties.VERSION) == str(_ADOPTED_VERSION):
            hint = (
                "read it with mdt.open(path), or adopt it to write to it: mdt.adopt(path), in SQL"
                " CALL mdt.adopt('path')"
            )
        return Finding("hudi", f"it is {_describe_hudi(hudi_properties)}", hint)
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


def _describe_hudi(table_properties: dict[str, str]) -> str:
    """Describe a Hudi table of another writer."""
    version, table_type = (
        table_properties.get(properties.VERSION, "unknown"),
        table_properties.get(properties.TYPE, "of unknown type"),
    )
    name = table_properties.get(properties.NAME, "without a name")
    keys = table_properties.get("hoodie.table.recordkey.fields")
    return (
        f"a Hudi table of another writer, {name!r}, version"
        f" {version}, {table_type}{f', key {keys}' if keys else ''}"
    )


def _name(storage: Storage) -> str:
    return storage.url.rstrip("/").rpartition("/")[2]


def _list_names(names: list[str]) -> str:
    further = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {further} more" if further > 0 else "")
