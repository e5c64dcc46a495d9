"""Operations that the write core does not know need nothing of it but slices: here one that
arranges rows anew.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from reader import bag
from worlds import rows

import mdt
from indexes.base import Int64Array
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.transaction import run
from mdt.engines.tasks import BUCKET
from mdt.engines.write_tasks import by_bucket
from mdt.metadata.files.file_group import BASE
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import MemoryStorage
from mdt.write.assign import NEW
from mdt.write.new_files import WriteJob
from mdt.write.rewrite_rows import live_rows
from mdt.write.slice_files import write_slices
from mdt.write.slices import KeyedRows, Slice

TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]


def filled(table_type: str = "MERGE_ON_READ", **more: object) -> mdt.Table:
    """Return a table with two partitions; on merge-on-read each has a base and a log file."""
    options = {"mdt.durable": False, **more}
    table = mdt.create(
        MemoryStorage(),
        rows([], 0, 0.0).schema,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        table_type=table_type,
        key_index="record",
        options=options,
        indexes=["bitmap(fare)"],
    )
    table.upsert(rows(range(20), 1, 1.0))
    table.upsert(rows(range(0, 20, 3), 2, 2.0))
    return table


def test_rows_of_several_file_groups_are_arranged_anew_in_one() -> None:
    table = filled(**{"mdt.small.file.bytes": 0})
    table.bulk_insert(rows(range(100, 110), 1, 7.0))
    snapshot = table.snapshot()
    old = [
        group
        for group in range(snapshot.file_groups.count)
        if snapshot.file_groups.partition(group).endswith("x")
    ]
    segments = [
        i for group in old for i in snapshot.file_groups.members(group).tolist() if snapshot.rows[i]
    ]
    before = table.scan("city = 'x'").to_arrow()

    def by_fare() -> list[pa.Table]:
        whole = pa.concat_tables([live_rows(table.metadata, snapshot, i) for i in segments])
        return [whole.take(pc.sort_indices(whole, [("fare", "descending"), ("id", "ascending")]))]

    class Arrange(Operation[WritePlan]):
        name, action = "cluster", "deltacommit"

        def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
            return WritePlan(
                Footprint(txn, frozenset(snapshot.file_groups.names(old))),
                [snapshot.file_groups.partition(old[0])],
            )

        def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
            shared = WriteJob.of(table.metadata, snapshot, table.options, claim)
            work = [Slice(plan.partitions[0], NEW, carried=by_fare)]
            changes = write_slices(shared, work, lambda one: one, read=[])
            gone = [
                int(snapshot.segment_ids[i])
                for group in old
                for i in snapshot.file_groups.members(group).tolist()
            ]
            return replace(changes, removed=gone)

    assert len(old) > 1
    run(table.metadata, Arrange())
    after = table.scan("city = 'x'").to_arrow()
    assert after["fare"].to_pylist() == sorted(before["fare"].to_pylist(), reverse=True)
    assert after.sort_by("id") == before.sort_by("id")
    files = table.files()
    files = files.filter(pc.match_substring(files["partition"], "x"))
    assert files["kind"].to_pylist() == [BASE], "one base file in the place of all"
    assert table.upsert(rows([100, 0], 9, 9.0)).updated == 2, "keys are found where they moved to"
    assert table.scan("fare = 9").count() == 2


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_of_many_slices_are_taken_from_one_chunk(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow joins all chunks of a column whenever some rows of it are taken, so each slice would
    cost what all rows cost.
    """
    chunks: list[int] = []
    rows = KeyedRows.rows

    def taken(self: KeyedRows, at: Int64Array) -> KeyedRows:
        if len(at) < len(self):
            chunks.extend(column.num_chunks for column in self.table.columns)
        return rows(self, at)

    monkeypatch.setattr(KeyedRows, "rows", taken)
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
    table = mdt.create(MemoryStorage(), schema, ["id"], partition_by=["p"])
    for n in (1, 2):
        values = [{"id": i, "p": "xyz"[i % parts], "n": n} for i in range(12)]
        data = pa.concat_tables(
            [pa.Table.from_pylist(values[i : i + 4], schema) for i in (0, 4, 8)]
        )
        table.upsert(data)
        assert bag(table.scan().to_arrow()) == bag(data)
    assert set(chunks) == ({1} if parts > 1 else set()), (
        "a single slice takes all rows, without a copy"
    )


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_texts_of_more_than_two_gibibytes_in_a_column_are_cut_into_files() -> None:
    """More than Arrow takes rows of at once."""
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
    dealt = data.append_column(BUCKET, pc.cast(data["p"], pa.int32()))
    found, places = by_bucket(dealt)
    assert {n: found["id"][rows.start : rows.stop].to_pylist() for n, rows in places.items()} == {
        n: list(range(n, 2_400, 4)) for n in range(4)
    }
