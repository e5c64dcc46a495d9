"""Tables with a history, and the states of it that must be readable."""

from functools import cache

import pytest
from counting import count
from worlds import MOR, as_state, assert_clean, make, ours, rows, theirs, upserted

import mdt
from mdt.errors import Expired
from mdt.stores.storage import MemoryStorage

ARCHIVE_RECORDS = 4
"""The tests of cleaning archive records once this many may leave the log."""


def grown(commits, table_type=MOR, *, storage=None, **options):
    """Return a table with ``commits`` upserts, every fifth followed by a compaction, and its state
    after each commit.
    """
    if storage is not None:
        return _grown(commits, table_type, storage, options)
    start, past = _in_memory(commits, table_type, tuple(sorted(options.items())))
    return mdt.open(start.copy()), dict(past)


@cache
def _in_memory(commits, table_type, options):
    """Make a table once for all tests that begin with it."""
    storage = MemoryStorage()
    return storage, _grown(commits, table_type, storage, dict(options))[1]


def _grown(commits, table_type, storage, options):
    table = make(storage, table_type, "record", **{"mdt.metadata.compact.records": 3, **options})
    past = {0: {}}
    for n in range(commits):
        upsert(table, past, range(n % 5, n % 5 + 4), n + 1)
        if n % 5 == 4:
            past[table.compact().seq] = past[max(past)]
    return table, past


def upsert(table, past, ids, ts):
    result = table.upsert(rows(ids, ts, float(ts)))
    past[result.seq] = upserted(past[max(past)], ids, ts, float(ts))


def assert_kept(table, past):
    """Assert that a new process reads each state from the horizon on as it was, and of the earlier
    states only the tagged ones.
    """
    horizon, tagged = table.snapshot().retention.horizon, set(table.tags()["seq"].to_pylist())
    other = mdt.open(table.storage)
    for seq, state in past.items():
        if seq >= horizon or seq in tagged:
            assert as_state(other.scan(as_of=seq).to_arrow()) == state
        else:
            with pytest.raises(Expired, match=f"commits {horizon} to {other.snapshot().seq}"):
                other.scan(as_of=seq)
        count("past states read or refused after a cleaning")
    assert ours(table.storage) == past[max(past)] == theirs(table.storage)  # type: ignore[arg-type]
    assert_clean(table.storage)


def names(table):
    return [info.path for info in table.storage.list("")]
