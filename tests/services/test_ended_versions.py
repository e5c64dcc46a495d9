"""Schema versions are removed together with the states and files that need them. Column ids and
names of statistics stay unique.
"""

import pyarrow as pa
import pytest
from reader import agreed
from texts import columns

import mdt
from mdt.commit.conflicts import Footprint, check
from mdt.errors import Corrupt
from mdt.limits import ARCHIVE_RECORDS_MIN, CLEAN_COMMITS_MIN
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.apply import apply
from mdt.schema.versions import (
    SchemaVersion,
    check_succession,
    first_version,
    free_id,
    remove_versions,
    statistics_names,
)
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, p string, v int64, note string")
RETAINED = 5
OPTIONS = {
    "mdt.durable": False,
    "mdt.clean.retain.commits": RETAINED,
    "mdt.metadata.compact.records": 8,
}


def filled_table(location, **options):
    table = mdt.create(
        location,
        SCHEMA,
        ["id"],
        partition_by=["p"],
        table_type="MERGE_ON_READ",
        options={**OPTIONS, **options},
    )
    table.bulk_insert(
        [{"id": f"old {n}", "p": "a", "v": n, "note": f"old note {n}"} for n in range(20)]
    )
    return table


def version_seqs(table):
    return [version.since for version in table.definition.versions]


def new_row(number, **more):
    return [{"id": f"new {number}", "p": "b", "v": number, "note": "x", **more}]


def test_after_six_hundred_alterations_only_the_versions_of_retained_states_are_kept(
    tmp_path,
):
    table = filled_table(tmp_path / "t", **{"mdt.services.auto": False})
    for n in range(1, 601):
        if n % 2:
            type = "string" if n % 4 == 1 else "int64"
            table.alter(add={"again": type}, beyond_hudi=True)
        else:
            table.alter(drop=["again"])
        if n % 50 == 49:
            table.upsert(new_row(n, again=f"{n}" if n % 4 == 1 else n))
        if n % 40 == 0:
            table.clean()
    states = table.snapshot().seq - table.snapshot().retention.first
    assert states <= RETAINED + 40 + ARCHIVE_RECORDS_MIN + CLEAN_COMMITS_MIN
    table = mdt.open(tmp_path / "t")
    assert version_seqs(table)[0] == 0 and len(version_seqs(table)) <= 1 + states, (
        "one version per state, and one for the loaded file"
    )
    assert free_id(table.definition.versions) == len(SCHEMA) + 300, "no id is used twice"
    before = agreed(table)
    assert before.schema.names == SCHEMA.names and len(before) == 20 + 12

    seq = table.snapshot().seq
    table.alter(add={"again": "int64"}, beyond_hudi=True)
    assert table.scan("again is null").count() == 32 and table.scan("again = 599").count() == 0
    table.upsert(
        new_row(7, again=7) + [{"id": "old 7", "p": "a", "v": 70, "note": "y", "again": 8}]
    )
    assert sorted(table.scan("again > 6").to_arrow()["again"].to_pylist()) == [7, 8]
    assert table.scan("v < 20 and note = 'old note 8'").to_arrow()["id"].to_pylist() == ["old 8"]
    assert mdt.open(tmp_path / "t", as_of=seq).scan().to_arrow().equals(before)
    changed = table.changes(seq).to_arrow().sort_by("id")
    assert changed["id"].to_pylist() == ["new 7", "old 7", "old 7"]
    table.restore(seq)
    agreed(table, expected=before)


def test_a_table_that_is_only_altered_removes_versions_automatically():
    table = filled_table(MemoryStorage())
    for n in range(130):
        table.alter(**({"drop": ["x"]} if n % 2 else {"add": {"x": "int64"}}), beyond_hudi=True)
    assert len(version_seqs(table)) < 100
    assert table.check().ok


def test_the_first_version_is_kept_because_the_table_properties_refer_to_it():
    table = filled_table(MemoryStorage(), **{"mdt.services.auto": False})
    table.alter(drop=["note"])
    table.alter(add={"x": "int64"}, beyond_hudi=True)
    rows = [{"id": f"old {n}", "p": "a", "v": n, "x": n} for n in range(20)]
    for _ in range(60):
        table.upsert(rows)
        table.compact()
        table.clean(retain_commits=1)
    assert version_seqs(table) == [0, 3], "no file has the first or the second version"
    assert table.check().ok


