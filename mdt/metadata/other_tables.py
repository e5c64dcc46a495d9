"""What stands at a path where no table of ours is: another kind of table, files, nothing; said with what can be done."""

from __future__ import annotations

import difflib

from mdt.errors import Corrupt, Invalid, MdtError, Missing
from mdt.hudi import properties
from mdt.metadata import foreign, paths
from mdt.stores.storage import Storage

_CREATE = "mdt.create(path, schema, key=[...]) makes a table; check the path for typing errors"
_LOAD = "load its rows into a new table: mdt.create(new_path, schema, key=[...]).bulk_insert(rows)"
_NAMES_SHOWN = 3


def no_table(storage: Storage) -> MdtError:
    """Return the error of opening a table where there is none of ours.

    Missing if one was here and its log has lost its first record, else Invalid.
    """
    if storage.list_dir(paths.log_dir()):
        return Missing(
            "the first commit record is gone, and without compacted metadata nothing says what the table is",
            path=paths.commit(0),
            hint="restore .hoodie/.mdt from a copy; a Hudi reader still reads the rows",
        )
    kind, hint = _described(storage)
    if kind:
        return Invalid(f"{storage.url} is not a table of mdt: it is {kind}", hint=hint)
    near = difflib.get_close_matches(_name(storage), storage.neighbours(), n=_NAMES_SHOWN)
    near = [name for name in near if name != _name(storage)]
    found = storage.children("")
    what = f"a directory with {_listed(found)}" if found else "nothing is there"
    beside = f"; near it there is {' and '.join(near)}" if near and not found else ""
    return Invalid(f"{storage.url} is not a table of mdt: {what}{beside}", hint=_CREATE)


def refuse_to_create(storage: Storage) -> None:
    """Raise Invalid if a new table may not be put here: a table, files or directories are in the way.

    Names that begin with a dot are not.
    """
    if storage.size(paths.commit(0)) is not None or storage.list_dir(paths.log_dir()):
        raise Invalid(f"{storage.url} is a table of mdt already", hint="mdt.open(path) opens it")
    kind, hint = _described(storage)
    if kind:
        raise Invalid(
            f"{storage.url} is no place for a new table: it is {kind}", hint=f"choose another path, or {hint}"
        )
    found = [name for name in storage.children("") if not name.startswith(".")]
    if found:
        raise Invalid(
            f"{storage.url} is not empty: it has {_listed(found)}",
            hint="choose another path: a table needs a directory of its own",
        )


def _described(storage: Storage) -> tuple[str, str]:
    """Return what is known of a table of another kind, or of a file, and what can be done; "" if there is none."""
    if storage.is_file():
        return "a file", "give the directory of a table; pyarrow.parquet.read_table reads a Parquet file"
    try:
        found = foreign.read_properties(storage)
    except Corrupt as error:
        return f"a Hudi table whose properties cannot be read: {error.message}", "repair hoodie.properties"
    if found is not None:
        return _hudi(found), f"read it with a Hudi reader (hudi.HudiTable(path).read(), or Hudi on Spark), and {_LOAD}"
    if storage.list_dir("_delta_log"):
        return "a Delta table", f"read it (deltalake.DeltaTable(path).to_pyarrow_table()), and {_LOAD}"
    if any(info.path.endswith(".metadata.json") for info in storage.list_dir("metadata")):
        return "an Iceberg table", f"read it (pyiceberg, or iceberg_scan of duckdb), and {_LOAD}"
    return "", ""


def _hudi(found: dict[str, str]) -> str:
    """Return in words what kind of Hudi table another writer has made."""
    version, table_type = found.get(properties.VERSION, "unknown"), found.get(properties.TYPE, "of unknown type")
    keys = found.get("hoodie.table.recordkey.fields")
    return (
        f"a Hudi table of another writer, {found.get(properties.NAME, 'without a name')!r}, version {version}, {table_type}"
        f"{f', key {keys}' if keys else ''}; mdt cannot adopt it yet"
    )


def _name(storage: Storage) -> str:
    return storage.url.rstrip("/").rpartition("/")[2]


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
