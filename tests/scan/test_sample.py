"""Samples: estimates of the number of distinct values from a few row groups."""

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.scan import sample
from mdt.scan.sample import Samples
from mdt.stores.storage import MemoryStorage

ROWS = 40_000
SCHEMA = columns("id int64, few string, many int64, half int64, gone string")


def rows(first, count):
    ids = np.arange(first, first + count)
    columns = {
        "id": ids,
        "few": [f"kind {i % 12}" for i in ids],
        "many": (ids * 2_654_435_761) % (1 << 40),
        "half": (ids // 2 * 2_654_435_761) % (1 << 40),
        "gone": pa.nulls(count, "string"),
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def metadata():
    options = {"mdt.services.auto": "false", "mdt.small.file.bytes": 0}
    new_table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], options=options)
    for part in range(5):
        new_table.bulk_insert(rows(part * ROWS, ROWS))
    return new_table.metadata


def test_a_table_without_rows_has_no_distinct_values():
    metadata = mdt.create(MemoryStorage(), SCHEMA, key=["id"]).metadata
    assert Samples(metadata).distinct(metadata.newest(), "few") == 0


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("few", 12, 12),
        ("gone", 0, 0),
        ("many", 5 * ROWS / 4, 5 * ROWS),
        ("half", 5 * ROWS / 8, 5 * ROWS / 2),
    ],
)
def test_few_distinct_values_are_counted_exactly_and_many_within_the_bound_of_the_estimator(
    metadata, column, low, high
):
    assert low <= Samples(metadata).distinct(metadata.newest(), column) <= high


def test_a_sample_of_a_column_is_read_once(metadata, monkeypatch):
    samples, newest = Samples(metadata), metadata.newest()
    first = samples.distinct(newest, "few")

    def fail(*_, **__):
        raise AssertionError("read again")

    monkeypatch.setattr(sample, "read", fail)
    assert samples.distinct(newest, "few") == first
    with pytest.raises(AssertionError, match="read again"):
        samples.distinct(newest, "many")
