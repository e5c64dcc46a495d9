"""Cache of tables that Spark sessions of this process have read. They stay open for the next reader
of the same path.

An entry retains the snapshot, its caches, and the Spark relations with their file lists. Each use
verifies that the newest known commit is still in the log. If it is not, or if that is uncertain,
the table is opened again. Errors are therefore the same as without the cache, and a table that
replaced another table at the path, or an older copy of it, is recognized.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from mdt import given_options, late
from mdt import table as tables
from mdt.config import canonical
from mdt.errors import MdtError
from mdt.limits import OPEN_FILES_MAX, OPEN_TABLES_MAX
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.session import Guarded, in_session
from mdt.stores.storage import Storage, open_storage

if TYPE_CHECKING:
    from mdt.engines.spark.frame import Relations

_Texts = tuple[tuple[str, str], ...]
_Key = tuple[str, _Texts, _Texts]


@dataclass(frozen=True, slots=True)
class _Open:
    """An open table. ``files``: the number of files when it was opened."""

    table: tables.Table
    relations: Relations
    files: int


@in_session
def open_table_cache() -> Guarded[OrderedDict[_Key, _Open]]:
    """Return the open tables of this process, the last used at the end."""
    return Guarded(OrderedDict())


def open_shared(
    path: Any,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> tables.Table:
    """Return the table at ``path``, from the cache if it is still the same, and retain it. Raises
    as :func:`mdt.open` does.

    A table whose store is the caller's own object is never shared.
    """
    _forget_stopped()
    if not isinstance(path, (str, PurePath)):
        return tables.open(path, options, storage_options=storage_options)
    given = given_options.read(options)
    storage = open_storage(path, storage_options=storage_options)
    key = storage.url, _texts(canonical(given.own)), _texts(storage_options or {})
    open_tables = open_table_cache()
    with open_tables.lock:
        cached = open_tables.value.get(key)
        if cached is not None:
            open_tables.value.move_to_end(key)
    if cached is not None and _is_current(cached.table, storage):
        is_written = not cached.table.storage.is_imported
        given_options.require(cached.table.definition, given.described, is_written=is_written)
        return cached.table
    table = tables.open(path, options, storage_options=storage_options)
    if cached is not None and _is_continuation(cached.table, table):
        return cached.table
    _keep(key, table)
    return table


def relations_of(table: tables.Table) -> Relations | None:
    """Return the relations shared by frames of an open table, or None if it is not cached."""
    open_tables = open_table_cache()
    with open_tables.lock:
        entries = list(open_tables.value.values())
    return next((entry.relations for entry in entries if entry.table is table), None)


def _keep(key: _Key, table: tables.Table) -> None:
    files = len(table.readable().snapshot())
    newest = _Open(table, late.spark_frame.Relations(), files)
    cache = open_table_cache()
    with cache.lock:
        open_tables = cache.value
        open_tables[key] = newest
        open_tables.move_to_end(key)
        excess = sum(entry.files for entry in open_tables.values()) - OPEN_FILES_MAX
        while len(open_tables) > OPEN_TABLES_MAX or (excess > 0 and len(open_tables) > 1):
            excess -= open_tables.popitem(last=False)[1].files


def _forget_stopped() -> None:
    """Release sessions that were stopped."""
    open_tables = open_table_cache()
    with open_tables.lock:
        entries = list(open_tables.value.values())
    for entry in entries:
        entry.relations.forget_stopped()


def _is_current(table: tables.Table, storage: Storage) -> bool:
    """Return True if the newest commit known to ``table`` is in the log and the table can still be
    read.

    False if a single commit record does not prove it. In this case no record follows the
    checkpoint, so that opening the table again costs no more.
    """
    with suppress(MdtError):
        if table.storage.is_imported:
            table.snapshot()
            return not storage.list_dir(paths.LOG_DIR)  # it may be adopted now
        since = table.metadata.cached_snapshot().history_since
        if since and commit_log.begins_with(storage, since[-1]["seq"], since[-1]["txn"]):
            table.readable()
            return table.metadata.is_intact(storage)
    return False


def _is_continuation(before: tables.Table, now: tables.Table) -> bool:
    """Return True if ``now`` has all commits that ``before`` knows and the table can still be read.

    The table of ``before`` may be deleted, or replaced by an older copy with other later commits.
    """
    with suppress(MdtError):
        old, new = before.metadata.cached_snapshot(), now.snapshot()
        if old.definition.table_id != new.definition.table_id or new.seq < old.seq:
            return False
        if not new.unknown_instants({old.last_instant}):
            before.snapshot()
            return before.metadata.is_intact(now.metadata.storage)
    return False


def _texts(options: Mapping[str, Any]) -> _Texts:
    return tuple(sorted((name, str(value)) for name, value in options.items()))
