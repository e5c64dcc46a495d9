"""Repair: what a check finds is mended from what is whole, and what cannot be mended is named.

Data files and the log say what the table is; everything else follows from them.  Each kind of
finding has its remedy (:data:`REMEDIES`): to put the same bytes back, to make something anew and
commit it, to write a file group anew.  No remedy needs another one to have run, every one may be
repeated, and those that change what the table refers to are transactions: writers may go on, and a
repair that dies is run again.

Rows are never given up: a data file that is damaged stays, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array
from indexes.buffers import flags
from mdt.commit import publish
from mdt.commit.conflicts import Footprint
from mdt.commit.recovery import recover, sensible, sweep
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.display import html_facts, html_table
from mdt.errors import Corrupt, Expired, Invalid, Unsupported
from mdt.hudi import properties, timeline
from mdt.hudi.layout import layout_of
from mdt.hudi.partitions import partition_depth
from mdt.limits import INDEX_COMMIT_ROWS
from mdt.metadata.files import paths
from mdt.metadata.log import trusted_names as names
from mdt.metadata.metadata import Metadata
from mdt.metadata.references import file_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.scan.history_range import history_range
from mdt.services import repair_past, repair_rows
from mdt.services.check import check
from mdt.services.check_log import properties_problem
from mdt.services.indexing.index_builder import build
from mdt.services.layout.compaction import Compaction, CompactionPlan
from mdt.services.problem import Kind, Problem
from mdt.services.repair_attachments import (
    KeyBuild,
    distrusted,
    put_back,
    unknown_groups,
    with_files,
)
from mdt.stores.storage import Storage

ROUNDS_MAX = 6
"""Checks of one repair: damage may hide other damage of the same file."""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """``damaged``: what was found.  ``rebuilt``: what was done about it.  ``lost``: what cannot be
    mended, or is gone for good.
    """

    damaged: tuple[Problem, ...]
    rebuilt: tuple[Problem, ...]
    lost: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, and nothing damaged any more."""
        return not self.lost

    def __repr__(self) -> str:
        return (
            f"<mdt repair: {len(self.damaged):,} damaged, {len(self.rebuilt):,} rebuilt,"
            f" {len(self.lost):,} lost>"
        )

    def __str__(self) -> str:
        if not (self.damaged or self.rebuilt or self.lost):
            return "nothing is damaged"
        parts = []
        for title, found in (
            ("damaged", self.damaged),
            ("rebuilt", self.rebuilt),
            ("lost", self.lost),
        ):
            parts.append(
                f"{title}: {len(found) or 'nothing'}"
                + "".join(f"\n  {one.kind}: {one}" for one in found)
            )
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        parts = {"damaged": self.damaged, "rebuilt": self.rebuilt, "lost": self.lost}
        facts = {title: f"{len(found):,}" if found else "nothing" for title, found in parts.items()}
        tables = [
            html_table(title, ("kind", "object", "what"), ((p.kind, p.path, p.text) for p in found))
            for title, found in parts.items()
            if found
        ]
        return html_facts("mdt repair", facts) + "".join(tables)


@dataclass(slots=True)
class _Repair:
    """One repair under way.  ``rewritten``: file groups that it has written anew, ``is_keyed``:
    whether it has told the key index of all of them; each is done once.  ``whole``: data files that
    it has put back.
    """

    metadata: Metadata
    options: Options
    rebuilt: list[Problem] = field(default_factory=list)
    lost: list[Problem] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)
    is_keyed: bool = False
    whole: set[str] = field(default_factory=set)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        return self.metadata.newest(watched=False)

    def anew(self) -> Metadata:
        """Return metadata that have read nothing yet: what others have may be what was damaged."""
        self.metadata = Metadata(self.metadata.storage, self.metadata.overrides)
        return self.metadata

    def told(self, path: str, text: str, kind: Kind) -> None:
        """Note what was done."""
        self.rebuilt.append(Problem(path, -1, text, kind))


