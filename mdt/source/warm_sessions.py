"""Cache warming for Spark sessions of this process, whose queries find the tables open
(:mod:`mdt.source.open_tables`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt.progress import Progress
from mdt.source import open_tables
from mdt.spark_settings import SparkSettings
from mdt.table.warming import warm as warm_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.scan.warm import WarmResult


def warm(
    spark: SparkSession,
    path: Any,
    options: Mapping[str, Any] | None,
    storage_options: Mapping[str, object] | None,
    columns: Sequence[str] | None,
    reads: SparkSettings,
    progress: Progress | None,
) -> WarmResult:
    """Load the metadata that Spark queries need. See :func:`mdt.warm`."""
    table = open_tables.open_shared(path, options, storage_options)
    snapshot = table.snapshot()
    large = late.index_tasks.large_indexes(table.metadata, snapshot)
    loaded = warm_here(table, columns, ("summaries", "key_maps"), progress, elsewhere=large)
    engine = late.choice.engine_of(spark)
    assert engine is not None, "a session has an engine"
    count, size, tasks = late.index_tasks.warm(engine, table.metadata, snapshot, large)
    opened = late.spark_frame.read_footers(spark, table.metadata, snapshot, reads)
    return replace(
        loaded,
        summaries=loaded.summaries + count,
        bytes=loaded.bytes + size,
        tasks=tasks,
        opened=opened,
    )
