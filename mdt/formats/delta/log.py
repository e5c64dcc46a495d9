"""The objects of a Delta log: versions, checkpoints, large deletion vectors, and the pointer to the
newest checkpoint.

The version of a commit is its number. A version is put after all objects that it names, and after
the version before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Missing
from mdt.formats.data_files import Change
from mdt.formats.delta import places
from mdt.formats.delta.actions import version_lines
from mdt.formats.delta.checkpoint import (
    advanced_bytes,
    checkpoint_bytes,
    is_intact,
    is_same_checkpoint,
    large_vectors,
    pointer_bytes,
)
from mdt.formats.delta.places import (
    CHECKPOINT,
    FOLDER,
    checkpoint_path,
    former_vectors,
    objects_of_vectors,
    version_path,
)
from mdt.formats.delta.vectors import FOLDER as VECTORS_FOLDER
from mdt.formats.delta.vectors import Vectors, object_of, seq_of
from mdt.formats.derivation import Derivation
from mdt.formats.earlier import Earlier
from mdt.formats.format import FilesOf, Format, Objects, Strays
from mdt.formats.types import Refusal, type_refusals
from mdt.limits import HINT_BYTES_MAX
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

POINTER = f"{FOLDER}/_last_checkpoint"

_NUMBERED = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_OTHER_CHECKPOINT = re.compile(r"\.checkpoint\.(?!parquet$)")
"""Checkpoints of several parts, or with a UUID."""
_SHOWN_CHARACTERS_MAX = 80
_VERSIONS_MAX = 10**18
"""Versions of Delta are 64-bit numbers, and names of files have 20 digits."""


class DeltaLog(Format):
    """The format Delta."""

    name = "delta"
    title = "Delta"
    folder = FOLDER
    stays_at_start = False

    def refusals(self, definition: TableDefinition) -> Iterator[Refusal]:
        """Yield the columns whose type Delta does not have."""
        yield from type_refusals(definition.declared)

    def path(self, seq: int) -> str:
        """Return the path of a version.

        >>> DeltaLog().path(7)
        '_delta_log/00000000000000000007.json'
        """
        return version_path(seq)

    def objects(self, derivation: Derivation, earlier: Earlier) -> Objects:
        """Return the large deletion vectors of a commit, and its version. A first version after
        version 0 has a checkpoint, because readers look for one.
        """
        change, definition, seq = derivation.change, derivation.definition, derivation.record.seq
        former = former_vectors(change.removed, seq - 1, earlier) if change.removed else {}
        vectors = Vectors.from_files(change.added, definition.table_id, seq)
        added, objects = vectors.descriptors, list(vectors.objects)
        if derivation.is_first and seq:
            content = checkpoint_bytes(change.added, definition, added)
            objects.append((checkpoint_path(seq), content))
        return [*objects, (self.path(seq), version_lines(derivation, former, added))]

    def foreign_writer(self, content: bytes) -> str:
        """Return the name of the program that has written a version, or ""."""
        for line in content.splitlines():
            try:
                name = json.loads(line)["commitInfo"]["engineInfo"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            return str(name)[:_SHOWN_CHARACTERS_MAX]
        return ""

    def is_same(self, path: str, stored: bytes | None, expected: bytes) -> bool:
        """Return True if a stored object has the expected bytes, or a checkpoint the same rows."""
        if stored is None or not path.endswith(CHECKPOINT):
            return stored == expected
        return is_same_checkpoint(stored, expected)

    def is_start(self, seq: int) -> bool:
        """Return True if a version has a checkpoint."""
        return seq > 0 and not seq % places.CHECKPOINT_COMMITS

    def put_start(self, storage: Storage, seq: int, definition: TableDefinition) -> None:
        """Put the checkpoint of a version, and point to it unless there is a later one. Puts none
        if an earlier version is damaged, which a repair makes again.

        A slow publisher may point to a checkpoint that has been deleted since. Readers do without
        a pointer.
        """
        content = storage.read_if_exists(checkpoint_path(seq))
        if content is None or not is_intact(content):
            content = advanced_checkpoint(storage, seq, definition)
            if content is None:
                return
            storage.put_if_absent(checkpoint_path(seq), content)
        if self.newest_start(storage) < seq:
            storage.replace(POINTER, pointer_bytes(seq, content))
            if storage.size(checkpoint_path(seq)) is None:
                storage.delete(POINTER)

    def newest_start(self, storage: Storage) -> int:
        """Return the version of the checkpoint with which readers begin, or -1."""
        try:
            stored = storage.read_if_exists(POINTER, HINT_BYTES_MAX)
            version = json.loads(stored or b"{}")["version"]
        except (Corrupt, ValueError, KeyError, TypeError, RecursionError):
            return -1
        is_number = type(version) is int and 0 <= version < _VERSIONS_MAX
        return version if is_number else -1

    def starts(self, storage: Storage, horizon: int) -> Sequence[int]:
        """Return the versions of the checkpoints, and the oldest one."""
        oldest = [horizon] if horizon else []
        return sorted({self.newest_start(storage), *oldest, *_checkpoints(storage)})

    def start_objects(self, derivation: Derivation, files: FilesOf, earlier: Earlier) -> Objects:
        """Return the checkpoint of a version. That of the oldest version has the large vectors
        before, with their objects. If their places are lost, the log begins again with the version.
        """
        definition, seq, state = derivation.definition, derivation.record.seq, list(files())
        path, is_oldest = checkpoint_path(seq), derivation.horizon == seq
        try:
            vectors = former_vectors(state, seq, earlier)
        except (Corrupt, Missing):
            if not is_oldest:
                raise
            first = replace(derivation, change=Change(added=state), is_first=True)
            return self.objects(first, earlier)
        mended = objects_of_vectors(state, vectors, earlier) if is_oldest else []
        before = earlier.storage.size(version_path(seq - 1)) if is_oldest else None
        if before is not None and earlier.read(path) is None:
            return mended  # the next cleaning puts the checkpoint
        return [*mended, (path, checkpoint_bytes(state, definition, vectors))]

    def strays(self, storage: Storage, newest: Callable[[], int]) -> Strays:
        """Return the versions and checkpoints after the newest commit, checkpoints in other forms,
        and a pointer to a checkpoint that does not exist. All are to be deleted.
        """
        listed = [info.path for info in storage.list_dir(FOLDER)]
        pointed, last = self.newest_start(storage), newest()
        found = [path for path, number in _numbers(listed).items() if number > last]
        found += [path for path in listed if _OTHER_CHECKPOINT.search(path)]
        is_dead = pointed > last or storage.size(checkpoint_path(pointed)) is None
        if POINTER in listed and is_dead and self.newest_start(storage) == pointed:
            found.append(POINTER)
        return [(path, None) for path in found]

    def remove(self, storage: Storage, end: int) -> None:
        """Delete all versions before ``end``, the newest first. Versions of a later begin stay."""
        if self.newest_start(storage) < end:
            storage.delete(POINTER)
        ended = [path for path, number in _listed(storage).items() if number < end]
        storage.delete_many(sorted(ended, reverse=True))

    def expire(self, storage: Storage, oldest: int, table_id: str) -> None:
        """Delete the versions before the checkpoint for ``oldest``, and the large vectors that
        neither it nor a later version has.
        """
        vectors = [info.path for info in storage.list(VECTORS_FOLDER)]
        first = max((n for n in _checkpoints(storage) if n <= oldest), default=0)
        storage.delete_many(sorted(path for path, n in _listed(storage).items() if n < first))
        files = None
        if first and vectors:
            files = large_vectors(storage.read_if_exists(checkpoint_path(first)) or b"")
        if files is None:
            return
        named = pc.unique(pc.struct_field(files["vector"], "pathOrInlineDv"))
        try:
            needed = set(map(object_of, named.to_pylist()))
        except (ValueError, AttributeError):
            return  # a repair makes the checkpoint again
        old = _before(vectors, first, table_id)
        storage.delete_many([path for path in old if path not in needed])

    def delete_unused(self, storage: Storage, end: int, table_id: str) -> None:
        """Delete the large vectors of versions before ``end``."""
        paths = [info.path for info in storage.list(VECTORS_FOLDER)]
        storage.delete_many(_before(paths, end, table_id))


def _before(vectors: Iterable[str], end: int, table_id: str) -> list[str]:
    """Return the objects with large vectors that commits before ``end`` have put."""
    seqs = ((path, seq_of(path, table_id)) for path in vectors)
    return [path for path, seq in seqs if seq is not None and seq < end]


def _listed(storage: Storage) -> dict[str, int]:
    """Return path -> number of the versions and checkpoints in the log."""
    return _numbers([info.path for info in storage.list_dir(FOLDER)])


def _numbers(paths: Iterable[str]) -> dict[str, int]:
    """Return path -> number of the versions and checkpoints among ``paths``."""
    listed = {}
    for path in paths:
        match = _NUMBERED.fullmatch(path.rpartition("/")[2])
        if match is not None:
            listed[path] = int(match[1])
    return listed


def _checkpoints(storage: Storage) -> list[int]:
    """Return the versions that have checkpoints."""
    return [n for path, n in _listed(storage).items() if path.endswith(CHECKPOINT)]


def advanced_checkpoint(storage: Storage, seq: int, definition: TableDefinition) -> bytes | None:
    """Return the checkpoint of a version, made of one before it and of later versions, or of all
    versions, or None if that is not possible.
    """
    first = definition.begin_of_format(DeltaLog.name)
    starts = (n for n in _checkpoints(storage) if first <= n < seq)
    for start in [*sorted(starts, reverse=True), first - 1]:
        content = _advanced(storage, start, seq, definition)
        if content is not None:
            return content
    return None


def _advanced(storage: Storage, start: int, seq: int, definition: TableDefinition) -> bytes | None:
    """Return the checkpoint of a version, made of the one of ``start`` and of later versions. The
    version before the first one has none.
    """
    before = None
    if start >= definition.begin_of_format(DeltaLog.name):
        before = storage.read_if_exists(checkpoint_path(start))
    versions = list[bytes]()
    numbers = range(start + 1, seq + 1)
    reads = (partial(storage.read_if_exists, version_path(number)) for number in numbers)
    for content in storage.each(reads):
        if content is None:
            return None
        versions.append(content)
    try:
        return advanced_bytes(before, versions, definition)
    except (ValueError, KeyError, TypeError, RecursionError, OSError, pa.ArrowException):
        return None
