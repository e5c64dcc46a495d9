"""Files on an object store are compressed more strongly than files on a disk, because requests take
long.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore
from texts import columns

import mdt
from mdt.stores.object_store import ObjectStorage
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, city string, ts int64, fare double")


def codecs(t, storage):
    """Return the codecs of the column chunks of all files of ``t``."""
    footers = [
        pq.read_metadata(pa.BufferReader(storage.read(path)))
        for path in t.files()["name"].to_pylist()
    ]
    groups = [footer.row_group(i) for footer in footers for i in range(footer.num_row_groups)]
    return {group.column(i).compression for group in groups for i in range(group.num_columns)}


@pytest.mark.parametrize(
    ("is_remote", "options", "expected"),
    [
        (True, {}, "ZSTD"),
        (True, {"mdt.compression": "lz4"}, "LZ4"),
        (True, {"hoodie.parquet.compression.codec": "uncompressed"}, "UNCOMPRESSED"),
        (False, {}, "LZ4"),
    ],
)
def test_objects_are_written_with_zstd_unless_the_options_name_another_codec(
    is_remote, options, expected
):
    storage = ObjectStorage("memory:///t", MemoryStore()) if is_remote else MemoryStorage()
    t = mdt.create(storage, SCHEMA, key=["id"], options=options)
    assert ("mdt.compression" in t.definition.options) == (is_remote or bool(options))
    t.upsert(
        pa.table(
            [[*range(1000)], [f"city {i}" for i in range(1000)], [0] * 1000, [1.5] * 1000],
            schema=SCHEMA,
        )
    )
    used_codecs = codecs(mdt.open(storage), storage)
    assert expected in used_codecs and used_codecs <= {
        expected,
        "SNAPPY",
    }  # SNAPPY for columns with few distinct values
