"""Strings that are read as dictionary-encoded columns are decoded to the written strings."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mdt
from mdt.parquet import decoded, segment_rows
from mdt.stores.storage import MemoryStorage

ROWS = 5_000
TABLE = pa.table(
    {
        "few": [None if i % 7 == 0 else f"town {i % 5}" for i in range(ROWS)],
        "all": [f"town {i % 5}" for i in range(ROWS)],
        "many": [f"street {i}" for i in range(ROWS)],
        "number": range(ROWS),
        "a.b": ["x"] * ROWS,
        "s": [{"t": "x"}] * ROWS,
    }
)
KEPT = pa.array(np.arange(ROWS) % 3 > 0)


def few_texts(table, dictionaries):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROWS // 4, use_dictionary=dictionaries)
    return decoded.low_cardinality_strings(pq.read_metadata(pa.BufferReader(sink.getvalue())))


def test_top_level_columns_with_a_small_dictionary_in_every_row_group_have_low_cardinality():
    assert few_texts(TABLE, TABLE.column_names) == {"few", "all", "many"}
    assert few_texts(TABLE, ["few", "number", "a.b", "s.t"]) == {"few"}
    random = [np.random.default_rng(i).bytes(64).hex() for i in range(ROWS)]
    with_long_values = TABLE.drop(["many"]).append_column("many", pa.array(random))
    assert few_texts(with_long_values, ["many", "few"]) == {"few"}, (
        "the dictionary of many may have been full"
    )


@pytest.mark.parametrize("bytes_max", [decoded._TEXT_BYTES_MAX, 1_000])
def test_dictionary_encoded_strings_are_decoded_to_the_written_strings(monkeypatch, bytes_max):
    monkeypatch.setattr(decoded, "_TEXT_BYTES_MAX", bytes_max)
    texts = TABLE.select(["many", "few", "all"])
    numbers = pa.table([c.dictionary_encode() for c in texts.columns], texts.column_names)
    for part in (lambda t: t, lambda t: t.filter(KEPT), lambda t: t[7:18], lambda t: t[:0]):
        strings = decoded.decode_strings(part(numbers).select(["few", "all", "many"]), texts.schema)
        strings.validate(full=True)
        assert strings.equals(part(texts))


def test_a_scan_of_columns_with_few_strings_returns_the_live_rows(monkeypatch):
    monkeypatch.setattr(segment_rows, "_FEW_ROWS_MIN", 1)
    rows = TABLE.select(["number", "few", "all", "many"])
    options = {"mdt.row.group.rows": 1_000}
    table = mdt.create(MemoryStorage(), rows.schema, ["number"], options=options)
    table.bulk_insert(rows)
    table.delete(rows.filter(pc.invert(KEPT)))
    expected = rows.filter(KEPT)
    assert table.scan().to_arrow().sort_by("number").equals(expected)
    found = table.scan("few = 'town 1'").to_arrow()["number"].to_pylist()
    assert sorted(found) == [n for n in range(ROWS) if n % 3 and n % 7 and n % 5 == 1]
    table.compact()
    assert table.scan().to_arrow().sort_by("number").equals(expected) and table.check().ok
