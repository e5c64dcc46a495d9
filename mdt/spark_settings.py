"""Settings of a Spark session that are not options of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from mdt import limits
from mdt.option import COLUMNS, OptionTable, choice, option, some_of, whole

OPTIMIZES = ("joins", "statistics", "top", "totals")
"""Uses of a table by Spark's planner besides pruning by filters.

"joins": Values of one side of a join prune the other side. "statistics": The optimizer gets the
size that remains after pruning. "top": For ORDER BY with LIMIT, only files that may contain the
first rows are read. "totals": Count, min and max come from the metadata table where they are exact.

The last two do not apply to batches of a stream, because Spark aggregates over all batches.
"""
_STREAM_SETTINGS = ("joins", "statistics")

_machine = partial(option, scope="machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of a Spark session for all tables that it names, in addition to
    ``spark.mdt.<option>``.
    """

    indexes_build: str = option(
        "off",
        "background: after each write of the job, a thread of the driver builds missing index data,"
        " with Spark tasks if the table is larger than mdt.spark.local.bytes.max",
        choice("off", "background"),
    )
    indexes_auto: bool = option(
        False,
        "count the queries of the session; after a write, create the indexes that t.advise()"
        " suggests and build them in the background; no index is dropped; counts of other handles"
        " and processes arrive within a minute",
    )
    indexes_packages: tuple[str, ...] = option(
        (),
        "Python distributions with custom indexes, installed in the same version on driver and"
        " executors",
        COLUMNS,
    )
    explain: tuple[str, ...] = option(
        ("off",),
        "where query plans are reported, without the literals of filters; log: Spark's log, logger"
        " mdt.plan, level INFO; metrics: Spark's UI",
        some_of("off", "log", "metrics"),
    )
    optimize: tuple[str, ...] = option(
        OPTIMIZES,
        "uses of tables by Spark's optimizer",
        some_of(*OPTIMIZES, all=OPTIMIZES, none=()),
    )
    affinity: str = option(
        "auto",
        "read a file on the same executor each time; auto: on for remote storage",
        choice("auto", "on", "off"),
    )
    footers_bytes: int = _machine(
        limits.FOOTERS_OF_EXECUTOR_BYTES,
        "size of an executor's cache of footers of remote files; 0 for no cache",
        whole(0, limits.COUNT_MAX),
    )
    vectors_bytes: int = _machine(
        limits.VECTORS_OF_EXECUTOR_BYTES,
        "size of an executor's cache of decoded deletion vectors; 0 for no cache",
        whole(0, limits.COUNT_MAX),
    )

    def for_stream(self) -> Self:
        """Return the same settings for the batches of a stream."""
        uses = tuple(use for use in _STREAM_SETTINGS if use in self.optimize)
        return replace(self, optimize=uses)


SPARK_SETTINGS = OptionTable(SparkSettings, "spark.mdt.")
