"""Lost replies: storage does what it was asked and answers with an error; nobody may be told a lie,
or write twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from counting import count
from worlds import (
    BASE_STATE,
    COW,
    LATER_SECONDS,
    MOR,
    assert_clean,
    cut,
    deleted,
    filled,
    make,
    ours,
    rows,
    theirs,
    upserted,
)

import mdt
from mdt.errors import Invalid, Unavailable
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.stores.contract import Data
from mdt.stores.storage import MemoryStorage, Storage
from mdt.testing.faulty import FaultyStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

MIXED = upserted(BASE_STATE, range(2, 9), 3, 3.0)
Run = Callable[[Storage], Any]


def upsert_mixed(storage: Storage) -> mdt.WriteResult:
    return mdt.open(storage).upsert(rows(range(2, 9), 3, 3.0))


FLOWS: dict[str, tuple[str, str, int, Run, Any]] = {
    "upsert into logs, bloom": (MOR, "bloom", 32, upsert_mixed, MIXED),
    "upsert into logs, record": (MOR, "record", 32, upsert_mixed, MIXED),
    "upsert by rewrite": (COW, "bloom", 32, upsert_mixed, MIXED),
    "upsert that compacts the metadata": (MOR, "record", 3, upsert_mixed, MIXED),
    "delete": (
        MOR,
        "record",
        32,
        lambda s: mdt.open(s).delete(rows((0, 3), 0, 0.0)),
        deleted(BASE_STATE, (0, 3)),
    ),
    "compaction": (MOR, "record", 32, lambda s: mdt.open(s).compact(), BASE_STATE),
    "cutting": (MOR, "record", 32, cut, BASE_STATE),
    "compaction of the metadata": (
        MOR,
        "bloom",
        32,
        lambda s: mdt.open(s).metadata.compact(),
        BASE_STATE,
    ),
}


def losses(name: str) -> Iterator[tuple[str, MemoryStorage, bool]]:
    """Yield (operation, the table afterwards, whether the call succeeded) for each lost reply of a
    flow.
    """
    table_type, key_index, records, run, _ = FLOWS[name]
    whole = FaultyStorage(filled(table_type, key_index, records))
    run(whole)
    for k, operation in enumerate(whole.operations, 1):
        storage = filled(table_type, key_index, records)
        try:
            run(FaultyStorage(storage, k, "lost_reply"))
            succeeded = True
        except Unavailable:
            succeeded = False
        count("lost replies")
        yield operation, storage, succeeded


@pytest.mark.parametrize("name", FLOWS)
def test_a_lost_reply_is_a_success_or_unavailable_and_the_retry_gives_the_right_rows(
    name: str,
) -> None:
    *_, run, after = FLOWS[name]
    for operation, storage, succeeded in losses(name):
        seen = ours(storage)
        assert seen == after if succeeded else seen in (BASE_STATE, after), operation
        assert theirs(storage) in (BASE_STATE, seen), operation
        run(storage)
        assert ours(storage) == after == theirs(storage), operation
        mdt.open(storage).abort()
        assert ours(storage) == after == theirs(storage), operation
        assert_clean(storage)


@pytest.mark.parametrize("name", FLOWS)
def test_after_a_lost_reply_rollback_alone_makes_the_table_whole(name: str) -> None:
    for operation, storage, _ in losses(name):
        seen = ours(storage)
        mdt.open(storage).abort()
        assert ours(storage) == seen == theirs(storage), operation
        assert_clean(storage)


@pytest.mark.parametrize(
    "name", ["upsert into logs, record", "upsert by rewrite", "delete", "compaction", "cutting"]
)
def test_a_lost_reply_from_the_commit_on_is_a_success(name: str) -> None:
    outcome = {operation: succeeded for operation, _, succeeded in losses(name)}
    committing = next(i for i, operation in enumerate(outcome) if "/log/" in operation)
    assert list(outcome.values())[committing:] == [True] * (len(outcome) - committing)


def test_a_table_whose_creation_lost_a_reply_opens_or_can_be_made() -> None:
    whole = FaultyStorage(MemoryStorage())
    make(whole, MOR, "record")
    for k in range(1, len(whole.operations) + 1):
        storage = MemoryStorage()
        try:
            make(FaultyStorage(storage, k, "lost_reply"), MOR, "record")
        except Unavailable:
            with pytest.raises(Invalid, match="mdt.open"):
                make(storage, MOR, "record")
        count("lost replies")
        mdt.open(storage).upsert(rows(range(3), 1, 1.0))
        assert ours(storage) == upserted({}, range(3), 1, 1.0) == theirs(storage)
        assert_clean(storage)


def test_recovery_that_loses_a_reply_can_be_repeated() -> None:
    start = filled(MOR, "record")
    with pytest.raises(Unavailable):
        upsert_mixed(FaultyStorage(start, 5, "lost_reply"))
    start.sleep(LATER_SECONDS)
    whole = FaultyStorage(start.copy())
    mdt.open(whole).abort()
    for k in range(1, len(whole.operations) + 1):
        storage = start.copy()
        try:
            mdt.open(FaultyStorage(storage, k, "lost_reply")).abort()
        except Unavailable:
            mdt.open(storage).abort()
        count("lost replies")
        mdt.open(storage).abort()
        assert ours(storage) == BASE_STATE == theirs(storage)
        assert_clean(storage)


@pytest.mark.parametrize("first", range(1, 12))
def test_two_lost_replies_in_one_upsert_still_give_each_key_once(first: int) -> None:
    for second in range(first + 1, 13):
        storage = filled(MOR, "record")
        outer = FaultyStorage(FaultyStorage(storage, first, "lost_reply"), second, "lost_reply")
        for _ in range(4):
            try:
                upsert_mixed(outer)
                break
            except Unavailable:
                continue
        else:
            pytest.fail("the storage lost two replies, but four tries failed")
        count("lost replies", 2)
        assert ours(storage) == MIXED
        mdt.open(storage).abort()
        assert ours(storage) == MIXED == theirs(storage)
        assert_clean(storage)


class _TriesAgain(FaultyStorage):
    """Loses the reply of conditional put number ``lost`` and makes it again, as stores on a network
    do by themselves: its own object is there then.
    """

    def __init__(self, inner: Storage, lost: int = 0) -> None:
        super().__init__(inner)
        self.puts, self.lost = 0, lost

    def put_if_absent(self, path: str, data: Data) -> bool:
        return super().put_if_absent(path, data) and self._is_heard(path, data)

    def put_passing(self, path: str, data: Data) -> bool:
        return super().put_passing(path, data) and self._is_heard(path, data)

    def _is_heard(self, path: str, data: Data) -> bool:
        self.puts += 1
        return self.puts != self.lost or self.inner.put_if_absent(path, data)


@pytest.mark.parametrize("name", FLOWS)
def test_what_the_store_tries_again_after_a_lost_reply_is_seen_as_ours(name: str) -> None:
    table_type, key_index, records, run, after = FLOWS[name]
    whole = _TriesAgain(filled(table_type, key_index, records))
    run(whole)
    for lost in range(1, whole.puts + 1):
        storage = filled(table_type, key_index, records)
        run(_TriesAgain(storage, lost))
        count("lost replies")
        assert ours(storage) == after == theirs(storage)
        assert_clean(storage)


class _NeverHeard(MemoryStorage):
    """Does every commit put and loses its reply and those of the next ``deaf`` reads of the
    record.
    """

    deaf = 0

    def put_if_absent(self, path: str, data: Data) -> bool:
        done = super().put_if_absent(path, data)
        if path == paths.commit(1) and done:
            raise Unavailable("the reply was lost")
        return done

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path == paths.commit(1) and self.size(path) is not None and self.deaf:
            self.deaf -= 1
            raise Unavailable("the record cannot be read")
        return super().read(path, offset, length)


def test_a_commit_whose_reply_was_lost_is_recognised_by_its_transaction() -> None:
    storage = _NeverHeard()
    record = CommitRecord(
        1,
        {
            "txn": "a" * 32,
            "instant": "20240101000000000",
            "action": "commit",
            "operation": "x",
            "begun_at": 0,
        },
    )
    assert commit_log.append(storage, record)
    assert not commit_log.append(storage, CommitRecord(1, {**record.header, "txn": "b" * 32}))


def test_a_commit_that_can_be_neither_heard_nor_read_is_unavailable_and_stands() -> None:
    storage = _NeverHeard()
    table = make(storage, MOR, "record")
    storage.deaf = 1
    with pytest.raises(Unavailable):
        table.upsert(rows(range(3), 1, 1.0))
    assert ours(storage) == upserted({}, range(3), 1, 1.0)
    table.upsert(rows(range(3), 1, 1.0))
    table.abort()
    assert ours(storage) == upserted({}, range(3), 1, 1.0) == theirs(storage)
    assert_clean(storage)
