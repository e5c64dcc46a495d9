"""Lost replies: storage carries out a request and answers with an error. No writer may report a wrong
outcome or write twice.
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

TESTED_FLOWS = (
    "upsert into logs, bloom",
    "upsert with many attachments",
    "upsert by rewrite, bloom",
    "upsert that compacts the metadata",
    "delete by log",
    "compaction, record",
    "cutting, record",
    "compaction of the metadata",
)
FLOWS = {flow.name: flow for flow in test_crash.FLOWS if flow.name in TESTED_FLOWS}


def losses(name):
    """Yield (operation, the table afterwards, whether the call succeeded) for each lost reply of a
    flow.
    """
    flow = FLOWS[name]
    completed = FaultyStorage(flow.start())
    flow.run(completed)
    for k, operation in enumerate(completed.operations, 1):
        storage = flow.start()
        try:
            flow.run(FaultyStorage(storage, k, "lost_reply"))
            succeeded = True
        except Unavailable:
            succeeded = False
        count("lost replies")
        yield operation, storage, succeeded


@pytest.mark.parametrize("name", FLOWS)
def test_after_a_lost_reply_the_call_succeeds_or_its_retry_gives_the_correct_rows(
    name,
):
    run, after = FLOWS[name].run, FLOWS[name].after
    for operation, storage, succeeded in losses(name):
        rows_seen = ours(storage)
        assert rows_seen == after if succeeded else rows_seen in (BASE_STATE, after), operation
        assert theirs(storage) in (BASE_STATE, rows_seen), operation
        run(storage)
        assert ours(storage) == after == theirs(storage), operation
        mdt.open(storage).abort()
        assert ours(storage) == after == theirs(storage), operation
        assert_clean(storage)


@pytest.mark.parametrize("name", FLOWS)
def test_after_a_lost_reply_a_rollback_alone_leaves_a_clean_table(name):
    for operation, storage, _ in losses(name):
        rows_seen = ours(storage)
        mdt.open(storage).abort()
        assert ours(storage) == rows_seen == theirs(storage), operation
        assert_clean(storage)


@pytest.mark.parametrize(
    "name", [name for name in TESTED_FLOWS if "metadata" not in name and "logs, bloom" not in name]
)
def test_a_call_whose_reply_is_lost_at_or_after_the_commit_succeeds(name):
    outcome = {operation: succeeded for operation, _, succeeded in losses(name)}
    committing = next(i for i, operation in enumerate(outcome) if "/log/" in operation)
    assert list(outcome.values())[committing:] == [True] * (len(outcome) - committing)


def test_after_a_lost_reply_during_its_creation_a_table_exists_and_can_be_written():
    completed = FaultyStorage(MemoryStorage())
    make(completed, MOR, "record")
    for k in range(1, len(completed.operations) + 1):
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


def test_a_rollback_that_lost_a_reply_can_be_repeated():
    start = filled(MOR, "record")
    with pytest.raises(Unavailable):
        upsert_mixed(FaultyStorage(start, 5, "lost_reply"))
    start.sleep(LATER_SECONDS)
    completed = FaultyStorage(start.copy())
    mdt.open(completed).abort()
    for k in range(1, len(completed.operations) + 1):
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
def test_an_upsert_retried_after_two_lost_replies_writes_each_key_once(first):
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


class _RetryingStorage(FaultyStorage):
    """Loses the reply of conditional put number ``lost`` and repeats the put, as network stores do by
    themselves. The repeated put finds its own object.
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
def test_a_put_repeated_by_the_store_is_recognised_as_the_writers_own(name):
    flow = FLOWS[name]
    completed = _RetryingStorage(flow.start())
    flow.run(completed)
    for lost in range(1, completed.puts + 1):
        storage = flow.start()
        flow.run(_RetryingStorage(storage, lost))
        count("lost replies")
        assert ours(storage) == flow.after == theirs(storage)
        assert_clean(storage)


class _LosesCommitReplies(MemoryStorage):
    """Carries out every commit put and loses its reply, and fails the next ``deaf`` reads of the record."""

    deaf = 0

    def put_if_absent(self, path, data):
        is_new = super().put_if_absent(path, data)
        if path == paths.commit(1) and is_new:
            raise Unavailable("the reply was lost")
        return is_new

    def read(self, path, offset=0, length=None):
        if path == paths.commit(1) and self.size(path) is not None and self.deaf:
            self.deaf -= 1
            raise Unavailable("the record cannot be read")
        return super().read(path, offset, length)


def test_a_commit_whose_reply_was_lost_is_recognised_by_its_transaction():
    storage = _LosesCommitReplies()
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


def test_a_commit_without_a_reply_or_a_readable_record_is_unavailable_but_valid():
    storage = _LosesCommitReplies()
    table = make(storage, MOR, "record")
    storage.deaf = 1
    with pytest.raises(Unavailable):
        table.upsert(rows(range(3), 1, 1.0))
    assert ours(storage) == upserted({}, range(3), 1, 1.0)
    table.upsert(rows(range(3), 1, 1.0))
    table.abort()
    assert ours(storage) == upserted({}, range(3), 1, 1.0) == theirs(storage)
    assert_clean(storage)
