"""Snapshot + predicate -> scan plan, and an explanation of what every index did.

Cheapest first, all of it vectorised over segments: the key index when the predicate fixes the
record key, then column statistics, then the table's skipping indexes, then the statistics of row
groups.  Every step may only remove what it proves; the predicate is always applied to the rows that
are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes import column_stats
from indexes import paths as column_paths
from indexes.arrays import numbers
from indexes.base import BoolArray, Int64Array
from indexes.predicate import And, Leaf, Predicate
from mdt.display import html_facts, html_table
from mdt.errors import Corrupt, Invalid
from mdt.hudi.record_keys import record_keys, sort_keys
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.locate import find
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics import added_column_pruning
from mdt.metadata.statistics.column_stats import CANDIDATES_MAX, FileStats, Stripes
from mdt.plan.commit_times import by_commit_time
from mdt.plan.plan_state import IndexNote, PlanState
from mdt.plan.position_search import PositionSearch, RemotePruner, conjuncts_of

KEYS_LOOKED_UP_MAX = 100_000
"""More literals than this are not looked up one by one; column statistics still apply."""


SETTLED_ROWS_MAX = 1_024
"""Up to so many rows that the key index has found are read without asking what other indexes know
of them.
"""


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """One file to read: its number, ``file``; ``row_groups``: row groups, None for all;
    ``positions``: the only rows that may match, None for any.
    """

    file: int
    row_groups: tuple[int, ...] | None = None
    positions: BitMap | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a plan tells of itself; ``unit``: "bytes", or "" for a count."""

    name: str
    number: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a plan reads and skips, as counts.

    ``rows_read``: rows that may match; where an index knows their positions, only these.
    ``bytes_read``: Parquet bytes, all columns, of the row groups that hold them; single rows are
    read by pages, which is less.  ``caches``: name -> (hits, misses) of this process and table so
    far.  ``order_by``, ``limit``: as they were asked for; ``stops``: when reading ends before
    everything that is counted here.
    """

    seq: int
    where: str
    files_total: int
    files_read: int
    row_groups_total: int
    row_groups_read: int
    rows_total: int
    rows_read: int
    bytes_total: int
    bytes_read: int
    indexes: tuple[IndexNote, ...]
    caches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    order_by: str = ""
    limit: int | None = None
    stops: str = ""

    def _counts(self) -> list[tuple[str, int, int]]:
        """Return of what is read how much, and how much there is."""
        return [
            ("files", self.files_read, self.files_total),
            ("row groups", self.row_groups_read, self.row_groups_total),
            ("rows", self.rows_read, self.rows_total),
            ("bytes", self.bytes_read, self.bytes_total),
        ]

    def _rates(self) -> str:
        rates = self.caches.items()
        return ", ".join(f"{name} {hits:,} of {hits + misses:,}" for name, (hits, misses) in rates)

    def facts(self) -> dict[str, str]:
        """Return the counts as texts by name."""
        found = {"commit": f"{self.seq:,}", "where": self.where or "(everything)"}
        if self.order_by:
            found["order by"] = self.order_by
        if self.limit is not None:
            found["limit"] = f"{self.limit:,}"
        for name, read, total in self._counts():
            found[name] = f"{read:,} of {total:,}"
        if self.stops:
            found["ends"] = self.stops
        return found

    def line(self) -> str:
        """Return what is read and skipped in one line, for a log; literals of the filter are not in
        it.
        """
        counts = [f"{read:,} of {total:,} {name}" for name, read, total in self._counts()]
        found = [f"commit {self.seq:,}: reads {', '.join(counts)}"]
        for note in self.indexes:
            if note.used:
                found.append(f"{note.index} pruned {note.pruned:,} of {note.covered:,}")
        if self.caches:
            found.append(f"found in caches: {self._rates()}")
        return "; ".join(found)

    def figures(self) -> list[Figure]:
        """Return what is read and skipped as numbers, for whoever shows numbers; no literal of the
        filter is in it.
        """
        units, names = {"bytes": "bytes"}, {"rows": "rows that may match"}
        found = []
        for name, read, total in self._counts():
            unit = units.get(name, "")
            found.append(Figure(f"{name} of the table", total, unit))
            found.append(Figure(names.get(name, f"{name} read"), read, unit))
        for note in self.indexes:
            if note.used:
                found.append(Figure(f"files pruned by {note.index}", note.pruned))
            if note.row_groups:
                found.append(Figure(f"row groups pruned by {note.index}", note.row_groups))
        return found

    def __repr__(self) -> str:
        read = ", ".join(
            f"{read:,} of {total:,} {name}" for name, read, total in self._counts()[:3]
        )
        return f"<mdt explanation of a scan at commit {self.seq}: {read}>"

    def _repr_html_(self) -> str:
        notes = []
        for note in self.indexes:
            pruned = note.reason
            if note.used:
                pruned = f"{note.pruned:,} of {note.covered:,}"
            notes.append((note.index, pruned, note.detail))
        return html_facts("mdt scan", self.facts()) + html_table(
            "indexes", ("index", "pruned of covered", ""), notes
        )

    def __str__(self) -> str:
        facts = self.facts()
        lines = [f"snapshot {self.seq}, where {facts['where']}"]
        lines += [f"  {name:<10} {read:>12,} of {total:,}" for name, read, total in self._counts()]
        for note in self.indexes:
            done = f"not used ({note.reason})"
            if note.used:
                done = f"pruned {note.pruned:,} of {note.covered:,} covered"
            if note.row_groups:
                done += f" and {note.row_groups:,} row groups"
            lines.append(f"  {note.index}: {done}: {note.detail}")
        if self.stops:
            asked = [f"{name} {facts[name]}" for name in ("order by", "limit") if name in facts]
            lines.append(f"  {', '.join(asked)}: {self.stops}")
        if self.caches:
            lines.append(f"  found in caches by this process: {self._rates()}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What to read: ``predicate`` is the residual, always applied (None: no filter)."""

    snapshot: Snapshot
    predicate: Predicate | None
    segments: tuple[SegmentScan, ...]
    notes: tuple[IndexNote, ...]

    @property
    def files(self) -> Int64Array:
        """The numbers of the files that are read -> int64[segments]."""
        return np.array([scan.file for scan in self.segments], np.int64)

    def used_indexes(self) -> dict[str, int]:
        """Return the table's indexes that were asked, and how many segments each proved empty."""
        known = self.snapshot.definition.indexes
        return {note.index: note.pruned for note in self.notes if note.used and note.index in known}


