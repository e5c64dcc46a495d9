"""The immutable view of a table at one seq: the columns of a base, and what the commit records after it have changed.

Every file has a *slot*: the files of the base in their order, then those that records have added.  A slot stays dead when
its file leaves.  The *rows* that everybody else speaks of number the live files, in the order of their slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.bounds import Bounds
from indexes.buffers import column, flags, numbers
from indexes.column_stats import STATS_SCHEMA
from mdt.limits import SEGMENTS_CACHED_MAX
from mdt.metadata import additions as added
from mdt.metadata.additions import Piece
from mdt.metadata.columns import SUMMARY, Columns, no_rows
from mdt.metadata.commit_log import STATS
from mdt.metadata.deletion_vectors import positions
from mdt.metadata.file_group import BASE, SummaryRef
from mdt.metadata.file_groups import Files, Groups
from mdt.metadata.files import FilesView, Live, MembersView, NamesView, NumbersView, PartitionsView
from mdt.metadata.history import History
from mdt.metadata.key_parts import Unit, stored_units
from mdt.metadata.layered import Layered
from mdt.metadata.recent import Recent
from mdt.parquet.segment import Segment
from mdt.schema.definition import TableDefinition

Int64s = npt.NDArray[np.int64]

_FLAT = ("segment", "partition", "file_id", "kind", "size", "rows")
"""Columns of files that file groups are made of."""


@dataclass(frozen=True)
class Snapshot:
    """A table at ``seq``.

    ``base``: the compacted state that it stands on.  ``pieces``: files added since.  ``dead``: slots of files that have
    left, rising.  ``vectors_since``: slot -> positions that are no longer live, where that changed.  ``starts``: seq ->
    slot of its first file.  ``forgotten``: index -> record since which its summaries count.  ``pending``: what happened to
    file groups since ``groups_known``; most readers never ask.  ``known``: segments that this process has read, by id.
    """

    seq: int
    definition: TableDefinition
    base: Columns
    last_instant: str
    pieces: tuple[Piece, ...] = ()
    slots: int = 0
    dead: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    vectors_since: Layered[int, BitMap] = field(default_factory=Layered)
    starts: Layered[int, int] = field(default_factory=Layered)
    forgotten: Layered[str, int] = field(default_factory=Layered)
    units_since: tuple[Unit, ...] = ()
    uncovered_since: frozenset[str] = frozenset()
    history_since: tuple[Mapping[str, Any], ...] = ()
    groups_known: Groups | None = None
    pending: tuple[tuple[pa.Table, int, Int64s], ...] = ()
    known: Recent[int, Segment] = field(default_factory=lambda: Recent(SEGMENTS_CACHED_MAX), repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<mdt snapshot {self.seq} of {self.definition.name!r}: {len(self):,} files>"

    def __len__(self) -> int:
        return self.slots - len(self.dead)

    def __bool__(self) -> bool:
        return True  # a snapshot of an empty table is a snapshot

    # Files

    @cached_property
    def live(self) -> Live:
        """Which slots are live: between rows and slots and back."""
        return Live(self.slots, self.dead)

    @cached_property
    def files(self) -> FilesView:
        """The live files: columns of FILES by name, read when they are used."""
        return FilesView(self.base, self.pieces, self.live, self.known)

    @cached_property
    def segments(self) -> Int64s:
        """Numbers of the live segments, rising -> int64[n]."""
        return self.files.numpy("segment")

    @cached_property
    def rows(self) -> Int64s:
        """Rows of each segment, dead ones included -> int64[n]."""
        return self.files.numpy("rows")

    @cached_property
    def kind(self) -> npt.NDArray[np.int8]:
        """BASE or LOG for each segment -> int8[n]."""
        return self.files.numpy("kind")

    @cached_property
    def has_key_map(self) -> npt.NDArray[np.bool_]:
        """Which segments have a key map -> bool[n]."""
        return flags(self.files["key_map_length"].is_valid())

    def segment(self, i: int) -> Segment:
        """Return the file in row ``i``."""
        return self.files.segment(i)

    # Dead rows

    def vector(self, i: int) -> BitMap | None:
        """Return the dead positions of segment row ``i``, or None if there are none."""
        return self.slot_vector(self.live.slot(i))

    def slot_vector(self, slot: int) -> BitMap | None:
        """Return the dead positions of the file in ``slot``, or None if there are none."""
        found = self.vectors_since.get(slot)
        if found is None and slot < self.base.rows and self.base.numpy("dead")[slot]:
            rows = int(self.base.numpy("files/rows")[slot])
            found = positions(self.base.value("vector", slot).as_py(), rows, path=f"base {self.base.seq}")
        return found

    @cached_property
    def slot_dead_rows(self) -> Int64s:
        """Dead rows of each slot -> int64[slots]."""
        known = self.base.numpy("dead") if self.base.rows else np.empty(0, np.int64)
        if self.slots == len(known) and not self.vectors_since:
            return known
        counts = np.concatenate([known, np.zeros(self.slots - len(known), np.int64)])
        for slot, vector in self.vectors_since.items():
            counts[slot] = len(vector)
        return counts

    @cached_property
    def dead_rows(self) -> Int64s:
        """Dead rows of each segment -> int64[n]."""
        return self.live.of(self.slot_dead_rows)

    @cached_property
    def has_rows(self) -> npt.NDArray[np.bool_]:
        """Which segments have rows that are not dead -> bool[n].  Nothing of the base is looked at twice."""
        base, nothing = self.base, np.empty(0, np.int64)
        known = (
            base.derived("has_rows", lambda: base.numpy("files/rows") > base.numpy("dead"))
            if base.rows
            else nothing > 0
        )
        fresh = np.concatenate([nothing, *(numbers(piece.files["rows"]) for piece in self.pieces if len(piece))])
        found = np.concatenate([known, fresh > 0])
        changed = self.vectors_since.flat()
        slots, dead = (
            np.array(list(changed), np.int64),
            np.array([len(vector) for vector in changed.values()], np.int64),
        )
        old, new = slots < base.rows, slots >= base.rows
        if old.any():
            found[slots[old]] = base.numpy("files/rows")[slots[old]] > dead[old]
        found[slots[new]] = fresh[slots[new] - base.rows] > dead[new]
        return np.asarray(self.live.of(found), np.bool_)

    @property
    def vectors(self) -> dict[int, BitMap]:
        """Segment -> positions that are no longer live.  O(files)."""
        rows = np.flatnonzero(self.dead_rows).tolist()
        return {int(self.segments[i]): vector for i in rows if (vector := self.vector(i)) is not None}

    # File groups

    @cached_property
    def file_groups(self) -> Groups:
        """The file groups."""
        known = Groups.of(self.base) if self.groups_known is None else self.groups_known
        for table, first, removed in self.pending:
            known = known.after(Files.of(table, first), self._gone(removed))
        return known

    def _gone(self, slots: Int64s) -> Files:
        columns = {name: [self.files.of_slot(name, slot).as_py() for slot in slots.tolist()] for name in _FLAT}
        return Files(
            slots.tolist(), columns["file_id"], columns["partition"], columns["size"], columns["rows"], columns["kind"]
        )

    @property
    def groups(self) -> NamesView:
        """File group ids by number, as ``groups.dictionary``."""
        return NamesView(self.file_groups)

    @cached_property
    def group_of(self) -> Int64s:
        """Number of each segment's file group -> int64[n].  O(files); :meth:`groups_of` asks for some."""
        return self.file_groups.of_slots(self.live.slots_of(np.arange(len(self))))

    def groups_of(self, rows: Int64s) -> Int64s:
        """Return the numbers of the file groups of segment ``rows`` -> int64[len(rows)]."""
        return self.file_groups.of_slots(self.live.slots_of(rows))

    @property
    def group_number(self) -> NumbersView:
        """File group id -> its number in this snapshot."""
        return NumbersView(self.file_groups)

    @property
    def group_partition(self) -> PartitionsView:
        """Partition path of each file group, by number."""
        return PartitionsView(self.file_groups)

    def partitions_of(self, groups: Int64s) -> npt.NDArray[np.object_]:
        """Return the partition path of each group, "" for -1 -> object[n]."""
        return self.file_groups.partitions(groups)

    @property
    def members(self) -> MembersView:
        """For each file group the row numbers in ``files`` of its segments, oldest first."""
        return MembersView(self.file_groups, self.live)

    # Statistics

    @property
    def stats_columns(self) -> list[str]:
        """Names of the columns of which statistics are kept."""
        names = dict.fromkeys(self.base.names("stats"))
        for piece in self.pieces:
            names |= dict.fromkeys(piece.stats_columns)
        return list(names)

    @cached_property
    def _column_stats(self) -> dict[str, pa.Table | None]:
        return {}

    def column_stats(self, column: str) -> pa.Table | None:
        """Return the statistics of ``column``, one row per segment (null where not covered), or None if there are none."""
        if column not in self._column_stats:
            self._column_stats[column] = self._aligned_stats(column)
        return self._column_stats[column]

    def _aligned_stats(self, column: str) -> pa.Table | None:
        name = f"stats/{column}"
        old = self.base.table(name) if name in self.base else None
        new = [piece.column_stats(column) for piece in self.pieces]
        if old is None and all(table is None for table in new):
            return None
        parts = [_nulls(STATS_SCHEMA, self.base.rows) if old is None else old]
        parts += [_nulls(STATS_SCHEMA, len(p)) if t is None else t for p, t in zip(self.pieces, new, strict=True)]
        return self.live.of_table(pa.concat_tables([p for p in parts if len(p)]) if len(self) else parts[0].slice(0, 0))

    @cached_property
    def _added_bounds(self) -> dict[str, Bounds]:
        return {}

    def added_bounds(self, column: str, type: pa.DataType) -> Bounds:
        """Return the statistics of ``column`` of the slots since the base, ready to compare [slots - base.rows]."""
        found = self._added_bounds.get(column)
        if found is None:
            parts = [piece.bounds(column, type) for piece in self.pieces if len(piece)]
            found = self._added_bounds[column] = Bounds.concat(parts or [Bounds.unknown(0)])
        return found

    def zone_stats(self, i: int) -> pa.Table:
        """Return the statistics of the row groups of segment row ``i`` (several columns, zones >= 0)."""
        slot = self.live.slot(i)
        if slot >= self.base.rows:
            return self._piece(slot).zone_stats(int(self._slot_segment(slot)))
        if "zones" not in self.base:
            return no_rows(STATS)
        return added.zones_of(self.base.page("zones", slot)[0], int(self._slot_segment(slot)))

    def _piece(self, slot: int) -> Piece:
        return next(piece for piece in self.pieces if piece.first <= slot < piece.first + len(piece))

    def _slot_segment(self, slot: int) -> int:
        return int(self.files.of_slot("segment", slot).as_py())

    def segment_stats(self, i: int) -> pa.Table:
        """Return all statistics of segment row ``i``: of the whole and of its row groups, schema STATS."""
        segment = int(self.segments[i])
        whole = []
        for name in self.stats_columns:
            table = self.column_stats(name)
            if table is not None and table["values"][i].is_valid:
                whole.append(_labelled(table.slice(i, 1), name, np.array([segment])))
        return pa.concat_tables([no_rows(STATS), *whole, self.zone_stats(i)])

    @property
    def stats(self) -> pa.Table:
        """All statistics of live files, schema STATS: of whole segments by column, then of row groups.  O(files)."""
        parts = [no_rows(STATS)]
        for name in self.stats_columns:
            table = self.column_stats(name)
            assert table is not None, "it is among the names"
            parts.append(_labelled(table, name, self.segments).filter(table["values"].is_valid()))
        return pa.concat_tables([*parts, self.all_zones()])

    def all_zones(self) -> pa.Table:
        """Return the statistics of all row groups of live files, by segment, schema STATS.  O(files)."""
        parts = [self.base.table("zones")] if "zones" in self.base else [no_rows(STATS)]
        zones = pa.concat_tables([*parts, *(piece.all_zones() for piece in self.pieces)])
        return zones.filter(pc.is_in(zones["segment"], pa.array(self.segments))) if len(self.dead) else zones

    # Indexes

    def covered(self, index: str) -> npt.NDArray[np.bool_]:
        """Return which segments the index with the specification ``index`` covers -> bool[n]."""
        return self._sizes(index) >= 0

    def index_bytes(self, index: str) -> int:
        """Return the bytes of the live summaries of an index: of a joint one once, while any of its segments lives.

        O(files); reads where every summary stands if files that share one have left since the base.
        """
        known = self._base_sizes(index)
        gone = self.dead[self.dead < len(known)]
        if bool((known[gone] > 0).any()) and bool((known == 0).any()):
            return _total(self.summary_table(index))
        stored = self.live.of(self._padded(known))
        return int(np.maximum(stored, 0).sum()) + _total(self._of_index(index)[0].of(self.segments[stored < 0]))

    def summary_bytes(self, index: str) -> Int64s:
        """Return the bytes of each segment's summary, -1 without; of a joint one 0 for all but one, or the whole -> int64[n]."""
        return self._sizes(index)

    def indexed(self) -> list[str]:
        """Return the specifications that any live file has a summary of."""
        names = dict.fromkeys(self.base.names("sizes"))
        for piece in self.pieces:
            names |= dict.fromkeys(piece.summaries["index"].unique().to_pylist())
            names |= dict.fromkeys(piece.covers["index"].unique().to_pylist())
        return [name for name in names if self.covered(name).any()]

    @cached_property
    def _summaries(self) -> dict[str, tuple[added.Summaries, Int64s]]:
        return {}

    def _of_index(self, index: str) -> tuple[added.Summaries, Int64s]:
        """Return the summaries among the pieces, and the size of each segment's summary, -1 without -> int64[n]."""
        if index not in self._summaries:
            fresh = added.Summaries.among(self.pieces, index, self.forgotten.get(index) or 0)
            sizes = self.live.of(self._padded(self._base_sizes(index)))
            if len(fresh.table):
                found = added.summary_sizes(fresh.of(self.segments))
                sizes = np.where(sizes < 0, found, sizes)
            self._summaries[index] = fresh, sizes
        return self._summaries[index]

    def _base_sizes(self, index: str) -> Int64s:
        """Return the sizes of summaries that the base knows of its slots, -1 without -> int64[base.rows]."""
        name = f"sizes/{index}"
        known = name in self.base and self.forgotten.get(index) is None
        return self.base.numpy(name) if known else np.full(self.base.rows, -1, np.int64)

    def _padded(self, sizes: Int64s) -> Int64s:
        return np.concatenate([sizes, np.full(self.slots - len(sizes), -1, np.int64)])

    def _sizes(self, index: str) -> Int64s:
        return self._of_index(index)[1]

    def index_summaries(self, index: str, rows: Int64s) -> list[SummaryRef | None]:
        """Return the summaries of the segment rows ``rows`` by the index specification ``index``, None: not covered."""
        fresh, _ = self._of_index(index)
        result: list[SummaryRef | None] = [None] * len(rows)
        if f"sizes/{index}" in self.base and self.forgotten.get(index) is None:
            slots = self.live.slots_of(rows)
            old = np.flatnonzero(slots < self.base.rows)
            for i, table in zip(old.tolist(), self._stored(index, slots[old]), strict=True):
                result[i] = added.summary_of(table)
        if len(fresh.table):
            found = fresh.of(self.segments[rows]).to_pylist()
            result = [
                added.summary_of(row) if known is None else known for known, row in zip(result, found, strict=True)
            ]
        return result

    def summary_table(self, index: str) -> pa.Table:
        """Return the summaries of an index, one row per segment, schema SUMMARY.  O(files)."""
        fresh, _ = self._of_index(index)
        found = fresh.of(self.segments)
        name = f"summaries/{index}"
        if name not in self.base or self.forgotten.get(index) is not None:
            return found.combine_chunks()
        old = pa.concat_tables([self.base.table(name), _nulls(SUMMARY, self.slots - self.base.rows)])
        old = self.live.of_table(old)
        known = pc.or_(old["path"].is_valid(), old["payload"].is_valid())
        parts = [pc.if_else(known, old[name], found[name]) for name in SUMMARY.names]
        return pa.table(parts, schema=SUMMARY).combine_chunks()

    def _stored(self, index: str, slots: Int64s) -> Iterator[dict[str, Any]]:
        """Yield the rows of SUMMARY of slots of the base, a page at a time."""
        name = f"summaries/{index}"
        at = 0
        while at < len(slots):
            table, first = self.base.page(name, int(slots[at]))
            inside = (slots[at:] >= first) & (slots[at:] < first + len(table))
            end = at + (len(inside) if inside.all() else int(np.argmin(inside)))
            yield from table.take(column(slots[at:end] - first)).to_pylist()
            at = end

    # Key index

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every unit of the key index."""
        return (*stored_units(self.base)[0], *self.units_since)

    def unit_groups(self, unit: Unit) -> Int64s:
        """Return the number of each of a unit's groups in this snapshot, -1 where it is gone -> int64[groups]."""
        return unit.numbers_in(self.file_groups)

    @cached_property
    def uncovered(self) -> frozenset[str]:
        """Ids of file groups of which the key index does not know every key."""
        stored = self.file_groups.names(stored_units(self.base)[1]) if self.base.rows else []
        return self.uncovered_since.union(stored)

    # History

    @cached_property
    def log(self) -> History:
        """What the records say of transactions."""
        return History(self.base, self.history_since)

    @cached_property
    def history(self) -> pa.Table:
        """One row per commit record, oldest first, schema HISTORY."""
        return self.log.table

    def unknown_instants(self, times: AbstractSet[str]) -> AbstractSet[str]:
        """Return which of ``times`` are no instants of records.  The history of the base is read only if need be."""
        left = times - {self.last_instant, *(str(row["instant"]) for row in self.history_since)}
        return left - self.log.instants if left else left

    @property
    def instants(self) -> frozenset[str]:
        """The instants of all records."""
        return self.log.instants

    @property
    def rolled_back(self) -> frozenset[str]:
        """Ids of all transactions that were declared dead."""
        return self.log.rolled_back

    @property
    def transactions(self) -> Mapping[str, int]:
        """Transaction id -> seq."""
        return self.log.transactions

    def check(self) -> None:
        """Assert the invariants that need no I/O beyond the metadata.  O(files)."""
        assert bool(np.all(np.diff(self.segments) > 0)), "segments must rise"
        assert self.history["seq"].to_pylist() == list(range(self.seq + 1)), "seqs must be contiguous"
        assert str(pc.max(self.history["instant"]).as_py()) == self.last_instant, (
            "the last instant must be in the history"
        )
        for i in np.flatnonzero(self.dead_rows).tolist():
            vector = self.vector(i)
            assert vector is not None and vector.max() < self.rows[i], "a dead position must be a row"
            assert len(vector) == self.dead_rows[i], "dead rows must be those of the vector"
        for number, rows in enumerate(self.members):
            assert int(np.sum(self.kind[rows] == BASE)) <= 1, "a file group has at most one live base file"
            assert bool(np.all(self.groups_of(rows) == number)), "the members of a group must name it"
        self._check_groups()

    def _check_groups(self) -> None:
        size, groups = self.files.numpy("size"), self.file_groups
        assert sum(len(rows) for rows in self.members) == len(self), "every file must be the member of a group"
        for number, rows in enumerate(self.members):
            group = groups.group(number)
            assert group.bytes == int(size[rows].sum()), "the bytes of a group must be those of its files"
            assert group.logs == int((self.kind[rows] != BASE).sum()), "the log files of a group must be counted"
            assert not len(rows) or groups.number([group.name])[0] == number, "a group must be found by its name"


def _total(summaries: pa.Table) -> int:
    return int(np.maximum(added.distinct_sizes(summaries), 0).sum())


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)


def _labelled(stats: pa.Table, column: str, segments: Int64s) -> pa.Table:
    """Return statistics of whole segments with the columns that tell whose they are, schema STATS."""
    n = len(stats)
    labels = [pa.array([column] * n, pa.string()), pa.array(segments, pa.int64()), pa.array([-1] * n, pa.int32())]
    return pa.table([*labels, *stats.columns], schema=STATS)
