"""The changes between two versions of a table, as a stream of rows."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from refusals import refused
from texts import columns, rows_of
from trees import TABLE_TYPES

import mdt
from mdt.scan import changed_rows, history_range
from mdt.schema import declared
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, n int64")
KINDS = [("MERGE_ON_READ", "record"), ("MERGE_ON_READ", "bloom"), ("COPY_ON_WRITE", "bloom")]
BOTH = pytest.mark.parametrize("table_type", TABLE_TYPES)


def rows(text):
    return rows_of(SCHEMA, *text.split(", "))


def numbered(numbers, sign=1, city="x"):
    """Return a row for each number."""
    return rows(", ".join(f"k{i} {city} {sign * i}" for i in numbers))


def new_table(**more):
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], **more)


@pytest.fixture(params=KINDS, ids="-".join)
def table(request):
    """A table of five commits and, if it has log files, a compaction after the second."""
    kind, key_index = request.param
    created = new_table(
        partition_by=["city"], table_type=kind, key_index=key_index, indexes=["bitmap(n)"]
    )
    created.upsert(rows("a x 1, b x 2, c y 3"))
    created.upsert(rows("a x 10, d y 4"))
    created.compact()
    created.delete(rows("b x 0"))
    created.upsert(rows("a x 11"))
    return created


class Read(NamedTuple):
    """Rows read from data files."""

    files: list[int]
    count: int
    names: tuple[str, ...]


@pytest.fixture
def reads(monkeypatch):
    """The list of reads from data files, which is extended by each read."""
    calls = []
    rows_at = changed_rows.rows_at

    def record(*args, **kwargs):
        _, _, rows, names = args
        calls.append(Read(np.unique(rows.file).tolist(), len(rows.file), tuple(names)))
        return rows_at(*args, **kwargs)

    monkeypatch.setattr(changed_rows, "rows_at", record)
    return calls


def change_texts(changes, *more):
    """Return the kind, id and n of each change, and the columns ``more``, as text."""
    names = ("_change", "id", "n", *more)
    return [" ".join(str(row[name]) for name in names) for row in changes.to_arrow().to_pylist()]


ALL = [
    "update_before a 1",
    "update_after a 10",
    "insert d 4",
    "delete b 2",
    "update_before a 10",
    "update_after a 11",
]


def test_all_changes_are_ordered_by_commit_with_old_rows_before_new_rows(table):
    assert change_texts(table.changes(1, mode="all")) == ALL
    shorter = [change for change in ALL if "before" not in change]
    assert change_texts(table.changes(1, mode="all", before=False)) == shorter


def test_net_changes_compare_the_first_and_last_version_of_each_key(table):
    newest = table.snapshot().seq
    expected = [
        f"delete b 2 {newest - 1}",
        "insert d 4 2",
        f"update_after a 11 {newest}",
        f"update_before a 1 {newest}",
    ]
    assert sorted(change_texts(table.changes(1), "_seq")) == expected
    assert sorted(change_texts(table.changes(1, before=False), "_seq")) == expected[:3]
    assert sorted(change_texts(table.changes(0))) == ["insert a 11", "insert c 3", "insert d 4"]
    table.delete(rows("a x 0"))
    assert change_texts(table.changes(1, where="id = 'a'", before=False)) == ["delete a 11"]
    refused("before takes True or False", table.changes, 1, before="no")  # type: ignore[arg-type]


@BOTH
def test_updates_without_old_rows_read_only_files_of_their_commit(table_type, reads):
    table = new_table(table_type=table_type)
    table.upsert(numbered(range(1000)))
    table.upsert(numbered(range(1, 1000, 7), -1))
    changes = table.changes(1, before=False)
    assert changes.to_arrow()["_change"].unique().to_pylist() == ["update_after"]
    files = [file for read in reads for file in read.files]
    assert [changes.range.view.segment_ids[file] >> 20 for file in files] == [2]


def test_keys_are_read_only_in_file_groups_with_both_inserts_and_updates(reads):
    table = new_table(partition_by=["city"], table_type="COPY_ON_WRITE")
    for city in "xy":
        table.upsert(numbered(range(100), 1, city))
    table.upsert(rows("k1 x -1, k2 x -2, k3 y -3, new y 4"))
    expected = ["insert new 4", "update_after k1 -1", "update_after k2 -2", "update_after k3 -3"]
    for mode in ("all", "net"):
        assert sorted(change_texts(table.changes(2, mode=mode, before=False))) == expected
    keys = [read.count for read in reads if read.names == ("_hoodie_record_key",)]
    assert keys == [3, 3], "in y: the deleted row and the two new rows"


def test_counts_of_a_commit_record_that_disagree_with_its_rows_are_ignored(table, monkeypatch):
    expected = change_texts(table.changes(0, mode="all"))
    from_record = history_range._RecordedChanges.from_record

    def with_wrong_counts(record):
        original = from_record(record)
        return history_range._RecordedChanges(
            original.seq,
            original.instant,
            original.deleted,
            original.inserted,
            original.updates,
            original.inserts,
            original.deletes,
        )

    monkeypatch.setattr(history_range._RecordedChanges, "from_record", with_wrong_counts)
    assert change_texts(table.changes(0, mode="all")) == expected


def test_a_key_inserted_and_deleted_within_the_range_has_no_net_change(table):
    before = table.snapshot().seq
    table.upsert(rows("new x 1"))
    table.delete(rows("new x 1"))
    assert change_texts(table.changes(before)) == []
    assert change_texts(table.changes(before, mode="all")) == ["insert new 1", "delete new 1"]


def test_each_change_has_the_seq_and_instant_of_its_commit(table):
    instants = table.history()["instant"].to_pylist()
    change_rows = table.changes(0, mode="all").to_arrow().to_pylist()
    assert [instants[row["_seq"]] for row in change_rows] == [
        row["_instant"] for row in change_rows
    ]


def test_services_report_no_changes_and_rows_they_moved_are_located(table):
    before = table.snapshot().seq
    expected = sorted(change_texts(table.changes(1)))
    table.compact()
    assert (
        change_texts(table.changes(before)) == [] == change_texts(table.changes(before, mode="all"))
    )
    assert min(change_texts(table.changes(1))) == expected[0]
    table.delete(rows("c y 0"))
    assert change_texts(table.changes(table.snapshot().seq - 1)) == ["delete c 3"], (
        "the row was deleted in the file of the compaction"
    )


def test_a_filter_applies_to_old_and_new_rows_and_uses_indexes(table, reads):
    assert change_texts(table.changes(1, where="n = 10", mode="all")) == [ALL[1], ALL[4]]
    assert sum(read.count for read in reads if "n" in read.names) == 2, (
        "the bitmap selects the rows"
    )
    assert change_texts(table.changes(1, where="n > :low", params={"low": 10})) == [ALL[5]]
    assert table.changes(1, where="n = 10").count() == 0
    assert table.changes(1, where="_hoodie_record_key = 'd'").count() == 1


def test_changes_can_select_columns_including_meta_columns_or_none(table):
    change_rows = table.changes(2, columns=["n", "_hoodie_commit_time"]).to_arrow()
    assert change_rows.column_names == ["_change", "_seq", "_instant", "n", "_hoodie_commit_time"]
    assert table.changes(2, columns=[]).to_arrow().num_columns == 3
    refused("no column 'm'", table.changes, 2, columns=["m"])


def test_an_older_table_with_a_reserved_column_needs_a_selection_of_other_columns(
    monkeypatch,
):
    # As in tables created before such names were refused.
    monkeypatch.setattr(declared, "_CHANGE_COLUMNS", frozenset())
    table = mdt.create(MemoryStorage(), columns("id string, _seq int64"), ["id"])
    table.upsert([{"id": "a", "_seq": 1}])
    refused("_seq", table.changes, 0)
    assert table.changes(0, columns=["id"]).count() == 1


def test_a_range_accepts_seqs_and_instants_and_must_not_be_reversed(table):
    instants = table.history()["instant"].to_pylist()
    newest = table.snapshot().seq
    assert change_texts(table.changes(instants[1], instants[2])) == change_texts(
        table.changes(1, 2)
    )
    assert table.changes(newest).count() == table.changes(2, 2).count() == 0
    assert change_texts(mdt.open(table.storage, as_of=2).changes(1)) == change_texts(
        table.changes(1, 2)
    )
    refused("is reversed", table.changes, 3, 2)
    refused(f"no commit {newest + 1}", table.changes, 0, newest + 1)
    refused("mode='some'", table.changes, 0, mode="some")
    refused("since", table.changes, None)  # type: ignore[arg-type]


def test_a_change_stream_can_be_read_repeatedly_by_arrow_and_after_pickling(tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.upsert(numbered(range(1000)))
    table.upsert(numbered(range(1, 500), -1))
    changes = table.changes(1)
    assert pickle.loads(pickle.dumps(table.changes(1, before=False))).count() == 499
    expected = changes.to_arrow()
    for other in (
        pa.table(changes),
        changes.to_reader().read_all(),
        pickle.loads(pickle.dumps(changes)).to_arrow(),
    ):
        assert other.equals(expected)
    assert pa.schema(changes) == changes.schema == expected.schema
    assert changes.count() == len(expected) == sum(batch.num_rows for batch in changes) == 998
    assert repr(changes) == "<mdt changes of t, commits 2 to 2, net: 3 columns>"


def test_changes_have_the_declared_types():
    schema = columns("id large_string, at timestamp[s], x uint16")
    table = mdt.create(MemoryStorage(), schema, ["id"])
    rows_written = pa.table({"id": ["a"], "at": [1], "x": [7]}, schema=schema)
    table.upsert(rows_written)
    change_rows = table.changes(0).to_arrow()
    assert change_rows.drop_columns(["_change", "_seq", "_instant"]).equals(rows_written)


@pytest.mark.parametrize("mode", ["net", "all"])
def test_many_changes_are_read_in_batches_with_the_same_rows(mode, monkeypatch):
    table = new_table(table_type="COPY_ON_WRITE", options={"mdt.row.group.rows": 64})
    numbers = np.random.default_rng(1).permutation(600).tolist()
    table.upsert(numbered(numbers))
    table.upsert(numbered(numbers[:300], -1))
    table.delete(numbered(numbers[200:400]))
    changes = table.changes(1, mode=mode)
    expected = sorted(map(str, changes.to_arrow().to_pylist()))
    monkeypatch.setattr(changed_rows, "_BATCH_ROWS", 70)
    monkeypatch.setattr(changed_rows, "_AT_ONCE_ROWS", 100)
    assert sorted(map(str, changes.to_arrow().to_pylist())) == expected
    assert changes.count() == len(expected) == (200 * 2 + 200 if mode == "net" else 600 + 200)
    assert len(list(changes)) > 5


@BOTH
def test_an_index_built_after_a_file_was_replaced_does_not_filter_its_rows(
    table_type,
):
    table = new_table(
        partition_by=["city"], table_type=table_type, options={"mdt.services.auto": False}
    )
    table.upsert(rows("a x 1, b y 2, c y 2"))
    table.upsert(rows("a x 3"))
    if table_type == "MERGE_ON_READ":
        table.compact()
    table.create_index(["bitmap(n)"], mode="sync")
    before, after = "update_before a 1", "update_after a 3"
    for where, expected in (
        ("n not in (9)", [before, after]),
        ("n = 1", [before]),
        ("n = 3", [after]),
    ):
        assert change_texts(table.changes(1, where=where)) == expected
