"""A table of mdt as another Hudi writer would have left it: without ``.hoodie/.mdt/``."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from mdt.metadata.files import paths
from mdt.stores.contract import Listing, Names, Storage, missing
from mdt.testing.faulty import FaultyStorage


def is_private(path: str) -> bool:
    return f"{path}/".startswith(f"{paths.PRIVATE}/")


class HiddenMetadata(FaultyStorage):
    """A storage without the objects of mdt's metadata. Writes fail."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.url = inner.url

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if is_private(path):
            raise missing(path)
        return super().read(path, offset, length)

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        if is_private(path):
            raise missing(path)
        return super().read_whole(path, bytes_max)

    def open(self, path: str) -> Any:
        if is_private(path):
            raise missing(path)
        return super().open(path)

    def size(self, path: str) -> int | None:
        return None if is_private(path) else super().size(path)

    def list(self, prefix: str) -> Listing:
        return [info for info in super().list(prefix) if not is_private(info.path)]

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        listed = super().list_dir(prefix, after=after, before=before, skip=skip)
        return [info for info in listed if not is_private(info.path)]

    def children(self, prefix: str) -> Names:
        return [name for name in super().children(prefix) if not is_private(f"{prefix}/{name}")]

    def create(self, path, data):
        raise AssertionError(f"{path} was written")

    put_if_absent = replace = create

    def delete(self, path):
        raise AssertionError(f"{path} was deleted")
