"""Creation, removal and building of skipping indexes.

Creating an index is one small commit. From then on every writer maintains the index, and the
existing files are to be built. The builder can run in any process, alongside writers. It takes
shards that are not covered, summarizes them, and commits from time to time. Files never change, so
it conflicts with no writer. After a crash, another builder continues from the last commit. Files
that are not covered are read by every query, so an index is never invalid, only incomplete.
``t.indexes()`` shows the coverage.

Hudi's timeline shows builds as ``indexing`` (:mod:`mdt.services.indexing.index_plans`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from indexes import registry
from indexes.arrays import run_starts
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
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import index_of, named_spec, packages_of, top_levels
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment_rows import read_columns
from mdt.progress import Progress
from mdt.schema.header_fields import present
from mdt.services.indexing.index_plans import Plans, finished_plans, open_plans
from mdt.write.summarize import store_summary, summaries_of_shard, summarize_indexes


@dataclass(frozen=True, slots=True)
class IndexChange(Operation[WritePlan]):
    """The operation that adds, drops or resets indexes in one commit without files.

    ``forgotten`` are the indexes to reset: they lose their coverage.
    """

    metadata: Metadata
    name: str
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return a plan, which is not needed if the table is already as requested."""
        indexes = snapshot.definition.indexes
        new = [spec for spec in self.added if spec not in indexes]
        removed = [spec for spec in self.dropped if spec in indexes]
        return WritePlan(Footprint(txn), is_needed=bool(new or removed or self.forgotten))

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the change and, for added and reset indexes, the build plan with the number of
        files.

        Without files there is nothing to build. A writer of Hudi 1.2 fails to make its metadata
        table if an index build is the only instant on the timeline.
        """
        files = int((snapshot.rows > 0).sum())
        indexes = present(
            add=list(self.added),
            drop=list(self.dropped),
            forget=list(self.forgotten),
            packages=packages_of(self.added),
        )
        to_build = []
        if files:
            to_build = [*self.added, *self.forgotten]
        remaining = [
            spec for spec in (*snapshot.definition.indexes, *self.added) if spec not in self.dropped
        ]
        plans = dict(open_plans(self.metadata, snapshot))
        if to_build:
            plans[claim.instant] = to_build
        lacking = [*uncovered_specs(snapshot, plans), *to_build]
        plan_fields = {**finished_plans(plans, remaining, lacking), **present(plan=to_build)}
        return Changes(
            extra={"indexes": {**indexes, "files": files}, **present(indexing=plan_fields)}
        )


@dataclass(frozen=True, slots=True)
class UncoveredShard:
    """A shard that some indexes do not cover.

    Attributes:
        shard: Number of the shard in the snapshot.
        files: Its live files with rows.
        specs: Indexes that do not cover it.
    """

    shard: int
    files: tuple[int, ...]
    specs: tuple[str, ...]


class _NothingToCommit(Unsupported):
    """Every index failed for a batch of files, so there is nothing to commit."""


@dataclass(frozen=True, slots=True)
class _Batch(WritePlan):
    """The next shards to build.

    Attributes:
        shards: Shards to build.
        total: Number of files in all uncovered shards.
        plans: Unfinished plans on Hudi's timeline.
        lacking: Indexes that will still not cover all files.
    """

    shards: Sequence[UncoveredShard] = ()
    total: int = 0
    plans: Plans = field(default_factory=dict)
    lacking: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build: numbers of summaries and commits, and the size of the summaries.

    >>> t.create_index("bitmap(city)").summaries
    1
    """

    summaries: int = 0
    commits: int = 0
    bytes: int = 0


