"""Tables that are warm: loaded ahead of the queries of Spark sessions in this process, which find them by path and options."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any

from mdt import table as tables
from mdt.config import canonical
from mdt.engines.reads import Reads
from mdt.errors import MdtError
from mdt.limits import WARM_TABLES_MAX
from mdt.progress import Progress
from mdt.table.warming import warm as warm_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.scan.warm import WarmResult

_Key = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]

_tables: OrderedDict[_Key, tables.Table] = OrderedDict()
_lock = Lock()


def warm(
    spark: SparkSession, path: Any, options: Mapping[str, Any] | None, storage_options: Mapping[str, object] | None,
    columns: Sequence[str] | None, reads: Reads, progress: Progress | None,
) -> WarmResult:  # fmt: skip
    """Load what queries of Spark ask for; see :func:`mdt.warm`."""
    from mdt.engines.spark import frame, index_tasks  # pyspark takes a second to import; only Spark users pay for it
    from mdt.engines.spark.engine import SparkEngine

    table = instead_of(tables.open(path, options, storage_options=storage_options), path, options, storage_options)
    snapshot = table.snapshot()
    large = index_tasks.large(table.metadata, snapshot)
    found = warm_here(table, columns, ("summaries", "key_maps"), progress, elsewhere=large)
    count, size, tasks = index_tasks.warm(SparkEngine(spark), table.metadata, snapshot, large)
    opened = frame.open_files(spark, table.metadata, snapshot, reads)
    with _lock:
        key = _key(table, options, storage_options)
        _tables[key] = table
        _tables.move_to_end(key)
        while len(_tables) > WARM_TABLES_MAX:
            _tables.popitem(last=False)
    return replace(found, summaries=found.summaries + count, bytes=found.bytes + size, tasks=tasks, opened=opened)


def instead_of(
    table: tables.Table, path: Any, options: Mapping[str, Any] | None, storage_options: Mapping[str, object] | None
) -> tables.Table:
    """Return the warm table that is the same as ``table``, which was just opened, or ``table`` if there is none.

    Another table that was made at the path is another one; a table whose store is an object of the caller's is never shared.
    """
    if not isinstance(path, (str, PurePath)):
        return table
    with _lock:
        known = _tables.get(_key(table, options, storage_options))
    with suppress(MdtError):
        if known is not None and _state(known) == _state(table):
            return known
    return table


def _state(table: tables.Table) -> tuple[str, int]:
    return table.definition.table_id, table.snapshot().seq


def _key(table: tables.Table, options: Mapping[str, Any] | None, storage_options: Mapping[str, object] | None) -> _Key:
    return table.path, _texts(canonical(options)), _texts(storage_options or {})


def _texts(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in options.items()))
