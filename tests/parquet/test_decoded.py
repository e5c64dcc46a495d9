"""Texts that are decoded as numbers with a dictionary come out as they went in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdt
from mdt.parquet import decoded, segment_rows
from mdt.stores.storage import MemoryStorage

ROWS = 5_000
TABLE = pa.table(
    {
        "few": pa.array([None if i % 7 == 0 else f"town {i % 5}" for i in range(ROWS)]),
        "all": pa.array([f"town {i % 5}" for i in range(ROWS)]),
        "many": pa.array([f"street {i}" for i in range(ROWS)]),
        "number": pa.array(np.arange(ROWS)),
        "a.b": pa.array(["x"] * ROWS),
        "s": pa.array([{"t": "x"}] * ROWS),
    }
)


def file_of(table: pa.Table, dictionaries: list[str]) -> pq.ParquetFile:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROWS // 4, use_dictionary=dictionaries)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


def test_top_level_columns_with_a_small_dictionary_in_every_row_group_have_few_texts() -> None:
    assert decoded.few_texts(file_of(TABLE, TABLE.column_names).metadata) == {"few", "all", "many"}
    assert decoded.few_texts(file_of(TABLE, ["few", "number", "a.b", "s.t"]).metadata) == {"few"}
    long = TABLE.set_column(
        2, "many", pa.array([np.random.default_rng(i).bytes(64).hex() for i in range(ROWS)])
    )
    assert decoded.few_texts(file_of(long, ["many", "few"]).metadata) == {"few"}, (
        "its dictionary may have been full"
    )


@pytest.mark.parametrize("bytes_max", [decoded._TEXT_BYTES_MAX, 1_000])
def test_texts_that_were_numbers_are_those_that_were_written(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(decoded, "_TEXT_BYTES_MAX", bytes_max)
    numbers = TABLE.select(["few", "all", "many"])
    numbers = pa.table(
        [column.dictionary_encode() for column in numbers.columns], names=numbers.column_names
    )
    mask = pa.array(np.arange(ROWS) % 3 > 0)
    for rows in (numbers, numbers.filter(mask), numbers.slice(7, 11), numbers.slice(0, 0)):
        texts = decoded.as_texts(
            rows, pa.schema([TABLE.schema.field(name) for name in ("many", "few", "all")])
        )
        texts.validate(full=True)
        assert texts.to_pylist() == [
            {n: row[n] for n in ("many", "few", "all")} for row in rows.to_pylist()
        ]
        assert texts.schema.types == [pa.string()] * 3


def test_a_scan_of_few_texts_gives_the_live_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_rows, "_FEW_ROWS_MIN", 1)
    rows = TABLE.select(["number", "few", "all", "many"])
    options = {"mdt.row.group.rows": 1_000}
    table = mdt.create(
        MemoryStorage(), rows.schema, ["number"], table_type="MERGE_ON_READ", options=options
    )
    table.bulk_insert(rows)
    table.delete(rows.filter(pa.array(np.arange(ROWS) % 3 == 0)))
    expected = rows.filter(pa.array(np.arange(ROWS) % 3 > 0))
    assert table.scan().to_arrow().sort_by("number").equals(expected)
    found = table.scan(where="few = 'town 1'").to_arrow()
    assert sorted(found["number"].to_pylist()) == [
        n for n in range(ROWS) if n % 3 and n % 7 and n % 5 == 1
    ]
    table.compact()
    assert table.scan().to_arrow().sort_by("number").equals(expected) and table.check().ok
