"""Merges: rows are matched by key, by other columns or by SQL; the first clause that holds is
taken; every reader sees the same.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reader import bag, bag_of, hudi_table
from worlds import as_state, rows

import mdt
from mdt.commit.transaction import steps
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.metadata.files.file_group import LOG
from mdt.write import clauses
from mdt.write.merge_source import as_target

TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]
BOTH = pytest.mark.parametrize("table_type", TYPES)


def filled(folder: Path, table_type: str = "MERGE_ON_READ", **more: Any) -> mdt.Table:
    """Return a table with two partitions; on merge-on-read each has a base and a log file."""
    given = {"ordering": "ts", "key_index": "record", "partition_by": ["city"], **more}
    options = {"mdt.durable": False, "mdt.services.auto": False}
    schema = rows([], 0, 0.0).schema
    table = mdt.create(
        folder / "t", schema, ["id"], table_type=table_type, options=options, **given
    )
    table.upsert(rows(range(10), 1, 1.0))
    table.upsert(rows(range(0, 10, 3), 2, 2.0))
    return table


def assert_agreed(table: mdt.Table, folder: Path, expected: Any = None) -> None:
    """Assert that a new process, hudi-rs and check see the same, and what is expected."""
    found = mdt.open(folder / "t").scan().to_arrow()
    assert bag(found) == bag(hudi_table(folder / "t", table.schema))
    assert expected is None or as_state(found) == expected
    report = mdt.open(folder / "t").check()
    assert report.ok, str(report)


@BOTH
@pytest.mark.parametrize("key_index", ["record", "bloom"])
def test_the_first_clause_that_holds_is_taken_for_each_row(
    tmp_path: Path, table_type: str, key_index: str
) -> None:
    table = filled(tmp_path, table_type, key_index=key_index)
    before, seq = dict(as_state(table.scan().to_arrow())), table.snapshot().seq
    source = rows([0, 1, 2, 20, 21], 3, 5.0).append_column(
        "op", pa.array(["gone", "more", "more", "new", None])
    )
    merge = table.merge(source).when_matched("source.op = 'gone'").delete()
    merge = merge.when_matched("target.fare < source.fare").update(
        {"fare": "source.fare * 10 + target.fare"}
    )
    merge = merge.when_not_matched("source.op is not null").insert("*")
    merge = merge.when_not_matched_by_source("target.ts = 2 and target.id > 'k5'").update(
        {"fare": 9.0, "ts": 3}
    )
    assert table.snapshot().seq == seq, "nothing happens before execute"
    done = merge.when_not_matched_by_source("target.id = 'k3'").delete().execute()
    assert (done.inserted, done.updated, done.deleted, done.seq) == (1, 4, 2, seq + 1)
    assert (done.source_rows, done.files_scanned + done.files_skipped) == (
        5,
        2 if table_type == TYPES[1] else 4,
    )
    assert done.files_written >= 2 and done.total_ms >= done.match_ms > 0
    assert table.history()["operation"].to_pylist()[-1] == "merge"
    del before["k0"], before["k3"]
    expected = {
        **before,
        "k1": (1, 51.0),
        "k2": (1, 51.0),
        "k20": (3, 5.0),
        "k6": (3, 9.0),
        "k9": (3, 9.0),
    }
    assert_agreed(table, tmp_path, expected)
    told = table.changes(seq, mode="all").to_arrow()["_change"].to_pylist()
    assert (
        sorted(told) == ["delete"] * 2 + ["insert"] + ["update_after"] * 4 + ["update_before"] * 4
    )
    table.compact()
    assert_agreed(table, tmp_path, expected)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.string_view(), "x"),
        (pa.binary_view(), b"x"),
        (pa.list_(pa.string_view()), ["x"]),
        (pa.struct([("a", pa.string_view())]), {"a": "x"}),
    ],
)
def test_views_are_merged_and_set_as_other_texts_are(
    tmp_path: Path, type: pa.DataType, value: Any
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", type)])
    table = mdt.create(tmp_path / "t", schema, key=["id"], options={"mdt.durable": False})
    table.upsert(pa.table({"id": ["a", "b"], "v": pa.array([None, None], type)}))
    source = pa.table(
        {"id": pa.array(["a", "c"], pa.string_view()), "v": pa.array([value, value], type)}
    )
    done = (
        table.merge(source)
        .when_matched("source.id < 'b'")
        .update("*")
        .when_not_matched()
        .insert()
        .execute()
    )
    assert (done.updated, done.inserted) == (1, 1)
    assert table.update_where(values={"v": value}, where="id = 'b'").updated == 1
    assert table.scan().to_arrow().select(["v"]).to_pylist() == [{"v": value}] * 3
    assert table.schema == schema


@BOTH
def test_a_merge_of_whole_rows_is_an_upsert_that_does_not_look_at_ordering_values(
    tmp_path: Path, table_type: str
) -> None:
    table = filled(tmp_path, table_type)
    merge = (
        table.merge(rows([0, 1, 30], 1, 7.0)).when_matched().update("*").when_not_matched().insert()
    )
    done = merge.execute()
    assert (done.updated, done.inserted, done.late) == (2, 1, 0)
    state = dict(as_state(table.scan().to_arrow()))
    assert (state["k0"], state["k1"], state["k30"]) == ((1, 7.0), (1, 7.0), (1, 7.0))
    assert_agreed(table, tmp_path, state)
    again = (
        table.merge(rows([0], 5, 1.0))
        .when_matched("source.fare > target.fare")
        .update("*")
        .execute()
    )
    assert (again.instant, again.updated, again.files_written) == ("", 0, 0), (
        "no clause holds, so nothing is committed"
    )


def test_rows_go_into_log_files_unless_an_ordering_value_falls(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.merge(rows([0, 1], 2, 7.0)).when_matched().update("*").execute()
    record = table.metadata.record(table.snapshot().seq)
    assert record is not None and set(record.table("files")["kind"].to_pylist()) == {LOG}
    table.merge(rows([0, 1], 1, 8.0)).when_matched().update("*").execute()
    assert_agreed(table, tmp_path)
    assert table.get({"id": "k0", "city": "x"})["fare"] == 8.0


def test_a_source_with_two_rows_for_one_is_refused_by_name(tmp_path: Path) -> None:
    table = filled(tmp_path)
    before = table.snapshot().seq
    twice = pa.concat_tables([rows([0, 1, 30], 3, 3.0), rows([1, 30], 3, 4.0)])
    with pytest.raises(
        Invalid, match=r"1 rows of the table match several rows of the source: \['k1'\]"
    ):
        table.merge(twice).when_matched().update("*").execute()
    with pytest.raises(Invalid, match=r"1 new rows repeat a key: \['k30'\]"):
        table.merge(twice).when_not_matched().insert().execute()
    assert table.snapshot().seq == before and not list(table.storage.list(".hoodie/.mdt/pending"))
    one = table.merge(twice).when_not_matched("source.fare = 4.0").insert().execute()
    assert one.inserted == 1, "without clauses for matched rows, matched ones do not matter"


@pytest.mark.parametrize(
    ("on", "updated"),
    [
        (["fare"], 4),
        ("source.fare = target.fare", 4),
        ("target.fare = source.fare and target.city = 'x'", 2),
        ("source.fare = target.fare and source.low < target.ts and target.id != 'k0'", 3),
        ("source.fare = target.fare and source.low = target.ts", 0),
        (["id"], 1),
        ("source.id = target.id and source.fare = target.fare", 0),
        (["id", "city"], 0),
    ],
)
def test_rows_are_matched_by_other_columns_and_conditions(
    tmp_path: Path, on: Any, updated: int
) -> None:
    table = filled(tmp_path)
    source = pa.table(
        {
            "fare": [2.0, None, 77.0],
            "low": [1, 1, 1],
            "id": ["k1", None, "zz"],
            "city": ["x", "x", None],
        }
    )
    done = table.merge(source, on).when_matched().update({"fare": "source.fare + 100"}).execute()
    assert done.updated == updated
    assert_agreed(table, tmp_path)


def test_under_partition_scope_a_key_alone_matches_its_rows_in_every_partition(
    tmp_path: Path,
) -> None:
    table = filled(tmp_path)
    table.upsert([{"id": "k1", "city": "x", "ts": 1, "fare": 3.0}])
    assert table.merge({"id": ["k1"]}, on="id").when_matched().delete().execute().deleted == 2
    with pytest.raises(Invalid, match="cannot change the column 'city'"):
        table.merge(rows([0], 3, 3.0), on="id").when_matched().update("*")
    with pytest.raises(Invalid, match="the source lacks the columns city"):
        table.merge({"id": ["k1"]})


@BOTH
def test_under_table_scope_a_row_with_another_partition_moves(
    tmp_path: Path, table_type: str
) -> None:
    table = filled(tmp_path, table_type, scope="table")
    moved = [
        {"id": "k0", "city": "y", "ts": 5, "fare": 5.0},
        {"id": "k1", "city": "y", "ts": 5, "fare": 6.0},
    ]
    assert table.merge(moved).when_matched().update("*").execute().updated == 2
    assert {row["id"]: row["city"] for row in table.get(["k0", "k1"]).to_pylist()} == {
        "k0": "y",
        "k1": "y",
    }
    back = (
        table.merge({"id": ["k0"]})
        .when_matched()
        .update({"city": "'x'", "fare": "target.fare * 2"})
        .execute()
    )
    assert back.updated == 1 and table.get("k0") == {"id": "k0", "city": "x", "ts": 5, "fare": 10.0}
    assert_agreed(table, tmp_path)


@BOTH
def test_a_key_that_was_deleted_returns(tmp_path: Path, table_type: str) -> None:
    table = filled(tmp_path, table_type)
    table.delete(rows([0, 1], 0, 0.0))
    assert table.merge(rows([0, 1], 0, 4.0)).when_not_matched().insert().execute().inserted == 2
    assert_agreed(table, tmp_path)
    assert table.get({"id": "k0", "city": "x"})["ts"] == 0


def test_null_is_not_true_and_null_keys_match_nothing(tmp_path: Path) -> None:
    table = filled(tmp_path, partition_by=[], ordering=None)
    table.update_where(values={"fare": None}, where="id = 'k1'")
    source = {"id": ["k0", "k1", None], "fare": [5.0, 5.0, 5.0]}
    kept = (
        table.merge(source)
        .when_matched("target.fare < source.fare")
        .update({"fare": "source.fare"})
        .execute()
    )
    assert kept.updated == 1
    source["fare"] = [9.0, 9.0, 9.0]
    kept = table.merge(source).when_matched("not (target.fare < source.fare)").delete().execute()
    assert (kept.deleted, kept.instant) == (0, "")
    assert table.merge(source).when_matched("target.fare is null").delete().execute().deleted == 1
    whole = rows([0], 1, 1.0).set_column(0, "id", pa.array([None], pa.string()))
    with pytest.raises(Invalid, match="'id' is null"):
        table.merge(whole).when_not_matched().insert().execute()


def test_values_are_cast_as_an_upsert_casts_them(tmp_path: Path) -> None:
    schema = pa.schema(
        {
            "id": pa.int32(),
            "n": pa.uint8(),
            "at": pa.timestamp("ns"),
            "tag": pa.dictionary(pa.int8(), pa.string()),
            "s": pa.struct({"a": pa.int16()}),
        }
    )
    table = mdt.create(tmp_path / "t", schema, ["id"], options={"mdt.durable": False})
    table.upsert([{"id": 1, "n": 1, "at": datetime(2026, 1, 1), "tag": "a", "s": {"a": 1}}])
    source = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "n": [2.0, 3.0],
            "at": pa.array([datetime(2026, 1, 2), datetime(2026, 1, 3)], pa.timestamp("us")),
            "tag": ["b", "c"],
            "s": [{"a": 5}, {"a": 6}],
            "more": [1, 1],
        }
    )
    merge = (
        table.merge(source, ignore=["more"])
        .when_matched("source.at > target.at and source.s.a > target.s.a")
        .update(
            {
                "n": "source.n + target.n",
                "at": mdt.col("source.at"),
                "tag": "target.tag || source.tag",
                "s": "source.s",
            }
        )
    )
    assert merge.when_not_matched().insert().execute().updated == 1
    found = {
        row["id"]: row
        for row in table.scan().to_arrow().select(["id", "n", "tag", "s"]).to_pylist()
    }
    assert found == {
        1: {"id": 1, "n": 3, "tag": "ab", "s": {"a": 5}},
        2: {"id": 2, "n": 3, "tag": "c", "s": {"a": 6}},
    }
    for given, why in (({"n": "source.n + 300"}, "n"), ({"n": "source.n / 2"}, "n")):
        with pytest.raises(Invalid, match=why):
            table.merge(source).when_matched().update(given).execute()
    assert len(table.history()) == 3


@pytest.mark.parametrize(
    ("say", "kind", "why"),
    [
        (lambda m: m, Invalid, "no clause"),
        (lambda m: m.when_matched().update({}), Invalid, "columns and their values"),
        (lambda m: m.when_matched().update({"far": "1"}), Invalid, "no column 'far'"),
        (lambda m: m.when_matched().update({"fare": "fare"}), Invalid, "no column 'fare'"),
        (
            lambda m: m.when_matched().update({"fare": mdt.col("source.far")}),
            Invalid,
            "did you mean source.fare",
        ),
        (lambda m: m.when_matched().update({"fare": "source.id"}), Invalid, "fare"),
        (
            lambda m: m.when_matched().update({"fare": object()}),
            Invalid,
            "is no value of the column 'fare'",
        ),
        (
            lambda m: m.when_matched().update({"id": "source.id || 'x'"}),
            Invalid,
            "cannot change the column 'id'",
        ),
        (
            lambda m: m.when_matched().update({"city": "'x'"}),
            Invalid,
            "cannot change the column 'city'",
        ),
        (lambda m: m.when_matched("source.id > target.ts"), Invalid, "is not compared with"),
        (lambda m: m.when_matched("source.id ="), Invalid, "missing"),
        (lambda m: m.when_matched(7), Invalid, "is text"),
        (lambda m: m.when_not_matched("target.ts = 1"), Invalid, "no column 'target.ts'"),
        (
            lambda m: m.when_not_matched().insert({"id": "source.id"}),
            Invalid,
            "needs a value of the column 'ts'",
        ),
        (lambda m: m.when_not_matched_by_source("source.ts = 1"), Invalid, "no column 'source.ts'"),
        (lambda m: m.when_not_matched_by_source().update("*"), Invalid, "columns and their values"),
        (
            lambda m: m.when_matched().delete().when_matched("source.ts = 1"),
            Invalid,
            "holds for every row",
        ),
        (
            lambda m: m.when_matched().update({"fare": ":fare"}),
            Invalid,
            "an expression has no parameters",
        ),
        (
            lambda m: m.when_matched().update({"fare": "source.fare / (target.ts - 1)"}),
            Invalid,
            "divided by zero",
        ),
    ],
)
def test_what_cannot_be_merged_is_said_and_nothing_is_left(
    tmp_path: Path, say: Any, kind: Any, why: str
) -> None:
    table = filled(tmp_path)
    files = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(kind, match=why):
        say(table.merge(rows([0, 1, 2], 3, 3.0))).execute()
    assert files == sorted((tmp_path / "t").rglob("*"))


@pytest.mark.parametrize(
    ("on", "kind", "why"),
    [
        (["nothing"], Invalid, "there is no column 'nothing'"),
        ([], Invalid, "names no columns"),
        (7, Invalid, "takes text"),
        ("source.fare < target.fare", Unsupported, "does not say which columns are equal"),
        (
            "source.id = target.id or source.fare = target.fare",
            Unsupported,
            "does not say which columns are equal",
        ),
        ("source.fare + 1 = target.fare", Unsupported, "does not say which columns are equal"),
        ("source.fare = 1", Unsupported, "does not say which columns are equal"),
        ("source.id = target.x", Invalid, "target.x"),
    ],
)
def test_an_on_that_cannot_be_joined_is_refused(
    tmp_path: Path, on: Any, kind: Any, why: str
) -> None:
    with pytest.raises(kind, match=why):
        filled(tmp_path).merge(rows([0], 3, 3.0), on)


@pytest.mark.parametrize("on", [["tags"], "source.tags = target.tags", "source.tags = target.n"])
def test_lists_are_not_joined(tmp_path: Path, on: Any) -> None:
    data = pa.table({"id": [1], "n": [1], "tags": [["x"]]})
    table = mdt.create(tmp_path / "t", data.schema, ["id"])
    table.upsert(data)
    with pytest.raises(Invalid, match="cannot be equal|is not compared with"):
        table.merge(data, on).when_matched().delete().execute()


def test_new_rows_whose_key_lives_are_refused_where_rows_are_matched_otherwise(
    tmp_path: Path,
) -> None:
    table = filled(tmp_path)
    merge = table.merge(rows([0, 30], 3, 77.0), on="fare").when_not_matched().insert()
    with pytest.raises(Invalid, match=r"1 rows to insert have keys that exist already: \['k0'\]"):
        merge.execute()


def test_a_merge_begins_again_after_writers_of_its_rows_and_is_refused_after_an_alter(
    tmp_path: Path,
) -> None:
    table = filled(tmp_path)
    merge = (
        table.merge(rows([1, 30], 3, 3.0))
        .when_matched()
        .update({"fare": "target.fare + source.fare"})
    )
    merge = merge.when_not_matched().insert({"id": "source.id", "city": "source.city", "ts": 1})
    operation = merge._operation(table.definition, None)
    driver = steps(table.metadata, operation)
    while next(driver) != "written":
        pass
    mdt.open(table.storage).upsert(rows([1, 30], 3, 7.0))
    with pytest.raises(StopIteration) as ended:
        while True:
            next(driver)
    assert ended.value.value.attempts == 2
    assert as_state(table.scan("id in ('k1', 'k30')").to_arrow()) == {
        "k1": (3, 10.0),
        "k30": (3, 10.0),
    }
    table.alter(rename={"fare": "price"}, beyond_hudi=True)
    with pytest.raises(Conflict, match="altered"):
        merge.execute()


def test_only_columns_that_clauses_name_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdt.write import matching, merge

    asked: list[list[str]] = []
    real = merge.rows_at

    def seen(metadata: Any, snapshot: Any, where: Any, names: Any, *, threads: int) -> pa.Table:
        asked.append(list(names))
        return real(metadata, snapshot, where, names, threads=threads)

    monkeypatch.setattr(merge, "rows_at", seen)
    monkeypatch.setattr(matching, "rows_at", seen)
    table = filled(tmp_path)
    table.merge(rows([0, 30], 3, 3.0)).when_matched().update(
        "*"
    ).when_not_matched().insert().execute()
    assert asked == [], "whole rows come from the source"
    table.merge(rows([0], 3, 3.0)).when_matched("source.ts >= target.ts").update("*").execute()
    assert asked == [["ts"]]


def test_a_table_of_the_past_takes_no_merge(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(Invalid, match="cannot be written to"):
        mdt.open(tmp_path / "t", as_of=1).merge(rows([0], 3, 3.0))


def test_an_empty_source_leaves_rows_to_the_last_kind_of_clause(tmp_path: Path) -> None:
    table = filled(tmp_path)
    done = (
        table.merge(rows([], 0, 0.0))
        .when_matched()
        .delete()
        .when_not_matched_by_source()
        .delete()
        .execute()
    )
    assert done.deleted == 10
    assert_agreed(table, tmp_path, {})
    assert bag_of([], table.schema.names) == bag(table.scan().to_arrow())


def test_a_clause_of_many_columns_lists_the_columns_of_the_table_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names, asked = [f"c{n}" for n in range(50)], []
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in names)])
    table = mdt.create(tmp_path / "t", schema, ["id"], options={"mdt.durable": False})
    table.upsert([{"id": "a", **dict.fromkeys(names, 1)}])
    monkeypatch.setattr(clauses, "as_target", lambda schema: asked.append(1) or as_target(schema))
    merge = table.merge(pa.table({"id": ["a"], **{name: [2] for name in names}}))
    assert (
        merge.when_matched()
        .update({name: f"source.{name} + 1" for name in names})
        .execute()
        .updated
        == 1
    )
    assert table.get({"id": "a"}) == {"id": "a", **dict.fromkeys(names, 3)} and len(asked) == 1


def test_a_source_may_have_a_dictionary_in_each_of_its_chunks(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "tag": pa.string(), "s": pa.struct({"a": pa.string()})})
    table = mdt.create(tmp_path / "t", schema, ["id"], options={"mdt.durable": False})
    code = pa.array([0], pa.int8())
    coded = [pa.DictionaryArray.from_arrays(code, pa.array([f"v{i}"])) for i in range(200)]
    source = pa.table(
        {
            "id": range(200),
            "tag": pa.chunked_array(coded),
            "s": pa.chunked_array([pa.StructArray.from_arrays([one], ["a"]) for one in coded]),
        }
    )
    for _ in range(2):
        table.merge(source).when_matched().update("*").when_not_matched().insert().execute()
    found = table.scan(order_by="id").to_arrow()
    assert (
        found["tag"].to_pylist()
        == [f"v{i}" for i in range(200)]
        == [row["a"] for row in found["s"].to_pylist()]
    )
