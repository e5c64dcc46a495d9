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

from mdt.formats.data_files import DataFile
from mdt.formats.delta import columns
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
from mdt.formats.format import Format, Objects
from mdt.limits import HINT_BYTES_MAX
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

FOLDER = "_delta_log"
POINTER = f"{FOLDER}/_last_checkpoint"

_CHECKPOINT = ".checkpoint.parquet"
_NUMBERED = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_OTHER_CHECKPOINT = re.compile(r"\.checkpoint\.(?!parquet$)")
"""Checkpoints of several parts, or with a UUID."""
_SHOWN_CHARACTERS_MAX = 80


class DeltaLog(Format):
    """The format Delta."""

    name = "delta"
    title = "Delta"
    folder = FOLDER

    def refusals(self, definition: TableDefinition) -> Iterator[columns.Refusal]:
        """Yield the columns whose type Delta does not have."""
        yield from columns.type_refusals(definition.declared)

    def path(self, seq: int) -> str:
        """Return the path of a version.

        >>> DeltaLog().path(7)
        '_delta_log/00000000000000000007.json'
        """
        return f"{FOLDER}/{seq:020d}.json"

    def content(self, derivation: Derivation) -> bytes:
        """Return the version of a commit."""
        return version_lines(derivation)

    def objects(self, derivation: Derivation) -> Objects:
        """Return the large deletion vectors that the version names."""
        table_id = derivation.definition.table_id
        vectors = [vector_of(file, table_id) for file in derivation.change.added]
        return [(v.path, v.content) for v in vectors if v is not None and v.path]

    def foreign_writer(self, content: bytes) -> str:
        """Return the name of the program that has written a version, or ""."""
        for line in content.splitlines():
            try:
                name = json.loads(line)["commitInfo"]["engineInfo"]
            except (ValueError, KeyError, TypeError):
                continue
            return str(name)[:_SHOWN_CHARACTERS_MAX]
        return ""

    def is_same(self, path: str, stored: bytes | None, expected: bytes) -> bool:
        """Return True if a stored object has the expected bytes, or a checkpoint the same rows."""
        if stored is None or not path.endswith(_CHECKPOINT):
            return stored == expected
        return is_same_checkpoint(stored, expected)

    def checkpoint_path(self, seq: int) -> str:
        """Return the path of the checkpoint of a version."""
        return f"{FOLDER}/{seq:020d}{_CHECKPOINT}"

    def checkpoint(
        self, seq: int, files: Sequence[DataFile], definition: TableDefinition
    ) -> tuple[str, bytes]:
        """Return path and content of the checkpoint of a version."""
        return self.checkpoint_path(seq), checkpoint_bytes(files, definition)

    def advanced_checkpoint(
        self, storage: Storage, seq: int, definition: TableDefinition
    ) -> bytes | None:
        """Return the checkpoint of a version, made of the one before it and of later versions, or
        None if that is not possible.
        """
        first = max((n for n in self.checkpoints(storage) if n < seq), default=-1)
        if first < 0:
            return None
        later = range(first + 1, seq + 1)
        before, *versions = storage.together(
            partial(storage.read_if_exists, self.checkpoint_path(first)),
            *(partial(storage.read_if_exists, self.path(number)) for number in later),
        )
        if before is None or None in versions:
            return None
        try:
            return advanced_bytes(before, versions, definition)
        except (ValueError, KeyError, TypeError, OSError, pa.ArrowException):
            return None

    def newest_checkpoint(self, storage: Storage) -> int:
        """Return the version of the checkpoint with which readers begin, or -1."""
        stored = storage.read_if_exists(POINTER, HINT_BYTES_MAX)
        try:
            return int(json.loads(stored or b"{}")["version"])
        except (ValueError, KeyError, TypeError):
            return -1

    def checkpoints(self, storage: Storage) -> Sequence[int]:
        """Return the versions that have checkpoints, ascending."""
        listed = _listed(storage).items()
        return sorted(number for path, number in listed if path.endswith(_CHECKPOINT))

    def foreign_objects(self, storage: Storage, newest: Callable[[], int]) -> list[str]:
        """Return the paths of versions and checkpoints after the newest commit, of checkpoints in
        other forms, and of a pointer to a checkpoint that does not exist.
        """
        listed = [info.path for info in storage.list_dir(FOLDER)]
        pointed, last = self.newest_checkpoint(storage), newest()
        found = [path for path, number in _numbers(listed).items() if number > last]
        found += [path for path in listed if _OTHER_CHECKPOINT.search(path)]
        is_dead = pointed > last or storage.size(self.checkpoint_path(pointed)) is None
        if POINTER in listed and is_dead and self.newest_checkpoint(storage) == pointed:
            found.append(POINTER)
        return found

    def point_to(self, storage: Storage, seq: int, content: bytes) -> None:
        """Let readers begin with the checkpoint of a version, unless they begin with a later
        one.
        """
        if self.newest_checkpoint(storage) < seq:
            storage.replace(POINTER, pointer_bytes(seq, content))

    @property
    def vectors_folder(self) -> str:
        """The directory of the objects of large deletion vectors."""
        return VECTORS_FOLDER

    def vector_path(self, file: DataFile, table_id: str) -> str:
        """Return the path of the object with the deletion vector of a file, "" for none."""
        vector = vector_of(file, table_id)
        return "" if vector is None else vector.path

    def remove(self, storage: Storage, end: int) -> None:
        """Delete all versions before ``end``, the newest first. Versions of a later begin stay."""
        if self.newest_checkpoint(storage) < end:
            storage.delete(POINTER)
        ended = [path for path, number in _listed(storage).items() if number < end]
        storage.delete_many(sorted(ended, reverse=True))

    def expire(self, storage: Storage, oldest: int) -> None:
        """Delete the versions that no reader of version ``oldest`` or a later one needs."""
        first = max((n for n in self.checkpoints(storage) if n <= oldest), default=0)
        storage.delete_many(sorted(path for path, n in _listed(storage).items() if n < first))


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
