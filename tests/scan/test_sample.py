"""Samples estimate numbers of distinct values from a few row groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mdt
from mdt.metadata.metadata import Metadata
from mdt.scan import sample
from mdt.scan.sample import Samples

ROWS = 40_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("few", pa.string()),
        ("many", pa.int64()),
        ("half", pa.int64()),
        ("gone", pa.string()),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    few = pa.array([f"kind {i % 12}" for i in ids])
    many = pa.array((ids * 2_654_435_761) % (1 << 40))
    half = pa.array((ids // 2 * 2_654_435_761) % (1 << 40))
    return pa.table([pa.array(ids), few, many, half, pa.nulls(count, pa.string())], schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mdt.Table:
    made = mdt.create(
        tmp_path_factory.mktemp("sampled") / "t",
        SCHEMA,
        key=["id"],
        options={"mdt.services.auto": "false", "mdt.small.file.bytes": 0},
    )
    for part in range(5):
        made.bulk_insert(rows(part * ROWS, ROWS))
    return made


@pytest.fixture
def metadata(table: mdt.Table) -> Metadata:
    return table.metadata


def test_columns_with_few_values_are_counted_exactly(metadata: Metadata) -> None:
    assert Samples(metadata).distinct(metadata.newest(), "few") == 12
    assert Samples(metadata).distinct(metadata.newest(), "gone") == 0


@pytest.mark.parametrize(("column", "true"), [("many", 5 * ROWS), ("half", 5 * ROWS // 2)])
def test_columns_with_many_values_are_guessed_within_the_bound_of_the_estimator(
    metadata: Metadata, column: str, true: int
) -> None:
    found = Samples(metadata).distinct(metadata.newest(), column)
    assert true / 4 <= found <= true


def test_files_are_read_once(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, newest = Samples(metadata), metadata.newest()
    first = samples.distinct(newest, "few")

    def fail(*_: object, **__: object) -> object:
        raise AssertionError("read again")

    monkeypatch.setattr(sample, "read", fail)
    assert samples.distinct(newest, "few") == first
    with pytest.raises(AssertionError, match="read again"):
        samples.distinct(newest, "many")


def test_a_table_without_rows_has_no_values(tmp_path: Path) -> None:
    made = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    metadata = made.metadata
    assert Samples(metadata).distinct(metadata.newest(), "few") == 0
