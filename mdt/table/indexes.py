"""The skipping indexes of a table, and its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late
from mdt.arguments import one_of, texts
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.progress import Progress, ProgressOption, shown
from mdt.table.handle import Handle, takes_dry_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.commit.operation import Operation
    from mdt.services.indexing.index_builder import BuildResult
    from mdt.services.indexing.index_report import Advice


class Indexes(Handle):
    """What adds, builds, drops and reports indexes."""

    @takes_metadata
    @takes_dry_run
    def create_index(
        self,
        specs: str | Sequence[str],
        *,
        mode: str = "sync",
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> BuildResult:
        """Add skipping indexes such as ``"bitmap(status)"``; every writer keeps them from the next
        commit on.

        ``mode``: "sync" covers the existing files before it returns; "async" leaves that to
        :meth:`build_indexes`, here or in another process (``mdt index build --watch``).  Files that
        are not covered are read.  ``spark``: build in Spark tasks instead of this process.  An
        index that the table has already is only caught up with.  ``dry_run``: the result has no
        bytes, which are known when summaries are made.  Raises Invalid for an unknown kind, column
        or option.
        """
        one_of("mode", mode, ("sync", "async"))
        with shown(progress, "create_index") as told:
            wanted = late.index_builder.wanted_specs(self._metadata.newest(), specs)
            self._change_indexes(
                late.index_builder.IndexChange(self._metadata, "create_index", added=wanted)
            )
            if mode == "async":
                return late.index_builder.BuildResult()
            return self._build(wanted, told, spark)

    @takes_metadata
    @takes_dry_run
    def drop_index(
        self, specs: str | Sequence[str], *, dry_run: bool = False, metadata: CommitMetadata = None
    ) -> None:
        """Remove indexes, named as in :meth:`indexes` or by their column.  Raises Invalid if there
        is none.
        """
        named = texts("specs", specs, "'bitmap(status)', or a list of such")
        gone = late.index_builder.known_specs(self._metadata.newest(), named)
        self._change_indexes(
            late.index_builder.IndexChange(self._metadata, "drop_index", dropped=gone)
        )

    @takes_metadata
    @takes_dry_run
    def rebuild_index(
        self,
        specs: str | Sequence[str] | None = None,
        *,
        mode: str = "sync",
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> BuildResult:
        """Forget what indexes (default: all) cover and build it again, as after damage; see
        :meth:`create_index`.

        Raises Invalid if ``specs`` names none, or for an unknown ``mode``.
        """
        one_of("mode", mode, ("sync", "async"))
        with shown(progress, "rebuild_index") as told:
            again = late.index_builder.known_specs(self._metadata.newest(), specs)
            self._change_indexes(
                late.index_builder.IndexChange(self._metadata, "rebuild_index", forgotten=again)
            )
            return (
                late.index_builder.BuildResult()
                if mode == "async"
                else self._build(again, told, spark, anew=True)
            )

    @takes_metadata
    @takes_dry_run
    def build_indexes(
        self,
        specs: str | Sequence[str] | None = None,
        *,
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> BuildResult:
        """Cover the files that indexes (default: all) do not cover yet; safe beside writers and
        other builders.
        """
        with shown(progress, "build_indexes") as told:
            self._before_write()
            return self._build(
                late.index_builder.known_specs(self._metadata.newest(), specs), told, spark
            )

    def _build(
        self,
        specs: Sequence[str],
        progress: Progress | None,
        spark: SparkSession | None,
        *,
        anew: bool = False,
    ) -> BuildResult:
        if self._is_dry:
            return late.index_builder.plan(self._metadata.newest(), specs, anew=anew)
        engine = self._engine(spark)
        runner = None if engine is None else late.engine_indexing.IndexRunner(engine)
        return late.index_builder.build(self._metadata, self.options, specs, progress, runner)

    def indexes(self) -> pa.Table:
        """Return one row per index: kind, column, coverage in percent, bytes, use so far
        (``index_report.INDEXES``).
        """
        return late.index_report.index_table(self._metadata, self.snapshot())

    def advise(self) -> list[Advice]:
        """Return indexes to create and to drop, with the bytes that they save queries and those
        that they take.

        From the counts of all processes that have reported (each about once a minute); [] until
        there are enough queries. They are counted where the table was created or opened with the
        option ``mdt.usage.counts``; if none was, this is told.
        """
        return late.index_report.advise(self._metadata, self.snapshot())

    @takes_metadata
    def analyze(
        self,
        columns: Sequence[str] | None = None,
        *,
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        metadata: CommitMetadata = None,
    ) -> pa.Table:
        """Keep distinct counts and most common values of ``columns`` (default: all scalar ones)
        from here on.

        They are indexes of the kind ``table_stats``.  Returns :meth:`stats`.
        """
        names = (
            late.statistics.analyzable(self.schema)
            if columns is None
            else texts("columns", columns, "['fare']")
        )
        self.create_index(
            [late.statistics.spec(name) for name in names], progress=progress, spark=spark
        )
        return self.stats()

    def stats(self) -> pa.Table:
        """Return what is known of each column: counts, bounds, bytes and, if analyzed, distinct and
        common values.

        Schema ``statistics.STATISTICS``.
        """
        return late.statistics.statistics(self._metadata, self.snapshot())

    def _change_indexes(self, change: Operation[Any]) -> None:
        self._before_write()
        self._commit(change)
