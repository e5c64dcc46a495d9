"""Parquet files that are joined without decoding have the rows of all parts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdt.errors import Corrupt
from mdt.hudi import base_file
from mdt.parquet.joined_files import footer_facts, join

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
        ("note", pa.string()),
        ("items", pa.list_(pa.struct([("a", pa.int32()), ("tags", pa.list_(pa.string()))]))),
        ("prices", pa.map_(pa.string(), pa.float64())),
    ]
)


def table_of(numbers):
    rows = [
        {
            "n": n if n % 5 else None,
            "x": n / 7,
            "flag": n % 3 == 0,
            "price": n,
            "note": f"note {n % 4}",
            "items": [{"a": n, "tags": ["t"] * (n % 3)}] * (n % 4),
            "prices": [("k", n / 2)] * (n % 2),
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def encoded(table, compression="zstd", row_group_rows=7):
    ids = tuple(range(1, 14))
    form = base_file.FileForm("{}", row_group_rows, compression, field_ids=ids)
    data, _ = base_file.encode(table, form)
    return bytes(data)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "snappy", "uncompressed"])
def test_a_joined_file_has_the_rows_in_the_order_of_the_files(compression):
    tables = [table_of(range(20)), table_of(range(20, 21)), table_of(range(21, 5000))]
    files = [encoded(table, compression) for table in tables]
    data = b"".join(join(files, {"key": "é"}, "twin"))
    joined = pq.read_table(pa.BufferReader(data))
    assert joined.cast(SCHEMA).equals(pa.concat_tables(tables))
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert metadata.num_row_groups == 3 + 1 + 712
    assert [column.metadata[b"PARQUET:field_id"] for column in joined.schema][:2] == [b"1", b"2"]
    assert footer_facts(data) == (5000, {"key": "é"})
    length = int.from_bytes(data[-8:-4], "little") + 8
    assert footer_facts(data[-length:]) == (5000, {"key": "é"})
    assert join(files, {"key": "é"}, "twin") == join(files, {"key": "é"}, "twin")


def test_files_that_differ_only_in_their_codec_are_joined():
    few, many = (pa.table({"a": [f"v{n % count}" for n in range(3000)]}) for count in (10, 500))
    form = base_file.FileForm("{}", 5000, "zstd")
    files = [bytes(base_file.encode(t, form)[0]) for t in (few, many)]
    chunks = [pq.read_metadata(pa.BufferReader(f)).row_group(0).column(0) for f in files]
    assert [chunk.compression for chunk in chunks] == ["SNAPPY", "ZSTD"]
    assert chunks[0].encodings == chunks[1].encodings
    joined = pq.read_table(pa.BufferReader(b"".join(join(files, {}, "twin"))))
    assert joined.equals(pa.concat_tables([few, many]))


def test_files_with_other_columns_and_invalid_files_are_refused():
    file = encoded(table_of(range(3)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1]}), sink)
    for other in (bytes(sink.getvalue()), b"", b"PAR1PAR1", file[:-1], b"x" * 100):
        with pytest.raises(Corrupt, match="cannot be joined"):
            join([file, other], {}, "twin")
