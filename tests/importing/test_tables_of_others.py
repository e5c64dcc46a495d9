"""Tables that Apache Hudi wrote, opened as our tables: rows, filters, keys, earlier
snapshots.
"""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
import trees
from hudi import HudiTable
from hudi_tables import FIXTURES, ZIPS, bag, fixture, instants, unpacked
from refusals import refused

import mdt
from mdt.errors import Invalid, Unsupported

pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
EVERY_TABLE = pytest.mark.parametrize(
    "path", ZIPS, ids=[f"{path.parent.name}-{path.stem}" for path in ZIPS]
)
DAILY = (
    "cow_v6_complexkeygen_hivestyle",
    "cow_v8_simplekeygen_hivestyle_no_metafields",
    "cow_v9_timebasedkeygen_epochmillis",
    "mor_avro_v6_trips_8i3d",
    "mor_avro_v8_trips_8i3u1d",
    "mor_avro_v9_nonpartitioned_rollback",
    "mor_parquet_v6_simplekeygen_nonhivestyle",
)
SOME_TABLES = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in DAILY else pytest.mark.nightly, id=path.stem)
        for path in ZIPS
        if path.parent.name == "hudi_rs"
    ],
)


def by_key(t: mdt.Table, rows: pa.Table) -> dict[tuple[object, ...], dict[str, object]]:
    return {tuple(row[name] for name in t.definition.key): row for row in rows.to_pylist()}


@EVERY_TABLE
def test_rows_are_those_of_hudi_rs_and_nothing_is_written(path, tmp_path):
    folder = unpacked(path, tmp_path)
    before = trees.tree(tmp_path)
    t = mdt.open(folder)
    batches = HudiTable(str(folder)).read()
    theirs = pa.Table.from_batches(batches) if batches else None
    ours = t.scan(columns=[] if theirs is None else theirs.column_names).to_arrow()
    assert len(ours) == (0 if theirs is None else len(theirs))
    if theirs is not None:
        assert bag(ours) == bag(theirs)
    assert t.scan().count() == len(ours)
    assert trees.tree(tmp_path) == before


@SOME_TABLES
def test_filters_return_the_matching_rows_of_a_full_scan(path, tmp_path):
    t = mdt.open(unpacked(path, tmp_path))
    rows = t.scan().to_arrow().to_pylist()
    for field in t.schema:
        values = sorted({row[field.name] for row in rows if _is_plain(row[field.name])})
        for value in values[:2]:
            for operator, test in (("=", value.__eq__), (">=", value.__le__)):
                where = f"`{field.name}` {operator} :value"
                matching = t.scan(where, params={"value": value}).to_arrow()
                expected = [row for row in rows if _is_plain(row[field.name])]
                expected = [row for row in expected if test(row[field.name]) is True]
                assert bag(matching) == sorted(map(repr, expected)), where


def _is_plain(value: object) -> bool:
    return value is not None and not isinstance(value, dict | list | float)


@SOME_TABLES
def test_rows_are_found_by_key(path, tmp_path):
    t = mdt.open(unpacked(path, tmp_path))
    rows = t.scan().to_arrow().to_pylist()
    names = [*t.definition.key, *t.definition.partition_by]
    all_keys = [{name: row[name] for name in names} for row in rows]
    unique = [position for position, key in enumerate(all_keys) if all_keys.count(key) == 1]
    keys, rows = (
        [all_keys[position] for position in unique],
        [rows[position] for position in unique],
    )
    assert [t.get(key) for key in keys] == rows
    if keys:
        assert t.get([*keys, keys[0]]).to_pylist() == [*rows, rows[0]]
    for key in all_keys:
        if key not in keys:  # Hudi's inserts do not look for existing keys
            refused("keys exist in several rows", t.get, key)


PAST = (
    "cow_v9_txns_simple_meta",
    "cow_v9_txns_simple_overwrite",
    "cow_v6_nonpartitioned",
    "mor_avro_v8_trips_8i3u1d",
    "mor_avro_v6_trips_8i3d",
    "mor_avro_v9_txns_nonpart_meta",
)


@pytest.mark.parametrize("name", PAST)
def test_changes_are_the_difference_of_two_snapshots(name, tmp_path):
    folder = fixture(name, tmp_path)
    t = mdt.open(folder)
    times = instants(folder)
    states = [by_key(t, t.scan(as_of=time).to_arrow()) for time in times]
    assert states[-1] == by_key(t, t.scan().to_arrow())
    pairs = [(0, len(times) - 1), (0, 1), (len(times) - 2, len(times) - 1)]
    for first, last in pairs:
        expected = difference(states[first], states[last])
        changes = t.changes(times[first], times[last]).to_arrow()
        kinds = changes["_change"].to_pylist()
        rows = changes.select(t.schema.names).to_pylist()
        actual = sorted(zip(kinds, map(repr, rows), strict=True))
        assert actual == expected, (times[first], times[last])


