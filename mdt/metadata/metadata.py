"""The metadata table: base (a compacted state up to one seq) plus log (the commit records after it).

Reading starts from the newest base, which a hint names, and replays the records after it, probing seq + 1 until it is
absent.  Hint and base are derived and may be missing or damaged: the log alone gives the same snapshot.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array, KeyIndex
from indexes.predicate import And
from mdt import logs
from mdt.config import Options, canonical, parse_options
from mdt.errors import Corrupt, Invalid, Missing, Unsupported
from mdt.limits import (
    INLINE_SUMMARY_BYTES_MAX,
    METADATA_COMPACT_FILES_SHARE,
    METADATA_COMPACT_RECORDS,
    METADATA_COMPACT_RECORDS_MAX,
    RECORDS_CACHED_MAX,
    SEGMENTS_CACHED_MAX,
    UNITS_OPEN_MAX,
)
from mdt.metadata import codec, commit_log, key_indexes, paths
from mdt.metadata.attachments import Blobs
from mdt.metadata.checkpoint import fold, folded, wrong_runs
from mdt.metadata.column_stats import FileStats
from mdt.metadata.columns import PAGES, Columns
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.foreign import Watch, watched_since
from mdt.metadata.index_summaries import SummaryCache
from mdt.metadata.key_parts import Unit
from mdt.metadata.other_tables import no_table
from mdt.metadata.recent import Recent
from mdt.metadata.replay import apply, first
from mdt.metadata.snapshot import Snapshot
from mdt.metadata.stored_columns import StoredColumns, parse_layout, write_pages
from mdt.metadata.usage import Usage
from mdt.parquet.segment import Segment
from mdt.schema.definition import TableDefinition, from_json
from mdt.stores import storage
from mdt.stores.blob import Blob
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.stores.storage import PageCache

MANIFEST = b"COLS"
VERSION = 1


class Metadata:
    """Reads and compacts the metadata table of one table; caches the newest snapshot."""

    def __init__(self, storage: Storage, overrides: Mapping[str, object] | None = None) -> None:
        """``overrides``: options that take precedence over those kept with the table.

        ``said``: what was logged and shall not be again.
        """
        self.storage = storage
        self._overrides = canonical(overrides)
        self.blobs = Blobs(storage)
        self.summaries = SummaryCache(self.blobs, is_local=storage.local_path("") is not None)
        self.usage = Usage(storage)
        self.segments: Recent[int, Segment] = Recent(SEGMENTS_CACHED_MAX)
        self.watch = Watch(storage)
        self.said: set[str] = set()
        self.base_seq = -1
        self.damage: Corrupt | None = None
        self._base: StoredColumns | None = None
        self._opened: Snapshot | None = None
        self._looked_at = -1
        self._newest: Snapshot | None = None
        self._records: dict[int, CommitRecord] = {}
        self._units: Recent[Blob, pa.Buffer] = Recent(UNITS_OPEN_MAX)
        self._options: tuple[TableDefinition, Options] | None = None
        self._key_index: tuple[TableDefinition, KeyIndex] | None = None

    @property
    def overrides(self) -> Mapping[str, object]:
        """The options that take precedence over those kept with the table."""
        return self._overrides

    def newest(self, *, watched: bool = True) -> Snapshot:
        """Return the newest snapshot.  O(records since the last call); one failed probe when nothing happened.

        Raises Unsupported if another Hudi writer has changed the table, unless not ``watched``: within a transaction.
        """
        snapshot = self._newest or self._from_base() or self._from_log()
        seen = self.watch.look() if watched else None
        while (record := self.record(snapshot.seq + 1)) is not None:
            snapshot = apply(snapshot, record)
        if snapshot.seq - max(self._looked_at, snapshot.base.seq) > METADATA_COMPACT_RECORDS:
            snapshot = self._rebased(snapshot)
        self._newest = snapshot
        self.watch.accept(seen, snapshot)
        return snapshot

    def _rebased(self, snapshot: Snapshot) -> Snapshot:
        """Return the same snapshot on a newer base, if another process has written one: what was added since gets less."""
        self._looked_at = snapshot.seq
        try:
            seq = self._hinted()
            if seq is None or not snapshot.base.seq < seq <= snapshot.seq:
                return snapshot
            return self._advanced(self._open_base(seq), snapshot.seq)
        except Corrupt:
            return snapshot

    def at(self, seq: int, base_seq: int | None = None) -> Snapshot:
        """Return the snapshot after commit ``seq``.  Raises Invalid if there is no such commit.

        ``base_seq``: the base that it shall stand on, -1 for none.  Processes that tell each other numbers of files
        or file groups must name it, because the numbers depend on it.
        """
        newest = self.newest()
        if not 0 <= seq <= newest.seq:
            raise Invalid(f"there is no commit {seq}", hint=f"commits 0 to {newest.seq} exist")
        if seq == newest.seq and base_seq in (None, newest.base.seq):
            return newest
        if base_seq is not None:
            return self._advanced(self._standing_on(base_seq), seq)
        opened = self._opened
        return self._replayed(seq) if opened is None or opened.seq > seq else self._advanced(opened, seq)

    def _standing_on(self, base_seq: int) -> Snapshot:
        """Return the snapshot of base ``base_seq``; one that cannot be read is made again."""
        if base_seq < 0:
            return self._from_log()
        if self._opened is not None and self._opened.seq == base_seq:
            return self._opened
        try:
            return self._base_snapshot(base_seq)[0]
        except Corrupt:
            whole = self._replayed(base_seq)
            columns = folded(whole)
            return Snapshot(base_seq, whole.definition, columns, whole.last_instant, known=self.segments)

    def record(self, seq: int) -> CommitRecord | None:
        """Return commit record ``seq`` or None; recent ones come from memory."""
        found = self._records.get(seq)
        if found is None and (found := commit_log.read(self.storage, seq)) is not None:
            self._records[seq] = found
            while len(self._records) > RECORDS_CACHED_MAX:
                del self._records[next(iter(self._records))]
        return found

    def unit_payload(self, unit: Unit) -> bytes | pa.Buffer:
        """Return the bytes of a key index unit; they verify themselves when they are parsed."""
        if unit.payload is not None:
            return unit.payload
        assert unit.blob is not None
        known = self._units.get(unit.blob)
        return self._units.put(unit.blob, self.blobs.read(unit.blob, verify=False)) if known is None else known

    def key_index(self, snapshot: Snapshot) -> KeyIndex:
        """Return the key index of the table.  Raises Unsupported if its class is not installed."""
        definition = snapshot.definition
        if self._key_index is None or self._key_index[0] is not definition:
            fpp = self.options(definition).bloom_fpp
            found = key_indexes.find(definition.key_index, bloom_fpp=fpp, packages=definition.packages)
            self._key_index = definition, found
        return self._key_index[1]

    def key_index_problem(self, snapshot: Snapshot) -> Unsupported | None:
        """Return why the key index of the table cannot be used in this process, or None."""
        try:
            self.key_index(snapshot)
        except Unsupported as error:
            return error
        return None

    def options(self, definition: TableDefinition) -> Options:
        """Return the options kept with the table, overridden by those given here."""
        if self._options is None or self._options[0] is not definition:
            self._options = definition, parse_options({**definition.options, **self._overrides})
        return self._options[1]

    def compaction_is_due(self) -> bool:
        """Return whether the next open would gain by a new base.

        After METADATA_COMPACT_RECORDS records (an option), in large tables later: see METADATA_COMPACT_FILES_SHARE.
        """
        snapshot = self.newest(watched=False)
        least = self.options(snapshot.definition).metadata_compact_records
        wanted = max(
            least, min(math.isqrt(len(snapshot) // METADATA_COMPACT_FILES_SHARE), METADATA_COMPACT_RECORDS_MAX)
        )
        return snapshot.seq - max(self.base_seq, 0) >= wanted

    def compact(self) -> Snapshot:
        """Write the newest snapshot as a base, point the hint to it, and return it.  Idempotent; not a commit."""
        snapshot = self.newest(watched=False)
        token = self.storage.random_hex(4)
        units = snapshot.units
        if self.key_index_problem(snapshot) is None:  # else units stay as they are, for a process that can read them
            snapshot = self._without_damaged_units(snapshot)
            units = merged_units(snapshot, self.key_index(snapshot), self.unit_payload)
        columns = fold(snapshot, self._with_blobs(snapshot, units, token))
        objects, entries, pages = write_pages(
            self.storage, columns, lambda n: paths.base_part(snapshot.seq, token, f"pages-{n}")
        )
        header = {
            "seq": snapshot.seq,
            "definition": snapshot.definition.to_json(),
            "last_instant": snapshot.last_instant,
            "watched_since": self.watch.since,
            "rows": len(snapshot),
            "groups": len(columns["members_start"].table) - 1,
            "objects": objects,
            "columns": entries,
        }
        manifest = codec.frame(MANIFEST, VERSION, codec.pack(header, {"pages": codec.encode_ipc(pages)}))
        self.storage.put_if_absent(paths.base_manifest(snapshot.seq), manifest)
        self.storage.replace(paths.hint(), json.dumps({"seq": snapshot.seq}).encode())
        self._newest = None
        return self.newest(watched=False)

    def warm(self, columns: Sequence[str] | None = None) -> None:
        """Read what plans need: the files, and the statistics of ``columns`` (default: of all)."""
        snapshot = self.newest()
        names = snapshot.stats_columns if columns is None else columns
        if self._base is not None and snapshot.base is self._base:
            wanted = ["files/segment", "files/rows", "dead", *(f"stats/{name}" for name in names)]
            self._base.load([name for name in wanted if name in self._base])
        _ = snapshot.has_rows
        FileStats(snapshot, And(()), names).warm()

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of each cache of this process: ``pages`` in memory, ``statistics`` made of them, ``disk``."""
        base, disk = self._base, None if self._base is None else self._base.cache
        return {
            "pages": (0, 0) if base is None else (base.hits, base.misses),
            "statistics": (0, 0) if base is None else (base.statistics_hits, base.statistics_misses),
            "disk": (0, 0) if disk is None else (disk.hits, disk.misses),
        }

    def _without_damaged_units(self, snapshot: Snapshot) -> Snapshot:
        """Forget units that cannot be read; every key is then looked for in their groups."""
        index = self.key_index(snapshot)
        damaged = [u for u in mergeable(snapshot, index) if not _can_be_read(u, index, self.unit_payload)]
        if not damaged:
            return snapshot
        lost = np.concatenate([snapshot.unit_groups(unit) for unit in damaged])
        changed = replace(
            snapshot, uncovered_since=snapshot.uncovered.union(snapshot.file_groups.names(lost[lost >= 0].tolist()))
        )
        changed.__dict__["units"] = tuple(u for u in snapshot.units if all(u is not d for d in damaged))
        return changed

    def _with_blobs(self, snapshot: Snapshot, units: Sequence[Unit], token: str) -> tuple[Unit, ...]:
        placed = []
        for number, unit in enumerate(units):
            if unit.payload is not None and len(unit.payload) > INLINE_SUMMARY_BYTES_MAX:
                path = paths.base_part(snapshot.seq, token, f"unit-{number}")
                self.storage.create(path, unit.payload)
                blob = Blob(path, 0, len(unit.payload), zlib.crc32(unit.payload))
                unit = replace(unit, payload=None, blob=blob)
            placed.append(unit)
        return tuple(placed)

    def _from_log(self) -> Snapshot:
        record = self.record(0)
        if record is None:
            raise no_table(self.storage)
        return replace(first(record, path=paths.commit(0)), known=self.segments)

    def _from_base(self) -> Snapshot | None:
        """Return the snapshot of the newest base, or None if there is none that can be read."""
        try:
            seq = self._hinted()
            return None if seq is None else self._open_base(seq)
        except Corrupt as error:
            self._distrust(error)
            return None

    def _distrust(self, error: Corrupt) -> None:
        """Note that the base is damaged: the next commit writes another one."""
        text = "%s: compacted metadata are damaged and made again from the log: %s"
        logs.warn_once(logs.METADATA, self.said, str(error), text, self.storage.url, error)
        self.damage = error
        self.base_seq = -1

    def check_base(self) -> None:
        """Read the newest base as a whole, if there is one.  Raises Corrupt if something in it is damaged."""
        seq = self._hinted()
        if seq is not None:
            columns = self._columns(seq, cached=False)[0]
            columns.check()
            for name in wrong_runs(columns):
                raise Corrupt(f"{name} and the statistics of files disagree", path=paths.base_manifest(seq))

    def _hinted(self) -> int | None:
        hint = self.storage.read_if_exists(paths.hint())
        if hint is None:
            return None
        try:
            seq = json.loads(hint)["seq"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Corrupt(f"the hint cannot be read: {error!r}", path=paths.hint(), offset=0) from error
        if type(seq) is not int or seq < 0:
            raise Corrupt(
                "the hint names no base", path=paths.hint(), offset=0, expected="a number", got=repr(seq)[:40]
            )
        return seq

    def _open_base(self, seq: int) -> Snapshot:
        """Return the snapshot of base ``seq``; nothing but its manifest is read."""
        self._opened, self._base, header = self._base_snapshot(seq)
        self.watch.since = self.watch.since or watched_since(header)
        self.base_seq = seq
        return self._opened

    def _base_snapshot(self, seq: int) -> tuple[Snapshot, StoredColumns, Mapping[str, Any]]:
        columns, header = self._columns(seq)
        definition = from_json(header["definition"], path=paths.base_manifest(seq))
        instant = str(header["last_instant"])
        snapshot = Snapshot(seq, definition, columns, instant, known=self.segments)
        return snapshot, columns, header

    def _columns(self, seq: int, *, cached: bool = True) -> tuple[StoredColumns, dict[str, Any]]:
        path = paths.base_manifest(seq)
        payload = codec.unframe(self.storage.read(path), MANIFEST, path=path, version_max=VERSION)
        header, sections = codec.unpack(payload, path=path)
        try:
            pages = codec.decode_ipc(sections["pages"], PAGES, path=path)
            layout = parse_layout(header, pages, path=path)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"a base cannot be read: {error!r}", path=path) from error
        if layout.seq != seq:
            raise Corrupt("a manifest has a wrong number", path=path, expected=str(seq), got=str(layout.seq))

        def rebuild() -> Columns:
            return folded(self._replayed(seq))

        cache = self._page_cache(header) if cached else None
        return StoredColumns(self.storage, layout, cache=cache, damaged=self._distrust, rebuild=rebuild), header

    def _page_cache(self, header: Mapping[str, Any]) -> PageCache | None:
        """Return the cache on the local disk for pages of a remote store; others are mapped or in memory already."""
        options = parse_options({**header["definition"]["options"], **self._overrides})
        if not self.storage.is_remote or not options.cache_bytes_max:
            return None
        return storage.open_page_cache(options.cache_dir, options.cache_bytes_max)

    def _replayed(self, seq: int) -> Snapshot:
        """Return the snapshot after record ``seq`` by the log alone."""
        return self._advanced(self._from_log(), seq)

    def _advanced(self, snapshot: Snapshot, seq: int) -> Snapshot:
        while snapshot.seq < seq:
            record = self.record(snapshot.seq + 1)
            if record is None:
                raise Missing("a commit record is gone", path=paths.commit(snapshot.seq + 1))
            snapshot = apply(snapshot, record)
        return snapshot


