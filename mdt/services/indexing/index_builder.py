"""Indexes come and go: create, drop and rebuild; the builder that catches up with files that an
index does not cover.

Creating an index is one small commit: from it on every writer keeps the index, and the files that
exist are its plan. The builder, in this process or any other, beside the writers, takes shards that
are not covered, summarizes them, and commits what it has from time to time.  Files never change, so
it conflicts with nobody; if it dies, the next one goes on where the last commit ended.  Until a
file is covered it is read.  Nothing has to be "completed": an index is as good as its coverage,
which ``t.indexes()`` shows.

Hudi's timeline shows it as ``indexing``: see :mod:`mdt.services.indexing.index_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from indexes import registry
from indexes.base import BoolArray, Int64Array
from mdt import logs
from mdt.arguments import texts
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.errors import Invalid, Unsupported
from mdt.limits import INDEX_COMMIT_ROWS
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.files.file_group import SummaryRef, summary_length
from mdt.metadata.files.segment_columns import read_columns
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import index_of, named_spec, packages_of, top_levels
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.schema.header_fields import present
from mdt.services.indexing.index_plans import Plans, ended, open_plans
from mdt.write.summarize import placed, summaries_of_shard, summarize_indexes


@dataclass(frozen=True, slots=True)
class IndexChange(Operation[WritePlan]):
    """The operation that adds and drops specifications, or forgets what they cover, in one commit
    without files.
    """

    metadata: Metadata
    name: str
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return whether the table is not yet as wanted."""
        indexes = snapshot.definition.indexes
        new = [spec for spec in self.added if spec not in indexes]
        gone = [spec for spec in self.dropped if spec in indexes]
        return WritePlan(Footprint(txn), is_needed=bool(new or gone or self.forgotten))

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the change and, for what is added or forgotten, the plan: how many files the
        builder will find.
        """
        files = int((snapshot.rows > 0).sum())
        indexes = present(
            add=list(self.added),
            drop=list(self.dropped),
            forget=list(self.forgotten),
            packages=packages_of(self.added),
        )
        wanted = [*self.added, *self.forgotten]
        left = [
            spec for spec in (*snapshot.definition.indexes, *self.added) if spec not in self.dropped
        ]
        plans = dict(open_plans(self.metadata, snapshot))
        if wanted:
            plans[claim.instant] = wanted
        lacking = uncovered_specs(snapshot, plans)
        if files:
            lacking += wanted
        told = {**ended(plans, left, lacking), **present(plan=wanted)}
        return Changes(extra={"indexes": {**indexes, "files": files}, **present(indexing=told)})


@dataclass(frozen=True, slots=True)
class UncoveredShard:
    """Shard ``shard`` of a snapshot, its live files with rows, and the specifications that do not
    cover it.
    """

    shard: int
    files: tuple[int, ...]
    specs: tuple[str, ...]


class _NothingSummarized(Unsupported):
    """A batch of files of which every index failed: nothing to commit."""


@dataclass(frozen=True, slots=True)
class _Batch(WritePlan):
    """The next shards, ``work``, of those that were not covered, which have ``total`` files.

    ``plans``: those on Hudi's timeline that have not ended.  ``lacking``: indexes that will not
    cover all files then.
    """

    work: Sequence[UncoveredShard] = ()
    total: int = 0
    plans: Plans = field(default_factory=dict)
    lacking: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BuildResult:
    """``summaries``: how many were made; ``commits``: transactions in which they were committed;
    ``bytes``: of the summaries.
    """

    summaries: int = 0
    commits: int = 0
    bytes: int = 0


@dataclass(slots=True)
class IndexBuild(Operation[_Batch]):
    """The operation that covers the next shards, up to INDEX_COMMIT_ROWS rows of them.

    ``specs``: the indexes to build, None for all.  ``done`` and ``progress``: files that are
    covered so far in this run. ``runner``: what summarizes the shards, by default threads of this
    process. ``failed``: (specification, number of a shard) pairs that an index could not summarize;
    they are not tried again. ``distrusted``: (specification, number of a shard) -> a summary that
    is not to be believed: while it is the shard's, it is made again.
    """

    metadata: Metadata
    options: Options
    specs: tuple[str, ...] | None = None
    progress: Progress | None = None
    runner: Runner | None = None
    done: int = 0
    bytes: int = 0
    failed: set[tuple[str, int]] = field(default_factory=set)
    distrusted: Mapping[tuple[str, int], SummaryRef] = field(default_factory=dict)
    name: str = "build_index"
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> _Batch:
        """Return the next uncovered shards.  O(shards × indexes) in arrays; objects are made of the
        next shards only.
        """
        lacking = uncovered(snapshot, self.specs, self.failed)
        shards = snapshot.shards
        for spec, shard in self._damaged(snapshot):
            lacking[spec][shard] = True
        any_lacks = np.zeros(len(shards), np.bool_)
        for lacks in lacking.values():
            any_lacks |= lacks
        todo = np.flatnonzero(any_lacks)
        rows = np.add.reduceat(snapshot.rows, shards.start[:-1])[todo]
        files = np.add.reduceat((snapshot.rows > 0).astype(np.int64), shards.start[:-1])[todo]
        work = []
        taken = todo[np.cumsum(rows) - rows < INDEX_COMMIT_ROWS]
        for shard in taken.tolist():
            members = shards.members(shard)
            members = members[snapshot.rows[members] > 0]
            specs = tuple(spec for spec, shards_of in lacking.items() if shards_of[shard])
            work.append(UncoveredShard(shard, tuple(members.tolist()), specs))
        plans = open_plans(self.metadata, snapshot)
        left = snapshot.definition.indexes
        short_of = set(uncovered_specs(snapshot, plans))
        if len(taken) == len(todo):
            short_of -= lacking.keys()
        short_of |= {spec for spec, _ in self.failed}
        is_needed = bool(work or ended(plans, left, sorted(short_of)))
        total = int(files.sum())
        return _Batch(
            Footprint(txn),
            is_needed=is_needed,
            work=work,
            total=total,
            plans=plans,
            lacking=sorted(short_of),
        )

    def _damaged(self, snapshot: Snapshot) -> Iterator[tuple[str, int]]:
        """Yield specification and shard of the summaries that are to be made again and can be."""
        given = [
            (spec, number) for spec, number in self.distrusted if (spec, number) not in self.failed
        ]
        of = np.searchsorted(snapshot.shards.number, [number for _, number in given])
        for (spec, number), shard in zip(given, of.tolist(), strict=True):
            if shard >= len(snapshot.shards) or snapshot.shards.number[shard] != number:
                continue
            (summary,) = snapshot.index_summaries(spec, np.array([shard]))
            if summary == self.distrusted[spec, number] and not isinstance(index_of(spec)[1], str):
                yield spec, shard

    def write(self, snapshot: Snapshot, plan: _Batch, claim: Claim) -> Changes:
        """Summarize the shards; larger summaries go to objects."""
        covers: list[tuple[str, int, SummaryRef]] = []
        total = plan.total + self.done
        runner = self.runner or summarize_here
        for work, found in runner(self.metadata, self.options, snapshot, plan.work, claim):
            number = int(snapshot.shards.number[work.shard])
            covers += [(spec, number, data) for spec, data in found.items()]
            self.failed |= {(spec, number) for spec in set(work.specs).difference(found)}
            self.bytes += sum(map(summary_length, found.values()))
            self.done += len(work.files)
            if self.progress is not None:
                self.progress(self.done, total)
        lacking = {*plan.lacking, *(spec for spec, _ in self.failed)}
        told = ended(plan.plans, snapshot.definition.indexes, sorted(lacking))
        if not covers and not told:
            raise _NothingSummarized("none of the files can be summarized")
        return Changes(covers=covers, extra=present(indexing=told))


Found = Mapping[str, SummaryRef]
"""Summaries of one shard by specification, as a commit record holds them."""

Runner = Callable[
    [Metadata, Options, Snapshot, Sequence[UncoveredShard], Claim],
    Iterable[tuple[UncoveredShard, Found]],
]
"""Summarizes shards and puts larger summaries into objects of the claim; all of them are there when
it ends.
"""


def summarize_here(
    metadata: Metadata,
    options: Options,
    snapshot: Snapshot,
    work: Sequence[UncoveredShard],
    claim: Claim,
) -> Iterator[tuple[UncoveredShard, Found]]:
    """Summarize shards on threads of this process; a :data:`Runner`."""
    objects = AttachmentWriter(paths.attachment(claim.instant, str(claim.token)))
    with ThreadPoolExecutor(options.threads("writer")) as pool:
        found = pool.map(partial(summaries_of, metadata, snapshot), work)
        for one, summaries in zip(work, found, strict=True):
            yield one, {spec: placed(objects, data) for spec, data in summaries.items()}
    objects.write(metadata.storage)


def summaries_of(metadata: Metadata, snapshot: Snapshot, work: UncoveredShard) -> dict[str, bytes]:
    """Return the summaries of a shard; reads only the columns that the indexes need."""
    columns = top_levels(snapshot.definition.schema, work.specs)
    files = []
    for segment in snapshot.files.segments(np.array(work.files, np.int64)):
        table = read_columns(
            metadata.storage,
            snapshot.definition,
            segment,
            columns,
            use_threads=False,
            footers=metadata.objects.footers,
        )
        files.append((segment.first_row, summarize_indexes(work.specs, table, segment.row_groups)))
    return summaries_of_shard(work.specs, files)


def _with_rows(snapshot: Snapshot) -> BoolArray:
    """Return which shards have live rows -> bool[shards]."""
    found: BoolArray = np.zeros(len(snapshot.shards), np.bool_)
    found[snapshot.shards.of_file[snapshot.has_rows]] = True
    return found


def uncovered(
    snapshot: Snapshot, specs: Sequence[str] | None = None, failed: Collection[tuple[str, int]] = ()
) -> dict[str, BoolArray]:
    """Return which shards with live rows each installed index (of ``specs``, default all) does not
    cover: spec -> bool[shards].

    ``failed``: (specification, number of a shard) pairs that are left out.  O(shards × indexes).
    """
    shards, has_rows = snapshot.shards, _with_rows(snapshot)
    found = {}
    for spec in snapshot.definition.indexes:
        if (specs is None or spec in specs) and not isinstance(index_of(spec)[1], str):
            lost = np.array([number for name, number in failed if name == spec], np.int64)
            found[spec] = has_rows & ~snapshot.covered_shards(spec) & ~np.isin(shards.number, lost)
    return found


def uncovered_specs(snapshot: Snapshot, plans: Plans) -> list[str]:
    """Return which indexes in ``plans`` do not cover every file, and those of which this process
    cannot tell.  O(shards × indexes in plans).
    """
    planned = {spec for specs in plans.values() for spec in specs}
    asked = [spec for spec in snapshot.definition.indexes if spec in planned]
    lacking = uncovered(snapshot, asked)
    return [spec for spec in asked if spec not in lacking or bool(lacking[spec].any())]


def build(
    metadata: Metadata,
    options: Options,
    specs: Sequence[str] | None = None,
    progress: Progress | None = None,
    runner: Runner | None = None,
    distrusted: Mapping[tuple[str, int], SummaryRef] | None = None,
) -> BuildResult:
    """Cover every file that ``specs`` (default: all indexes) do not cover yet, in commits of
    bounded size.

    ``distrusted``: see :class:`IndexBuild`.

    Safe to run beside writers and other builders, and again after a crash.  Raises as any
    transaction does, and in the end Unsupported if an index could not summarize a file (which then
    is read by every query).
    """
    wanted = None if specs is None else tuple(specs)
    operation = IndexBuild(metadata, options, wanted, progress, runner, distrusted=distrusted or {})
    summaries = commits = 0
    with logs.service(
        metadata.storage, metadata.newest().definition.name, "build_indexes"
    ) as facts:
        while True:
            try:
                done = run(metadata, operation, attempts=options.commit_attempts)
            except _NothingSummarized:
                continue
            if done.record is None:
                break
            commits += 1
            summaries += len(done.record.table("covers"))
        facts.update(
            summaries=summaries,
            bytes=operation.bytes,
            commits=commits,
            failed=len(operation.failed),
        )
    if operation.failed:
        broken = ", ".join(sorted({short(spec) for spec, _ in operation.failed}))
        raise Unsupported(
            f"{broken}: {len(operation.failed)} summaries could not be made",
            hint="queries read these files; drop the index, or repair its package and build again",
        )
    return BuildResult(summaries, commits, operation.bytes)


def plan(snapshot: Snapshot, specs: Sequence[str], *, anew: bool = False) -> BuildResult:
    """Return what :func:`build` would make of ``specs``, which the table may not have yet; its
    bytes are known when it is made.

    ``anew``: as if they covered nothing.
    """
    known = {} if anew else uncovered(snapshot, specs)
    shards, has_rows = snapshot.shards, _with_rows(snapshot)
    lacking = [known.get(spec, has_rows) for spec in specs]
    if not has_rows.any() or not lacking:
        return BuildResult()
    rows = np.add.reduceat(snapshot.rows, shards.start[:-1])[np.any(lacking, axis=0)]
    return BuildResult(int(np.sum(lacking)), -(-int(rows.sum()) // INDEX_COMMIT_ROWS))


def wanted_specs(snapshot: Snapshot, given: str | Sequence[str]) -> tuple[str, ...]:
    """Return new specifications as the table keeps them.  Raises Invalid as :func:`named_spec`
    does.
    """
    wanted = texts("specs", given, "'bitmap(status)', or a list of such")
    return tuple(dict.fromkeys(named_spec(text, snapshot.definition.schema) for text in wanted))


def known_specs(snapshot: Snapshot, given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return which of the table's indexes are meant: the text of one, its short form, or a column;
    None: all.

    Raises Invalid if one names none.
    """
    have = snapshot.definition.indexes
    if given is None:
        return have
    found: list[str] = []
    for text in texts("specs", given, "'bitmap(status)', or a list of such"):
        said = {text, _as_kept(text)}
        mine = [spec for spec in have if said & _names(spec)]
        if not mine:
            raise Invalid(
                f"the table has no index {text!r}",
                hint=f"it has {', '.join(map(short, have)) or 'none'}",
            )
        found += mine
    return tuple(dict.fromkeys(found))


def _names(spec: str) -> set[str]:
    return {spec, short(spec), ", ".join(registry.parse_spec(spec).columns)}


def _as_kept(text: str) -> str:
    """Return a specification with the quotes that those of tables have; any other text as it is."""
    try:
        return str(registry.parse_spec(text))
    except ValueError:
        return text


def short(spec: str) -> str:
    """Return a specification without the version of its format: ``bitmap/1(status)`` as
    ``bitmap(status)``.
    """
    parsed = registry.parse_spec(spec)
    return str(replace(parsed, kind=parsed.kind.partition("/")[0]))


def coverage(snapshot: Snapshot, spec: str) -> tuple[Int64Array, Int64Array]:
    """Return rows of live files: of those that ``spec`` covers, and of all -> int64[covered],
    int64[files].
    """
    live = snapshot.has_rows
    return snapshot.rows[live & snapshot.covered(spec)], snapshot.rows[live]
