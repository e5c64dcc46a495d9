"""Operations that the write core does not know need nothing of it but slices: deleting by predicate, arranging rows anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap
from worlds import rows

import mdt
from indexes.hashing import hash_keys
from indexes.predicate import Predicate, matches
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.transaction import run, steps
from mdt.config import Options
from mdt.filters.where import parse_where
from mdt.hudi.arrays import plain
from mdt.hudi.schema import with_meta
from mdt.metadata.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import live_mask, read_rows
from mdt.plan.planner import plan
from mdt.stores.storage import MemoryStorage
from mdt.write.assign import NEW
from mdt.write.files import RECORD_KEY, WriteJob, live_rows
from mdt.write.operations import write_slices
from mdt.write.slices import Keys, Slice

TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]


def filled(table_type: str = "MERGE_ON_READ", **more: object) -> mdt.Table:
    """Return a table with two partitions; on merge-on-read each has a base and a log file."""
    options = {"mdt.durable": False, **more}
    table = mdt.create(
        MemoryStorage(), rows([], 0, 0.0).schema, ["id"], partition_by=["city"], ordering="ts", table_type=table_type,
        key_index="record", options=options, indexes=["bitmap(fare)"],
    )  # fmt: skip
    table.upsert(rows(range(20), 1, 1.0))
    table.upsert(rows(range(0, 20, 3), 2, 2.0))
    return table


@dataclass(frozen=True, slots=True)
class DeadPlan(WritePlan):
    """``dead``: file group -> segment -> positions that match."""

    dead: Mapping[int, Mapping[int, BitMap]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteWhere(Operation[DeadPlan]):
    """Delete the rows that match a predicate: all that this operation would take."""

    metadata: Metadata
    options: Options
    predicate: Predicate
    name: str = "delete_where"
    action: str = "deltacommit"

    def prepare(self, snapshot: Snapshot, txn: str) -> DeadPlan:
        dead: dict[int, dict[int, BitMap]] = {}
        for scan in plan(self.metadata, snapshot, self.predicate).segments:
            table = read_rows(self.metadata.storage, snapshot.segment(scan.file), snapshot.definition.schema)
            mask = matches(self.predicate, table).to_numpy()
            live = live_mask(len(table), snapshot.vector(scan.file))
            hit = np.flatnonzero(mask if live is None else mask & live)
            if len(hit):
                dead.setdefault(int(snapshot.file_groups.of_files(np.array([scan.file]))[0]), {})[scan.file] = BitMap(
                    hit.astype(np.uint32)
                )
        names = frozenset(snapshot.file_groups.names(sorted(dead)))
        deleted = sum(len(positions) for of in dead.values() for positions in of.values())
        partitions = sorted({snapshot.file_groups.partition(group) for group in dead})
        return DeadPlan(Footprint(txn, names), partitions, {"deleted": deleted}, bool(dead), dead)

    def write(self, snapshot: Snapshot, plan: DeadPlan, claim: Claim) -> Changes:
        def slice_of(group: int) -> Slice:
            dead, is_log = plan.dead[group], snapshot.definition.is_mor
            keys = self._keys(snapshot, dead) if is_log else None
            return Slice(snapshot.file_groups.partition(group), group, is_log, dead=dead, deleted=keys)

        return write_slices(WriteJob.of(self.metadata, snapshot, self.options, claim), sorted(plan.dead), slice_of)

    def _keys(self, snapshot: Snapshot, dead: Mapping[int, BitMap]) -> Keys:
        schema = pa.schema([with_meta(snapshot.definition.schema).field(RECORD_KEY)])
        parts = [
            read_rows(self.metadata.storage, snapshot.segment(row), schema).take(pa.array(positions))
            for row, positions in dead.items()
        ]
        keys = plain(pa.concat_tables(parts)[0])
        return Keys(keys, hash_keys(keys, snapshot.definition.hash_seed))


def delete_where(table: mdt.Table, where: str) -> DeleteWhere:
    return DeleteWhere(
        table.metadata, table.options, parse_where(where, table.schema), action=table.definition.commit_action
    )


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("positions", [False, True])
def test_rows_are_deleted_by_predicate_without_anything_new_in_the_write_core(table_type: str, positions: bool) -> None:
    table = filled(table_type, **{"hoodie.write.record.positions": positions})
    expected = table.scan("not (fare = 2.0 or id in ('k1', 'k2'))").to_arrow().sort_by("id")
    done = run(table.metadata, delete_where(table, "fare = 2.0 or id in ('k1', 'k2')"))
    assert done.record is not None and done.record.header["counts"] == {"deleted": 9}
    assert table.scan().to_arrow().sort_by("id") == expected
    assert sum(done.record.table("files")["deletes"].to_pylist()) == 9
    assert table.check().ok
    assert run(table.metadata, delete_where(table, "fare = 2.0")).record is None
    assert table.upsert(rows(range(3), 0, 0.0)).inserted == 3, "keys that were deleted are new, whatever their ordering"
    table.compact()
    assert table.scan().count() == len(expected) + 3 and table.check().ok


def test_a_delete_by_predicate_starts_again_when_its_rows_change() -> None:
    table = filled()
    driver = steps(table.metadata, delete_where(table, "fare = 2.0"))
    while next(driver) != "written":
        pass
    mdt.open(table.storage).upsert(rows([0], 3, 5.0))
    with pytest.raises(StopIteration) as ended:
        while True:
            next(driver)
    assert ended.value.value.attempts == 2
    assert table.scan("fare >= 2").to_arrow()["id"].to_pylist() == ["k0"]
    assert table.check().ok


def test_rows_of_several_file_groups_are_arranged_anew_in_one() -> None:
    table = filled(**{"mdt.small.file.bytes": 0})
    table.bulk_insert(rows(range(100, 110), 1, 7.0))
    snapshot = table.snapshot()
    old = [group for group in range(snapshot.file_groups.count) if snapshot.file_groups.partition(group).endswith("x")]
    segments = [i for group in old for i in snapshot.file_groups.members(group).tolist() if snapshot.rows[i]]
    before = table.scan("city = 'x'").to_arrow()

    def by_fare() -> list[pa.Table]:
        whole = pa.concat_tables([live_rows(table.metadata, snapshot, i) for i in segments])
        return [whole.take(pc.sort_indices(whole, [("fare", "descending"), ("id", "ascending")]))]

    class Arrange(Operation[WritePlan]):
        name, action = "cluster", "deltacommit"

        def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
            return WritePlan(
                Footprint(txn, frozenset(snapshot.file_groups.names(old))), [snapshot.file_groups.partition(old[0])]
            )

        def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
            shared = WriteJob.of(table.metadata, snapshot, table.options, claim)
            work = [Slice(plan.partitions[0], NEW, carried=by_fare)]
            changes = write_slices(shared, work, lambda one: one)
            gone = [int(snapshot.segment_ids[i]) for group in old for i in snapshot.file_groups.members(group).tolist()]
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
