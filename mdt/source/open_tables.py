"""Tables that Spark sessions of this process have read lately: they stay open, and whoever names
one again finds what is known of it.

What is kept is what was read and made for queries: the snapshot, caches, and the relations of Spark
with their lists of files.  Each time the log is asked whether its newest commit is still there.
Where it is not, and where that cannot be told, the table is opened anew: so an error is what it
always was, and another table that was made at the path, or the same as it once was, is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt import table as tables
from mdt.config import canonical
from mdt.errors import MdtError
from mdt.limits import OPEN_FILES_MAX, OPEN_TABLES_MAX
from mdt.metadata.log import commit_log
from mdt.session import Guarded, in_session
from mdt.stores.storage import Storage, open_storage

if TYPE_CHECKING:
    from mdt.engines.spark.frame import Relations

_Texts = tuple[tuple[str, str], ...]
_Key = tuple[str, _Texts, _Texts]


@dataclass(frozen=True, slots=True)
class _Open:
    """An open table.  ``files``: how many it had when it was opened."""

    table: tables.Table
    relations: Relations
    files: int


@in_session
def opened() -> Guarded[OrderedDict[_Key, _Open]]:
    """Return the open tables of this process, the one that was named last at the end."""
    return Guarded(OrderedDict())


def known(
    path: Any,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> tables.Table:
    """Return the table at ``path``, the one that is open if it is the same; it stays open from now
    on.  Raises as :func:`mdt.open` does.

    A table whose store is an object of the caller's is never shared.
    """
    _forget_stopped()
    if not isinstance(path, (str, PurePath)):
        return tables.open(path, options, storage_options=storage_options)
    storage = open_storage(path, storage_options=storage_options)
    key = storage.url, _texts(canonical(options)), _texts(storage_options or {})
    with opened() as open_tables:
        found = open_tables.get(key)
        if found is not None:
            open_tables.move_to_end(key)
    if found is not None and _goes_on(found.table, storage):
        return found.table
    table = tables.open(path, options, storage_options=storage_options)
    if found is not None and _are_same(found.table, table):
        return found.table
    _keep(key, table)
    return table


def relations_of(table: tables.Table) -> Relations | None:
    """Return the relations that frames of an open table share; None if it is not kept."""
    with opened() as open_tables:
        return next((one.relations for one in open_tables.values() if one.table is table), None)


def _keep(key: _Key, table: tables.Table) -> None:
    newest = _Open(table, late.spark_frame.Relations(), len(table.snapshot()))
    with opened() as open_tables:
        open_tables[key] = newest
        open_tables.move_to_end(key)
        left = sum(one.files for one in open_tables.values()) - OPEN_FILES_MAX
        while len(open_tables) > OPEN_TABLES_MAX or (left > 0 and len(open_tables) > 1):
            left -= open_tables.popitem(last=False)[1].files


def _forget_stopped() -> None:
    """Let sessions go that were stopped since."""
    with opened() as open_tables:
        kept = list(open_tables.values())
    for one in kept:
        one.relations.forget_stopped()


def _goes_on(table: tables.Table, storage: Storage) -> bool:
    """Return whether the newest commit that ``table`` knows is in the log, and that table can still
    be read.

    False if that cannot be told from one commit record: no record follows the checkpoint, so that
    opening the table anew costs as little.
    """
    with suppress(MdtError):
        since = table.metadata.known().history_since
        if since and commit_log.begins_with(storage, since[-1]["seq"], since[-1]["txn"]):
            table.snapshot()
            return table.metadata.stands_firm(storage)
    return False


def _are_same(before: tables.Table, now: tables.Table) -> bool:
    """Return whether all commits that ``before`` knows are in the history of ``now``, and that it
    can still be read.

    The table of ``before`` may have gone, or may have been brought back as it once was, and gone on
    otherwise.
    """
    with suppress(MdtError):
        known, found = before.metadata.known(), now.snapshot()
        if known.definition.table_id != found.definition.table_id or found.seq < known.seq:
            return False
        if not found.unknown_instants({known.last_instant}):
            before.snapshot()
            return before.metadata.stands_firm(now.metadata.storage)
    return False


def _texts(options: Mapping[str, Any]) -> _Texts:
    return tuple(sorted((name, str(value)) for name, value in options.items()))
