"""Creates a scan plan from a snapshot and a predicate, and explains the effect of each index.

The steps run in order of cost, vectorized over segments: the key index if the predicate fixes the
record key, then column statistics, then the table's skipping indexes, then row group statistics.
Each step only removes data that it proves not to match. The scan applies the predicate to all rows
that it reads.
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
from indexes.arrays import numbers, run_starts
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
"""With more literals, keys are not looked up. Column statistics still apply."""


SETTLED_ROWS_MAX = 1_024
"""If the key index leaves at most this many rows, other indexes are not consulted."""


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """A file to read.

    Attributes:
        file: Number of the file.
        row_groups: Row groups to read, or None for all.
        positions: The only rows that may match, or None for any.
    """

    file: int
    row_groups: tuple[int, ...] | None = None
    positions: BitMap | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A named metric of a plan.

    Attributes:
        unit: "bytes", or "" for a count.
    """

    name: str
    number: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Counts of the data that a plan reads and skips.

    Attributes:
        rows_read: Rows that may match. If an index knows their positions, only these count.
        bytes_read: Parquet bytes of all columns in their row groups. Reading single rows by page
            takes less.
        indexes: Effect of each index.
        caches: Name -> (hits, misses) of this process and table so far.
        order_by, limit: As requested.
        stops: The condition for ending early, if any.
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
        """Return (name, amount read, total amount)."""
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
        """Return the counts as text, by name."""
        facts = {"commit": f"{self.seq:,}", "where": self.where or "(everything)"}
        if self.order_by:
            facts["order by"] = self.order_by
        if self.limit is not None:
            facts["limit"] = f"{self.limit:,}"
        for name, amount, total in self._counts():
            facts[name] = f"{amount:,} of {total:,}"
        if self.stops:
            facts["ends"] = self.stops
        return facts

    def line(self) -> str:
        """Return a one-line summary for logs. It contains no literals of the filter."""
        counts = [f"{amount:,} of {total:,} {name}" for name, amount, total in self._counts()]
        parts = [f"commit {self.seq:,}: reads {', '.join(counts)}"]
        for note in self.indexes:
            if note.used:
                parts.append(f"{note.index} pruned {note.pruned:,} of {note.covered:,}")
        if self.caches:
            parts.append(f"cache hits: {self._rates()}")
        return "; ".join(parts)

    def figures(self) -> list[Figure]:
        """Return the counts as metrics. They contain no literals of the filter."""
        units, names = {"bytes": "bytes"}, {"rows": "rows that may match"}
        figures = []
        for name, amount, total in self._counts():
            unit = units.get(name, "")
            figures.append(Figure(f"{name} of the table", total, unit))
            figures.append(Figure(names.get(name, f"{name} read"), amount, unit))
        for note in self.indexes:
            if note.used:
                figures.append(Figure(f"files pruned by {note.index}", note.pruned))
            if note.row_groups:
                figures.append(Figure(f"row groups pruned by {note.index}", note.row_groups))
        return figures

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{amount:,} of {total:,} {name}" for name, amount, total in self._counts()[:3]
        )
        return f"<mdt explanation of a scan at commit {self.seq}: {counts}>"

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
        lines += [
            f"  {name:<10} {amount:>12,} of {total:,}" for name, amount, total in self._counts()
        ]
        for note in self.indexes:
            effect = f"not used ({note.reason})"
            if note.used:
                effect = f"pruned {note.pruned:,} of {note.covered:,} covered"
            if note.row_groups:
                effect += f" and {note.row_groups:,} row groups"
            lines.append(f"  {note.index}: {effect}: {note.detail}")
        if self.stops:
            request = [f"{name} {facts[name]}" for name in ("order by", "limit") if name in facts]
            lines.append(f"  {', '.join(request)}: {self.stops}")
        if self.caches:
            lines.append(f"  cache hits of this process: {self._rates()}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The data to read.

    Attributes:
        predicate: The filter for the rows that are read, or None.
    """

    snapshot: Snapshot
    predicate: Predicate | None
    segments: tuple[SegmentScan, ...]
    notes: tuple[IndexNote, ...]

    @property
    def files(self) -> Int64Array:
        """Numbers of the files to read, int64[segments]."""
        return np.array([scan.file for scan in self.segments], np.int64)

    def used_indexes(self) -> dict[str, int]:
        """Return the table's indexes that were consulted, with the number of segments that each
        pruned.
        """
        indexes = self.snapshot.definition.indexes
        return {
            note.index: note.pruned for note in self.notes if note.used and note.index in indexes
        }


def plan(
    metadata: Metadata,
    snapshot: Snapshot,
    predicate: Predicate | None,
    remote: RemotePruner | None = None,
    *,
    among: BoolArray | None = None,
    uncovered: BoolArray | None = None,
) -> ScanPlan:
    """Return a plan for reading the rows of ``snapshot`` that match ``predicate`` (None: all rows).

    Reads no data files.

    Args:
        remote: Tests large summaries outside this process.
        among: The only files to read, bool[numbered]. They must have rows but need not be current,
            and the key index, which only covers current rows, is not used.
        uncovered: Files that indexes may not cover although they cover their shards,
            bool[numbered].
    """
    files = among
    if files is None:
        files = snapshot.has_rows.copy()
    state = PlanState(metadata, snapshot, predicate or And(()), files)
    if predicate is not None:
        by_commit_time(state)
        if among is None and snapshot.finds_keys:
            _by_key(state)
        else:
            state.unused(
                f"key:{snapshot.definition.key_index}",
                "not_newest",
                "it covers only the newest row of each key",
            )
        if _is_settled(state):
            for name in ("partition_stats", "column_stats", *snapshot.definition.indexes):
                state.unused(name, "key_found", "the key index found the few rows that may match")
        else:
            _by_age(state)
            _by_statistics(state)
            if among is None and metadata.storage.is_imported:
                from mdt.plan.hudi_key_indexes import by_hudi_indexes

                literals = key_literals(predicate, snapshot)
                by_hudi_indexes(state, literals, KEYS_LOOKED_UP_MAX)
            _by_indexes(state, remote, uncovered)
    state.log()
    if predicate is None:
        segments = tuple(SegmentScan(i) for i in np.flatnonzero(state.maybe).tolist())
    else:
        segments = tuple(_segments(state))
    return ScanPlan(snapshot, predicate, segments, tuple(state.notes))


def _by_indexes(state: PlanState, remote: RemotePruner | None, uncovered: BoolArray | None) -> None:
    """Prune by skipping indexes, except for the ``uncovered`` files."""
    exempt = np.zeros_like(state.maybe) if uncovered is None else state.maybe & uncovered
    state.maybe &= ~exempt
    PositionSearch(state, remote).run()
    state.maybe |= exempt


def key_literals(predicate: Predicate, snapshot: Snapshot) -> pa.Table | None:
    """Return the only record keys that can match, as columns of the key fields, or None if any key
    may.
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
    count_max = KEYS_LOOKED_UP_MAX
    if len(key) > 1:  # with several fields only one key, because combinations of values are unknown
        count_max = 1
    if not key or not all(sizes) or max(sizes) > count_max:
        return None
    schema = pa.schema(map(snapshot.definition.schema.field, key))
    arrays = []
    for column in schema:
        values = [value for value in fixed[column.name] if value is not None]
        try:
            array = pa.array(values, column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if array.to_pylist() != values:
            return None
        arrays.append(array)
    # A field that is only compared with null has no literals, so no key can match.
    length = min(map(len, arrays))
    return pa.table([array.slice(0, length) for array in arrays], schema=schema)


def _by_key(state: PlanState) -> None:
    """Find the rows of the given record keys. No other row can match."""
    definition = state.snapshot.definition
    name = f"key:{definition.key_index}"
    if state.metadata.storage.is_imported and not state.snapshot.has_key_map.any():
        state.unused(name, "no_key_maps", "another writer wrote the table, and it has no key maps")
        return
    literals = key_literals(state.predicate, state.snapshot)
    if literals is None:
        state.unused(
            name, "key_not_fixed", "the predicate does not restrict the record key by = or in"
        )
        return
    problem = state.metadata.key_index_problem(state.snapshot)
    if problem is not None:
        state.missing(name, f"{problem.message}; {problem.hint}")
        return
    try:
        keys = record_keys(literals, definition.key, named=definition.names_key)
    except Invalid:
        state.unused(name, "key_impossible", "a literal is not a possible record key")
        return
    try:
        keys_to_find = keys_for(definition.key_index, keys, sort_keys(literals, definition.key))
        hits_by_file = find(
            state.metadata, state.snapshot, keys_to_find, definition.key_hash.hash(keys)
        )
    except Corrupt as error:
        state.unused(name, "damaged", str(error))
        return
    verdict = ~state.snapshot.has_key_map
    for hits in hits_by_file:
        i = int(hits.file[0])
        verdict[i] = True
        state.positions[i] = BitMap(hits.position.astype(np.uint32))
    rows = sum(len(p) for p in state.positions.values())
    state.note(name, verdict, len(state.snapshot), f"{len(keys)} keys looked up, {rows} live rows")


def _is_settled(state: PlanState) -> bool:
    """Return True if so few rows remain that reading them is cheaper than consulting other
    indexes.
    """
    rows = sum(map(len, state.positions.values()))
    return (
        bool(state.positions)
        and rows <= SETTLED_ROWS_MAX
        and int(np.count_nonzero(state.maybe)) == len(state.positions)
    )


def _by_age(state: PlanState) -> None:
    """Prune files older than a column that cannot be null in a matching row."""
    maybe = added_column_pruning.may_match(state.snapshot, state.predicate)
    if maybe is not None:
        covered = int(np.count_nonzero(~maybe & state.snapshot.live))
        state.note(
            "schema_versions",
            maybe,
            covered,
            "columns added later are null in older files",
        )


def _by_statistics(state: PlanState) -> None:
    """Prune by the bounds of stripes, then by the statistics of files in the remaining stripes."""
    snapshot = state.snapshot
    stats = FileStats(snapshot, state.predicate)
    if len(snapshot) and not stats.known:
        for name in ("partition_stats", "column_stats"):
            state.unused(
                name, "no_statistics", f"no statistics of {', '.join(stats.tested) or 'any column'}"
            )
        return
    stripes = _stripes(state, stats)
    remaining = np.count_nonzero(state.maybe)
    if len(snapshot) and not remaining:
        state.unused(
            "column_stats", "nothing_left", "partition_stats or the key index pruned all files"
        )
        return
    if remaining <= CANDIDATES_MAX and len(stripes.maybe) > 1:
        stripes = stripes.holding(np.flatnonzero(state.maybe))
    result = stats.checkpoint_files(stripes)
    maybe, tested = result.maybe, result.tested
    if snapshot.numbered > snapshot.checkpoint.rows:
        result = stats.added_files()
        maybe, tested = np.concatenate([maybe, result.maybe]), tested + result.tested
    state.note(
        "column_stats",
        maybe,
        min(tested, len(snapshot)),
        f"min, max and counts of {', '.join(stats.tested)}",
    )


def _stripes(state: PlanState, stats: FileStats) -> Stripes:
    """Prune by the bounds of stripes if the checkpoint has them. Return the remaining stripes."""
    snapshot = state.snapshot
    if not stats.has_stripes:
        state.unused(
            "partition_stats",
            "no_statistics",
            "the checkpoint has no bounds of groups of files: it is small or old",
        )
        return stats.all_stripes()
    try:
        stripes = stats.stripes()
    except Corrupt as error:
        state.unused("partition_stats", "damaged", str(error))
        return stats.all_stripes()
    verdict = np.concatenate(
        [stripes.files(), np.ones(snapshot.numbered - snapshot.checkpoint.rows, np.bool_)]
    )
    detail = (
        f"bounds of {len(stripes.maybe):,} groups of files, {np.count_nonzero(stripes.maybe):,} of"
        " them remain"
    )
    state.note("partition_stats", verdict, min(stripes.tested, len(snapshot)), detail)
    return stripes


def _segments(state: PlanState) -> list[SegmentScan]:
    """Return the scan of each remaining segment, with row groups restricted by positions or
    statistics.
    """
    remaining = np.flatnonzero(state.maybe)
    files = remaining.tolist()
    lists = state.snapshot.files.values("row_group_rows", remaining)
    row_group_rows = {
        i: np.array(rows, dtype=np.int64) for i, rows in zip(files, lists, strict=True)
    }
    several = [i for i in files if len(row_group_rows[i]) > 1 and i not in state.positions]
    verdicts: Mapping[int, BoolArray] = {}
    if several:
        verdicts = _row_group_verdicts(state, several, [len(row_group_rows[i]) for i in several])
    scans = []
    for i in files:
        positions, row_groups, maybe = (
            state.positions.get(i),
            state.row_groups.get(i),
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
            scans.append(SegmentScan(i, None, positions))
        elif maybe.any():
            scans.append(SegmentScan(i, tuple(np.flatnonzero(maybe).tolist()), positions))
    return scans


def rows_in(
    row_group_rows: Sequence[int] | Int64Array, row_groups: Sequence[int] | Int64Array | None
) -> BitMap:
    """Return the positions in the given row groups, or in all row groups if None.

    >>> list(rows_in([2, 3], [1]))
    [2, 3, 4]
    """
    if row_groups is None:
        return BitMap(range(sum(row_group_rows)))
    ends, positions = np.cumsum(row_group_rows), BitMap()
    for row_group in row_groups:
        end = int(ends[row_group])
        positions.add_range(end - int(row_group_rows[row_group]), end)
    return positions


def row_groups_with(positions: BitMap, row_group_rows: Int64Array) -> BoolArray | None:
    """Return a mask of the row groups that contain any of ``positions``, or None for a single row
    group.

    >>> row_groups_with(BitMap([4]), np.array([2, 3])).tolist()
    [False, True]
    """
    if len(row_group_rows) < 2:
        return None
    ends = np.cumsum(row_group_rows)
    pairs = zip((ends - row_group_rows).tolist(), ends.tolist(), strict=True)
    return np.array([positions.range_cardinality(start, end) > 0 for start, end in pairs])


def _row_group_verdicts(
    state: PlanState, files: Sequence[int], counts: Sequence[int]
) -> dict[int, BoolArray]:
    """Return a mask of the row groups that may match, bool[row groups] by file number.

    The statistics of all files are combined into one table per column, with nulls for row groups
    without statistics.

    Args:
        counts: Number of row groups in each file.
    """
    stats = [state.snapshot.row_group_stats(i) for i in files]
    table = pa.concat_tables(stats)
    starts = run_starts(np.array(counts))
    place = np.repeat(starts, [len(part) for part in stats]) + np.asarray(
        table["row_group"].to_numpy()
    )
    total = int(sum(counts))
    definition = state.snapshot.definition

    def lookup(path: str) -> tuple[pa.Table, pa.DataType] | None:
        name = definition.statistics_name(path)
        selected = np.flatnonzero(np.asarray(pc.equal(table["column"], name).to_numpy()))
        if not len(selected):
            return None
        at = np.full(total, -1, dtype=np.int64)
        at[place[selected]] = selected
        return table.take(pa.array(at, mask=at < 0)), column_paths.type_at(definition.schema, path)

    verdict = column_stats.prune_predicate(lookup, state.predicate, total)
    return dict(zip(files, np.split(verdict, starts[1:]), strict=True))


def hit_rates(metadata: Metadata) -> dict[str, tuple[int, int]]:
    """Return name -> (hits, misses) of each used cache of a table in this process."""
    caches = {
        **metadata.cache_counts(),
        **metadata.objects.cache_counts(),
        **metadata.summaries.cache_counts(),
    }
    return {name: counts for name, counts in caches.items() if any(counts)}


def explain(
    scan_plan: ScanPlan, *, where: str = "", caches: Mapping[str, tuple[int, int]] | None = None
) -> Explanation:
    """Return an explanation of the data that a plan reads and skips. O(files).

    Args:
        where: The filter as text.
        caches: Name -> (hits, misses) of this process so far.
    """
    snapshot = scan_plan.snapshot
    counts = numbers(pc.list_value_length(snapshot.files.column("row_group_rows")))
    length = snapshot.files.numpy("block_length")
    row_group_rows = snapshot.files.values("row_group_rows", scan_plan.files)
    groups = rows = size = 0
    for scan, row_counts in zip(scan_plan.segments, row_group_rows, strict=True):
        selected = row_counts
        if scan.row_groups is not None:
            selected = [row_counts[row_group] for row_group in scan.row_groups]
        groups += len(selected)
        if scan.positions is None:
            rows += sum(selected)
        else:
            rows += len(scan.positions)
        size += int(length[scan.file] * sum(selected) / max(1, sum(row_counts)))
    return Explanation(
        seq=snapshot.seq,
        where=where,
        files_total=len(snapshot),
        files_read=len(scan_plan.segments),
        row_groups_total=int(counts[snapshot.live].sum()),
        row_groups_read=groups,
        rows_total=int(snapshot.rows.sum()),
        rows_read=rows,
        bytes_total=int(length[snapshot.live].sum()),
        bytes_read=size,
        indexes=scan_plan.notes,
        caches=dict(caches or {}),
    )