def repair(metadata: Metadata, progress: Progress | None = None) -> RepairReport:
    """Mend what can be mended of the table that ``metadata``, perhaps never asked before, is of;
    see :class:`RepairReport`.

    Raises Invalid if there is no table, Unsupported if another writer has taken it over, Conflict
    and Unavailable as transactions do.
    """
    storage, overrides = metadata.storage, metadata.overrides
    storage.require_conditional_put()
    damaged, rebuilt, lost = _opened(metadata)
    if lost:
        return RepairReport(tuple(damaged), tuple(rebuilt), tuple(lost))
    metadata = Metadata(storage, overrides)
    newest = metadata.newest()
    metadata.watch.refuse_to_write()
    job = _Repair(metadata, metadata.options(newest.definition), rebuilt)
    with suppress(Corrupt):  # it needs the log, which may be what is damaged
        recover(metadata, after_seconds=job.options.rollback_after_seconds or 1)
    found, done = repair_past.mend_checkpoints(metadata, ())
    job.rebuilt += done
    report = _checked(job.anew(), progress)
    damaged += [*found, *report]
    for _ in range(ROUNDS_MAX):
        known = len(job.rebuilt) + len(job.lost)
        for kinds, remedy in REMEDIES:
            mine = [problem for problem in report if problem.kind in kinds]
            if mine:
                with suppress(Corrupt):  # what it needs is among what is lost
                    remedy(job, mine)
        if len(job.rebuilt) + len(job.lost) == known:
            break
        report = _checked(job.anew(), progress)
    left = [_with_rows(job.snapshot(), problem) for problem in report]
    return RepairReport(tuple(dict.fromkeys(damaged)), tuple(job.rebuilt), (*job.lost, *left))


def plan(metadata: Metadata, progress: Progress | None = None) -> RepairReport:
    """Return what a check finds, for :func:`repair` to mend; nothing is done."""
    return RepairReport(_checked(metadata, progress), (), ())


def _opened(metadata: Metadata) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """Return what keeps a table from being opened, what was done about it, and why it still cannot
    be.
    """
    storage, overrides = metadata.storage, metadata.overrides
    damaged, rebuilt = list[Problem](), list[Problem]()
    with suppress(Corrupt):
        # First of all, because a table without its version is refused as another writer's.
        rebuilt += _mend_properties(Metadata(storage, overrides))
        damaged += [replace(done, text="is missing, or makes no sense") for done in rebuilt]
    remedies: Sequence[Callable[[Metadata], list[Problem]]] = (
        repair_past.mend_hint,
        _mend_properties,
        lambda _: _from_memory(metadata, damaged[-1]),
    )
    for remedy in remedies:
        error = _error_of(storage, overrides)
        if error is None:
            return damaged, rebuilt, []
        damaged.append(_problem(error))
        with suppress(Corrupt):
            rebuilt += remedy(Metadata(storage, overrides))
    error = _error_of(storage, overrides)
    return damaged, rebuilt, [] if error is None else [_unopened(error)]


def _error_of(storage: Storage, overrides: Mapping[str, object]) -> Corrupt | None:
    """Return why the table cannot be opened, None if it can."""
    try:
        Metadata(storage, overrides).newest()
    except Corrupt as error:
        return error
    return None


def _from_memory(metadata: Metadata, damage: Problem) -> list[Problem]:
    """Write a checkpoint of what this process has read before a record was damaged, if it has;
    return what was done.
    """
    seq = paths.seq_of(damage.path)
    if seq is None or metadata.newest(watched=False).seq < seq:
        return []
    newest = metadata.compact()
    path = paths.checkpoint_manifest(newest.seq)
    return [Problem(path, -1, "made of what this process had read", Kind.CHECKPOINT)]


def _checked(metadata: Metadata, progress: Progress | None) -> tuple[Problem, ...]:
    try:
        return check(metadata, metadata.newest(), progress=progress).problems
    except Corrupt as error:
        return (_problem(error),)


def _problem(error: Corrupt) -> Problem:
    """Return what a check has stopped at."""
    places = {
        paths.log_dir(): Kind.RECORD,
        paths.checkpoints_dir(): Kind.CHECKPOINT,
        paths.hint(): Kind.CHECKPOINT,
    }
    places |= {paths.properties(): Kind.TIMELINE}
    kind = next(
        (kind for place, kind in places.items() if error.path.startswith(place)), Kind.TABLE
    )
    return Problem(error.path, error.offset, str(error), kind)