@dataclass(slots=True)
class IndexBuild(Operation[_Batch]):
    """The operation that covers the next shards, up to INDEX_COMMIT_ROWS rows.

    Attributes:
        specs: Indexes to build, or None for all.
        progress: Called with the number of covered files and of all files.
        runner: Summarizes the shards, by default on threads of this process.
        done, bytes: Files covered and bytes of summaries written in this run.
        failed: (specification, shard number) of summaries that an index could not make. They are
            not tried again.
        distrusted: (specification, shard number) -> damaged summary, which is rebuilt while the
            shard has it.
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
        """Return the next uncovered shards.

        O(shards × indexes) in arrays. Objects are made only for the next shards.
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
        next_shards = []
        chosen = todo[run_starts(rows) < INDEX_COMMIT_ROWS]
        for shard in chosen.tolist():
            members = shards.members(shard)
            members = members[snapshot.rows[members] > 0]
            specs = tuple(spec for spec, shards_of in lacking.items() if shards_of[shard])
            next_shards.append(UncoveredShard(shard, tuple(members.tolist()), specs))
        plans = open_plans(self.metadata, snapshot)
        installed = snapshot.definition.indexes
        incomplete = set(uncovered_specs(snapshot, plans))
        if len(chosen) == len(todo):
            incomplete -= lacking.keys()
        incomplete |= {spec for spec, _ in self.failed}
        is_needed = bool(next_shards or finished_plans(plans, installed, sorted(incomplete)))
        total = int(files.sum())
        return _Batch(
            Footprint(txn),
            is_needed=is_needed,
            shards=next_shards,
            total=total,
            plans=plans,
            lacking=sorted(incomplete),
        )

    def _damaged(self, snapshot: Snapshot) -> Iterator[tuple[str, int]]:
        """Yield (specification, shard) of the distrusted summaries that can be rebuilt."""
        pairs = [
            (spec, number) for spec, number in self.distrusted if (spec, number) not in self.failed
        ]
        positions = np.searchsorted(snapshot.shards.number, [number for _, number in pairs])
        for (spec, number), shard in zip(pairs, positions.tolist(), strict=True):
            if shard >= len(snapshot.shards) or snapshot.shards.number[shard] != number:
                continue
            (summary,) = snapshot.index_summaries(spec, np.array([shard]))
            if summary == self.distrusted[spec, number] and not isinstance(index_of(spec)[1], str):
                yield spec, shard

    def write(self, snapshot: Snapshot, plan: _Batch, claim: Claim) -> Changes:
        """Summarize the shards. Larger summaries are written to objects."""
        covers: list[tuple[str, int, SummaryRef]] = []
        total = plan.total + self.done
        runner = self.runner or summarize_here
        for shard, summaries in runner(self.metadata, self.options, snapshot, plan.shards, claim):
            number = int(snapshot.shards.number[shard.shard])
            covers += [(spec, number, data) for spec, data in summaries.items()]
            self.failed |= {(spec, number) for spec in set(shard.specs).difference(summaries)}
            self.bytes += sum(map(summary_length, summaries.values()))
            self.done += len(shard.files)
            if self.progress is not None:
                self.progress(self.done, total)
        lacking = {*plan.lacking, *(spec for spec, _ in self.failed)}
        plan_fields = finished_plans(plan.plans, snapshot.definition.indexes, sorted(lacking))
        if not covers and not plan_fields:
            raise _NothingToCommit("none of the files can be summarized")
        return Changes(covers=covers, extra=present(indexing=plan_fields))


ShardSummaries = Mapping[str, SummaryRef]
"""Index -> summary of one shard, as in commit records."""

Runner = Callable[
    [Metadata, Options, Snapshot, Sequence[UncoveredShard], Claim],
    Iterable[tuple[UncoveredShard, ShardSummaries]],
]
"""Summarizes shards. Larger summaries are written to objects of the claim, at the latest when the
iterator ends.
"""


def summarize_here(
    metadata: Metadata,
    options: Options,
    snapshot: Snapshot,
    shards: Sequence[UncoveredShard],
    claim: Claim,
) -> Iterator[tuple[UncoveredShard, ShardSummaries]]:
    """Summarize shards on threads of this process (a :data:`Runner`)."""
    objects = AttachmentWriter(paths.attachment(claim.instant, str(claim.token)))
    with ThreadPoolExecutor(options.threads("writer")) as pool:
        results = pool.map(partial(summaries_of, metadata, snapshot), shards)
        for shard, summaries in zip(shards, results, strict=True):
            yield shard, {spec: store_summary(objects, data) for spec, data in summaries.items()}
    objects.write(metadata.storage)


def summaries_of(metadata: Metadata, snapshot: Snapshot, shard: UncoveredShard) -> dict[str, bytes]:
    """Return the summaries of a shard. Reads only the columns of the indexes."""
    columns = top_levels(snapshot.definition.schema, shard.specs)
    files = []
    for segment in snapshot.files.segments(np.array(shard.files, np.int64)):
        table = read_columns(
            metadata.storage,
            snapshot.definition,
            segment,
            columns,
            use_threads=False,
            footers=metadata.objects.footers,
        )
        files.append((segment.first_row, summarize_indexes(shard.specs, table, segment.row_groups)))
    return summaries_of_shard(shard.specs, files)


def _live_shards(snapshot: Snapshot) -> BoolArray:
    """Return the mask of shards with live rows (bool[shards])."""
    mask: BoolArray = np.zeros(len(snapshot.shards), np.bool_)
    mask[snapshot.shards.of_file[snapshot.has_rows]] = True
    return mask


def uncovered(
    snapshot: Snapshot, specs: Sequence[str] | None = None, failed: Collection[tuple[str, int]] = ()
) -> dict[str, BoolArray]:
    """Return for each index the shards with live rows that it does not cover (bool[shards]).

    Args:
        specs: Indexes, or None for all.
        failed: (specification, shard number) pairs to exclude.

    Unusable indexes are omitted. O(shards × indexes).
    """
    shards, has_rows = snapshot.shards, _live_shards(snapshot)
    masks = {}
    for spec in snapshot.definition.indexes:
        if (specs is None or spec in specs) and not isinstance(index_of(spec)[1], str):
            failed_numbers = np.array([number for name, number in failed if name == spec], np.int64)
            masks[spec] = (
                has_rows & ~snapshot.covered_shards(spec) & ~np.isin(shards.number, failed_numbers)
            )
    return masks


