"""Files in memory that are read page by page, and compared with what was written."""

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
    """Return rows of a file, with a page map that was kept in bytes."""
    found = page_map.decode(page_map.encode(page_map.build(data)), path="", offset=0)
    return RowSelection("f", 0, data.size, data, found, np.array(sorted(positions), np.int64))


def assert_found(parts, expected):
    """Compare what pages give with rows: the same bits, but for those of NaN."""
    found = read_pages(STORAGE, parts, expected.schema)
    found.validate(full=True)
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


def assert_read(table, rows, **layout):
    """Write a table, and compare what the pages of some rows give with them; return the file."""
    data = encoded(table, **layout)
    assert_found([wanted(data, rows)], table.take(list(rows)))
    return data