def test_versions_of_tagged_states_are_kept_and_can_be_restored_with_their_columns(
    tmp_path,
):
    table = filled_table(tmp_path / "t", **{"mdt.services.auto": False})
    table.alter(add={"x": "int32", "y": "string"})
    table.upsert(new_row(1, x=5, y="of y"))
    table.tag("then")
    for _ in range(2):
        table.alter(drop=["x"])
        table.upsert(new_row(1, y=None))
        table.alter(add={"x": "string"}, beyond_hudi=True)
        table.upsert(new_row(1, y=None, x="text"))
    table.alter(drop=["y"])
    table.compact()
    for n in range(80):
        table.upsert(new_row(2 + n % 2, x="z"))
        table.clean(retain_commits=1)
    count = len(version_seqs(table))
    assert count == 3, "the versions of the loaded file, of the tag and of the newest state"
    table.restore("then")
    assert table.scan("p = 'b'").to_arrow().select(["id", "x", "y"]).to_pylist() == [
        {"id": "new 1", "x": 5, "y": "of y"}
    ]
    assert table.check().ok and mdt.open(tmp_path / "t").check().ok


ID, FLAG = pa.field("id", pa.string()), pa.field("flag", pa.bool_())


def version(since, ids, *columns):
    return SchemaVersion(since, pa.schema(columns), pa.schema(columns), ids)


def test_removed_versions_leave_column_ids_and_statistics_names_unique():
    first = first_version(pa.schema([ID, FLAG]), pa.schema([ID, FLAG]))
    chain = (first, version(3, (0,), ID), version(5, (0, 2), ID, FLAG), version(7, (0,), ID))
    assert statistics_names(chain)[2]["flag"] == "flag@2.5"
    remaining = remove_versions(chain, {0, 3})
    check_succession(remaining, ("id",))
    assert [kept.since for kept in remaining] == [5, 7] and statistics_names(
        remaining
    ) == statistics_names(chain)[2:]
    extended = (*remove_versions(remaining, {5}), version(9, (0, 3), ID, FLAG))
    check_succession(extended, ("id",))
    assert statistics_names(extended)[-1]["flag"] == "flag@3.9", (
        "flag and flag@2.5 were names of earlier columns"
    )
    assert free_id(extended[:1]) == 3
    with pytest.raises(ValueError, match="used before"):
        check_succession((*extended[:1], version(9, (0, 2), ID, FLAG)), ("id",))
    for invalid in ({7}, {4}):
        with pytest.raises(ValueError, match="does not exist or is the current one"):
            remove_versions(chain, invalid)


def record_of(table, **header):
    """Return a clean record that follows the newest state."""
    snapshot = table.metadata.newest()
    defaults = {
        "action": "clean",
        "operation": "clean",
        "txn": "a" * 32,
        "instant": "20990101000000000",
        "begun_at": 1,
    }
    return CommitRecord(snapshot.seq + 1, {**defaults, "seq": snapshot.seq + 1, **header}, {})


def test_removing_the_version_of_a_live_file_or_the_newest_version_raises():
    table = filled_table(MemoryStorage())
    table.alter(add={"x": "int64"})
    snapshot = table.metadata.newest()
    for ended, why in (
        (0, "of a live file"),
        (snapshot.seq, "or is the current one"),
        (99, "does not exist"),
    ):
        with pytest.raises(Corrupt, match=why):
            apply(snapshot, record_of(table, ended_versions=[ended]))


def test_an_alteration_conflicts_with_the_removal_of_versions():
    theirs = record_of(filled_table(MemoryStorage()), ended_versions=[1])
    reasons = [
        check(Footprint("b" * 32, alters=alters), theirs, None, None) for alters in (True, False)
    ]  # type: ignore[arg-type]
    assert reasons == [f"commit {theirs.seq} dropped versions of the schema", None]
