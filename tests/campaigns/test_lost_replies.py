"""Lost replies: storage does what it was asked and answers with an error; nobody may be told a lie,
or write twice.
"""

import pytest
import test_crash
from counting import count
from test_crash import MIXED, upsert_mixed
from worlds import (
    BASE_STATE,
    LATER_SECONDS,
    MOR,
    assert_clean,
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
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import FaultyStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

IN_TURN = (
    "upsert into logs, bloom",
    "upsert with many attachments",
    "upsert by rewrite, bloom",
    "upsert that compacts the metadata",
    "delete by log",
    "compaction, record",
    "cutting, record",
    "compaction of the metadata",
)
FLOWS = {flow.name: flow for flow in test_crash.FLOWS if flow.name in IN_TURN}


def losses(name):
    """Yield (operation, the table afterwards, whether the call succeeded) for each lost reply of a
    flow.
    """
    flow = FLOWS[name]
    whole = FaultyStorage(flow.start())
    flow.run(whole)
    for k, operation in enumerate(whole.operations, 1):
        storage = flow.start()
        try:
            flow.run(FaultyStorage(storage, k, "lost_reply"))
            succeeded = True
        except Unavailable:
            succeeded = False
        count("lost replies")
        yield operation, storage, succeeded


@pytest.mark.parametrize("name", FLOWS)
def test_a_lost_reply_is_a_success_or_unavailable_and_the_retry_gives_the_right_rows(
    name,
):
    run, after = FLOWS[name].run, FLOWS[name].after
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
def test_after_a_lost_reply_rollback_alone_makes_the_table_whole(name):
    for operation, storage, _ in losses(name):
        seen = ours(storage)
        mdt.open(storage).abort()
        assert ours(storage) == seen == theirs(storage), operation
        assert_clean(storage)


@pytest.mark.parametrize(
    "name", [name for name in IN_TURN if "metadata" not in name and "logs, bloom" not in name]
)
def test_a_lost_reply_from_the_commit_on_is_a_success(name):
    outcome = {operation: succeeded for operation, _, succeeded in losses(name)}
    committing = next(i for i, operation in enumerate(outcome) if "/log/" in operation)
    assert list(outcome.values())[committing:] == [True] * (len(outcome) - committing)


def test_a_table_whose_creation_lost_a_reply_opens_or_can_be_made():
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


def test_recovery_that_loses_a_reply_can_be_repeated():
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
def test_two_lost_replies_in_one_upsert_still_give_each_key_once(first):
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

    def __init__(self, inner, lost=0):
        super().__init__(inner)
        self.puts, self.lost = 0, lost

    def put_if_absent(self, path, data):
        return super().put_if_absent(path, data) and self._is_heard(path, data)

    def put_passing(self, path, data):
        return super().put_passing(path, data) and self._is_heard(path, data)

    def _is_heard(self, path, data):
        self.puts += 1
        return self.puts != self.lost or self.inner.put_if_absent(path, data)


@pytest.mark.parametrize("name", FLOWS)
def test_what_the_store_tries_again_after_a_lost_reply_is_seen_as_ours(name):
    flow = FLOWS[name]
    whole = _TriesAgain(flow.start())
    flow.run(whole)
    for lost in range(1, whole.puts + 1):
        storage = flow.start()
        flow.run(_TriesAgain(storage, lost))
        count("lost replies")
        assert ours(storage) == flow.after == theirs(storage)
        assert_clean(storage)


class _NeverHeard(MemoryStorage):
    """Does every commit put and loses its reply and those of the next ``deaf`` reads of the
    record.
    """

    deaf = 0

    def put_if_absent(self, path, data):
        done = super().put_if_absent(path, data)
        if path == paths.commit(1) and done:
            raise Unavailable("the reply was lost")
        return done

    def read(self, path, offset=0, length=None):
        if path == paths.commit(1) and self.size(path) is not None and self.deaf:
            self.deaf -= 1
            raise Unavailable("the record cannot be read")
        return super().read(path, offset, length)


def test_a_commit_whose_reply_was_lost_is_recognised_by_its_transaction():
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


def test_a_commit_that_can_be_neither_heard_nor_read_is_unavailable_and_stands():
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
