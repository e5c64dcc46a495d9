"""Spark access to tables by name: ``mdt.read``, ``spark.read.format("mdt")``,
``df.write.format("mdt")``, ``USING mdt``.

Options are texts, with mdt's or Hudi's names. :mod:`mdt.source.option_keywords` parses them,
:mod:`mdt.source.read_frame` returns frames, :mod:`mdt.source.write_frame` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.metadata.snapshot.as_of import Point
    from mdt.progress import ProgressOption
    from mdt.scan.warm import WarmResult

__all__ = ["enable", "read", "wait_for_indexes", "warm"]


def enable(spark: SparkSession) -> None:
    """Register ``format("mdt")`` and ``USING mdt`` in a Spark session and in all other sessions of
    its JVM. May be repeated.

    :func:`read` does this as well. Raises Unsupported on Spark Connect, and if the cluster does not
    allow a session to add a JAR.

    Example::

        mdt.spark.enable(spark)
        spark.read.format("mdt").load("trips").show()
    """
    if not _enabled(spark):
        raise Unsupported(
            'format("mdt") cannot be registered in this session: Spark\'s class loader does not'
            " find its classes",
            hint="read with mdt.read(spark, path)",
        )


def _enabled(spark: SparkSession) -> bool:
    from mdt.source.table_answers import TableAnswers

    return late.spark_source.enable(spark, TableAnswers().by_name())


def read(
    spark: SparkSession,
    path: Any = None,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    as_of: Point | None = None,
    query_type: str = "snapshot",
) -> DataFrame:
    """Return the table at ``path`` as a Spark DataFrame of native Parquet scans.

    Each query on it, or on a view of it, is planned on the newest snapshot, or on the snapshot
    ``as_of`` a point. The DataFrame cannot be written to. ``options``, ``as_of``: as for
    :func:`mdt.open`, with precedence over the session's ``spark.mdt.*``. ``query_type``: as for
    :meth:`mdt.Table.scan`. ``storage_options``: for planning in the driver. Spark reads rows with
    its own settings (``spark.hadoop.fs.…``).

    Example::

        trips = mdt.read(spark, "s3://bucket/trips")
        trips.where("city = 'Oslo'").groupBy("day").count().show()
    """
    from mdt.source import read_frame
    from mdt.source.table_answers import verified_settings

    if path is None or isinstance(spark, str):
        raise Invalid(
            "mdt.read takes a SparkSession and the path of a table",
            hint="mdt.open(path).scan() reads without Spark",
        )
    _enabled(spark)
    settings = verified_settings(spark)
    table = read_frame.open_shared(path, settings.merge_options(options), storage_options, as_of)
    return read_frame.snapshot(spark, table, as_of is not None, query_type, reads=settings.reads)


def warm(
    spark: SparkSession,
    path: Any,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: ProgressOption = None,
) -> WarmResult:
    """Load the metadata that Spark queries of the table at ``path`` need, and return how much was
    loaded.

    This process, which plans queries, loads the list of files, statistics of ``columns`` (default:
    all), summaries of the indexes on them, and the key index. If ``columns`` includes all key
    columns, it also loads key maps of the newest files. Each kind is limited by its cache. Indexes
    that are so large that queries read them in tasks are loaded by tasks. Tasks also open every
    file, so that executors have verified its footer, or have cached it if the store is remote.

    Later queries with the same path and options use the loaded table, through :func:`read`,
    ``format("mdt")`` and the catalog. Metadata of later commits are loaded on demand. The table
    stays open like every table that Spark has read (:mod:`mdt.source.open_tables`). ``options``,
    ``storage_options``: as for :func:`read`. ``progress``: a function of the number of summaries
    and key maps loaded so far and in total, or True for a bar on the terminal.

    Example::

        mdt.warm(spark, "s3://bucket/trips", columns=["city", "fare"])
    """
    from mdt.progress import progress_callback
    from mdt.source import warm_sessions
    from mdt.source.table_answers import verified_settings

    _enabled(spark)
    settings = verified_settings(spark)
    with progress_callback(progress, "warm") as report:
        return warm_sessions.warm(
            spark,
            path,
            settings.merge_options(options),
            storage_options,
            columns,
            settings.reads,
            report,
        )


def wait_for_indexes(timeout: float | None = None) -> bool:
    """Wait until the background index builds of this process have ended, at most ``timeout``
    seconds.

    Returns False after a timeout. Sessions start such builds with ``spark.mdt.indexes.build`` and
    ``spark.mdt.indexes.auto``.

    Example::

        df.write.format("mdt").mode("append").save("trips")
        mdt.spark.wait_for_indexes(timeout=60)
    """
    from mdt.source.background_builds import builder

    return builder().wait(timeout)
