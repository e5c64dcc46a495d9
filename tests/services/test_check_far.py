"""A check of a table on a store that gives a false answer once: an object that is there is told to
be absent.
"""

from __future__ import annotations

from collections.abc import Callable

from counting import count
from worlds import MOR, filled

import mdt
from mdt.errors import Missing
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage, Storage
from mdt.table.table import Table
from mdt.testing.slow import FarStorage, Result


class Forgetful(FarStorage):
    """Answers look number ``false`` as if nothing were there."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.looks = self.false = 0

    def _look(self, name: str, path: str, act: Callable[[], Result]) -> Result:
        self.looks += 1
        if self.looks != self.false:
            return super()._look(name, path, act)
        if name == "read":
            raise Missing("there is no such object", path=path)
        return None if name == "size" else []  # type: ignore[return-value]


def opened(inner: MemoryStorage, false: int) -> tuple[Table, Forgetful]:
    storage = Forgetful(inner)
    table = mdt.open(storage)
    storage.looks, storage.false = 0, false
    return table, storage


def test_one_false_answer_of_a_far_store_is_no_damage() -> None:
    inner = filled(MOR, "record")
    table, storage = opened(inner, 0)
    assert table.check().ok
    looks = storage.looks
    assert looks > 20
    for false in range(1, looks + 1):
        table, storage = opened(inner, false)
        assert table.check().ok, false
        count("false answers of a store")


def test_damage_on_a_far_store_is_told() -> None:
    inner = filled(MOR, "record")
    marker, *_ = [
        info.path for info in inner.list("") if info.path.endswith(".hoodie_partition_metadata")
    ]
    inner.delete(marker)
    inner.delete(paths.hint())
    found = opened(inner, 0)[0].check().problems
    assert [problem.path for problem in found] == [marker]
