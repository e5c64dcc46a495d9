"""KeyedRows and slices of large batches: rows are taken from one chunk, and columns above two
gibibytes are supported.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from reader import bag
from texts import columns

import mdt
from mdt.engines.tasks import BUCKET
from mdt.engines.write_tasks import sort_by_bucket
from mdt.stores.storage import MemoryStorage
from mdt.write.slices import KeyedRows


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_of_each_slice_are_taken_from_a_single_chunk(parts, monkeypatch):
    """Arrow concatenates all chunks of a column whenever some of its rows are taken, so each slice
    would cost as much as all rows.
    """
    chunks = []
    rows = KeyedRows.rows

    def record_chunks(self, at):
        if len(at) < len(self):
            chunks.extend(column.num_chunks for column in self.table.columns)
        return rows(self, at)

    monkeypatch.setattr(KeyedRows, "rows", record_chunks)
    schema = columns("id int64, p string, n int64")
    table = mdt.create(MemoryStorage(), schema, ["id"], partition_by=["p"])
    for n in (1, 2):
        values = [{"id": i, "p": "xyz"[i % parts], "n": n} for i in range(12)]
        data = pa.concat_tables(
            [pa.Table.from_pylist(values[i : i + 4], schema) for i in (0, 4, 8)]
        )
        table.upsert(data)
        assert bag(table.scan().to_arrow()) == bag(data)
    assert set(chunks) == ({1} if parts > 1 else set()), (
        "a single slice uses all rows without a copy"
    )


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_column_with_more_than_two_gibibytes_of_text_is_split_into_files():
    """This exceeds the size that Arrow's take supports."""
    chunk = pa.array(["x" * 1_000_000] * 800)
    numbers = pa.array(range(2_400))
    data = pa.table(
        {
            "id": numbers,
            "p": pc.cast(pc.bit_wise_and(numbers, 3), pa.string()),
            "s": pa.chunked_array([chunk] * 3),
        }
    )
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        data.take([0])
    table = mdt.create(
        MemoryStorage(),
        data.schema,
        ["id"],
        partition_by=["p"],
        options={"mdt.column.stats.columns": ["id"]},
    )
    table.upsert(data)
    assert table.scan().count() == 2_400
    assert table.get({"id": 7, "p": "3"}) == {"id": 7, "p": "3", "s": "x" * 1_000_000}
    table.delete(data.select(["id", "p"]).slice(0, 100))
    table.merge(data, on=None).when_matched().update("*").when_not_matched().insert("*").execute()
    assert table.scan().count() == 2_400
    assert len(table.changes(0).to_arrow()) == 2_400
    table.restore(2)
    assert table.scan().count() == 2_300
    with_buckets = data.append_column(BUCKET, pc.cast(data["p"], pa.int32()))
    sorted_rows, places = sort_by_bucket(with_buckets)
    assert {
        n: sorted_rows["id"][rows.start : rows.stop].to_pylist() for n, rows in places.items()
    } == {n: list(range(n, 2_400, 4)) for n in range(4)}
