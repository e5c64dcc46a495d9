"""Maintenance of a table: compaction, clustering, cleaning, restore, check, repair and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from mdt import late, logs
from mdt.arguments import one_text, whole_number
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.errors import Invalid
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress, ProgressOption, progress_callback
from mdt.table.handle import Handle, follows_others, takes_dry_run
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.commit.recovery import Recovery
    from mdt.metadata.snapshot.as_of import Point
    from mdt.metadata.snapshot.snapshot import Snapshot
    from mdt.services.checking.problems import CheckReport, RepairReport
    from mdt.services.layout.cluster_table import ClusterResult
    from mdt.services.layout.compaction_strategies import Strategy
    from mdt.services.reclaiming.cleaning import CleanReport
    from mdt.services.reclaiming.purge import PurgeReport


class Services(Handle):
    """Methods that maintain a table."""

    @contextmanager
    def _service(
        self, name: str, progress: ProgressOption = None
    ) -> Iterator[tuple[Progress | None, dict[str, object]]]:
        """Context of a service. Yields the callback for its progress, and the facts of its line in
        the log.
        """
        with (
            progress_callback(progress, name) as callback,
            logs.service(self._storage, self.definition.name, name) as facts,
        ):
            yield callback, facts

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
        """Rewrite file groups with log files or deleted rows as base files. The rows do not change.

        strategy: Which file groups come first: "log_bytes" or "log_files" (those with most),
            "dead_share", "oldest" (compacted longest ago), "newest_partitions", or a function, see
            :mod:`mdt.services.layout.compaction_strategies`.
        partitions: Paths such as ``"city=Oslo"``, with ``*`` as a wildcard. None for all.
        budget_bytes: Maximum number of bytes to read. The first file group may exceed it.
        spark: Run in tasks of this Spark session.

        Raises Invalid for an unknown strategy or partition.

        >>> t.upsert([{"id": "a", "city": "Oslo", "fare": 10.0, "ts": 2}]).updated
        1
        >>> t.compact().files_written
        1
        """
        if budget_bytes is not None:
            whole_number("budget_bytes", budget_bytes)
        with self._service("compact", progress) as (callback, facts):
            self._prepare_write()
            chosen_partitions = late.live_partitions.select(self._metadata.newest(), partitions)
            engine = self._engine(spark)
            runner = self._rewriting_on(engine)
            committed = self._commit(
                late.compaction.Compaction(
                    self._metadata,
                    self.options,
                    callback,
                    strategy,
                    chosen_partitions,
                    budget_bytes,
                    runner,
                )
            )
            facts["file_groups"] = len(committed.plan.groups)
        return WriteResult.from_commit(committed, late.choice.name_of(engine))

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
        """Sort rows by columns, so that queries on them read few files. Small files are joined.

        by: At most eight columns, or "auto" for the columns that counted queries filter most
            (option ``mdt.usage.counts``).
        curve: "sort" by the first column, then the next. "zorder" and "hilbert" keep the ranges of
            all columns narrow. The default is "sort" for named columns and "hilbert" for "auto".
        partitions: Paths such as ``"city=Oslo"``, with ``*`` as a wildcard. None for all.
        spark: Read and write in tasks of this Spark session.

        Only file groups with overlapping ranges are considered, and rewritten if it pays. Rows keep
        their values and commit times. Writers can continue, and file groups that they change
        meanwhile are skipped.

        Raises Invalid for columns without an order, and for "auto" without counted queries.

        >>> t.cluster(["city", "fare"]).by
        ('city', 'fare')
        """
        with progress_callback(progress, "cluster") as callback:
            self._prepare_write()
            runner = self._rewriting_on(self._engine(spark))
            return late.cluster_table.cluster(
                self._metadata,
                self.options,
                by,
                curve=curve,
                partitions=partitions,
                progress=callback,
                runner=runner,
                commit=self._commit,
            )

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
        """Remove old snapshots and the files that only they use, and the leftovers of crashed
        transactions.

        retain_commits: Keep the snapshots of this many newest commits.
        retain_hours: Keep the snapshots of the last hours.
        retain_versions: Keep the snapshots in which each file group has one of its newest base
            files, this many.

        Without these arguments, the options ``mdt.clean.*`` apply. Snapshots with a tag, a lease
        (:meth:`leased`) or a running transaction are kept. Reading a removed snapshot raises
        Expired. Old records leave the log, but :meth:`history` keeps them.

        >>> t.clean(retain_commits=10, dry_run=True).horizon
        0
        """
        options = late.cleaning.with_policy(
            self.options, retain_commits, retain_hours, retain_versions
        )
        with self._service("clean") as (_, facts):
            self._prepare_write()
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
        """Remove every byte of deleted and replaced rows from data, logs, statistics, indexes and
        checkpoints.

        All past snapshots end, regardless of leases and tags, and values of dropped columns are
        removed. File groups that may contain such rows are rewritten in one commit. No transaction
        may be running, otherwise Conflict is raised.

        It does not reach copies made by others, caches of other machines, partition paths that
        Hudi's newest commits contain, and Hudi's metadata table of a table that other Hudi writers
        share: Hudi's writers clean that.

        >>> first, last = t.purge(dry_run=True).ended
        >>> first
        0
        """
        with self._service("purge", progress) as (callback, facts):
            self._prepare_write()
            if self._is_dry:
                report = late.purge.plan(self._metadata, self.options)
            else:
                report = late.purge.purge(self._metadata, self.options, callback)
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
        """Change the secret of the table's key hash. The rows do not change.

        Use it for tables of format 3, where anyone can construct keys that collide, or if the
        secret may be known. It reads the key columns of all live files and rewrites key maps and
        the key index in one commit. Writers can continue. Older versions of this package cannot
        read the table afterwards.

        forget_deletes: Drop the remembered deletes (``mdt.delete.keeps.ordering``). Invalid is
            raised if there are any and this is False.

        >>> t.rekey(dry_run=True).instant
        ''
        """
        with self._service("rekey", progress) as (callback, _):
            self._prepare_write()
            return WriteResult.from_commit(
                self._commit(
                    late.rekeying.Rekey(self._metadata, self.options, forget_deletes, callback)
                )
            )

    @takes_dry_run
    def upgrade(self, version: int = 9, *, dry_run: bool = False) -> WriteResult:
        """Upgrade the table to Hudi's table version 9. The rows and data files do not change.

        Hudi's timeline and properties are converted. Other writers of mdt can continue, and readers
        of Hudi need version 1.1 or newer afterwards. After a crash, the next write continues.

        Raises Unsupported for a table that other Hudi writers share.

        >>> t.upgrade(9, dry_run=True).instant
        ''
        """
        late.upgrading.require_version(version)
        with self._service("upgrade"):
            self._prepare_write()
            return WriteResult.from_commit(self._commit(late.upgrading.Upgrade()))

    @contextmanager
    def leased(self, seconds: float = 3600, as_of: Point | None = None) -> Iterator[Self]:
        """Keep a snapshot (the newest, or ``as_of``) from being cleaned for ``seconds``. A context
        manager that yields the table as of this snapshot.

        If the reader crashes, the lease delays cleaning for a month at most. Raises Expired if the
        snapshot was cleaned already.

        >>> with t.leased(60) as table:
        ...     table.scan().count()
        3
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
        """Run one bounded step of each due service. Return the services that did something, and
        warnings.

        Writers do this for their own changes (``mdt.services.auto``). For tables that others write,
        call it until no service does anything: it compacts file groups with many log files, joins
        small files, and cleans.

        >>> services, warnings = t.tidy()
        """
        self._prepare_write()
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
        """Restore the rows of an earlier snapshot in one commit. Restoring the snapshot before it
        undoes it.

        to: As for :meth:`snapshot`.

        It reads and writes the rows that changed since then. Columns return to their earlier state,
        except that widened types and nullability stay. If dropped columns return, all rows are
        written. Dropped indexes do not return, and tags stay.

        Raises Invalid if there is no such snapshot, Expired if it was cleaned.

        >>> before = t.snapshot().seq
        >>> t.delete("a").deleted
        1
        >>> t.restore(before).inserted
        1
        """
        return self._restore(lambda newest: late.as_of.seq_in_log(newest, to, "to"), progress)

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
        """Undo a commit and all later commits: :meth:`restore` the snapshot before it. Raises as
        that does.

        >>> rows = {"id": ["d"], "city": ["Rome"], "fare": [5.0], "ts": [2]}
        >>> t.rollback(t.upsert(rows).seq).deleted
        1
        """

        def before(newest: Snapshot) -> int:
            seq = late.as_of.seq_in_log(newest, commit, "commit")
            if not 0 < seq <= newest.seq:
                hint = "the table has no commits to roll back"
                if newest.seq:
                    hint = f"commits 1 to {newest.seq} can be rolled back"
                raise Invalid(f"commit {seq} cannot be rolled back", hint=hint)
            return seq - 1

        return self._restore(before, progress)

    def _restore(self, state: Callable[[Snapshot], int], progress: ProgressOption) -> WriteResult:
        with self._service("restore", progress) as (callback, _):
            self._prepare_row_write()
            action = self.definition.commit_action
            return WriteResult.from_commit(
                self._commit(
                    late.restoring.Restore(self._metadata, self.options, state, action, callback)
                )
            )

    @takes_dry_run
    def abort(self, *, dry_run: bool = False) -> Recovery:
        """Roll back all unfinished transactions now, including running transactions of other
        writers, which will retry.

        >>> t.abort().rolled_back
        ()
        """
        self._prepare_write(roll_back=False)
        return (
            late.recovery.preview(self._metadata)
            if self._is_dry
            else late.recovery.recover(self._metadata, after_seconds=0)
        )

    def refresh(self, progress: ProgressOption = None) -> int:
        """Import the commits of other Hudi writers into the log. Return the number of imports.

        Reads see such commits without this call, and writes import them. A refresh saves readers
        the work. On a table that no other writer has changed it does nothing.

        Raises Unsupported if a commit cannot be imported, with the reason. ``mdt.open`` can still
        read the table then.

        >>> t.refresh()
        0
        """
        with progress_callback(progress, "refresh") as callback:
            self._require_newest()
            self._storage.require_conditional_put()
            return late.adopting.catch_up(self._metadata, self.options, callback)

    @follows_others
    def check(self, progress: ProgressOption = None) -> CheckReport:
        """Recompute everything that can be recomputed, and compare. The report names the file and
        the byte.

        >>> t.check().ok
        True
        """
        with self._service("check", progress) as (callback, facts):
            report = late.check_service.check(
                self._metadata, self._metadata.newest(), progress=callback
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
        """Rebuild what :meth:`check` finds damaged from data files and the log. The report lists
        what was damaged, rebuilt and lost.

        Checkpoints, hint, archive, Hudi's instants, key maps, page maps, statistics, summaries and
        the key index can be rebuilt. If a log record is lost, the snapshots that depend on it end.
        Damaged data files stay, and the report has their number of rows. Writers can continue, and
        the call can be repeated. :func:`mdt.repair` works on tables that cannot be opened.

        dry_run: Report the damage, as :meth:`check` finds it.

        >>> t.repair(dry_run=True).ok
        True
        """
        self._require_newest()
        with self._service("repair", progress) as (callback, facts):
            report = (late.repair_service.plan if self._is_dry else late.repair_service.repair)(
                self._metadata, callback
            )
            facts.update(
                damaged=len(report.damaged), rebuilt=len(report.rebuilt), lost=len(report.lost)
            )
            # Caches of this process may contain the damaged metadata.
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
        """Name a snapshot, by default the newest. Return its commit number.

        Cleaning keeps the snapshot, and ``as_of`` accepts the name. Snapshots before and after it
        are cleaned as usual. Then it can still be read and restored, but not used as the start of
        :meth:`changes`.

        Raises Invalid for a name that exists or looks like a number or time, Expired if the
        snapshot was cleaned.

        >>> _ = t.tag("month-end")
        >>> t.scan(as_of="month-end").count()
        3
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
        """Name a snapshot as :meth:`tag` does, and protect it from Hudi's services: a ``savepoint``
        instant lists its data files.

        Raises Invalid if the commit has a savepoint already.

        >>> _ = t.savepoint("before-migration", comment="release 1")
        >>> t.scan(as_of="before-migration").count()
        3
        """
        text = one_text("comment", comment, "'before the migration'")
        return self._tag(name, at, text)

    @takes_metadata
    @takes_dry_run
    def untag(self, name: str, *, dry_run: bool = False, metadata: CommitMetadata = None) -> None:
        """Remove a tag or savepoint. Raises Invalid if it does not exist.

        >>> _ = t.tag("old")
        >>> t.untag("old")
        """
        text = one_text("name", name, "'before-migration'")
        self._prepare_write()
        self._commit(late.tagging.DropTag(text))

    @follows_others
    def tags(self) -> pa.Table:
        """Return a row per tag: name, commit number, instant, and whether it is a savepoint.

        >>> t.tags().column_names
        ['name', 'seq', 'instant', 'savepoint']
        """
        return late.tagging.tags_table(self._metadata, self.snapshot())

    @follows_others
    def formats(self) -> pa.Table:
        """Return a row per table format: the newest commit that its readers see, and how many
        commits they are behind (``format_table.FORMATS``).

        Readers of a format are behind after a crash, until the next write, and after commits of
        other Hudi writers, until these are imported. Readers of Iceberg see the version in
        ``version-hint.text``.

        >>> t.formats().to_pylist()
        [{'format': 'hudi', 'seq': ..., 'behind': 0}]
        """
        return late.format_table.format_table(self._metadata, self.snapshot())

    def _tag(self, name: str, at: Point | None, comment: str | None) -> int:
        text = one_text("name", name, "'before-migration'")
        self._prepare_write()
        seq = self.snapshot(at).seq
        self._commit(
            late.tagging.AddTag(
                self._metadata, text, seq, comment, "tag" if comment is None else "savepoint"
            )
        )
        return seq
