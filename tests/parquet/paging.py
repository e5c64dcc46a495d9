"""Writes tables as Parquet files in memory, reads pages of them and compares the rows."""

import numpy as np

from mdt.hudi import base_file
from mdt.parquet import page_map
from mdt.parquet.pages import RowSelection, read_pages
from mdt.stores.storage import MemoryStorage

STORAGE = MemoryStorage()


def encoded(table, *, row_group_rows=4000, page_bytes=1024, compression="lz4"):
    form = base_file.FileForm("{}", row_group_rows, compression, page_bytes)
    data, _ = base_file.encode(table, form)
    return data


def wanted(data, positions):
    """Return a selection of rows of a file, with a page map that was encoded and decoded."""
    decoded_map = page_map.decode(page_map.encode(page_map.build(data)), path="", offset=0)
    return RowSelection("f", 0, data.size, data, decoded_map, np.array(sorted(positions), np.int64))


def assert_found(parts, expected):
    """Assert that pages give the expected rows, bit by bit except for NaN."""
    read_rows = read_pages(STORAGE, parts, expected.schema)
    read_rows.validate(full=True)
    assert read_rows.schema.equals(expected.schema)
    assert repr(read_rows.to_pylist()) == repr(expected.to_pylist())


def assert_read(table, rows, **layout):
    """Write a table, assert that pages give the rows at these positions, and return the file."""
    data = encoded(table, **layout)
    assert_found([wanted(data, rows)], table.take(list(rows)))
    return data