def _unopened(error: Corrupt) -> Problem:
    """Return what is lost of a table that cannot be opened."""
    text = (
        f"the table cannot be opened: {error.message}. Put back a copy of the object; without one,"
        " Hudi's readers still see the rows that were published: read them with one, and load them"
        " into a new table, mdt.create(new_path, schema, key=...).bulk_insert(rows)"
    )
    return Problem(error.path, error.offset, text, Kind.RECORD)


def _with_rows(snapshot: Snapshot, problem: Problem) -> Problem:
    """Return a problem that is left; of a data file with the number of rows that are lost with
    it.
    """
    numbers = _files(snapshot, [problem])
    if problem.kind != Kind.ROWS or not len(numbers):
        return problem
    live = int((snapshot.rows - snapshot.dead_rows)[numbers].sum())
    return replace(
        problem,
        text=(
            f"{problem.text}; {live:,} live rows are lost with it, unless a copy of the file is put"
            " back"
        ),
    )


def _files(snapshot: Snapshot, found: Sequence[Problem]) -> Int64Array:
    """Return the numbers of the live data files that problems are about, each once."""
    listing = file_paths(snapshot.files.take(["partition", "name"], snapshot.live_numbers))
    wanted = pa.array([problem.path for problem in found], pa.string())
    return snapshot.live_numbers[flags(pc.is_in(listing, wanted))]


def _groups(snapshot: Snapshot, found: Sequence[Problem]) -> set[str]:
    """Return the names of the file groups that problems are about."""
    return set(
        snapshot.file_groups.names(
            np.unique(snapshot.file_groups.of_files(_files(snapshot, found))).tolist()
        )
    )


def _mend_properties(metadata: Metadata) -> list[Problem]:
    """Write ``hoodie.properties`` as the table's definition says, if they are gone or make no
    sense; return what was done.
    """
    storage, path = metadata.storage, paths.properties()
    definition = metadata.newest(watched=False).definition
    if not properties_problem(metadata, definition):
        return []
    kept: dict[str, str] = {}
    with suppress(Corrupt, Invalid):
        found = properties.decode(storage.read_if_exists(path) or b"")
        properties.verify(found)
        kept = found
    storage.replace(
        path, properties.encode({**kept, **layout_of(definition).properties(definition)})
    )
    return [Problem(path, -1, "written as the table is defined", Kind.TIMELINE)]


def _timeline(job: _Repair, found: Sequence[Problem]) -> None:
    """Instants are written as their records say, markers of partitions as the paths do."""
    snapshot, storage = job.snapshot(), job.metadata.storage
    named = {problem.path for problem in found}
    job.rebuilt += _mend_properties(job.metadata)
    table = snapshot.files.take(["partition", "instant"], snapshot.live_numbers)
    oldest = table.group_by("partition").aggregate([("instant", "min")]).to_pylist()
    for row in oldest:
        path = paths.partition_metadata(row["partition"])
        if path in named:
            depth = partition_depth(row["partition"])
            storage.replace(path, properties.partition_metadata(row["instant_min"], depth))
            job.told(path, "written as the partition is named", Kind.TIMELINE)
    for seq in range(snapshot.retention.first, snapshot.seq + 1):
        with suppress(Corrupt):
            record = job.metadata.record(seq)
            if record is None:
                continue
            beside = [
                *publish.of_indexing(record, snapshot.definition)[0],
                *publish.of_restore(record, snapshot.definition),
            ]
            told = [one for one in beside if one[0] in named]
            if (
                record.action not in publish.NO_INSTANTS
                and publish.completed_path(record, snapshot.definition) in named
            ):
                told += publish.completed(record, snapshot.definition)
            for path, content in told:
                if storage.read_if_exists(path) != content:
                    storage.replace(path, content)
                    job.told(path, f"written as commit record {seq} says", Kind.TIMELINE)


