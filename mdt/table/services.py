"""Looking after a table: compaction, clustering, rollback, check, names of states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from mdt import late, logs
from mdt.arguments import one_text, whole_number
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.errors import Invalid
from mdt.metadata.metadata import Metadata
from mdt.progress import ProgressOption, shown
from mdt.table.handle import Handle, takes_dry_run
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.commit.recovery import Recovery
    from mdt.engines.engine import Engine
    from mdt.metadata.snapshot.as_of import Point
    from mdt.metadata.snapshot.snapshot import Snapshot
    from mdt.services.checking.problems import CheckReport, RepairReport
    from mdt.services.layout.cluster_table import ClusterResult
    from mdt.services.layout.compaction_strategies import Strategy
    from mdt.services.layout.rewriting import RewriteRunner
    from mdt.services.reclaiming.cleaning import CleanReport
    from mdt.services.reclaiming.purge import PurgeReport


class Services(Handle):
    """What keeps a table in good order; rows stay as they are."""

    @takes_metadata
    @takes_dry_run
    def compact(
        self,
        progress: ProgressOption = None,
        *,
        strategy: str | Strategy = "log_bytes",
        partitions: str | Sequence[str] | None = None,
        budget_bytes: int | None = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Rewrite file groups with log files or deleted rows as base files; rows stay as they are.
        ``spark``: in tasks of Spark.

        ``partitions``: paths such as ``"city=Oslo"``, ``*`` stands for anything; None for all.
        ``budget_bytes``: bytes to read at most, but for the first file group; ``strategy`` says
        which come first: "log_bytes" and "log_files" (those with most), "dead_share", "oldest"
        (compacted longest ago), "newest_partitions", or a function, see
        :mod:`mdt.services.layout.compaction_strategies`. Raises Invalid for another strategy and
        for partitions that are not there.
        """
        if budget_bytes is not None:
            whole_number("budget_bytes", budget_bytes)
        with (
            shown(progress, "compact") as told,
            logs.service(self._storage, self.definition.name, "compact") as facts,
        ):
            self._before_write()
            wanted = late.live_partitions.matching(self._metadata.newest(), partitions)
            engine = self._engine(spark)
            runner = self._rewriting_on(engine)
            done = self._commit(
                late.compaction.Compaction(
                    self._metadata, self.options, told, strategy, wanted, budget_bytes, runner
                )
            )
            facts["file_groups"] = len(done.plan.groups)
        return WriteResult.of(done, late.choice.name_of(engine))

    @takes_metadata
    @takes_dry_run
    def cluster(
        self,
        by: str | Sequence[str] = "auto",
        *,
        curve: str | None = None,
        partitions: str | Sequence[str] | None = None,
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> ClusterResult:
        """Put rows in order by columns, so that queries on these read few files; small files are
        joined.

        ``by``: columns, at most eight, or "auto": those on which queries filtered most, as far as
        they were counted (option ``mdt.usage.counts``).  ``curve``: "sort" by the first column,
        then the next; "zorder" or "hilbert" keep ranges of all columns narrow.  Without one,
        columns that were named are sorted by, and those of "auto" stand along Hilbert's curve.
        ``partitions``: paths such as ``"city=Oslo"``, ``*`` stands for anything; None for all.
        ``spark``: read and write in its tasks.

        Only file groups whose ranges overlap are looked at, and written if that pays.  Rows stay as
        they are, with their commit times; writers may go on, and file groups that they change
        meanwhile are left out.  Raises Invalid for columns that cannot be put in order, and for
        "auto" where no query was counted.
        """
        with shown(progress, "cluster") as told:
            self._before_write()
            runner = self._rewriting_on(self._engine(spark))
            return late.cluster_table.cluster(
                self._metadata,
                self.options,
                by,
                curve=curve,
                partitions=partitions,
                progress=told,
                runner=runner,
                commit=self._commit,
            )

    def _rewriting_on(self, engine: Engine[Any] | None) -> RewriteRunner:
        """Return what writes rows anew: this process, or an engine."""
        if engine is None:
            return late.rewriting.in_process
        return late.engine_rewriting.EngineRewrite(engine)

    @takes_metadata
    @takes_dry_run
    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> CleanReport:
        """Let old states go and delete what only they referred to; also what crashed transactions
        have left.

        What is kept: the states of the newest ``retain_commits`` commits, of the last
        ``retain_hours``, or those in which every file group has one of its newest
        ``retain_versions`` base files; without any of these what the options say (``mdt.clean.*``).
        States that a tag, a lease (:meth:`leased`) or a running transaction needs stay.  Asking for
        one that has gone raises Expired. Old records leave the log; :meth:`history` keeps them.
        """
        options = late.cleaning.chosen(self.options, retain_commits, retain_hours, retain_versions)
        with logs.service(self._storage, self.definition.name, "clean") as facts:
            self._before_write()
            report = (late.cleaning.plan if self._is_dry else late.cleaning.clean)(
                self._metadata, options
            )
            facts.update(horizon=report.horizon, files=report.files, records=report.records)
        return report

    @takes_metadata
    @takes_dry_run
    def purge(
        self,
        progress: ProgressOption = None,
        *,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> PurgeReport:
        """Leave no byte of rows that were deleted or replaced: in data, logs, statistics,
        summaries, key indexes, records, checkpoints.

        Every past state ends, whatever leases and tags say; values of columns that were dropped go,
        too.  File groups that may know of such rows are written anew, all in one commit; the table
        must be at rest: Conflict if a transaction is running.  Not reached: copies that others have
        made, caches of other machines, and paths of partitions, as long as Hudi's newest commits
        name them.
        """
        with (
            shown(progress, "purge") as told,
            logs.service(self._storage, self.definition.name, "purge") as facts,
        ):
            self._before_write()
            if self._is_dry:
                report = late.purge.plan(self._metadata, self.options)
            else:
                report = late.purge.purge(self._metadata, self.options, told)
            facts.update(groups=report.groups, objects=report.objects, records=report.records)
        return report

    @takes_dry_run
    def rekey(
        self,
        progress: ProgressOption = None,
        *,
        forget_deletes: bool = False,
        dry_run: bool = False,
    ) -> WriteResult:
        """Give the table a key hash with a new secret; rows stay as they are.

        For tables of format 3, whose keys anybody can make collide, and for tables whose secret
        somebody may know.  Reads the key columns of all live files, and writes key maps and the key
        index anew, in one commit; other writers may go on.  Older versions of this package cannot
        read the table then.  Deletes that the table remembers (``mdt.delete.keeps.ordering``) have
        to be forgotten: Invalid is raised if there are any, unless ``forget_deletes``.
        """
        with (
            shown(progress, "rekey") as told,
            logs.service(self._storage, self.definition.name, "rekey"),
        ):
            self._before_write()
            return WriteResult.of(
                self._commit(
                    late.rekeying.Rekey(self._metadata, self.options, forget_deletes, told)
                )
            )

    @contextmanager
    def leased(self, seconds: float = 3600, as_of: Point | None = None) -> Iterator[Self]:
        """Keep a state (the newest one, or ``as_of``) from being cleaned for ``seconds``; a
        context, whose target is the table as of it.

        Raises Expired if it has gone already.  A lease holds up cleaning: at most for a month, if
        its reader dies.
        """
        seq = self.snapshot(as_of).seq
        lease = late.leases.take(self._storage, seq, seconds)
        try:
            yield type(self)(self._storage, dict(self._metadata.overrides), as_of=seq)
        finally:
            late.leases.give_back(self._storage, lease)

    @takes_metadata
    @takes_dry_run
    def tidy(
        self, *, dry_run: bool = False, metadata: CommitMetadata = None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Let every service that is due do one bounded step, wherever in the table; return which
        did something, and what went wrong.

        Writers do this for what they have changed (``mdt.services.auto``).  Call it, until nothing
        is done any more, for tables that others write: compaction of file groups with many log
        files, joining of small ones, cleaning.
        """
        self._before_write()
        return late.auto_maintenance.run_due(self._metadata, self.options, is_dry=self._is_dry)

    @takes_metadata
    @takes_dry_run
    def restore(
        self,
        to: Point,
        progress: ProgressOption = None,
        *,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Make the rows of an earlier state the table's rows again, in one commit; restoring the
        state before it undoes it.

        ``to``: as for :meth:`snapshot`.  It reads and writes what has changed since.  Columns are
        those of then, but for what was widened or may be null since; where columns come back all
        rows are written.  Indexes of columns that went do not come back, tags stay. Raises Invalid
        if there is no such state, Expired if it was cleaned.
        """
        return self._restore(lambda newest: late.as_of.seq_at(newest, to, "to"), progress)

    @takes_metadata
    @takes_dry_run
    def rollback(
        self,
        commit: Point,
        progress: ProgressOption = None,
        *,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Take back a commit and all that came after it: :meth:`restore` the state before.  Raises
        as that does.
        """

        def before(newest: Snapshot) -> int:
            seq = late.as_of.seq_at(newest, commit, "commit")
            if not 0 < seq <= newest.seq:
                raise Invalid(
                    f"there is no commit {seq} to take back",
                    hint=f"commits 1 to {newest.seq} can be",
                )
            return seq - 1

        return self._restore(before, progress)

    def _restore(self, state: Callable[[Snapshot], int], progress: ProgressOption) -> WriteResult:
        with (
            shown(progress, "restore") as told,
            logs.service(self._storage, self.definition.name, "restore"),
        ):
            self._before_rows()
            action = self.definition.commit_action
            return WriteResult.of(
                self._commit(
                    late.restoring.Restore(self._metadata, self.options, state, action, told)
                )
            )

    @takes_dry_run
    def abort(self, *, dry_run: bool = False) -> Recovery:
        """Declare every unfinished transaction dead now, running ones of other writers included
        (they will retry).
        """
        self._before_write(roll_back=False)
        return (
            late.recovery.recoverable(self._metadata)
            if self._is_dry
            else late.recovery.recover(self._metadata, after_seconds=0)
        )

    def check(self, progress: ProgressOption = None) -> CheckReport:
        """Recompute everything that can be recomputed and compare; the report names file and
        byte.
        """
        with (
            shown(progress, "check") as told,
            logs.service(self._storage, self.definition.name, "check") as facts,
        ):
            report = late.check_service.check(
                self._metadata, self._metadata.newest(), progress=told
            )
            facts.update(
                files=report.files,
                rows=report.rows,
                bytes=report.bytes,
                problems=len(report.problems),
            )
        return report

    @takes_dry_run
    def repair(self, progress: ProgressOption = None, *, dry_run: bool = False) -> RepairReport:
        """Make again what :meth:`check` finds damaged, from data files and the log; the report says
        what was damaged, rebuilt and lost.

        Checkpoints, hint, archive, Hudi's instants, key maps, page maps, statistics, summaries, the
        key index: all of these follow from data files and the log.  Where a record of the log is
        gone, the states that were made with it end.  Data files that are damaged stay, and are
        named with the number of their rows.  Writers may go on; it may be repeated.  A table that
        cannot be opened: :func:`mdt.repair`. ``dry_run``: what is damaged, as :meth:`check` finds
        it.
        """
        self._refuse_the_past()
        with (
            shown(progress, "repair") as told,
            logs.service(self._storage, self.definition.name, "repair") as facts,
        ):
            report = (late.repair_service.plan if self._is_dry else late.repair_service.repair)(
                self._metadata, told
            )
            facts.update(
                damaged=len(report.damaged), rebuilt=len(report.rebuilt), lost=len(report.lost)
            )
            # What this process has read may be what was damaged.
            self._metadata = Metadata(self._storage, self._metadata.overrides)
        return report

    @takes_metadata
    @takes_dry_run
    def tag(
        self,
        name: str,
        at: Point | None = None,
        *,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> int:
        """Name the newest state, or the one ``at`` a point; cleaning keeps it, and ``as_of`` takes
        the name.  Return its seq.

        What happened before and after that state is cleaned as without a tag: then it can be read
        and restored, and no changes be told since. Raises Invalid for a name that is taken, or that
        is a number or a time; Expired for a state that was cleaned.
        """
        return self._tag(name, at, None)

    @takes_metadata
    @takes_dry_run
    def savepoint(
        self,
        name: str,
        at: Point | None = None,
        comment: str = "",
        *,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> int:
        """As :meth:`tag`, and keep Hudi's services from the state, too: a ``savepoint`` instant
        names its data files.

        Raises Invalid, too, if that commit has a savepoint.
        """
        text = one_text("comment", comment, "'before the migration'")
        return self._tag(name, at, text)

    @takes_metadata
    @takes_dry_run
    def untag(self, name: str, *, dry_run: bool = False, metadata: CommitMetadata = None) -> None:
        """Forget a tag or savepoint.  Raises Invalid if there is none."""
        text = one_text("name", name, "'before-migration'")
        self._before_write()
        self._commit(late.tagging.DropTag(text))

    def tags(self) -> pa.Table:
        """Return one row a tag: name, seq, instant, whether it is a savepoint (schema
        ``mdt.services.history.tagging.TAGS``).
        """
        return late.tagging.tags_table(self._metadata, self.snapshot())

    def _tag(self, name: str, at: Point | None, comment: str | None) -> int:
        text = one_text("name", name, "'before-migration'")
        self._before_write()
        seq = self.snapshot(at).seq
        self._commit(
            late.tagging.AddTag(
                self._metadata, text, seq, comment, "tag" if comment is None else "savepoint"
            )
        )
        return seq
