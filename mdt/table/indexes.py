"""Skipping indexes and statistics of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mdt import late
from mdt.arguments import one_of, texts
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.progress import Progress, ProgressOption, progress_callback
from mdt.table.handle import Handle, follows_others, takes_dry_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.services.indexing.index_builder import BuildResult
    from mdt.services.indexing.index_report import Advice


class Indexes(Handle):
    """Methods that create, build, drop and report indexes."""

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
        """Create skipping indexes. All writers maintain them from the next commit on.

        specs: Indexes such as ``"bitmap(status)"``.
        mode: "sync" builds the index for existing files before the call returns. "async" leaves
            that to :meth:`build_indexes`, here or in another process (``mdt index build --watch``).
            Files without index data are always read.
        spark: Build in tasks of this Spark session.
        dry_run: The result has no bytes, because they are known only after the build.

        An index that exists is only completed. Raises Invalid for an unknown kind, column or
        option.

        >>> t.create_index("bitmap(city)").summaries
        1
        """
        one_of("mode", mode, ("sync", "async"))
        with progress_callback(progress, "create_index") as callback:
            new_specs = late.index_builder.new_specs(self._prepare_write(), specs)
            self._commit(
                late.index_builder.IndexChange(self._metadata, "create_index", added=new_specs)
            )
            if mode == "async":
                return late.index_builder.BuildResult()
            return self._build(new_specs, callback, spark)

    @takes_metadata
    @takes_dry_run
    def drop_index(
        self, specs: str | Sequence[str], *, dry_run: bool = False, metadata: CommitMetadata = None
    ) -> None:
        """Drop indexes, named as in :meth:`indexes` or by their column. Raises Invalid if there is
        no such index.

        >>> _ = t.create_index("bitmap(city)")
        >>> t.drop_index("bitmap(city)")
        """
        names = texts("specs", specs, "'bitmap(status)', or a list of such")
        dropped = late.index_builder.installed_specs(self._prepare_write(), names)
        self._commit(late.index_builder.IndexChange(self._metadata, "drop_index", dropped=dropped))

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
        """Discard and rebuild the data of indexes, e.g. after damage.

        specs: The indexes, all by default.
        mode, spark: As for :meth:`create_index`.

        Raises Invalid for an unknown index or mode.

        >>> _ = t.create_index("bitmap(city)")
        >>> t.rebuild_index("bitmap(city)").summaries
        1
        """
        one_of("mode", mode, ("sync", "async"))
        with progress_callback(progress, "rebuild_index") as callback:
            rebuilt = late.index_builder.installed_specs(self._prepare_write(), specs)
            self._commit(
                late.index_builder.IndexChange(self._metadata, "rebuild_index", forgotten=rebuilt)
            )
            return (
                late.index_builder.BuildResult()
                if mode == "async"
                else self._build(rebuilt, callback, spark, anew=True)
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
        """Build index data for files that lack it. Safe with concurrent writers and builders.

        specs: The indexes, all by default.

        >>> t.create_index("bitmap(ts)", mode="async").summaries
        0
        >>> t.build_indexes().summaries
        1
        """
        with progress_callback(progress, "build_indexes") as callback:
            self._prepare_write()
            return self._build(
                late.index_builder.installed_specs(self._metadata.newest(), specs), callback, spark
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

    @follows_others
    def indexes(self) -> pa.Table:
        """Return a row per index: kind, column, coverage in percent, bytes, and use
        (``index_report.INDEXES``).

        >>> t.indexes().column_names[:4]
        ['index', 'kind', 'column', 'coverage']
        """
        return late.index_report.index_table(self._metadata, self.snapshot())

    @follows_others
    def advise(self) -> list[Advice]:
        """Return indexes to create or drop, with the bytes that they save in queries and take on
        storage.

        The advice uses the query counts that processes report about once a minute, and is empty
        until there are enough queries. Queries are counted if the table was created or opened with
        the option ``mdt.usage.counts``. Otherwise the only item has the action "count".

        >>> [advice.action for advice in t.advise()]
        ['count']
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
        """Create statistics on distinct and most common values of ``columns`` (default: all scalar
        columns), and maintain them.

        They are indexes of the kind ``table_stats``. Returns :meth:`stats`.

        >>> {row["column"]: row["distinct"] for row in t.analyze(["city"]).to_pylist()}["city"]
        2
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

    @follows_others
    def stats(self) -> pa.Table:
        """Return the statistics of each column: counts, min, max, bytes and, if analyzed, distinct
        and common values.

        The schema is ``statistics.STATISTICS``.

        >>> t.stats().select(["column", "min", "max"]).to_pylist()[2]
        {'column': 'fare', 'min': '4.0', 'max': '9.5'}
        """
        return late.statistics.statistics(self._metadata, self.snapshot())