def plan(
    metadata: Metadata,
    snapshot: Snapshot,
    predicate: Predicate | None,
    remote: RemotePruner | None = None,
    *,
    among: BoolArray | None = None,
    uncovered: BoolArray | None = None,
) -> ScanPlan:
    """Return what must be read of ``snapshot`` to answer ``predicate`` (None: all rows).  No data
    file is touched.

    ``remote``: who is asked to look into large summaries, instead of this process.  ``among``:
    bool[numbered], the files that may be read, all of them with rows, whichever the newest ones
    are; the key index knows these only and is not asked. ``uncovered``: bool[numbered], files of
    which indexes may know nothing although they cover their shards.
    """
    files = among
    if files is None:
        files = snapshot.has_rows.copy()
    work = PlanState(metadata, snapshot, predicate or And(()), files)
    if predicate is not None:
        by_commit_time(work)
        if among is None and snapshot.finds_keys:
            _by_key(work)
        else:
            work.unused(
                f"key:{snapshot.definition.key_index}",
                "not_newest",
                "it knows the newest rows of keys only",
            )
        if _is_settled(work):
            for name in ("partition_stats", "column_stats", *snapshot.definition.indexes):
                work.unused(
                    name, "key_found", "the key index has found the few rows that may match"
                )
        else:
            _by_age(work)
            _by_statistics(work)
            _by_indexes(work, remote, uncovered)
    work.log()
    if predicate is None:
        segments = tuple(SegmentScan(i) for i in np.flatnonzero(work.maybe).tolist())
    else:
        segments = tuple(_segments(work))
    return ScanPlan(snapshot, predicate, segments, tuple(work.notes))