def uncovered_specs(snapshot: Snapshot, plans: Plans) -> list[str]:
    """Return the indexes in ``plans`` that do not cover every file.

    Includes indexes that this process cannot use. O(shards × indexes in plans).
    """
    planned = {spec for specs in plans.values() for spec in specs}
    candidates = [spec for spec in snapshot.definition.indexes if spec in planned]
    lacking = uncovered(snapshot, candidates)
    return [spec for spec in candidates if spec not in lacking or bool(lacking[spec].any())]


def build(
    metadata: Metadata,
    options: Options,
    specs: Sequence[str] | None = None,
    progress: Progress | None = None,
    runner: Runner | None = None,
    distrusted: Mapping[tuple[str, int], SummaryRef] | None = None,
) -> BuildResult:
    """Build ``specs`` (by default all indexes) for every uncovered file, in commits of bounded
    size.

    Safe to run alongside writers and other builders, and again after a crash. ``distrusted`` is as
    in :class:`IndexBuild`. Raises as any transaction does. At the end raises Unsupported if an
    index could not summarize a file; every query then reads this file.
    """
    selected = None if specs is None else tuple(specs)
    operation = IndexBuild(
        metadata, options, selected, progress, runner, distrusted=distrusted or {}
    )
    summaries = commits = 0
    with logs.service(
        metadata.storage, metadata.newest().definition.name, "build_indexes"
    ) as facts:
        while True:
            try:
                result = run(metadata, operation, attempts=options.commit_attempts)
            except _NothingToCommit:
                continue
            if result.record is None:
                break
            commits += 1
            summaries += len(result.record.table("covers"))
        facts.update(
            summaries=summaries,
            bytes=operation.bytes,
            commits=commits,
            failed=len(operation.failed),
        )
    if operation.failed:
        broken = ", ".join(sorted({short_spec(spec) for spec, _ in operation.failed}))
        raise Unsupported(
            f"{broken}: {len(operation.failed)} summaries could not be made",
            hint="queries read these files; drop the index, or fix its package and build it again",
        )
    return BuildResult(summaries, commits, operation.bytes)


def plan(snapshot: Snapshot, specs: Sequence[str], *, anew: bool = False) -> BuildResult:
    """Return the expected result of :func:`build`, without the size of the summaries.

    The table need not have the indexes ``specs`` yet. With ``anew`` existing coverage is ignored.
    """
    masks = {} if anew else uncovered(snapshot, specs)
    shards, has_rows = snapshot.shards, _live_shards(snapshot)
    lacking = [masks.get(spec, has_rows) for spec in specs]
    if not has_rows.any() or not lacking:
        return BuildResult()
    rows = np.add.reduceat(snapshot.rows, shards.start[:-1])[np.any(lacking, axis=0)]
    return BuildResult(int(np.sum(lacking)), -(-int(rows.sum()) // INDEX_COMMIT_ROWS))


def new_specs(snapshot: Snapshot, specs: str | Sequence[str]) -> tuple[str, ...]:
    """Return new specifications in their stored form. Raises Invalid as :func:`named_spec` does."""
    requested = texts("specs", specs, "'bitmap(status)', or a list of such")
    return tuple(dict.fromkeys(named_spec(text, snapshot.definition.schema) for text in requested))


def installed_specs(snapshot: Snapshot, specs: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the indexes of the table that ``specs`` names: by full text, short form, or column.

    None means all. Raises Invalid for a name without an index.
    """
    installed = snapshot.definition.indexes
    if specs is None:
        return installed
    matches: list[str] = []
    for text in texts("specs", specs, "'bitmap(status)', or a list of such"):
        spellings = {text, _stored_form(text)}
        named = [spec for spec in installed if spellings & _names(spec)]
        if not named:
            raise Invalid(
                f"the table has no index {text!r}",
                hint=f"it has {', '.join(map(short_spec, installed)) or 'none'}",
            )
        matches += named
    return tuple(dict.fromkeys(matches))


def _names(spec: str) -> set[str]:
    return {spec, short_spec(spec), ", ".join(registry.parse_spec(spec).columns)}


def _stored_form(text: str) -> str:
    """Return a specification with the quotes of the stored form, or any other text unchanged."""
    try:
        return str(registry.parse_spec(text))
    except ValueError:
        return text


def short_spec(spec: str) -> str:
    """Return a specification without format version, e.g. ``bitmap(status)`` for
    ``bitmap/1(status)``.
    """
    parsed = registry.parse_spec(spec)
    return str(replace(parsed, kind=parsed.kind.partition("/")[0]))


def coverage(snapshot: Snapshot, spec: str) -> tuple[Int64Array, Int64Array]:
    """Return (rows of the covered files, rows of all files) of the live files.

    Both are arrays with a number per file (int64).
    """
    live = snapshot.has_rows
    return snapshot.rows[live & snapshot.covered(spec)], snapshot.rows[live]