def _past(job: _Repair, found: Sequence[Problem]) -> None:
    """See :mod:`mdt.services.repair_past`."""
    seqs = [
        paths.checkpoint_of(problem.path) for problem in found if problem.kind == Kind.CHECKPOINT
    ]
    job.rebuilt += repair_past.mend_checkpoints(
        job.metadata, {seq for seq in seqs if seq is not None}
    )[1]
    for lost, rebuilt in (
        repair_past.mend_log(job.anew(), job.options),
        repair_past.mend_archive(job.anew()),
    ):
        job.rebuilt += rebuilt
        job.lost += lost


def _attachments(job: _Repair, found: Sequence[Problem]) -> None:
    """Key maps and page maps are put back."""
    views = list(_views(job))
    other = set[str]()
    for path in sorted({problem.path for problem in found}):
        ranges = 0
        for view in views:
            done = put_back(job.metadata, view, path)
            other |= done.other
            ranges += done.ranges
        if ranges:
            job.told(
                path, f"{ranges} key maps and page maps put back, byte for byte", Kind.ATTACHMENT
            )
    job.anew()
    _rewrite(job, with_files(job.snapshot(), other))


def _views(job: _Repair) -> Iterator[Snapshot]:
    """Yield snapshots that have, together, the files of all states that can be read, live or
    not.
    """
    snapshot = job.snapshot()
    first = horizon = snapshot.retention.horizon
    for last in (*_before_rekeys(job.metadata, snapshot), snapshot.seq):
        try:
            yield history_range(job.metadata, first, last).view
        except (Corrupt, Expired):  # then the files of one state
            with suppress(Corrupt, Expired):
                state = snapshot if last == snapshot.seq else job.metadata.state(last)
                yield replace(state, gone=np.empty(0, np.int64))
        first = last + 1
    for seq in snapshot.tags.before(horizon):
        with suppress(Corrupt):
            yield job.metadata.state(seq)


def _before_rekeys(metadata: Metadata, snapshot: Snapshot) -> Iterator[int]:
    """Yield the readable states before a rekey: their files had other key maps."""
    for seq in range(snapshot.retention.horizon, snapshot.seq):
        record = metadata.record(seq + 1)
        if record is not None and record.rekeys:
            yield seq


def _summaries(job: _Repair, found: Sequence[Problem]) -> None:
    """Summaries that are damaged, or differ, are made again and committed."""
    snapshot = job.snapshot()
    differing = _files(snapshot, [problem for problem in found if problem.kind == Kind.SUMMARY])
    again = distrusted(job.metadata, snapshot, differing.tolist())
    if not again:
        return
    specs = sorted({spec for spec, _ in again})
    with suppress(Unsupported):  # an index that cannot be asked proves nothing
        done = build(job.metadata, job.options, specs, distrusted=again)
        job.told(
            paths.attachments_dir(),
            f"{done.summaries} summaries of {', '.join(specs)} made again",
            Kind.SUMMARY,
        )


def _key_index(job: _Repair, found: Sequence[Problem]) -> None:
    """Key parts are made again of the file groups whose keys the index does not find."""
    snapshot = job.snapshot()
    if job.is_keyed or job.metadata.key_index_problem(snapshot) is not None:
        return
    if any(problem.kind == Kind.KEY_INDEX for problem in found):
        groups = with_files(snapshot, set(snapshot.file_groups.all_names()))
        job.is_keyed = True
    else:
        groups = unknown_groups(job.metadata, snapshot)
    done = 0
    for names_ in _batches(snapshot, groups):
        with suppress(Corrupt):
            build_keys = KeyBuild(job.metadata, job.options, names_)
            done += len(
                run(
                    job.metadata, build_keys, attempts=job.options.commit_attempts
                ).plan.footprint.groups
            )
    if done:
        job.told(
            paths.attachments_dir(), f"key parts of {done} file groups made again", Kind.KEY_INDEX
        )


def _batches(snapshot: Snapshot, groups: Sequence[str]) -> Iterator[list[str]]:
    """Yield file groups, by name, with at most INDEX_COMMIT_ROWS rows together, or one."""
    live = snapshot.live_numbers
    rows = np.bincount(
        snapshot.file_groups.of_files(live), snapshot.rows[live], snapshot.file_groups.count
    )
    of_each = rows[snapshot.file_groups.number(groups)].cumsum() // INDEX_COMMIT_ROWS
    for part in np.split(np.array(groups, object), np.flatnonzero(np.diff(of_each)) + 1):
        yield part.tolist()


