"""Key indexes kept outside of the table.  Readers build their key parts from the files' key maps.

The keys of a scope (a partition, or the table) are kept in *runs*.  A run is a key part, the file
groups that it numbers, and the files that it covers.  A file is identified by the hash of its name
and of its key map.  So the store follows a single history: in a copied or restored table, files
have different names.  Files that no run covers are read before a look-up, in one transaction of the
store.  So the store may be behind, ahead, damaged or missing, and a process may die at any time.
As in a log-structured merge tree, runs of similar size are merged, and a key is rewritten O(log n)
times.

Bytes of a run: ``b"MKR1" | u32 files | u32 bytes of names | u32 crc of everything between the
header and the key part | u64 file[files] | names of the groups as JSON | key part``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.base import DISK, Candidates, Int64Array, KeyHashes, KeyIndex, UInt64Array
from indexes.key_hash import hash_keys
from mdt import logs
from mdt.errors import Corrupt
from mdt.forking import cached_property
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.session import Recent, in_session
from mdt.stores.key_store import KeyStore, MemoryStore, StoreFailed, View, open_key_store

TABLES_IN_MEMORY_MAX = 16
"""Number of tables whose sorted maps a process keeps."""
_HEADER = struct.Struct("<4sIII")
_MAGIC = b"MKR1"
_TIMES = 4
"""A run is merged with newer runs while it is at most this many times their size."""
_IDENTITY_SEED = 0
_SCOPE_SEED = 1
_NUMBER = struct.Struct(">Q")


@in_session
def in_memory() -> Recent[str, MemoryStore]:
    """Return the sorted maps of this process, by table."""
    return Recent(TABLES_IN_MEMORY_MAX)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of keys.

    ``files`` are the identities of the files in the key part ``data``, uint64[f].  ``groups`` are
    the names of the file groups that it numbers.
    """

    files: UInt64Array
    groups: tuple[str, ...]
    data: memoryview

    def encode(self) -> bytes:
        """Return the bytes of the run."""
        names = json.dumps(self.groups).encode()
        body = self.files.astype("<u8").tobytes() + names
        return b"".join(
            [_HEADER.pack(_MAGIC, len(self.files), len(names), zlib.crc32(body)), body, self.data]
        )


def decode(data: Any) -> Run:
    """Return the run in a buffer.  Raises ValueError if it is damaged.

    The key part verifies itself when it is searched.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size:
        raise ValueError(f"{len(view)} bytes are not a run of keys")
    magic, files, names, crc = _HEADER.unpack_from(view)
    names_at = _HEADER.size + 8 * files
    end = names_at + names
    if magic != _MAGIC or end > len(view) or zlib.crc32(view[_HEADER.size : end]) != crc:
        raise ValueError("a run of keys is damaged")
    identities = np.frombuffer(view, "<u8", files, _HEADER.size).copy()
    return Run(identities, tuple(json.loads(bytes(view[names_at:end]))), view[end:])


def propose(
    metadata: Metadata,
    snapshot: Snapshot,
    index: KeyIndex,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None,
) -> Candidates:
    """Return the candidate file groups of keys, by an index kept outside of the table.

    ``partition`` has the path of each key, if only rows there matter.  If the store fails, every
    file group is a candidate.
    """
    look_up = _LookUp(metadata, snapshot, index, hashes)
    scopes = look_up.scopes(partition)
    try:
        return look_up.run(store_of(metadata, snapshot, index), scopes)
    except StoreFailed as error:
        logs.warn_once(
            logs.METADATA,
            metadata.warned,
            str(error),
            "%s; keys are looked up in all file groups",
            error,
        )
    none = np.empty(0, np.int64)
    files = [look_up.files[name] for name, _ in scopes if name in look_up.files]
    groups = snapshot.file_groups.of_files(np.concatenate([none, *files]))
    return Candidates(none, none, np.unique(groups))


def store_of(metadata: Metadata, snapshot: Snapshot, index: KeyIndex) -> KeyStore:
    """Return the store of a table's runs.  Raises StoreFailed."""
    table_id = snapshot.definition.table_id
    if index.kept == DISK:
        options = metadata.options(snapshot.definition)
        return open_key_store(options.key_store_dir, durable=options.durable)
    return in_memory().made(table_id, MemoryStore)


