"""Tables on Spark by name: ``mdt.read``, ``spark.read.format("mdt")``, ``df.write.format("mdt")``,
``USING mdt``.

Options are text to text, by our names and by Hudi's: :mod:`mdt.source.option_keywords` reads them,
:mod:`mdt.source.read_frame` answers with frames, :mod:`mdt.source.write_frame` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.metadata.snapshot.as_of import Point
    from mdt.progress import ProgressOption
    from mdt.scan.warm import WarmResult

__all__ = ["enable", "read", "wait_for_indexes", "warm"]


def enable(spark: SparkSession) -> None:
    """Let a Spark session, and all others of its JVM, know ``format("mdt")`` and ``USING mdt``; may
    be repeated.

    :func:`read` does it, too.  Raises Unsupported on Spark Connect, and where the cluster does not
    let a session add a JAR.
    """
    if not _enabled(spark):
        raise Unsupported(
            'format("mdt") cannot be made known to this session: its classes do not come from a'
            " class loader of Spark",
            hint="mdt.read(spark, path) reads without it",
        )


def _enabled(spark: SparkSession) -> bool:
    from mdt.source.table_answers import TableAnswers

    return late.spark_source.enable(spark, TableAnswers().by_name())


def read(
    spark: SparkSession,
    path: Any,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    as_of: Point | None = None,
    query_type: str = "snapshot",
) -> DataFrame:
    """Return the table at ``path`` as a Spark DataFrame of native Parquet scans.

    Each query on it, or on a view made of it, is planned anew against the newest snapshot, or the
    one ``as_of`` a point.  It cannot be written to.  ``options``, ``as_of``: as for
    :func:`mdt.open`, above those of the session, ``spark.mdt.*``. ``query_type``: as for
    :meth:`mdt.Table.scan`. ``storage_options``: for the plans, which the driver makes; Spark reads
    rows by its own settings (``spark.hadoop.fs.…``).
    """
    from mdt.source import read_frame
    from mdt.source.table_answers import known_settings  # as above

    _enabled(spark)
    said = known_settings(spark)
    table = read_frame.opened(path, said.over(options), storage_options, as_of)
    return read_frame.snapshot(spark, table, as_of is not None, query_type, reads=said.reads)


def warm(
    spark: SparkSession,
    path: Any,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: ProgressOption = None,
) -> WarmResult:
    """Load what Spark's queries of the table at ``path`` ask for ahead of them, and return how much
    that was.

    In this process, which plans: the list of files, statistics of ``columns`` (default: all),
    summaries of the indexes on them, the key index and, if all key columns are among them, key maps
    of the newest files, each kind until its cache is full.  Where indexes are so large that queries
    ask them in tasks, tasks load them.  Tasks open every file, so that executors know its footer,
    or keep it if the store is far.

    Queries that name the same path with the same options find it, by :func:`read`,
    ``format("mdt")`` and the catalog, and what commits add is loaded when it is asked for.  It
    stays open as every table does that Spark has read (:mod:`mdt.source.open_tables`).
    ``options``, ``storage_options``: as for :func:`read`.  ``progress``: a function that takes the
    number of summaries and key maps that are loaded and of all, or True for a bar on the terminal.
    """
    from mdt.progress import shown
    from mdt.source import warm_sessions  # as above
    from mdt.source.table_answers import known_settings

    _enabled(spark)
    said = known_settings(spark)
    with shown(progress, "warm") as told:
        return warm_sessions.warm(
            spark, path, said.over(options), storage_options, columns, said.reads, told
        )


def wait_for_indexes(timeout: float | None = None) -> bool:
    """Wait until the indexes are built that sessions let this process build in the background, at
    most ``timeout`` seconds.

    Returns whether they are.  Sessions ask for it by ``spark.mdt.indexes.build`` and
    ``spark.mdt.indexes.auto``.
    """
    from mdt.source.background_builds import builder  # as above

    return builder().wait(timeout)
