"""The objects of a Delta log: versions, checkpoints, and the pointer to the newest checkpoint.

The version of a commit is its number. A version is put after all objects that it names, and after
the version before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from mdt.errors import Corrupt
from mdt.formats.delta.actions import version_lines
from mdt.formats.delta.checkpoint import (
    advanced_bytes,
    checkpoint_bytes,
    is_same_checkpoint,
    pointer_bytes,
)
from mdt.formats.delta.vectors import FOLDER as VECTORS_FOLDER
from mdt.formats.delta.vectors import vector_of
from mdt.formats.derivation import Derivation
from mdt.formats.earlier import Earlier
from mdt.formats.format import FilesOf, Format, Objects, Strays
from mdt.formats.types import Refusal, type_refusals
from mdt.limits import HINT_BYTES_MAX
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

FOLDER = "_delta_log"
POINTER = f"{FOLDER}/_last_checkpoint"
CHECKPOINT_COMMITS = 100
"""Commits after which there is another checkpoint. Readers replay at most so many versions."""

_CHECKPOINT = ".checkpoint.parquet"
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

    def refusals(self, definition: TableDefinition) -> Iterator[Refusal]:
        """Yield the columns whose type Delta does not have."""
        yield from type_refusals(definition.declared)

    def path(self, seq: int) -> str:
        """Return the path of a version.

        >>> DeltaLog().path(7)
        '_delta_log/00000000000000000007.json'
        """
        return _version_path(seq)

    def objects(self, derivation: Derivation, earlier: Earlier) -> Objects:
        """Return the large deletion vectors that the version of a commit names, and the version. A
        first version after version 0 has a checkpoint, because readers look for one.
        """
        definition, seq = derivation.definition, derivation.record.seq
        files = derivation.change.added
        vectors = [vector_of(file, definition.table_id) for file in files]
        objects = [(v.path, v.content) for v in vectors if v is not None and v.path]
        if derivation.is_first and seq:
            objects.append((checkpoint_path(seq), checkpoint_bytes(files, definition)))
        return [*objects, (self.path(seq), version_lines(derivation))]

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
        if stored is None or not path.endswith(_CHECKPOINT):
            return stored == expected
        return is_same_checkpoint(stored, expected)

    def is_start(self, seq: int) -> bool:
        """Return True if a version has a checkpoint."""
        return seq > 0 and not seq % CHECKPOINT_COMMITS

    def put_start(
        self, storage: Storage, seq: int, files: FilesOf, definition: TableDefinition
    ) -> None:
        """Put the checkpoint of a version, and point to it unless there is a later one.

        A slow publisher may point to a checkpoint that has been deleted since. Readers do without
        a pointer.
        """
        content = advanced_checkpoint(storage, seq, definition)
        if content is None:
            content = checkpoint_bytes(files(), definition)
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
        """Return the versions of the checkpoints."""
        return sorted({self.newest_start(storage), *_checkpoints(storage)})

    def start_objects(self, derivation: Derivation, files: FilesOf, earlier: Earlier) -> Objects:
        """Return the checkpoint of a version."""
        path = checkpoint_path(derivation.record.seq)
        return [(path, checkpoint_bytes(files(), derivation.definition))]

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

    def expire(self, storage: Storage, oldest: int) -> None:
        """Delete the versions before the checkpoint for ``oldest``."""
        first = max((n for n in _checkpoints(storage) if n <= oldest), default=0)
        storage.delete_many(sorted(path for path, n in _listed(storage).items() if n < first))

    def delete_unused(self, storage: Storage, readable: FilesOf, table_id: str) -> None:
        """Delete the large vectors that no readable file has.

        They are listed before the log is read, so that the commit of each is known.
        """
        vectors = [info.path for info in storage.list(VECTORS_FOLDER)]
        if vectors:
            found = (vector_of(file, table_id) for file in readable())
            needed = {vector.path for vector in found if vector is not None}
            storage.delete_many([path for path in vectors if path not in needed])


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
    return [n for path, n in _listed(storage).items() if path.endswith(_CHECKPOINT)]


def checkpoint_path(seq: int) -> str:
    """Return the path of the checkpoint of a version.

    >>> checkpoint_path(7)
    '_delta_log/00000000000000000007.checkpoint.parquet'
    """
    return f"{FOLDER}/{seq:020d}{_CHECKPOINT}"


def advanced_checkpoint(storage: Storage, seq: int, definition: TableDefinition) -> bytes | None:
    """Return the checkpoint of a version, made of the one before it and of later versions, or None
    if that is not possible.
    """
    first = max((n for n in _checkpoints(storage) if n < seq), default=-1)
    if first < 0:
        return None
    later = range(first + 1, seq + 1)
    before, *versions = storage.together(
        partial(storage.read_if_exists, checkpoint_path(first)),
        *(partial(storage.read_if_exists, _version_path(number)) for number in later),
    )
    if before is None or None in versions:
        return None
    try:
        return advanced_bytes(before, versions, definition)
    except (ValueError, KeyError, TypeError, RecursionError, OSError, pa.ArrowException):
        return None


def _version_path(seq: int) -> str:
    return f"{FOLDER}/{seq:020d}.json"
