"""The metadata table: base (a compacted state up to one seq) plus log (the commit records after it).

Reading starts from the newest base, which a hint names, and replays the records after it, probing seq + 1 until it is
absent.  Hint and base are derived and may be missing or damaged: the log alone gives the same snapshot.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes import registry
from indexes.base import KeyIndex
from indexes.keys.bloom import BloomKeyIndex
from mdt import codec, commit_log, paths
from mdt.blobs import Blobs
from mdt.commit_log import STATS, SUMMARIES, UNITS, VECTORS, CommitRecord
from mdt.config import Options, canonical, parse_options
from mdt.definition import TableDefinition, from_json
from mdt.errors import Corrupt, Invalid, Missing, Unsupported
from mdt.file_group import FILES, Blob
from mdt.limits import INLINE_SUMMARY_BYTES_MAX, RECORDS_CACHED_MAX
from mdt.snapshot import HISTORY, Snapshot, Unit, apply, first, units_of, units_table
from mdt.storage import Storage
from mdt.summaries import SummaryCache
from mdt.usage import Usage

MANIFEST = b"BASE"
PART = b"PART"
VERSION = 1

_PARTS: Mapping[str, pa.Schema] = {
    "files": FILES,
    "stats": STATS,
    "summaries": SUMMARIES,
    "vectors": VECTORS,
    "units": UNITS,
    "history": HISTORY,
}


class Metadata:
    """Reads and compacts the metadata table of one table; caches the newest snapshot."""

    def __init__(self, storage: Storage, overrides: Mapping[str, object] | None = None) -> None:
        """``overrides``: options that take precedence over those kept with the table."""
        self.storage = storage
        self._overrides = canonical(overrides)
        self.blobs = Blobs(storage)
        self.summaries = SummaryCache(self.blobs, is_local=storage.local_path("") is not None)
        self.usage = Usage(storage)
        self.base_seq = -1
        self._newest: Snapshot | None = None
        self._records: dict[int, CommitRecord] = {}

    def newest(self) -> Snapshot:
        """Return the newest snapshot.  O(records since the last call); one failed probe when nothing happened."""
        snapshot = self._newest or self._from_base() or self._from_log()
        while (record := self.record(snapshot.seq + 1)) is not None:
            snapshot = apply(snapshot, record)
        self._newest = snapshot
        return snapshot

    def at(self, seq: int) -> Snapshot:
        """Return the snapshot after commit ``seq``.  Raises Invalid if there is no such commit."""
        newest = self.newest()
        if not 0 <= seq <= newest.seq:
            raise Invalid(f"there is no commit {seq}", hint=f"commits 0 to {newest.seq} exist")
        if seq == newest.seq:
            return newest
        snapshot = self._from_base()
        if snapshot is None or snapshot.seq > seq:
            snapshot = self._from_log()
        while snapshot.seq < seq:
            record = self.record(snapshot.seq + 1)
            if record is None:
                raise Missing("a commit record is gone", path=paths.commit(snapshot.seq + 1))
            snapshot = apply(snapshot, record)
        return snapshot

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
        return self.blobs.read(unit.blob, verify=False)

    def key_index(self, snapshot: Snapshot) -> KeyIndex:
        """Return the key index of the table.  Raises Unsupported if its class is not installed."""
        return key_index(snapshot.definition.key_index, self.options(snapshot.definition).bloom_fpp)

    def options(self, definition: TableDefinition) -> Options:
        """Return the options kept with the table, overridden by those given here."""
        return parse_options({**definition.options, **self._overrides})

    def compact(self) -> Snapshot:
        """Write the newest snapshot as a base, point the hint to it, and return it.  Idempotent; not a commit."""
        snapshot = self._compacted(self.newest())
        token = self.storage.random_hex(4)
        tables = {
            "files": snapshot.files,
            "stats": snapshot.stats,
            "summaries": snapshot.summaries,
            "vectors": _vectors_table(snapshot),
            "history": snapshot.history,
        }
        snapshot = replace(snapshot, units=self._with_blobs(snapshot, token))
        tables["units"] = units_table(snapshot.units)
        header: dict[str, Any] = {"seq": snapshot.seq, "definition": snapshot.definition.to_json(), "parts": {}}
        header["uncovered"] = sorted(snapshot.uncovered)
        for name, table in tables.items():
            data = codec.frame(PART, VERSION, codec.encode_ipc(table.combine_chunks()))
            path = paths.base_part(snapshot.seq, token, name)
            self.storage.create(path, data)
            header["parts"][name] = {"path": path, "length": len(data), "crc": zlib.crc32(data)}
        manifest = codec.frame(MANIFEST, VERSION, codec.pack(header, {}))
        self.storage.put_if_absent(paths.base_manifest(snapshot.seq), manifest)
        self.storage.replace(paths.hint(), json.dumps({"seq": snapshot.seq}).encode())
        self.base_seq = snapshot.seq
        self._newest = snapshot
        return snapshot

    def _compacted(self, snapshot: Snapshot) -> Snapshot:
        live = pa.array(snapshot.segments, pa.int64())
        snapshot = self._without_damaged_units(snapshot)
        units = merged_units(snapshot, self.key_index(snapshot), self.unit_payload)
        return replace(
            snapshot,
            stats=snapshot.stats.filter(pc.is_in(snapshot.stats["segment"], live)),
            summaries=snapshot.summaries.filter(pc.is_in(snapshot.summaries["segment"], live)),
            units=units,
            uncovered=snapshot.uncovered & set(snapshot.group_number),
        )

    def _without_damaged_units(self, snapshot: Snapshot) -> Snapshot:
        """Forget units that cannot be read; every key is then looked for in their groups."""
        index = self.key_index(snapshot)
        damaged = [u for u in mergeable(snapshot, index) if not _can_be_read(u, index, self.unit_payload)]
        if not damaged:
            return snapshot
        return replace(
            snapshot,
            units=tuple(u for u in snapshot.units if all(u is not d for d in damaged)),
            uncovered=snapshot.uncovered.union(*(u.groups for u in damaged)),
        )

    def _with_blobs(self, snapshot: Snapshot, token: str) -> tuple[Unit, ...]:
        placed = []
        for number, unit in enumerate(snapshot.units):
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
            raise Invalid(
                f"{self.storage.url} is not a table of mdt: it has no {paths.commit(0)}",
                hint="mdt.create(path, schema, key=[...]) makes one; check the path for typing errors",
            )
        return first(record, path=paths.commit(0))

    def _from_base(self) -> Snapshot | None:
        """Return the snapshot of the newest base, or None if there is none that can be read."""
        try:
            snapshot = self.read_base()
        except Corrupt:
            return None
        if snapshot is not None:
            self.base_seq = snapshot.seq
        return snapshot

    def read_base(self) -> Snapshot | None:
        """Return the snapshot that the hint names, None without a hint.  Raises Corrupt if one of its objects is damaged."""
        hint = self.storage.read_if_exists(paths.hint())
        if hint is None:
            return None
        try:
            seq = json.loads(hint)["seq"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Corrupt(f"the hint cannot be read: {error!r}", path=paths.hint(), offset=0) from error
        if type(seq) is not int or seq < 0:
            raise Corrupt("the hint names no base", path=paths.hint(), offset=0, expected="a number", got=repr(seq)[:40])
        try:
            return self._read_base(seq)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"a base cannot be read: {error!r}", path=paths.base_manifest(seq)) from error

    def _read_base(self, seq: int) -> Snapshot:
        path = paths.base_manifest(seq)
        payload = codec.unframe(self.storage.read(path), MANIFEST, path=path, version_max=VERSION)
        header, _ = codec.unpack(payload, path=path)
        tables = {}
        for name, schema in _PARTS.items():
            part = header["parts"][name]["path"]
            data = codec.unframe(self.storage.read(part), PART, path=part, version_max=VERSION)
            tables[name] = codec.decode_ipc(data, schema, path=part)
        vectors = tables["vectors"]
        return Snapshot(
            seq=seq,
            definition=from_json(header["definition"], path=path),
            files=tables["files"],
            stats=tables["stats"],
            summaries=tables["summaries"],
            vectors={
                row["segment"]: BitMap.deserialize(row["positions"]) for row in vectors.to_pylist()
            },
            units=units_of(tables["units"]),
            uncovered=frozenset(header["uncovered"]),
            history=tables["history"],
        )


def key_index(name: str, bloom_fpp: float = 0.01) -> KeyIndex:
    """Return the key index with the short or persisted ``name``; ``bloom_fpp`` is for those with Bloom filters.

    Raises Unsupported if there is none.
    """
    found = registry.find_key_index(name)
    if isinstance(found, registry.Unknown) or not issubclass(found, KeyIndex):
        reason = found.reason if isinstance(found, registry.Unknown) else f"{name} is not a key index"
        raise Unsupported(f"the key index {name!r} is not available: {reason}", hint="install the package that has it")
    return found(bloom_fpp) if issubclass(found, BloomKeyIndex) else found()


def _vectors_table(snapshot: Snapshot) -> pa.Table:
    items = sorted(snapshot.vectors.items())
    return pa.table(
        [[segment for segment, _ in items], [vector.serialize() for _, vector in items]], schema=VECTORS
    )


Payload = Callable[[Unit], bytes | pa.Buffer]
"""From a unit to its bytes; raises Corrupt if they are gone."""


def _can_be_read(unit: Unit, index: KeyIndex, payload: Payload) -> bool:
    try:
        index.merge([memoryview(payload(unit))], [np.arange(len(unit.groups))], len(unit.groups))
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
    known = {name for unit in chosen for name in unit.groups}
    names = [name for name in snapshot.group_number if name in known]
    number = {name: i for i, name in enumerate(names)}
    maps = [np.array([number.get(name, -1) for name in unit.groups], dtype=np.int64) for unit in chosen]
    data = index.merge([memoryview(payload(unit)) for unit in chosen], maps, len(names))
    kept = tuple(u for u in snapshot.units if all(u is not c for c in chosen))
    return (*kept, Unit(index.name, tuple(names), data, None))