def difference(old, new):
    changes = []
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before is None:
            changes.append(("insert", repr(after)))
        elif after is None:
            changes.append(("delete", repr(before)))
        elif before != after:
            changes += [("update_before", repr(before)), ("update_after", repr(after))]
    return sorted(changes)


def test_an_incremental_read_has_the_rows_of_later_commits(tmp_path):
    folder = fixture("cow_v9_txns_simple_meta", tmp_path)
    t, times = mdt.open(folder), instants(folder)
    rows = t.scan(columns=["_hoodie_commit_time", "txn_id"]).to_arrow().to_pylist()
    for time in times:
        later = {row["txn_id"] for row in rows if row["_hoodie_commit_time"] > time}
        assert set(t.scan(since=time).to_arrow()["txn_id"].to_pylist()) == later
        count = t.scan("txn_id = 'TXN-007'", since=time).count()
        assert count == ("TXN-007" in later)
    assert t.scan(since=times[0], until=times[0]).count() == 0


def test_snapshots_are_read_by_instant_or_time_and_seqs_are_refused(tmp_path):
    folder = fixture("cow_v9_txns_simple_meta", tmp_path)
    t, times = mdt.open(folder), instants(folder)
    refused("is not a tag, instant or time", t.scan, as_of=3, kind=Invalid)
    early = t.scan(as_of="2020-01-01")
    assert early.count() == 0
    assert mdt.open(folder, as_of=times[0]).scan().count() == t.scan(as_of=times[0]).count() > 0


def test_writes_and_services_on_a_table_of_others_are_refused(tmp_path):
    folder = fixture("cow_v6_nonpartitioned", tmp_path)
    t = mdt.open(folder)
    row = t.scan().to_arrow().to_pylist()[0]
    for call in (
        lambda: t.upsert([row]),
        lambda: t.delete_where("true"),
        t.compact,
        t.cluster,
        t.clean,
        lambda: t.tag("x"),
        lambda: t.create_index("bitmap(id)"),
    ):
        refused("mdt reads such tables and does not write to them", call, kind=Unsupported)
    refused("is a Hudi table of another writer", mdt.create, folder, t.schema, ["id"])


def test_a_pickled_table_and_scan_return_the_same_rows(tmp_path):
    t = mdt.open(fixture("mor_avro_v8_trips_8i3u1d", tmp_path))
    rows = t.scan().to_arrow()
    assert pickle.loads(pickle.dumps(t)).scan().to_arrow() == rows
    assert (
        pickle.loads(pickle.dumps(t.scan("fare > 20"))).to_arrow() == t.scan("fare > 20").to_arrow()
    )


@pytest.mark.parametrize("name", ("cow_v9_txns_simple_meta", "mor_avro_v8_trips_8i3u1d"))
def test_the_read_optimized_view_has_only_base_files(name, tmp_path):
    folder = fixture(name, tmp_path)
    t = mdt.open(folder)
    rows = t.scan(query_type="read_optimized").to_arrow()
    theirs = pa.Table.from_batches(
        HudiTable(str(folder), {"hoodie.read.use.read_optimized.mode": "true"}).read()
    )
    assert bag(rows) == bag(theirs.select(rows.column_names))


def test_a_check_reads_every_row_and_names_a_damaged_file(tmp_path):
    folder = fixture("cow_v8_nonpartitioned", tmp_path)
    t = mdt.open(folder)
    assert t.check().ok
    assert t.check().rows == t.scan().count()
    [name] = t.files()["name"].to_pylist()
    path = folder / name
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(bytes(data))
    problems = mdt.open(folder).check().problems
    assert problems and {problem.path for problem in problems} == {name}


def test_a_check_reports_a_file_that_the_metadata_table_lacks(tmp_path):
    folder = fixture("cow_v9_txns_simple_meta", tmp_path)
    t = mdt.open(folder)
    assert t.check().ok
    file = t.files().to_pylist()[0]
    path = folder / file["partition"] / file["name"]
    unlisted = file["name"].replace(file["file_id"], "6f2c0a11-aaaa-4bbb-8ccc-ddddeeeeffff-0")
    path.with_name(unlisted).write_bytes(path.read_bytes())
    [problem] = mdt.open(folder).check().problems
    assert "metadata table and the files disagree" in problem.text
    assert f"no files instead of {unlisted}" in problem.text
