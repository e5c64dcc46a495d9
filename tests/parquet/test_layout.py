"""The assumptions of mdt about Parquet files, beyond pyarrow's public API, hold for the installed
release.

If a test fails here after an upgrade of pyarrow, its writer has another layout. Page maps are then
missing or wrong, and single rows are read by whole row groups. ``mdt/parquet/footer.py`` and
``page_map.py`` need to be adapted.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paging import encoded
from texts import columns

import mdt
from mdt.parquet import page_map
from mdt.parquet.nested import leaf_columns
from mdt.parquet.page_map import LayoutWarning
from mdt.parquet.thrift import STRUCT, Malformed, find, read_integer, skip

N = 12_000
SHAPES = {
    "flat columns": pa.table(
        {
            "n": range(N),
            "text": [f"{i * 7919}" for i in range(N)],
            "real": [i / 3 for i in range(N)],
        }
    ),
    "dictionaries": pa.table(
        {"city": ["Rome", "Oslo", None] * (N // 3), "flag": [True, None] * (N // 2)}
    ),
    "a dictionary that grew too large": pa.table(
        {"text": ["often"] * 2000 + [f"{i:0200}" for i in range(N - 2000)]}
    ),
    "nulls only": pa.table({"n": pa.nulls(N, "int32"), "text": pa.nulls(N, "string")}),
    "nested columns between": pa.table(
        {"a": range(N), "list": [[1, 2], []] * (N // 2), "z": ["x"] * N}
    ),
    "fields of structs": pa.table({"place": [{"zip": "1"}] * N, "n": range(N)}),
    "decimals and times": pa.table(
        {
            "price": pa.array(range(N), "int64").cast(pa.decimal128(30, 2)),
            "at": pa.array(range(N), pa.timestamp("us", "UTC")),
            "day": pa.array(range(N), "int32").cast("date32"),
        }
    ),
    "maps": pa.table(
        {
            "m": pa.array(
                [[("k", 1.5)] * (i % 3) for i in range(N)], pa.map_(pa.string(), pa.float64())
            )
        }
    ),
    "a small table": pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]}),
}


def values_of_page(header):
    """Return the number of values of a page from its header, parsed by the Thrift format, or None
    for a dictionary page.
    """
    if read_integer(header, find(header, 0, 1)) == 2:
        return None
    try:
        return read_integer(header, find(header, find(header, 0, 5), 1))
    except Malformed:
        return read_integer(header, find(header, find(header, 0, 8), 1))


def pages_by_walking(parquet, name):
    """Yield (offset, size with header, values before it) of each data page of a column, by reading
    header after header.
    """
    data, before = parquet.to_pybytes(), 0
    metadata = pq.read_metadata(pa.BufferReader(parquet))
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        [chunk] = [
            c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name
        ]
        at = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        end = at + chunk.total_compressed_size
        while at < end:
            size = skip(data, at, STRUCT) - at + read_integer(data, find(data, at, 3))
            values = values_of_page(data[at : at + size])
            if values is not None:
                yield at, size, before
                before += values
            at += size
        assert at == end, "the chunk ends with its last page"


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize(
    ("group", "page_bytes"), [(1 << 20, 1 << 20), (5000, 4096)], ids=["large", "small"]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_page_maps_have_the_pages_that_the_installed_pyarrow_writes(
    shape, group, page_bytes, compression
):
    parquet = encoded(
        SHAPES[shape], row_group_rows=group, page_bytes=page_bytes, compression=compression
    )
    data = page_map.encode_file(parquet)
    assert data is not None
    decoded_map = page_map.decode(data, path="", offset=0)
    assert data == page_map.encode(decoded_map)
    assert list(decoded_map.columns) == [leaf.path for leaf in leaf_columns(SHAPES[shape].schema)]
    for number, name in enumerate(decoded_map.columns):
        of_column = decoded_map.info[decoded_map.keys >> 32 == number]
        before = np.cumsum(of_column[:, page_map.VALUES]) - of_column[:, page_map.VALUES]
        stored = np.column_stack([of_column[:, [page_map.OFFSET, page_map.SIZE]], before]).tolist()
        assert stored == [list(page) for page in pages_by_walking(parquet, name)], (
            f"pyarrow {pa.__version__}: {name}"
        )


def test_an_unknown_layout_warns_with_the_pyarrow_release_and_loses_no_rows(monkeypatch):
    def raise_value_error(*_, **__):
        raise ValueError("unexpected bytes after the offset indexes")

    table = mdt.create("memory:///t", columns("id int64, n int64"), ["id"])
    monkeypatch.setattr(page_map, "build", raise_value_error)
    with pytest.warns(LayoutWarning, match=f"pyarrow {pa.__version__} .*unexpected bytes after"):
        table.insert(pa.table({"id": [1, 2], "n": [3, 4]}))
    assert table.scan("n = 4").to_arrow()["id"].to_pylist() == [2]