def _by_indexes(work: PlanState, remote: RemotePruner | None, uncovered: BoolArray | None) -> None:
    """Ask the skipping indexes of all files but uncovered ones, which stay as they are."""
    kept = np.zeros_like(work.maybe) if uncovered is None else work.maybe & uncovered
    work.maybe &= ~kept
    PositionSearch(work, remote).run()
    work.maybe |= kept


def key_literals(predicate: Predicate, snapshot: Snapshot) -> pa.Table | None:
    """Return the record keys, as columns of their fields, that a matching row must have one of;
    None if any key may.
    """
    fixed: dict[str, Sequence[object]] = {}
    for test in conjuncts_of(predicate):
        if isinstance(test, Leaf) and test.column in snapshot.definition.key:
            if test.op in ("=", "<=>"):
                fixed[test.column] = [test.value]
            elif test.op == "in" and isinstance(test.value, tuple):
                fixed[test.column] = list(test.value)
    key = snapshot.definition.key
    sizes = [len(fixed.get(name, ())) for name in key]
    most = KEYS_LOOKED_UP_MAX
    if len(key) > 1:  # of several fields only one key: the values of each need not belong together
        most = 1
    if min(sizes) == 0 or max(sizes) > most:
        return None
    schema = pa.schema(map(snapshot.definition.schema.field, key))
    arrays = []
    for one in schema:
        known = [value for value in fixed[one.name] if value is not None]
        try:
            array = pa.array(known, one.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if array.to_pylist() != known:
            return None
        arrays.append(array)
    # A field that is only compared with null has no literal left: no key can match then.
    length = min(map(len, arrays))
    return pa.table([array.slice(0, length) for array in arrays], schema=schema)


def _by_key(work: PlanState) -> None:
    """Find the rows of a fixed record key exactly; nothing else can match."""
    definition = work.snapshot.definition
    name = f"key:{definition.key_index}"
    literals = key_literals(work.predicate, work.snapshot)
    if literals is None:
        work.unused(name, "key_not_fixed", "the predicate does not fix the record key by = or in")
        return
    problem = work.metadata.key_index_problem(work.snapshot)
    if problem is not None:
        work.missing(name, f"{problem.message}; {problem.hint}")
        return
    try:
        keys = record_keys(literals, definition.key)
    except Invalid:
        work.unused(name, "key_impossible", "a literal is not a possible record key")
        return
    try:
        asked = keys_for(definition.key_index, keys, sort_keys(literals, definition.key))
        found = find(work.metadata, work.snapshot, asked, definition.key_hash.hash(keys))
    except Corrupt as error:
        work.unused(name, "damaged", str(error))
        return
    verdict = ~work.snapshot.has_key_map
    for hits in found:
        i = int(hits.file[0])
        verdict[i] = True
        work.positions[i] = BitMap(hits.position.astype(np.uint32))
    rows = sum(len(p) for p in work.positions.values())
    work.note(name, verdict, len(work.snapshot), f"{len(keys)} keys looked up, {rows} live rows")


def _is_settled(work: PlanState) -> bool:
    """Return whether so few single rows are left that reading them costs less than asking any other
    index.
    """
    rows = sum(map(len, work.positions.values()))
    return (
        bool(work.positions)
        and rows <= SETTLED_ROWS_MAX
        and int(np.count_nonzero(work.maybe)) == len(work.positions)
    )


def _by_age(work: PlanState) -> None:
    """Leave out files that are older than a column which must not be null in a matching row."""
    maybe = added_column_pruning.may_match(work.snapshot, work.predicate)
    if maybe is not None:
        covered = int(np.count_nonzero(~maybe & work.snapshot.live))
        work.note(
            "schema_versions",
            maybe,
            covered,
            "columns that were added later are null in older files",
        )


def _by_statistics(work: PlanState) -> None:
    """Ask the bounds of stripes, then the statistics of single files in the stripes that are
    left.
    """
    snapshot = work.snapshot
    stats = FileStats(snapshot, work.predicate)
    if len(snapshot) and not stats.known:
        for name in ("partition_stats", "column_stats"):
            work.unused(
                name, "no_statistics", f"no statistics of {', '.join(stats.tested) or 'any column'}"
            )
        return
    stripes = _stripes(work, stats)
    left = np.count_nonzero(work.maybe)
    if len(snapshot) and not left:
        work.unused(
            "column_stats", "nothing_left", "bounds of stripes, or the key index, left no file"
        )
        return
    if left <= CANDIDATES_MAX and len(stripes.maybe) > 1:
        stripes = stripes.holding(np.flatnonzero(work.maybe))
    found = stats.checkpoint_files(stripes)
    maybe, asked = found.maybe, found.asked
    if snapshot.numbered > snapshot.checkpoint.rows:
        found = stats.added_files()
        maybe, asked = np.concatenate([maybe, found.maybe]), asked + found.asked
    work.note(
        "column_stats",
        maybe,
        min(asked, len(snapshot)),
        f"min, max and counts of {', '.join(stats.tested)}",
    )


def _stripes(work: PlanState, stats: FileStats) -> Stripes:
    """Apply the bounds of stripes where the base has some; return the stripes that are left."""
    snapshot = work.snapshot
    if not stats.has_stripes:
        work.unused(
            "partition_stats",
            "no_statistics",
            "the metadata keep no bounds of stripes: there are few, or it is old",
        )
        return stats.all_stripes()
    try:
        stripes = stats.stripes()
    except Corrupt as error:
        work.unused("partition_stats", "damaged", str(error))
        return stats.all_stripes()
    verdict = np.concatenate(
        [stripes.files(), np.ones(snapshot.numbered - snapshot.checkpoint.rows, np.bool_)]
    )
    detail = (
        f"bounds of {len(stripes.maybe):,} stripes, {np.count_nonzero(stripes.maybe):,} of them"
        " left"
    )
    work.note("partition_stats", verdict, min(stripes.asked, len(snapshot)), detail)
    return stripes


def _segments(work: PlanState) -> list[SegmentScan]:
    """Return what to read of each segment that is left: row groups by positions, or by their own
    statistics.
    """
    left = np.flatnonzero(work.maybe)
    files = left.tolist()
    lists = work.snapshot.files.values("row_group_rows", left)
    row_group_rows = {
        i: np.array(rows, dtype=np.int64) for i, rows in zip(files, lists, strict=True)
    }
    several = [i for i in files if len(row_group_rows[i]) > 1 and i not in work.positions]
    verdicts: Mapping[int, BoolArray] = {}
    if several:
        verdicts = _row_group_verdicts(work, several, [len(row_group_rows[i]) for i in several])
    found = []
    for i in files:
        positions, row_groups, maybe = (
            work.positions.get(i),
            work.row_groups.get(i),
            verdicts.get(i),
        )
        if positions is not None and row_groups is not None:
            positions = positions & rows_in(row_group_rows[i], np.flatnonzero(row_groups))
        if positions is not None:
            maybe = row_groups_with(positions, row_group_rows[i])
        if maybe is None:
            maybe = row_groups
        elif row_groups is not None:
            maybe = maybe & row_groups
        if maybe is None or bool(maybe.all()):
            found.append(SegmentScan(i, None, positions))
        elif maybe.any():
            found.append(SegmentScan(i, tuple(np.flatnonzero(maybe).tolist()), positions))
    return found


def rows_in(
    row_group_rows: Sequence[int] | Int64Array, row_groups: Sequence[int] | Int64Array | None
) -> BitMap:
    """Return the positions of the rows of some row groups, None for all."""
    if row_groups is None:
        return BitMap(range(sum(row_group_rows)))
    ends, found = np.cumsum(row_group_rows), BitMap()
    for row_group in row_groups:
        end = int(ends[row_group])
        found.add_range(end - int(row_group_rows[row_group]), end)
    return found


def row_groups_with(positions: BitMap, row_group_rows: Int64Array) -> BoolArray | None:
    """Return which row groups hold one of ``positions`` -> bool[row groups]; None for a single
    one.
    """
    if len(row_group_rows) < 2:
        return None
    ends = np.cumsum(row_group_rows)
    pairs = zip((ends - row_group_rows).tolist(), ends.tolist(), strict=True)
    return np.array([positions.range_cardinality(start, end) > 0 for start, end in pairs])


def _row_group_verdicts(
    work: PlanState, files: Sequence[int], counts: Sequence[int]
) -> dict[int, BoolArray]:
    """Return which row groups of ``files``, which have ``counts`` of them, may match -> bool[row
    groups] each.

    All of them at once: their statistics are brought into one table a column, where a row group
    without has nulls.
    """
    stats = [work.snapshot.row_group_stats(i) for i in files]
    table = pa.concat_tables(stats)
    starts = np.cumsum(counts) - np.array(counts)
    place = np.repeat(starts, [len(part) for part in stats]) + np.asarray(
        table["row_group"].to_numpy()
    )
    total = int(sum(counts))
    definition = work.snapshot.definition

    def lookup(path: str) -> tuple[pa.Table, pa.DataType] | None:
        name = definition.statistics_name(path)
        mine = np.flatnonzero(np.asarray(pc.equal(table["column"], name).to_numpy()))
        if not len(mine):
            return None
        at = np.full(total, -1, dtype=np.int64)
        at[place[mine]] = mine
        return table.take(pa.array(at, mask=at < 0)), column_paths.type_at(definition.schema, path)

    verdict = column_stats.prune_predicate(lookup, work.predicate, total)
    return dict(zip(files, np.split(verdict, starts[1:]), strict=True))


def hit_rates(metadata: Metadata) -> dict[str, tuple[int, int]]:
    """Return the name of each cache of this process for a table that was asked -> (hits,
    misses).
    """
    caches = {
        **metadata.cache_counts(),
        **metadata.objects.cache_counts(),
        **metadata.summaries.cache_counts(),
    }
    return {name: found for name, found in caches.items() if any(found)}


def explain(
    found: ScanPlan, *, where: str = "", caches: Mapping[str, tuple[int, int]] | None = None
) -> Explanation:
    """Return what ``found`` reads and skips, for people.  O(files).

    ``where``: the filter as text; ``caches``: name -> (hits, misses) of this process so far.
    """
    snapshot = found.snapshot
    counts = numbers(pc.list_value_length(snapshot.files.column("row_group_rows")))
    length = snapshot.files.numpy("block_length")
    row_group_rows = snapshot.files.values("row_group_rows", found.files)
    groups = rows = size = 0
    for scan, mine in zip(found.segments, row_group_rows, strict=True):
        read = mine
        if scan.row_groups is not None:
            read = [mine[row_group] for row_group in scan.row_groups]
        groups += len(read)
        if scan.positions is None:
            rows += sum(read)
        else:
            rows += len(scan.positions)
        size += int(length[scan.file] * sum(read) / max(1, sum(mine)))
    return Explanation(
        seq=snapshot.seq,
        where=where,
        files_total=len(snapshot),
        files_read=len(found.segments),
        row_groups_total=int(counts[snapshot.live].sum()),
        row_groups_read=groups,
        rows_total=int(snapshot.rows.sum()),
        rows_read=rows,
        bytes_total=int(length[snapshot.live].sum()),
        bytes_read=size,
        indexes=found.notes,
        caches=dict(caches or {}),
    )