@dataclass(frozen=True, slots=True)
class Rewriting(Compaction):
    """The operation that writes file groups anew, whether or not there is anything to compact;
    ``groups``: their names.
    """

    groups: Sequence[str] = ()
    name: str = "repair"

    def prepare(self, snapshot: Snapshot, txn: str) -> CompactionPlan:
        """Return those of the groups that are still there."""
        names_ = with_files(snapshot, self.groups)
        groups = snapshot.file_groups.number(names_).tolist()
        partitions = sorted({snapshot.file_groups.partition(g) for g in groups})
        return CompactionPlan(
            Footprint(txn, frozenset(names_)), partitions, is_needed=bool(groups), groups=groups
        )


def _files_again(job: _Repair, found: Sequence[Problem]) -> None:
    """Files that a compaction has made are made again from those that it had."""
    snapshot = job.snapshot()
    for segment in snapshot.files.segments(_files(snapshot, found)):
        if repair_rows.put_back(job.metadata, job.options, segment):
            job.told(segment.path, "compacted again, and put back byte for byte", Kind.ROWS)
            job.whole.add(segment.path)
    job.anew()


def _files_anew(job: _Repair, found: Sequence[Problem]) -> None:
    """File groups are written anew of whose files something else is kept than they say, or whose
    bytes are damaged where no row stands.
    """
    left = [problem for problem in found if problem.path not in job.whole]
    _rewrite(job, sorted(_groups(job.snapshot(), left)))


def _rewrite(job: _Repair, groups: Sequence[str]) -> None:
    """Write file groups anew, one by one: rows are verified, and a group whose rows cannot be read
    stays as it is.
    """
    for name in groups:
        if name in job.rewritten:
            continue
        job.rewritten.add(name)
        with suppress(Corrupt):
            operation = Rewriting(job.metadata, job.options, groups=(name,))
            done = run(job.metadata, operation, attempts=job.options.commit_attempts)
            if done.record is not None:
                job.told(
                    paths.commit(done.record.seq), f"file group {name} written anew", Kind.DERIVED
                )


def _left_over(job: _Repair, found: Sequence[Problem]) -> None:
    """What belongs to no commit goes, as far as nobody can still commit it."""
    removed = sweep(job.metadata)
    if removed:
        job.told(
            job.metadata.storage.url,
            f"{removed} files that belong to no commit removed",
            Kind.LEFT_OVER,
        )


def _claims(job: _Repair, found: Sequence[Problem]) -> None:
    """Claims that make no sense go when they are as old as those that are rolled back; their files
    are left over then.
    """
    after_us = int((job.options.rollback_after_seconds or 1) * 1_000_000)
    storage = job.metadata.storage
    for error in sensible(job.metadata)[1]:
        name = error.path.rpartition("/")[2]
        is_young = (
            names.is_instant(name) and timeline.instant_us(name) > storage.now_us() - after_us
        )
        if not is_young:
            storage.delete(error.path)
            job.told(error.path, "a claim that makes no sense removed", Kind.CLAIM)


REMEDIES: Sequence[tuple[frozenset[Kind], Callable[[_Repair, Sequence[Problem]], None]]] = (
    (frozenset({Kind.CHECKPOINT, Kind.RECORD, Kind.ARCHIVE, Kind.TABLE}), _past),
    (frozenset({Kind.TIMELINE}), _timeline),
    (frozenset({Kind.ROWS}), _files_again),
    (frozenset({Kind.ATTACHMENT}), _attachments),
    (frozenset({Kind.ATTACHMENT, Kind.SUMMARY}), _summaries),
    (frozenset({Kind.ATTACHMENT, Kind.KEY_INDEX}), _key_index),
    (frozenset({Kind.DERIVED, Kind.ROWS}), _files_anew),
    (frozenset({Kind.CLAIM}), _claims),
    (frozenset({Kind.LEFT_OVER}), _left_over),
)
"""What mends which kinds of findings."""
