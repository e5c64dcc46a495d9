"""What changed between two states of a table, as a stream of rows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import mdt
from mdt.errors import Invalid
from mdt.parquet.segment_rows import read_rows
from mdt.schema import declared
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
KINDS = [("MERGE_ON_READ", "record"), ("MERGE_ON_READ", "bloom"), ("COPY_ON_WRITE", "bloom")]


def rows(*found: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA
    )


@pytest.fixture(params=KINDS, ids="-".join)
def table(request: pytest.FixtureRequest) -> mdt.Table:
    """Return a table of five commits and, where there are log files, a compaction after the
    second.
    """
    kind, key_index = request.param
    found = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type=kind,
        key_index=key_index,
        indexes=["bitmap(n)"],
    )
    found.upsert(rows(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    found.upsert(rows(("a", "x", 10), ("d", "y", 4)))
    found.compact()
    found.delete(rows(("b", "x", 0)))
    found.upsert(rows(("a", "x", 11)))
    return found


def told(changes: Any, *more: str) -> list[tuple[Any, ...]]:
    """Return the changes as tuples of kind, id and n."""
    return [
        tuple(row[name] for name in ("_change", "id", "n", *more))
        for row in changes.to_arrow().to_pylist()
    ]


def test_all_changes_come_commit_by_commit_first_what_died(table: mdt.Table) -> None:
    assert told(table.changes(1, mode="all")) == [
        ("update_before", "a", 1),
        ("update_after", "a", 10),
        ("insert", "d", 4),
        ("delete", "b", 2),
        ("update_before", "a", 10),
        ("update_after", "a", 11),
    ]


def test_net_changes_are_one_a_key_from_first_to_last(table: mdt.Table) -> None:
    newest = table.snapshot().seq
    assert sorted(told(table.changes(1), "_seq")) == [
        ("delete", "b", 2, newest - 1),
        ("insert", "d", 4, 2),
        ("update_after", "a", 11, newest),
        ("update_before", "a", 1, newest),
    ]
    assert sorted(told(table.changes(0))) == [
        ("insert", "a", 11),
        ("insert", "c", 3),
        ("insert", "d", 4),
    ]


def test_without_rows_before_updates_the_others_are_the_same(table: mdt.Table) -> None:
    newest = table.snapshot().seq
    assert told(table.changes(1, mode="all", before=False)) == [
        ("update_after", "a", 10),
        ("insert", "d", 4),
        ("delete", "b", 2),
        ("update_after", "a", 11),
    ]
    assert sorted(told(table.changes(1, before=False), "_seq")) == [
        ("delete", "b", 2, newest - 1),
        ("insert", "d", 4, 2),
        ("update_after", "a", 11, newest),
    ]
    table.delete(rows(("a", "x", 0)))
    assert told(table.changes(1, where="id = 'a'", before=False)) == [("delete", "a", 11)], (
        "as it last was"
    )
    with pytest.raises(Invalid, match="before takes True or False"):
        table.changes(1, before="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_updates_without_rows_before_read_only_what_their_commit_wrote(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdt.scan import changed_rows

    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], table_type=kind)
    table.upsert(rows(*((f"k{i}", "x", i) for i in range(1000))))
    table.upsert(rows(*((f"k{i}", "x", -i) for i in range(1, 1000, 7))))
    read: list[int] = []
    rows_at = changed_rows.rows_at

    def counted(*given: Any, **named: Any) -> pa.Table:
        read.extend(np.unique(given[2]).tolist())
        return rows_at(*given, **named)

    monkeypatch.setattr(changed_rows, "rows_at", counted)
    found = table.changes(1, before=False)
    assert found.to_arrow()["_change"].unique().to_pylist() == ["update_after"]
    assert [found.range.view.segment_ids[file] >> 20 for file in read] == [2]


def test_keys_are_read_only_of_file_groups_that_got_inserts_and_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mdt.scan import changed_rows

    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], table_type="COPY_ON_WRITE"
    )
    table.upsert(rows(*((f"k{i}", city, i) for city in "xy" for i in range(100))))
    table.upsert(rows(("k1", "x", -1), ("k2", "x", -2), ("k3", "y", -3), ("new", "y", 4)))
    read: list[int] = []
    rows_at = changed_rows.rows_at

    def counted(*given: Any, **named: Any) -> pa.Table:
        if tuple(given[4]) == ("_hoodie_record_key",):
            read.append(len(given[3]))
        return rows_at(*given, **named)

    monkeypatch.setattr(changed_rows, "rows_at", counted)
    expected = [
        ("insert", "new", 4),
        ("update_after", "k1", -1),
        ("update_after", "k2", -2),
        ("update_after", "k3", -3),
    ]
    for mode in ("all", "net"):
        assert sorted(told(table.changes(1, mode=mode, before=False))) == expected
    assert read == [3, 3], "of y: what died, and both that came"


def test_counts_of_a_record_that_disagree_with_its_rows_tell_nothing(
    table: mdt.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdt.scan import history_range

    expected = told(table.changes(0, mode="all"))
    by = history_range._Told.by

    def forged(record: Any) -> Any:
        made = by(record)
        return history_range._Told(
            made.seq, made.instant, made.died, made.came, made.updates, made.inserts, made.deletes
        )

    monkeypatch.setattr(history_range._Told, "by", forged)
    assert told(table.changes(0, mode="all")) == expected


def test_a_key_that_came_and_went_within_the_range_has_not_changed(table: mdt.Table) -> None:
    before = table.snapshot().seq
    table.upsert(rows(("new", "x", 1)))
    table.delete(rows(("new", "x", 1)))
    assert told(table.changes(before)) == []
    assert [kind for kind, *_ in told(table.changes(before, mode="all"))] == ["insert", "delete"]


def test_each_change_has_the_seq_and_instant_of_its_commit(table: mdt.Table) -> None:
    instants = table.history()["instant"].to_pylist()
    found = table.changes(0, mode="all").to_arrow().to_pylist()
    assert [instants[row["_seq"]] for row in found] == [row["_instant"] for row in found]


def test_services_change_nothing_and_what_they_moved_is_found(table: mdt.Table) -> None:
    before = table.snapshot().seq
    expected = sorted(told(table.changes(1)))
    table.compact()
    assert told(table.changes(before)) == [] == told(table.changes(before, mode="all"))
    assert min(told(table.changes(1))) == expected[0]
    table.delete(rows(("c", "y", 0)))
    assert told(table.changes(table.snapshot().seq - 1)) == [("delete", "c", 3)], (
        "it died where compaction put it"
    )


def test_a_filter_holds_for_each_image_and_is_answered_by_indexes(
    table: mdt.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdt.scan import changed_rows

    read: list[int] = []
    rows_at = changed_rows.rows_at

    def counted(*given: Any, **named: Any) -> pa.Table:
        if "n" in given[4]:
            read.append(len(given[3]))
        return rows_at(*given, **named)

    monkeypatch.setattr(changed_rows, "rows_at", counted)
    assert told(table.changes(1, where="n = 10", mode="all")) == [
        ("update_after", "a", 10),
        ("update_before", "a", 10),
    ]
    assert sum(read) == 2, "the bitmap knows the rows"
    assert told(table.changes(1, where="n > :low", params={"low": 10})) == [
        ("update_after", "a", 11)
    ]
    assert table.changes(1, where="n = 10").count() == 0
    assert table.changes(1, where="_hoodie_record_key = 'd'").count() == 1


def test_columns_are_chosen_and_may_be_meta_columns_or_none(table: mdt.Table) -> None:
    found = table.changes(2, columns=["n", "_hoodie_commit_time"]).to_arrow()
    assert found.column_names == ["_change", "_seq", "_instant", "n", "_hoodie_commit_time"]
    assert table.changes(2, columns=[]).to_arrow().num_columns == 3
    with pytest.raises(Invalid, match="no column 'm'"):
        table.changes(2, columns=["m"])


def test_a_column_of_an_older_table_with_the_name_of_a_change_is_refused_until_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(declared, "_OF_CHANGES", frozenset())  # as before such names were refused
    table = mdt.create(
        MemoryStorage(), pa.schema([("id", pa.string()), ("_seq", pa.int64())]), ["id"]
    )
    table.upsert([{"id": "a", "_seq": 1}])
    with pytest.raises(Invalid, match="_seq"):
        table.changes(0)
    assert table.changes(0, columns=["id"]).count() == 1


def test_a_range_takes_every_kind_of_point_and_is_refused_backwards(table: mdt.Table) -> None:
    instants = table.history()["instant"].to_pylist()
    newest = table.snapshot().seq
    assert told(table.changes(instants[1], instants[2])) == told(table.changes(1, 2))
    assert table.changes(newest).count() == table.changes(2, 2).count() == 0
    with pytest.raises(Invalid, match="goes backwards"):
        table.changes(3, 2)
    with pytest.raises(Invalid, match=f"no commit {newest + 1}"):
        table.changes(0, newest + 1)
    with pytest.raises(Invalid, match="mode='some'"):
        table.changes(0, mode="some")
    with pytest.raises(Invalid, match="since"):
        table.changes(None)  # type: ignore[arg-type]


def test_a_table_as_of_a_point_knows_no_later_change(table: mdt.Table) -> None:
    assert told(mdt.open(table.storage, as_of=2).changes(1)) == told(table.changes(1, 2))


def test_the_stream_is_read_by_others_as_often_as_they_like(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.upsert(rows(*((f"k{i}", "x", i) for i in range(1000))))
    table.upsert(rows(*((f"k{i}", "x", -i) for i in range(1, 500))))
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


def test_declared_types_come_back() -> None:
    schema = pa.schema([("id", pa.large_string()), ("at", pa.timestamp("s")), ("x", pa.uint16())])
    table = mdt.create(MemoryStorage(), schema, ["id"])
    given = pa.table({"id": ["a"], "at": [1], "x": [7]}, schema=schema)
    table.upsert(given)
    found = table.changes(0).to_arrow()
    assert found.drop_columns(["_change", "_seq", "_instant"]).equals(given)


@pytest.mark.parametrize("mode", ["net", "all"])
def test_many_rows_are_read_in_batches_and_are_the_same(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdt.scan import changed_rows

    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        table_type="COPY_ON_WRITE",
        options={"mdt.row.group.rows": 64},
    )
    numbers = np.random.default_rng(1).permutation(600).tolist()
    table.upsert(rows(*((f"k{i}", "x", i) for i in numbers)))
    table.upsert(rows(*((f"k{i}", "x", -i) for i in numbers[:300])))
    table.delete(rows(*((f"k{i}", "x", -i) for i in numbers[200:400])))
    changes = table.changes(1, mode=mode)
    expected = sorted(map(str, changes.to_arrow().to_pylist()))
    monkeypatch.setattr(changed_rows, "_BATCH_ROWS", 70)
    monkeypatch.setattr(changed_rows, "_AT_ONCE_ROWS", 100)
    assert sorted(map(str, changes.to_arrow().to_pylist())) == expected
    assert changes.count() == len(expected) == (200 * 2 + 200 if mode == "net" else 600 + 200)
    assert len(list(changes)) > 5


def test_records_say_which_rows_of_a_file_are_new(table: mdt.Table) -> None:
    for seq in range(1, table.snapshot().seq + 1):
        record = table.metadata.record(seq)
        assert record is not None
        state = table.snapshot(seq)
        fresh = record.table("fresh")
        told = dict(zip(fresh["segment"].to_pylist(), fresh["positions"].to_pylist(), strict=True))
        for ordinal, name in enumerate(record.table("files")["name"].to_pylist()):
            number = int(np.searchsorted(state.segment_ids, seq << 20 | ordinal))
            if state.segment(number).rows:
                segment = state.segment(number)
                times = read_rows(
                    table.storage, segment, pa.schema([("_hoodie_commit_time", pa.string())])
                )
                mine = np.flatnonzero(
                    np.array(times.column(0).to_pylist()) == record.instant
                ).tolist()
                assert mine == list(
                    BitMap.deserialize(told[ordinal]) if ordinal in told else range(segment.rows)
                ), name
        assert record.action != "compaction" or len(told) == len(record.table("files")), (
            "nothing is new"
        )


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_an_index_that_was_built_after_a_file_has_ended_says_nothing_of_its_rows(
    tmp_path: Path, table_type: str
) -> None:
    schema = pa.schema({"id": pa.string(), "p": pa.string(), "note": pa.string()})
    options = {"mdt.services.auto": False}
    table = mdt.create(
        tmp_path, schema, key=["id"], partition_by=["p"], table_type=table_type, options=options
    )
    first = [
        {"id": "a", "p": "1", "note": "old"},
        {"id": "b", "p": "2", "note": "kept"},
        {"id": "c", "p": "2", "note": "kept"},
    ]
    table.upsert(pa.Table.from_pylist(first, schema=schema))
    table.upsert(pa.Table.from_pylist([{"id": "a", "p": "1", "note": "new"}], schema=schema))
    if table_type == "MERGE_ON_READ":
        table.compact()
    table.create_index(["bitmap(note)"], mode="sync")
    for where, expected in (
        ("note not in ('x')", ["old", "new"]),
        ("note = 'old'", ["old"]),
        ("note = 'new'", ["new"]),
    ):
        assert table.changes(1, where=where).to_arrow()["note"].to_pylist() == expected
