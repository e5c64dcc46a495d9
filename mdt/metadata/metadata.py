"""The metadata table: checkpoint (a compacted state up to one seq) plus log (the commit records after it).

Reading starts from the newest checkpoint, which a hint names, and replays the records after it, probing seq + 1 until it is
absent.  Hint and checkpoint are derived and may be missing or damaged: the log alone gives the same snapshot.
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
from mdt.hudi.layout import layout_of
from mdt.limits import (
    INLINE_SUMMARY_BYTES_MAX,
    KEY_PARTS_OPEN_MAX,
    METADATA_COMPACT_FILES_SHARE,
    METADATA_COMPACT_RECORDS,
    METADATA_COMPACT_RECORDS_MAX,
    RECORDS_CACHED_MAX,
    SEGMENTS_CACHED_MAX,
)
from mdt.metadata import codec, commit_log, key_indexes, paths
from mdt.metadata.apply import apply, first
from mdt.metadata.attachments import ObjectReader
from mdt.metadata.checkpoint import checkpoint_of, to_checkpoint, wrong_stripes
from mdt.metadata.column_stats import FileStats
from mdt.metadata.columns import PAGES, Columns
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.foreign import Watch, watched_since
from mdt.metadata.index_summaries import SummaryCache
from mdt.metadata.key_parts import KeyPart
from mdt.metadata.other_tables import no_table
from mdt.metadata.recent import Recent
from mdt.metadata.snapshot import Snapshot
from mdt.metadata.stored_columns import StoredColumns, parse_layout, write_pages
from mdt.metadata.usage import Usage
from mdt.parquet.segment import Segment
from mdt.schema.definition import TableDefinition, from_json
from mdt.stores import storage
from mdt.stores.object_range import ObjectRange
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
        self.objects = ObjectReader(storage)
        self.summaries = SummaryCache(self.objects, is_local=storage.local_path("") is not None)
        self.usage = Usage(storage)
        self.segments: Recent[int, Segment] = Recent(SEGMENTS_CACHED_MAX)
        self.watch = Watch(storage)
        self.said: set[str] = set()
        self.checkpoint_seq = -1
        self.damage: Corrupt | None = None
        self._checkpoint: StoredColumns | None = None
        self._opened: Snapshot | None = None
        self._looked_at = -1
        self._newest: Snapshot | None = None
        self._records: dict[int, CommitRecord] = {}
        self._key_parts: Recent[ObjectRange, pa.Buffer] = Recent(KEY_PARTS_OPEN_MAX)
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
        snapshot = self._newest or self._from_checkpoint() or self._from_log()
        seen = self.watch.look(layout_of(snapshot.definition)) if watched else None
        while (record := self.record(snapshot.seq + 1)) is not None:
            snapshot = apply(snapshot, record)
        if snapshot.seq - max(self._looked_at, snapshot.checkpoint.seq) > METADATA_COMPACT_RECORDS:
            snapshot = self._rebased(snapshot)
        self._newest = snapshot
        self.watch.accept(seen, snapshot)
        return snapshot

    def _rebased(self, snapshot: Snapshot) -> Snapshot:
        """Return the same snapshot on a newer checkpoint, if another process has written one: what was added since gets less."""
        self._looked_at = snapshot.seq
        try:
            seq = self._hinted()
            if seq is None or not snapshot.checkpoint.seq < seq <= snapshot.seq:
                return snapshot
            return self._advanced(self._open_checkpoint(seq), snapshot.seq)
        except Corrupt:
            return snapshot

    def at(self, seq: int, checkpoint_seq: int | None = None) -> Snapshot:
        """Return the snapshot after commit ``seq``.  Raises Invalid if there is no such commit.

        ``checkpoint_seq``: the checkpoint that it shall stand on, -1 for none.  Processes that tell each other numbers of files
        or file groups must name it, because the numbers depend on it.
        """
        newest = self.newest()
        if not 0 <= seq <= newest.seq:
            raise Invalid(f"there is no commit {seq}", hint=f"commits 0 to {newest.seq} exist")
        if seq == newest.seq and checkpoint_seq in (None, newest.checkpoint.seq):
            return newest
        if checkpoint_seq is not None:
            return self._advanced(self._standing_on(checkpoint_seq), seq)
        opened = self._opened
        return self._replayed(seq) if opened is None or opened.seq > seq else self._advanced(opened, seq)

    def _standing_on(self, checkpoint_seq: int) -> Snapshot:
        """Return the snapshot of checkpoint ``checkpoint_seq``; one that cannot be read is made again."""
        if checkpoint_seq < 0:
            return self._from_log()
        if self._opened is not None and self._opened.seq == checkpoint_seq:
            return self._opened
        try:
            return self._checkpoint_snapshot(checkpoint_seq)[0]
        except Corrupt:
            whole = self._replayed(checkpoint_seq)
            columns = checkpoint_of(whole)
            return Snapshot(checkpoint_seq, whole.definition, columns, whole.last_instant, known=self.segments)

    def record(self, seq: int) -> CommitRecord | None:
        """Return commit record ``seq`` or None; recent ones come from memory."""
        found = self._records.get(seq)
        if found is None and (found := commit_log.read(self.storage, seq)) is not None:
            self._records[seq] = found
            while len(self._records) > RECORDS_CACHED_MAX:
                del self._records[next(iter(self._records))]
        return found

    def key_part_payload(self, key_part: KeyPart) -> bytes | pa.Buffer:
        """Return the bytes of a key part; they verify themselves when they are parsed."""
        if key_part.payload is not None:
            return key_part.payload
        assert key_part.stored is not None
        known = self._key_parts.get(key_part.stored)
        return (
            self._key_parts.put(key_part.stored, self.objects.read(key_part.stored, verify=False))
            if known is None
            else known
        )

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
        """Return whether the next open would gain by a new checkpoint.

        After METADATA_COMPACT_RECORDS records (an option), in large tables later: see METADATA_COMPACT_FILES_SHARE.
        """
        snapshot = self.newest(watched=False)
        least = self.options(snapshot.definition).metadata_compact_records
        wanted = max(
            least, min(math.isqrt(len(snapshot) // METADATA_COMPACT_FILES_SHARE), METADATA_COMPACT_RECORDS_MAX)
        )
        return snapshot.seq - max(self.checkpoint_seq, 0) >= wanted

    def compact(self) -> Snapshot:
        """Write the newest snapshot as a checkpoint, point the hint to it, and return it.  Idempotent; not a commit."""
        snapshot = self.newest(watched=False)
        token = self.storage.random_hex(4)
        key_parts = snapshot.key_parts
        if (
            self.key_index_problem(snapshot) is None
        ):  # else key parts stay as they are, for a process that can read them
            snapshot = self._without_damaged_key_parts(snapshot)
            key_parts = merged_key_parts(snapshot, self.key_index(snapshot), self.key_part_payload)
        columns = to_checkpoint(snapshot, self._with_objects(snapshot, key_parts, token))
        objects, entries, pages = write_pages(
            self.storage, columns, lambda n: paths.checkpoint_part(snapshot.seq, token, f"pages-{n}")
        )
        header = {
            "seq": snapshot.seq,
            "definition": snapshot.definition.to_json(),
            "last_instant": snapshot.last_instant,
            "watched_since": self.watch.since,
            "rows": len(snapshot),
            "groups": len(columns["members_start"].table) - 1,
            "shards": len(snapshot.live_shards),
            "objects": objects,
            "columns": entries,
        }
        manifest = codec.frame(MANIFEST, VERSION, codec.pack(header, {"pages": codec.encode_ipc(pages)}))
        self.storage.put_if_absent(paths.checkpoint_manifest(snapshot.seq), manifest)
        self.storage.replace(paths.hint(), json.dumps({"seq": snapshot.seq}).encode())
        self._newest = None
        return self.newest(watched=False)

    def warm(self, columns: Sequence[str] | None = None) -> None:
        """Read what plans need: the files, and the statistics of ``columns`` (default: of all)."""
        snapshot = self.newest()
        names = snapshot.stats_columns if columns is None else columns
        if self._checkpoint is not None and snapshot.checkpoint is self._checkpoint:
            wanted = ["files/segment", "files/rows", "dead", *(f"stats/{name}" for name in names)]
            self._checkpoint.load([name for name in wanted if name in self._checkpoint])
        _ = snapshot.has_rows
        FileStats(snapshot, And(()), names).warm()

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of each cache of this process: ``pages`` in memory, ``statistics`` made of them, ``disk``."""
        checkpoint, disk = self._checkpoint, None if self._checkpoint is None else self._checkpoint.cache
        return {
            "pages": (0, 0) if checkpoint is None else (checkpoint.hits, checkpoint.misses),
            "statistics": (0, 0) if checkpoint is None else (checkpoint.statistics_hits, checkpoint.statistics_misses),
            "disk": (0, 0) if disk is None else (disk.hits, disk.misses),
        }

    def _without_damaged_key_parts(self, snapshot: Snapshot) -> Snapshot:
        """Forget key parts that cannot be read; every key is then looked for in their groups."""
        index = self.key_index(snapshot)
        damaged = [u for u in mergeable(snapshot, index) if not _can_be_read(u, index, self.key_part_payload)]
        if not damaged:
            return snapshot
        lost = np.concatenate([snapshot.key_part_groups(key_part) for key_part in damaged])
        changed = replace(
            snapshot, uncovered_since=snapshot.uncovered.union(snapshot.file_groups.names(lost[lost >= 0].tolist()))
        )
        changed.__dict__["key_parts"] = tuple(u for u in snapshot.key_parts if all(u is not d for d in damaged))
        return changed

    def _with_objects(self, snapshot: Snapshot, key_parts: Sequence[KeyPart], token: str) -> tuple[KeyPart, ...]:
        placed = []
        for number, key_part in enumerate(key_parts):
            if key_part.payload is not None and len(key_part.payload) > INLINE_SUMMARY_BYTES_MAX:
                path = paths.checkpoint_part(snapshot.seq, token, f"key_part-{number}")
                self.storage.create(path, key_part.payload)
                stored = ObjectRange(path, 0, len(key_part.payload), zlib.crc32(key_part.payload))
                key_part = replace(key_part, payload=None, stored=stored)
            placed.append(key_part)
        return tuple(placed)

    def _from_log(self) -> Snapshot:
        record = self.record(0)
        if record is None:
            raise no_table(self.storage)
        return replace(first(record, path=paths.commit(0)), known=self.segments)

    def _from_checkpoint(self) -> Snapshot | None:
        """Return the snapshot of the newest checkpoint, or None if there is none that can be read."""
        try:
            seq = self._hinted()
            return None if seq is None else self._open_checkpoint(seq)
        except Corrupt as error:
            self._distrust(error)
            return None

    def _distrust(self, error: Corrupt) -> None:
        """Note that the checkpoint is damaged: the next commit writes another one."""
        text = "%s: compacted metadata are damaged and made again from the log: %s"
        logs.warn_once(logs.METADATA, self.said, str(error), text, self.storage.url, error)
        self.damage = error
        self.checkpoint_seq = -1

    def check_checkpoint(self) -> None:
        """Read the newest checkpoint as a whole, if there is one.  Raises Corrupt if something in it is damaged."""
        seq = self._hinted()
        if seq is not None:
            columns = self._columns(seq, cached=False)[0]
            columns.check()
            for name in wrong_stripes(columns):
                raise Corrupt(f"{name} and the statistics of files disagree", path=paths.checkpoint_manifest(seq))

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
                "the hint names no checkpoint", path=paths.hint(), offset=0, expected="a number", got=repr(seq)[:40]
            )
        return seq

    def _open_checkpoint(self, seq: int) -> Snapshot:
        """Return the snapshot of checkpoint ``seq``; nothing but its manifest is read."""
        self._opened, self._checkpoint, header = self._checkpoint_snapshot(seq)
        self.watch.since = self.watch.since or watched_since(header)
        self.checkpoint_seq = seq
        return self._opened

    def _checkpoint_snapshot(self, seq: int) -> tuple[Snapshot, StoredColumns, Mapping[str, Any]]:
        columns, header = self._columns(seq)
        definition = from_json(header["definition"], path=paths.checkpoint_manifest(seq))
        instant = str(header["last_instant"])
        snapshot = Snapshot(seq, definition, columns, instant, known=self.segments)
        return snapshot, columns, header

    def _columns(self, seq: int, *, cached: bool = True) -> tuple[StoredColumns, dict[str, Any]]:
        path = paths.checkpoint_manifest(seq)
        payload = codec.unframe(self.storage.read(path), MANIFEST, path=path, version_max=VERSION)
        header, sections = codec.unpack(payload, path=path)
        try:
            pages = codec.decode_ipc(sections["pages"], PAGES, path=path)
            layout = parse_layout(header, pages, path=path)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"a checkpoint cannot be read: {error!r}", path=path) from error
        if layout.seq != seq:
            raise Corrupt("a manifest has a wrong number", path=path, expected=str(seq), got=str(layout.seq))

        def rebuild() -> Columns:
            return checkpoint_of(self._replayed(seq))

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


