"""The immutable view of a table at one seq: a checkpoint and the changes of later commit records.

All arrays about files are indexed by the files' *numbers* (:mod:`mdt.metadata.snapshot.data_files`)
and include files removed since the checkpoint.  A mask marks the live files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import column, flags, mask, numbers
from indexes.bounds import Bounds
from indexes.column_stats import STATS_SCHEMA
from mdt.errors import Expired
from mdt.forking import cached_property
from mdt.hudi.timeline import WRITES
from mdt.limits import SEGMENTS_CACHED_MAX
from mdt.metadata.files.file_group import BASE, FILES, SummaryRef
from mdt.metadata.log.checkpoint_columns import SUMMARY, Columns, no_rows
from mdt.metadata.log.commit_log import STATS
from mdt.metadata.log.imports import Imports
from mdt.metadata.log.retention import Retention
from mdt.metadata.log.streams import Streams
from mdt.metadata.log.tags import Tags
from mdt.metadata.snapshot import log_tail as added
from mdt.metadata.snapshot.data_files import Files, one_chunk
from mdt.metadata.snapshot.file_groups import GROUPED, Groups
from mdt.metadata.snapshot.key_parts import KeyPart, stored_key_parts
from mdt.metadata.snapshot.log_tail import Addition
from mdt.metadata.snapshot.persistent_map import Layered
from mdt.metadata.snapshot.segments import KnownSegments
from mdt.metadata.snapshot.shards import Shards
from mdt.metadata.snapshot.tombstones import TombstonesSince
from mdt.metadata.snapshot.transactions import History
from mdt.parquet.segment import Segment
from mdt.schema.definition import TableDefinition
from mdt.session import Recent

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshot:
    """A table at ``seq``.

    - checkpoint: The compacted state that the snapshot is based on.
    - additions: Files added since.
    - last_completion: Newest completion on Hudi's timeline, "" in tables of version 6.
    - removed: Numbers of removed files, ascending.
    - vectors_since: Positions deleted or replaced since the checkpoint, by file number.
    - dead_since: Number of these positions, including those of removed files.
    - starts: Number of the first file of each later commit, by seq.
    - forgotten: Seq since which the summaries of an index count, by specification.
    - known_again: File groups whose keys are all in later key parts, so that the checkpoint's key
      parts are ignored for them.
    - pending: Changes of file groups since ``groups_known``, applied when they are needed.
    - maps: Columns of FILES, by file number, with the key maps and page maps since the last rekey.
    - known: Cache of segments, by key hash and id.
    """

    finds_keys: ClassVar[bool] = True
    """True if the key index finds the rows of this view.  Other views have rows that are not the
    newest of their keys.
    """

    seq: int
    definition: TableDefinition
    checkpoint: Columns
    last_instant: str
    additions: tuple[Addition, ...] = ()
    removed: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    vectors_since: Layered[int, BitMap] = field(default_factory=Layered)
    dead_since: int = 0
    starts: Layered[int, int] = field(default_factory=Layered)
    forgotten: Layered[str, int] = field(default_factory=Layered)
    key_parts_since: tuple[KeyPart, ...] = ()
    uncovered_since: frozenset[str] = frozenset()
    known_again: frozenset[str] = frozenset()
    history_since: tuple[Mapping[str, Any], ...] = ()
    groups_known: Groups | None = None
    pending: tuple[tuple[pa.Table, int, Int64s], ...] = ()
    retention: Retention = field(default_factory=Retention)
    tags: Tags = field(default_factory=Tags)
    streams: Streams = field(default_factory=Streams)
    imports: Imports = field(default_factory=Imports)
    last_completion: str = ""
    tombstones_since: TombstonesSince = field(default_factory=TombstonesSince)
    maps: pa.Table | None = None
    known: KnownSegments = field(
        default_factory=lambda: Recent(SEGMENTS_CACHED_MAX), repr=False, compare=False
    )

    def __repr__(self) -> str:
        return f"<mdt snapshot {self.seq} of {self.definition.name!r}: {len(self):,} files>"

    def __len__(self) -> int:
        return self.numbered - len(self.removed)

    def __bool__(self) -> bool:
        return True  # a snapshot of an empty table is a snapshot

    # Files

    @cached_property
    def numbered(self) -> int:
        """Number of files with a number: live files, and files removed since the checkpoint."""
        return self.checkpoint.rows + sum(map(len, self.additions))

    @cached_property
    def live(self) -> npt.NDArray[np.bool_]:
        """Mask of the live files -> bool[numbered]."""
        live = np.ones(self.numbered, np.bool_)
        live[self.removed] = False
        return live

    @cached_property
    def live_numbers(self) -> Int64s:
        """The numbers of the live files, ascending -> int64[n]."""
        return np.flatnonzero(self.live)

    @cached_property
    def live_groups(self) -> Int64s:
        """The numbers of the file groups with live files, ascending -> int64[n]."""
        return np.unique(self.file_groups.of_files(self.live_numbers))

    @cached_property
    def files(self) -> Files:
        """All files: segments and columns of FILES by number.  Read lazily."""
        return Files(
            self.checkpoint, self.additions, self.known, self.definition.key_hash, self.maps
        )

    def listing(self) -> pa.Table:
        """Return the live files as a table, schema FILES."""
        return self.files.take(FILES.names, self.live_numbers)

    @cached_property
    def segment_ids(self) -> Int64s:
        """The segment id of each file, ascending -> int64[numbered]."""
        return self.files.numpy("segment")

    @cached_property
    def rows(self) -> Int64s:
        """Rows of each file, dead rows included, 0 if removed -> int64[numbered]."""
        return self._of_live(self.files.numpy("rows"))

    def _of_live(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``values`` [numbered] with 0 for removed files."""
        if len(self.removed):
            values = values.copy()
            values[self.removed] = 0
        return values

    @cached_property
    def kind(self) -> npt.NDArray[np.int8]:
        """BASE or LOG for each file -> int8[numbered]."""
        return self.files.numpy("kind")

    @cached_property
    def has_key_map(self) -> npt.NDArray[np.bool_]:
        """Mask of the files with a key map -> bool[numbered]."""
        return flags(self.files.column("key_map_length").is_valid())

    @cached_property
    def without_key_map(self) -> Int64s:
        """Numbers of the live files that have rows and no key map -> int64[n].  Only imported files
        can lack it.  O(files) for a table that other writers share, else O(1).
        """
        if not self.is_shared:
            return np.empty(0, np.int64)
        return self.live_numbers[(~self.has_key_map & (self.rows > 0))[self.live_numbers]]

    def segment(self, number: int) -> Segment:
        """Return the file with this number."""
        return self.files.segment(number)

    # Dead rows

    def vector(self, number: int) -> BitMap | None:
        """Return the dead positions of a file, or None if there are none."""
        since = self.vectors_since.get(number)
        if number >= self.checkpoint.rows or not self.checkpoint.numpy("dead")[number]:
            return since
        stored = self.checkpoint.vector(number)
        return stored if since is None else stored | since

    @cached_property
    def dead_rows(self) -> Int64s:
        """Number of dead rows of each file, 0 if removed -> int64[numbered]."""
        stored = self.checkpoint.numpy("dead")
        if self.numbered == len(stored) and not self.vectors_since:
            return self._of_live(stored)
        counts = np.concatenate([stored, np.zeros(self.numbered - len(stored), np.int64)])
        for number, vector in self.vectors_since.items():
            counts[number] += len(vector)
        counts[self.removed] = 0
        return counts

    @property
    def live_rows(self) -> Int64s:
        """Number of live rows of each file, 0 if removed -> int64[numbered]."""
        return self.rows - self.dead_rows

    @cached_property
    def has_rows(self) -> npt.NDArray[np.bool_]:
        """Mask of the live files with live rows -> bool[numbered].

        The checkpoint's part is cached.
        """
        checkpoint = self.checkpoint
        stored = checkpoint.memo(
            "has_rows", lambda: checkpoint.numpy("files/rows") > checkpoint.numpy("dead")
        )
        rows = [numbers(addition.files["rows"]) for addition in self.additions if len(addition)]
        added_rows = np.concatenate([np.empty(0, np.int64), *rows])
        has_rows = np.concatenate([stored, added_rows > 0])
        changed = self.vectors_since.flat()
        numbered = np.array(list(changed), np.int64)
        dead = np.array([len(vector) for vector in changed.values()], np.int64)
        in_checkpoint, is_added = numbered < checkpoint.rows, numbered >= checkpoint.rows
        if in_checkpoint.any():
            stored_dead = checkpoint.numpy("dead")[numbered[in_checkpoint]]
            has_rows[numbered[in_checkpoint]] = (
                checkpoint.numpy("files/rows")[numbered[in_checkpoint]]
                > stored_dead + dead[in_checkpoint]
            )
        has_rows[numbered[is_added]] = (
            added_rows[numbered[is_added] - checkpoint.rows] > dead[is_added]
        )
        has_rows[self.removed] = False
        return np.asarray(has_rows, np.bool_)

    # File groups

    @cached_property
    def file_groups(self) -> Groups:
        """The file groups."""
        groups = self.groups_known or Groups.from_checkpoint(self.checkpoint)
        for table, first, removed in self.pending:
            groups = groups.after(table, first, self.files.take(GROUPED, removed), removed)
        return groups

    # Statistics

    @property
    def stats_columns(self) -> list[str]:
        """Names of the columns with statistics."""
        names = dict.fromkeys(self.checkpoint.names("stats"))
        for addition in self.additions:
            names |= dict.fromkeys(addition.stats_columns)
        return list(names)

    @cached_property
    def _column_stats(self) -> dict[str, pa.Table | None]:
        return {}

    def column_stats(self, column: str) -> pa.Table | None:
        """Return the statistics of ``column`` [numbered], null for files without, or None if there
        are none.
        """
        if column not in self._column_stats:
            self._column_stats[column] = self._aligned_stats(column)
        return self._column_stats[column]

    def _aligned_stats(self, column: str) -> pa.Table | None:
        name = f"stats/{column}"
        stored = self.checkpoint.table(name) if name in self.checkpoint else None
        added_tables = [addition.column_stats(column) for addition in self.additions]
        if stored is None and all(table is None for table in added_tables):
            return None
        parts = [_nulls(STATS_SCHEMA, self.checkpoint.rows) if stored is None else stored]
        parts += [
            _nulls(STATS_SCHEMA, len(p)) if t is None else t
            for p, t in zip(self.additions, added_tables, strict=True)
        ]
        return one_chunk(pa.concat_tables([p for p in parts if len(p)] or parts[:1]))

    def column_stats_of(self, columns: Sequence[str], numbers: Int64s) -> list[pa.Table]:
        """Return the statistics of each of ``columns`` for the files ``numbers``, ascending, null
        for files without, schema STATS_SCHEMA [numbers].  O(columns * numbers).
        """
        stored = self.checkpoint
        parts: list[list[pa.Table]] = [[no_rows(STATS_SCHEMA)] for _ in columns]
        starts = [0, *(addition.first for addition in self.additions), self.numbered]
        ends = np.searchsorted(numbers, starts[1:])
        for at, (begin, end) in enumerate(pairwise([0, *ends.tolist()])):
            here = pa.array(numbers[begin:end] - starts[at])
            for name, column_parts in zip(columns, parts, strict=True) if begin < end else ():
                table = None
                if at:
                    table = self.additions[at - 1].column_stats(name)
                elif f"stats/{name}" in stored:
                    table = stored.table(f"stats/{name}")
                nulls = _nulls(STATS_SCHEMA, len(here))
                column_parts.append(nulls if table is None else table.take(here))
        return [pa.concat_tables(column_parts) for column_parts in parts]

    @cached_property
    def _added_bounds(self) -> dict[str, Bounds]:
        return {}

    def added_bounds(self, column: str, type: pa.DataType) -> Bounds:
        """Return the statistics of ``column`` for files since the checkpoint, in comparable form.

        Their length is ``numbered - checkpoint.rows``.
        """
        bounds = self._added_bounds.get(column)
        if bounds is None:
            parts = [addition.bounds(column, type) for addition in self.additions if len(addition)]
            bounds = self._added_bounds[column] = Bounds.concat(parts or [Bounds.unknown(0)])
        return bounds

    def row_group_stats(self, number: int) -> pa.Table:
        """Return the row group statistics of a file, for all columns, schema STATS."""
        if number < self.checkpoint.rows and "row_groups" not in self.checkpoint:
            return no_rows(STATS)
        segment = int(self.files.value("segment", number).as_py())
        if number < self.checkpoint.rows:
            return added.segment_rows(self.checkpoint.page("row_groups", number)[0], segment)
        return self.files.addition(number).row_group_stats(segment)

    def segment_stats(self, number: int) -> pa.Table:
        """Return all statistics of a file, of the whole and of its row groups, schema STATS."""
        segment = self.segment_ids[number : number + 1]
        tables = []
        for name in self.stats_columns:
            table = self.column_stats(name)
            if table is not None and table["values"][number].is_valid:
                tables.append(_labelled(table.slice(number, 1), name, segment))
        return pa.concat_tables([no_rows(STATS), *tables, self.row_group_stats(number)])

    @property
    def stats(self) -> pa.Table:
        """All statistics of live files, schema STATS: of whole segments by column, then of row
        groups.

        O(files).
        """
        parts = [no_rows(STATS)]
        for name in self.stats_columns:
            table = self.column_stats(name)
            assert table is not None, "it is among the names"
            has_stats = pc.and_(table["values"].is_valid(), mask(self.live))
            parts.append(_labelled(table, name, self.segment_ids).filter(has_stats))
        return pa.concat_tables([*parts, self.all_row_groups()])

    def all_row_groups(self) -> pa.Table:
        """Return the row group statistics of live files, by segment, schema STATS.  O(files)."""
        parts = [addition.all_row_groups() for addition in self.additions]
        if "row_groups" in self.checkpoint:
            parts.insert(0, self.checkpoint.table("row_groups"))
        row_groups = pa.concat_tables([no_rows(STATS), *parts])
        if not len(self.removed):
            return row_groups
        return row_groups.filter(
            pc.is_in(row_groups["segment"], pa.array(self.segment_ids[self.live]))
        )

    # Indexes

    @cached_property
    def shards(self) -> Shards:
        """The shards of the files [numbered]."""
        checkpoint = self.checkpoint
        stored = checkpoint.memo(
            "shards", lambda: Shards.from_numbers(checkpoint.numpy("files/shard"))
        )
        return stored.followed_by([numbers(addition.files["shard"]) for addition in self.additions])

    @cached_property
    def first_rows(self) -> Int64s:
        """The position of each file's first row in its shard -> int64[numbered]."""
        return self.files.numpy("first_row")

    @cached_property
    def live_shards(self) -> Int64s:
        """The shards with live files, ascending -> int64[n]."""
        return self.shards.of_files(self.live_numbers)

    def covered(self, index: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the live files that the index specification ``index`` covers ->
        bool[numbered].
        """
        return self.covered_shards(index)[self.shards.of_file] & self.live

    def covered_shards(self, index: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the shards with a summary of an index -> bool[shards]."""
        return self.summary_bytes(index) >= 0

    def index_bytes(self, index: str) -> int:
        """Return the total size of an index's summaries of shards with live files.  O(files)."""
        return int(np.maximum(self.summary_bytes(index)[self.live_shards], 0).sum())

    def summary_bytes(self, index: str) -> Int64s:
        """Return the size of each shard's summary, -1 if it has none -> int64[shards]."""
        return self._of_index(index)[1]

    def live_of(self, table: pa.Table) -> pa.Table:
        """Return the rows of live files in ``table`` [numbered]."""
        if not len(self.removed):
            return table
        return table.take(column(self.live_numbers))

    @cached_property
    def _summaries(self) -> dict[str, tuple[added.Summaries, Int64s]]:
        return {}

    def _of_index(self, index: str) -> tuple[added.Summaries, Int64s]:
        """Return the summaries among the additions, and the size of each shard's summary.

        Sizes are -1 for shards without -> int64[shards].
        """
        if index not in self._summaries:
            added_summaries = added.Summaries.among(
                self.additions, index, self.forgotten.get(index) or 0
            )
            sizes = np.full(len(self.shards), -1, np.int64)
            if self._is_stored(index):
                stored = self.checkpoint.numpy(f"sizes/{index}")
                sizes[: len(stored)] = stored
            if len(added_summaries.table):
                newer = added.summary_sizes(added_summaries.newest(self.shards.number))
                sizes = np.where(newer < 0, sizes, newer)
            self._summaries[index] = added_summaries, sizes
        return self._summaries[index]

    def _is_stored(self, index: str) -> bool:
        """Return True if the checkpoint has valid summaries of an index."""
        return f"sizes/{index}" in self.checkpoint and self.forgotten.get(index) is None

    def index_summaries(self, index: str, shards: Int64s) -> list[SummaryRef | None]:
        """Return the summaries of ``shards`` by an index specification, None if not covered."""
        added_summaries, _ = self._of_index(index)
        summaries: list[SummaryRef | None] = [None] * len(shards)
        if self._is_stored(index):
            in_checkpoint = np.flatnonzero(shards < len(self.checkpoint.table(f"sizes/{index}")))
            for i, row in zip(
                in_checkpoint.tolist(), self._stored(index, shards[in_checkpoint]), strict=True
            ):
                summaries[i] = added.summary_of(row)
        if len(added_summaries.table):
            rows = added_summaries.newest(self.shards.number[shards]).to_pylist()
            newer = [added.summary_of(row) for row in rows]
            for i, summary in enumerate(newer):
                if summary is not None:
                    summaries[i] = summary
        return summaries

    def summary_table(self, index: str) -> pa.Table:
        """Return the summaries of an index, schema SUMMARY [shards].  O(shards)."""
        added_summaries, _ = self._of_index(index)
        newest = added_summaries.newest(self.shards.number)
        if not self._is_stored(index):
            return newest.combine_chunks()
        table = self.checkpoint.table(f"summaries/{index}")
        stored = one_chunk(
            pa.concat_tables([table, _nulls(SUMMARY, len(self.shards) - len(table))])
        )
        newer = pc.or_(newest["path"].is_valid(), newest["payload"].is_valid())
        parts = [pc.if_else(newer, newest[name], stored[name]) for name in SUMMARY.names]
        return pa.table(parts, schema=SUMMARY).combine_chunks()

    def _stored(self, index: str, shards: Int64s) -> Iterator[dict[str, Any]]:
        """Yield the checkpoint's rows of SUMMARY for ``shards`` (ascending), page by page."""
        name = f"summaries/{index}"
        at = 0
        while at < len(shards):
            table, first = self.checkpoint.page(name, int(shards[at]))
            in_page = (shards[at:] >= first) & (shards[at:] < first + len(table))
            end = at + int(np.argmin(np.append(in_page, False)))
            yield from table.take(column(shards[at:end] - first)).to_pylist()
            at = end

    # Key index

    @cached_property
    def key_parts(self) -> tuple[KeyPart, ...]:
        """All key parts of the key index."""
        stored = stored_key_parts(self.checkpoint)[0]
        if self.known_again:
            numbers = self.file_groups.number(sorted(self.known_again))
            stored = tuple(
                remaining
                for part in stored
                if (remaining := part.without(numbers=numbers)) is not None
            )
        return (*stored, *self.key_parts_since)

    def key_part_groups(self, key_part: KeyPart) -> Int64s:
        """Return the number of each group of a key part, -1 if it no longer exists ->
        int64[groups].
        """
        return key_part.numbers_in(self.file_groups)

    @cached_property
    def uncovered(self) -> frozenset[str]:
        """Ids of the file groups that the key index does not cover completely."""
        stored = Groups.from_checkpoint(self.checkpoint).names(stored_key_parts(self.checkpoint)[1])
        return self.uncovered_since.union(set(stored) - self.known_again)

    # History

    @property
    def is_shared(self) -> bool:
        """True if other Hudi writers have written to the table.  Their services clean files and
        archive instants of ours, too.
        """
        return self.definition.adopted or bool(self.imports)

    def is_kept(self, seq: int) -> bool:
        """Return True if the snapshot after commit ``seq`` can be read."""
        return seq >= self.retention.horizon or seq in self.tags.states

    def keeps_checkpoint(self, seq: int) -> bool:
        """Return True if checkpoint ``seq`` is guaranteed to exist.  -1 is the log alone."""
        return seq >= self.retention.first - 1 or seq in self.tags.states

    def expired(self, message: str) -> Expired:
        """Return the error for a past snapshot that was cleaned.  This snapshot is the newest."""
        return Expired(message, oldest=self.retention.horizon, newest=self.seq)

    @cached_property
    def log(self) -> History:
        """The transactions in the records."""
        return History(self.checkpoint, self.history_since)

    @cached_property
    def history(self) -> pa.Table:
        """One row per commit record in the log, oldest first, schema HISTORY."""
        table = self.log.table
        if not self.retention.first:
            return table
        return table.filter(mask(numbers(table["seq"]) >= self.retention.first))

    def unknown_instants(self, times: AbstractSet[str]) -> AbstractSet[str]:
        """Return the ``times`` that are neither instants of records nor as old as archived
        instants.

        The checkpoint's history is read only if necessary.
        """
        unknown = times - {self.last_instant, *(str(row["instant"]) for row in self.history_since)}
        unknown = {time for time in unknown if time > self.retention.instant}
        if unknown:
            unknown -= self.log.instants
        return unknown

    def is_ours(self, time: str, action: str) -> bool:
        """Return True if an instant on Hudi's timeline is that of a record."""
        return time in self.instants and not self.is_write_of_others(time, action)

    def is_write_of_others(self, time: str, action: str) -> bool:
        """Return True if a write on Hudi's timeline has the instant of a record that is not there,
        so that another writer has made it.
        """
        return action in WRITES and self.is_shared and time in self.log.private_instants

    @property
    def txn(self) -> str:
        """Id of the newest transaction.  The checkpoint's history is read only if necessary."""
        if self.history_since:
            return str(self.history_since[-1]["txn"])
        return str(self.log.table["txn"][-1].as_py())

    def continues(self, older: Snapshot) -> bool:
        """Return True if this is the table of ``older`` at the same time or later, and not another
        one.
        """
        if self is older:
            return True
        if older.seq < self.retention.first:  # its record was archived
            return self.definition.table_id == older.definition.table_id
        return self.transactions.get(older.txn) == older.seq

    @property
    def cache_key(self) -> tuple[int, int, str]:
        """The key of what was derived from this snapshot: seq, checkpoint, and newest instant, as
        another table or a backup may take the place of this one.
        """
        return self.seq, self.checkpoint.seq, self.last_instant

    @property
    def last_time(self) -> str:
        """The newest time on Hudi's timeline: of an instant or of a completion."""
        return max(self.last_instant, self.last_completion)

    @property
    def instants(self) -> frozenset[str]:
        """The instants of all records."""
        return self.log.instants

    @property
    def rolled_back(self) -> frozenset[str]:
        """Ids of all transactions declared dead."""
        return self.log.rolled_back

    @property
    def transactions(self) -> Mapping[str, int]:
        """Seqs by transaction id."""
        return self.log.transactions

    def check(self) -> None:
        """Assert the invariants that need only the metadata.  O(files)."""
        assert self.numbered == len(self.files), "every file must have a number"
        assert bool(np.all(np.diff(self.segment_ids) > 0)), "segments must be ascending"
        seqs = self.history["seq"].to_pylist()
        assert seqs == list(range(self.retention.first, self.seq + 1)), "seqs must be contiguous"
        assert str(pc.max(self.history["instant"]).as_py()) == self.last_instant, (
            "the last instant must be in the history"
        )
        for number in np.flatnonzero(self.dead_rows).tolist():
            vector = self.vector(number)
            assert vector is not None and vector.max() < self.rows[number], (
                "a dead position must be a row"
            )
            assert len(vector) == self.dead_rows[number], "dead rows must be those of the vector"
        self._check_groups()

    def _check_groups(self) -> None:
        size, groups, count = self.files.numpy("size"), self.file_groups, 0
        for number in range(groups.count):
            members = groups.members(number)
            count += len(members)
            assert bool(np.all(self.live[members])), "the members of a group must be live"
            assert int(np.sum(self.kind[members] == BASE)) <= 1, (
                "a file group has at most one live base file"
            )
            assert bool(np.all(groups.of_files(members) == number)), (
                "the members of a group must name it"
            )
            group = groups.group(number)
            assert group.bytes == int(size[members].sum()), (
                "the bytes of a group must be those of its files"
            )
            assert group.logs == int((self.kind[members] != BASE).sum()), (
                "the log files of a group must be counted"
            )
            assert not len(members) or groups.number([group.name])[0] == number, (
                "a group must be found by its name"
            )
        assert count == len(self), "every live file must be the member of a group"


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)


def _labelled(stats: pa.Table, column: str, segments: Int64s) -> pa.Table:
    """Return statistics of whole segments with the columns of STATS that identify them."""
    n = len(stats)
    labels = [
        pa.array([column] * n, pa.string()),
        pa.array(segments, pa.int64()),
        pa.array([-1] * n, pa.int32()),
    ]
    return pa.table([*labels, *stats.columns], schema=STATS)