@dataclass
class _LookUp:
    metadata: Metadata
    snapshot: Snapshot
    index: KeyIndex
    hashes: KeyHashes
    pairs: list[tuple[Int64Array, Int64Array]] = field(default_factory=list)

    @cached_property
    def files(self) -> dict[str, Int64Array]:
        """Numbers of the files with keys, by scope.  O(files) in arrays."""
        snapshot = self.snapshot
        live = snapshot.live_numbers
        live = live[snapshot.has_key_map[live]]
        if snapshot.definition.is_global or not len(live):
            return {"": live} if len(live) else {}
        return _by_path(
            snapshot.files.column("partition").take(pa.array(live)).combine_chunks(), live
        )

    def scopes(self, partition: npt.NDArray[np.object_] | None) -> list[tuple[str, Int64Array]]:
        """Return (scope, keys to look up there) pairs."""
        everything = np.arange(len(self.hashes))
        if self.snapshot.definition.is_global or partition is None:
            return [(name, everything) for name in self.files]
        keys_of = _by_path(pa.array(partition, pa.string()), everything)
        return [(name, keys) for name, keys in keys_of.items() if name in self.files]

    def run(self, store: KeyStore, scopes: Sequence[tuple[str, Int64Array]]) -> Candidates:
        """Look the keys up in all runs.  Files without a run are read first."""
        behind = []
        with store.begin(write=False) as view:
            for name, keys in scopes:
                if not self._look_up(view, name, keys):
                    behind.append((name, keys))
        whole_groups = [np.empty(0, np.int64)]
        if behind:
            with store.begin(write=True) as view:
                for name, keys in behind:
                    unreadable = self._update_and_look_up(view, name, keys)
                    whole_groups.append(np.unique(self.snapshot.file_groups.of_files(unreadable)))
        none = np.empty(0, np.int64)
        key, group = (
            np.concatenate(column) for column in zip((none, none), *self.pairs, strict=True)
        )
        return Candidates(key, group, np.unique(np.concatenate(whole_groups)))

    def _look_up(
        self, view: View, scope: str, keys: Int64Array, but: Int64Array | None = None
    ) -> bool:
        """Look keys up in the runs of a scope.  Return False if these miss files other than
        ``but``.
        """
        files = self.files[scope] if but is None else np.setdiff1d(self.files[scope], but)
        try:
            runs = [decode(data) for _, data in view.items(self._prefix(scope))]
            if not _cover(runs, self._identities(files)):
                return False
            pairs = [self._look_up_run(run, keys) for run in runs]
        except ValueError:
            return False
        self.pairs += pairs
        return True

    def _look_up_run(self, run: Run, keys: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return (key, file group of the snapshot) pairs of the ``keys`` in a run."""
        candidates = self.index.locate(
            run.data, pa.nulls(len(keys), pa.string()), self.hashes.take(keys)
        )
        hit = np.unique(candidates.group)
        number = np.full(len(run.groups), -1, np.int64)
        number[hit] = self.snapshot.file_groups.number([run.groups[n] for n in hit.tolist()])
        group = number[candidates.group]
        exists = (group >= 0) & (group < self.snapshot.file_groups.count)
        return keys[candidates.key[exists]], group[exists]

    def _identities(self, numbers: Int64Array) -> UInt64Array:
        """Return the identities of files -> uint64[n]: a hash of the name and the key map's CRC."""
        files = self.snapshot.files
        names = files.column("name").take(pa.array(numbers)).combine_chunks()
        crcs = files.column("key_map_crc").take(pa.array(numbers)).to_numpy().astype(np.uint64)
        return np.asarray(hash_keys(names, _IDENTITY_SEED).hi ^ (crcs << np.uint64(32)), np.uint64)

    def _prefix(self, scope: str) -> bytes:
        return prefix(self.snapshot.definition.table_id, scope)

    # Updates of the store to the snapshot

    def _update_and_look_up(self, view: View, scope: str, keys: Int64Array) -> Int64Array:
        """Update the runs of a scope to all of its files, and look ``keys`` up.

        Return the files whose key maps cannot be read.  If a run is damaged, all runs are rebuilt.
        """
        for is_damaged in (False, True):
            if is_damaged:
                for key, _ in view.items(self._prefix(scope)):
                    view.delete(key)
            with suppress(ValueError):
                unreadable = self._update(view, scope)
                if self._look_up(view, scope, keys, but=unreadable):
                    return unreadable
        raise StoreFailed("the key store does not return the data written to it")

    def _update(self, view: View, scope: str) -> Int64Array:
        """Update the runs of a scope to all of its files.

        Return the files whose key maps cannot be read.  Raises ValueError for damaged runs.
        """
        numbers = self.files[scope]
        identities = self._identities(numbers)
        entries = [(key, decode(data)) for key, data in view.items(self._prefix(scope))]
        covered = np.concatenate([np.empty(0, np.uint64), *(run.files for _, run in entries)])
        is_new = ~np.isin(identities, covered)
        run, unreadable = self._build_run(numbers[is_new], identities[is_new])
        if len(run.files):
            number = 1 + max(
                (_NUMBER.unpack(key[-_NUMBER.size :])[0] for key, _ in entries), default=0
            )
            merged = []
            while entries and len(entries[-1][1].data) <= _TIMES * len(run.data):
                key, older = entries.pop()
                run = self._merge(older, run, identities, set(self._names(numbers)))
                merged.append(key)
            encoded = run.encode()  # before the view changes
            for key in merged:
                view.delete(key)
            view.put(self._prefix(scope) + _NUMBER.pack(number), encoded)
        return unreadable

    def _build_run(self, numbers: Int64Array, identities: UInt64Array) -> tuple[Run, Int64Array]:
        """Return a run of the keys of files, and the files whose key maps are damaged or
        missing.
        """
        maps, read, unreadable = list[KeyHashes](), list[int](), list[int]()
        for at, segment in enumerate(self.snapshot.files.segments(numbers)):
            assert segment.key_map is not None, "files without a key map have no keys"
            try:
                maps.append(self.metadata.objects.key_map(segment.key_map).verify_all().hashes)
                read.append(at)
            except Corrupt:
                unreadable.append(at)
        names = self._names(numbers[read])
        groups = tuple(dict.fromkeys(names))
        place = {name: n for n, name in enumerate(groups)}
        group = np.repeat(
            [place[name] for name in names], [len(hashes_of_file) for hashes_of_file in maps]
        ).astype(np.int64)
        hashes = KeyHashes.concat([KeyHashes.none(), *maps])
        data = self.index.build(pa.nulls(len(group), pa.string()), hashes, group, len(groups))
        return Run(np.sort(identities[read]), groups, memoryview(data)), numbers[unreadable]

    def _names(self, numbers: Int64Array) -> list[str]:
        return self.snapshot.files.column("file_id").take(pa.array(numbers)).to_pylist()

    def _merge(self, older: Run, newer: Run, live: UInt64Array, names: set[str]) -> Run:
        """Merge two runs, without file groups and files that no longer exist."""
        groups = tuple(
            name for name in dict.fromkeys((*older.groups, *newer.groups)) if name in names
        )
        place = {name: n for n, name in enumerate(groups)}
        maps = [
            np.array([place.get(name, -1) for name in run.groups], np.int64)
            for run in (older, newer)
        ]
        files = np.union1d(older.files, newer.files)
        data = self.index.merge([older.data, newer.data], maps, len(groups))
        return Run(files[np.isin(files, live)], groups, memoryview(data))


def _by_path(paths: pa.Array, values: Int64Array) -> dict[str, Int64Array]:
    """Partition ``values`` by path.  ``paths`` is string[n] without nulls.  O(n log n)."""
    encoded = paths.dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    parts = np.split(values[order], np.flatnonzero(np.diff(codes[order])) + 1)
    return dict(zip(encoded.dictionary.to_pylist(), parts, strict=True)) if len(values) else {}


def _cover(runs: Sequence[Run], identities: UInt64Array) -> bool:
    covered = np.concatenate([np.empty(0, np.uint64), *(run.files for run in runs)])
    return bool(np.isin(identities, covered).all())


def prefix(table_id: str, scope: str) -> bytes:
    """Return the key prefix of the runs of a table's scope.

    It is a hash, since keys of a store are short.
    """
    hashes = hash_keys(pa.array([f"{table_id}/{scope}"]), _SCOPE_SEED)
    return struct.pack(">QQ", int(hashes.hi[0]), int(hashes.lo[0]))