Payload = Callable[[Unit], bytes | pa.Buffer]
"""From a unit to its bytes; raises Corrupt if they are gone."""


def _can_be_read(unit: Unit, index: KeyIndex, payload: Payload) -> bool:
    try:
        count = len(unit.groups) if unit.numbers is None else len(unit.numbers)
        index.merge([memoryview(payload(unit))], [np.arange(count)], count)
    except (ValueError, Corrupt):
        return False
    return True


def mergeable(snapshot: Snapshot, index: KeyIndex) -> list[Unit]:
    """Return the smaller units of ``snapshot``, those that the next compaction makes one.

    Size-tiered: a unit is among them while it is at most four times the sum of the smaller ones, so that a byte is
    rewritten O(log n) times over n compactions.
    """
    chosen: list[Unit] = []
    total = 0
    for unit in sorted((u for u in snapshot.units if u.index == index.name), key=lambda u: u.size):
        if chosen and unit.size > max(4 * total, INLINE_SUMMARY_BYTES_MAX):
            break
        chosen.append(unit)
        total += unit.size
    return chosen


def merged_units(snapshot: Snapshot, index: KeyIndex, payload: Payload) -> tuple[Unit, ...]:
    """Return the units of ``snapshot`` with the smaller ones merged into one, dead groups forgotten."""
    chosen = mergeable(snapshot, index)
    if len(chosen) < 2:
        return snapshot.units
    groups = [snapshot.unit_groups(unit) for unit in chosen]
    known = np.unique(np.concatenate(groups))
    known = known[[n >= 0 and len(snapshot.file_groups.members(n)) > 0 for n in known.tolist()]]
    maps = [_places(known, numbers) for numbers in groups]
    data = index.merge([memoryview(payload(unit)) for unit in chosen], maps, len(known))
    kept = tuple(u for u in snapshot.units if all(u is not c for c in chosen))
    return (*kept, Unit(index.name, (), data, None, known))


def _places(known: Int64Array, numbers: Int64Array) -> Int64Array:
    """Return where each of ``numbers`` stands in ``known`` (rising), -1 where it does not."""
    if not len(known):
        return np.full(len(numbers), -1, np.int64)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, at, -1).astype(np.int64)
