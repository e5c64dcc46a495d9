"""Objects of another machine may become visible late, as on a network file system with caches. That
is neither damage nor another Hudi writer.
"""

from __future__ import annotations

import pytest
from worlds import COW, MOR, make, ours, rows, theirs

import mdt
from mdt.errors import Missing, Unavailable, Unsupported
from mdt.limits import LATE_LOOK_SECONDS, LATE_SECONDS_MAX
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import FaultyStorage


class Lagging(FaultyStorage):
    """A machine that sees the objects in ``hidden`` only ``seconds`` after its first request for
    each. It cannot create an object at these paths either.
    """

    def __init__(self, inner, seconds):
        super().__init__(inner)
        self._us, self._asked = int(seconds * 1_000_000), dict[str, int]()
        self.hidden = set[str]()

    def _is_hidden(self, path):
        now = self.inner.now_us()
        return path in self.hidden and now - self._asked.setdefault(path, now) < self._us

    def read_whole(self, path, bytes_max):
        """See :class:`Storage`."""
        if self._is_hidden(path):
            raise Missing("there is no such object", path=path)
        return super().read_whole(path, bytes_max)

    def read(self, path, offset=0, length=None):
        """See :class:`Storage`."""
        if self._is_hidden(path):
            raise Missing("there is no such object", path=path)
        return super().read(path, offset, length)

    def size(self, path):
        """See :class:`Storage`."""
        return None if self._is_hidden(path) else super().size(path)


def lagging_reader_and_writer(seconds):
    """Return a table on a machine that sees commit 3 late, its storage, and the table on the
    machine that makes that commit.
    """
    inner = MemoryStorage()
    writer = make(inner, MOR, "record")
    writer.upsert(rows(range(3), 1, 1.0))
    writer.upsert(rows(range(3), 2, 2.0))
    storage = Lagging(inner, seconds)
    reader = mdt.open(storage)
    storage.hidden.add(paths.commit(writer.snapshot().seq + 1))
    return reader, storage, writer


def newest_instant_path(table):
    """Return the path of the newest completed commit."""
    return f"{paths.HUDI}/{table.snapshot().last_instant}.deltacommit"


def test_a_reader_waits_for_a_record_that_becomes_visible_within_a_second():
    reader, _, writer = lagging_reader_and_writer(LATE_LOOK_SECONDS[-1])
    writer.upsert(rows([7], 3, 3.0))
    assert reader.scan().count() == 4


@pytest.mark.parametrize("is_instant_hidden", [False, True])
def test_a_record_that_becomes_visible_later_is_unavailable_and_the_handle_recovers(
    is_instant_hidden,
):
    reader, storage, writer = lagging_reader_and_writer(30)
    writer.upsert(rows([7], 3, 3.0))
    if is_instant_hidden:
        storage.hidden.add(newest_instant_path(writer))
    for act in (reader.scan, lambda: reader.upsert(rows([8], 3, 3.0)), lambda: mdt.open(storage)):
        with pytest.raises(Unavailable, match="storage does not show its record") as error:
            act()
        assert error.value.retryable
    storage.inner.sleep(30)
    reader.upsert(rows([8], 3, 3.0))
    assert reader.scan().count() == 5 == len(ours(storage.inner))
    assert ours(storage.inner) == theirs(storage.inner)


def test_a_writer_whose_number_is_taken_by_an_invisible_record_can_retry():
    reader, storage, writer = lagging_reader_and_writer(3)
    commits = []
    original = storage.put_if_absent

    def put_after_rival(path, data):
        if path.startswith(paths.LOG_DIR) and not commits:
            commits.append(path)
            writer.upsert(rows([7], 3, 3.0))
        return original(path, data)

    storage.put_if_absent = put_after_rival  # type: ignore[method-assign]
    while True:
        try:
            reader.upsert(rows([8], 3, 3.0))
            break
        except Unavailable:
            storage.inner.sleep(1)
    assert commits and reader.scan().count() == 5
    assert ours(storage.inner) == theirs(storage.inner)


def test_a_record_that_stays_invisible_for_minutes_is_missing():
    reader, storage, writer = lagging_reader_and_writer(10**9)
    writer.upsert(rows([7], 3, 3.0))
    storage.inner.sleep(LATE_SECONDS_MAX)
    with pytest.raises(Missing, match="a commit record is missing"):
        reader.scan()


def test_a_commit_of_another_hudi_writer_is_refused_without_waiting():
    reader, storage, writer = lagging_reader_and_writer(30)
    storage.inner.create(f"{paths.HUDI}/20990101000000000.deltacommit", b"{}")
    before = storage.inner.now_us()
    with pytest.raises(Unsupported, match="another Hudi writer has completed"):
        reader.snapshot()
    assert storage.inner.now_us() - before < 100_000, "the reader waited"
    assert writer.definition


def test_an_insert_commits_although_another_writer_inserts_before_each_attempt():
    inner = MemoryStorage()
    other = make(inner, COW, "record")
    other.upsert(rows([0], 1, 1.0))
    storage = FaultyStorage(inner)
    commits = []
    original = storage.put_if_absent

    def put_after_rival(path, data):
        if path.startswith(paths.LOG_DIR) and len(commits) < 30:
            commits.append(path)
            other.upsert(rows([10 + len(commits)], 1, 1.0))
        return original(path, data)

    storage.put_if_absent = put_after_rival  # type: ignore[method-assign]
    assert mdt.open(storage).upsert(rows([1], 1, 1.0)).inserted == 1
    assert len(ours(inner)) == 32 == len(theirs(inner) or ())