Payload = Callable[[KeyPart], bytes | pa.Buffer]
"""From a key part to its bytes; raises Corrupt if they are gone."""


def _can_be_read(key_part: KeyPart, index: KeyIndex, payload: Payload) -> bool:
    try:
        count = len(key_part.groups) if key_part.numbers is None else len(key_part.numbers)
        index.merge([memoryview(payload(key_part))], [np.arange(count)], count)
    except (ValueError, Corrupt):
        return False
    return True


def mergeable(snapshot: Snapshot, index: KeyIndex) -> list[KeyPart]:
    """Return the smaller key parts of ``snapshot``, those that the next compaction makes one.

    Size-tiered: a key part is among them while it is at most four times the sum of the smaller ones, so that a byte is
    rewritten O(log n) times over n compactions.
    """
    chosen: list[KeyPart] = []
    total = 0
    for key_part in sorted((u for u in snapshot.key_parts if u.index == index.name), key=lambda u: u.size):
        if chosen and key_part.size > max(4 * total, INLINE_SUMMARY_BYTES_MAX):
            break
        chosen.append(key_part)
        total += key_part.size
    return chosen


def merged_key_parts(snapshot: Snapshot, index: KeyIndex, payload: Payload) -> tuple[KeyPart, ...]:
    """Return the key parts of ``snapshot`` with the smaller ones merged into one, dead groups forgotten."""
    chosen = mergeable(snapshot, index)
    if len(chosen) < 2:
        return snapshot.key_parts
    groups = [snapshot.key_part_groups(key_part) for key_part in chosen]
    known = np.unique(np.concatenate(groups))
    known = known[[n >= 0 and len(snapshot.file_groups.members(n)) > 0 for n in known.tolist()]]
    maps = [_places(known, numbers) for numbers in groups]
    data = index.merge([memoryview(payload(key_part)) for key_part in chosen], maps, len(known))
    kept = tuple(u for u in snapshot.key_parts if all(u is not c for c in chosen))
    return (*kept, KeyPart(index.name, (), data, None, known))


def _places(known: Int64Array, numbers: Int64Array) -> Int64Array:
    """Return where each of ``numbers`` stands in ``known`` (rising), -1 where it does not."""
    if not len(known):
        return np.full(len(numbers), -1, np.int64)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, at, -1).astype(np.int64)
