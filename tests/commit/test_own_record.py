"""A writer keeps the record that it has written and does not read it back. The kept record must be
equal to the one that readers decode.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from worlds import COW, MOR, as_state, make, rows

import mdt
from mdt.commit import transaction
from mdt.errors import Internal
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import FaultyStorage


def _table_with_history(table_type):
    """Return a table with a record of most kinds of transactions, all written by one process."""
    table = make(MemoryStorage(), table_type, "record")
    table.upsert(rows(range(8), 1, 1.0))
    table.upsert(rows(range(4), 2, 2.0))
    table.delete(rows(range(2), 2, 2.0))
    table.create_index("bitmap(city)")
    table.tag("here")
    table.compact()
    table.bulk_insert(rows(range(20, 28), 1, 3.0))
    table.cluster(by=["fare"])
    table.restore("here")
    table.untag("here")
    table.alter(add={"more": pa.int64()})
    table.upsert(rows(range(3), 3, 3.0).append_column("more", [[1, 2, None]]))
    table.clean(retain_commits=2)
    return table


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_the_records_that_a_writer_keeps_in_memory_equal_those_in_the_log(table_type):
    table = _table_with_history(table_type)
    kinds = set()
    for seq in range(table.snapshot().retention.first, table.snapshot().seq + 1):
        cached, stored = table.metadata.record(seq), commit_log.read(table.storage, seq)
        assert cached is not None and stored is not None
        assert cached.header == stored.header
        assert cached.tables.keys() == stored.tables.keys()
        assert all(cached.tables[name].equals(stored.tables[name]) for name in stored.tables)
        kinds.add((stored.action, stored.header["operation"]))
    assert len(kinds) >= 9, kinds
    assert as_state(mdt.open(table.storage).scan().to_arrow()) == as_state(table.scan().to_arrow())


def test_a_record_that_its_readers_would_refuse_is_not_written(
    monkeypatch,
):
    table = make(MemoryStorage(), MOR, "record")
    table.upsert(rows(range(8), 1, 1.0))
    before, make_tables = table.snapshot().seq, transaction.record_tables

    def without_slices(changes, instant):
        return {**make_tables(changes, instant), "slices": commit_log.SLICES.empty_table()}

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "record_tables", without_slices)
        with pytest.raises(Internal, match="would not be readable"):
            table.upsert(rows(range(4), 2, 2.0))
    assert table.storage.size(paths.commit(before + 1)) is None
    table.abort()
    assert table.upsert(rows(range(4), 3, 3.0)).updated == 4 and table.check().ok


def test_a_small_commit_makes_at_most_13_requests_to_the_log():
    storage = FaultyStorage(make(MemoryStorage(), MOR, "record").storage, count_reads=True)
    table = mdt.open(storage)
    table.upsert(rows(range(8), 1, 1.0))
    table.upsert(rows(range(4), 2, 2.0))
    before = len(storage.operations)
    table.upsert(rows(range(4), 3, 3.0))
    log_operations = [
        operation for operation in storage.operations[before:] if paths.LOG_DIR in str(operation)
    ]
    assert 0 < len(log_operations) <= 13, log_operations
