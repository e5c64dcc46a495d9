"""A second writer on the files of a table that does not know mdt's log: mdt, with its private
objects and names under other names.

Both sides see the commits of the other as those of another Hudi writer. The other writer does not
wait for pending writes of mdt, as Hudi's writers do not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from mdt.metadata.files import paths
from mdt.stores.contract import Data, Listing, Names, Storage, to_bytes
from mdt.testing.faulty import FaultyStorage

_OURS, _THEIRS = b"mdt.", b"aaa."
"""Prefix of mdt's names in the contents of files, and that of the other writer's names."""
_FOLDERS = (".hoodie/.mdt", ".hoodie/.aaa")


class OtherWriter(FaultyStorage):
    """The storage of the other writer of the table in ``inner``."""

    def __init__(self, inner: Storage, **named: Any) -> None:
        super().__init__(inner, **named)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        content = super().read(_swapped_path(path))
        # it sees our pending writes as its own
        content = (
            content.replace(_THEIRS, _OURS) if path.endswith("inflight") else _swapped(content)
        )
        return content[offset:] if length is None else content[offset : offset + length]

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        return _swapped(super().read_whole(_swapped_path(path), bytes_max))

    def open(self, path: str) -> Any:
        return pa.BufferReader(self.read(path))

    def create(self, path: str, data: Data) -> None:
        super().create(_swapped_path(path), _swapped(to_bytes(data)))

    def put_if_absent(self, path: str, data: Data) -> bool:
        return super().put_if_absent(_swapped_path(path), _swapped(to_bytes(data)))

    def put_passing(self, path: str, data: Data) -> bool:
        return super().put_passing(_swapped_path(path), _swapped(to_bytes(data)))

    def replace(self, path: str, data: Data) -> None:
        super().replace(_swapped_path(path), _swapped(to_bytes(data)))

    def delete(self, path: str) -> None:
        super().delete(_swapped_path(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def size(self, path: str) -> int | None:
        return super().size(_swapped_path(path))

    def stamp(self, path: str) -> Any:
        return super().stamp(_swapped_path(path))

    def list(self, prefix: str) -> Listing:
        return _swapped_infos(super().list(_swapped_path(prefix)))

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        listed = super().list_dir(_swapped_path(prefix), after=after, before=before)
        listed = [info for info in _swapped_infos(listed) if info.path not in skip]
        if prefix == paths.PENDING_DIR:  # it sees our pending instants as its own
            listed += super().list_dir(prefix)
        return listed

    def children(self, prefix: str) -> Names:
        names = super().children(_swapped_path(prefix))
        return sorted(_swapped_path(f"{prefix}/{name}").rpartition("/")[2] for name in names)

    def drop_directories(self, prefix: str, before: str, *, start: str = "") -> None:
        super().drop_directories(_swapped_path(prefix), before, start=start)

    def local_path(self, path: str) -> None:
        return None


def _swapped(data: bytes) -> bytes:
    """Return the contents of a file of one writer as the other writer sees them."""
    return _THEIRS.join(_OURS.join(part.split(_THEIRS)) for part in data.split(_OURS))


def _swapped_path(path: str) -> str:
    for old, new in (_FOLDERS, _FOLDERS[::-1]):
        if f"{path}/".startswith(f"{old}/"):
            return new + path[len(old) :]
    return path


def _swapped_infos(listed: Listing) -> Listing:
    infos = [replace(info, path=_swapped_path(info.path)) for info in listed]
    return sorted(infos, key=lambda info: info.path)
