"""Merges: rows are matched by key, by other columns or by SQL; the first clause that holds is
taken; every reader sees the same.
"""

from collections import Counter
from datetime import datetime

import pyarrow as pa
import pytest
from merges import NEW_ALL, STAR, merged, said
from pooled import EVERY_KIND
from reader import agreed
from texts import columns, rows_of
from worlds import COW, MOR, as_state, rows

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.metadata.files.file_group import LOG
from mdt.stores.storage import MemoryStorage
from mdt.write import clauses
from mdt.write.merge_source import as_target

BOTH = pytest.mark.parametrize("table_type", [MOR, COW])


def filled(folder, table_type=MOR, kind=mdt.Table, **more):
    """Return a table with two partitions; on merge-on-read each has a base and a log file."""
    given = {"ordering": "ts", "key_index": "record", "partition_by": ["city"], **more}
    options = {"mdt.durable": False, "mdt.services.auto": False}
    schema = rows([], 0, 0.0).schema
    table = mdt.create(
        folder / "t", schema, ["id"], table_type=table_type, options=options, **given
    )
    table.upsert(rows(range(10), 1, 1.0))
    table.upsert(rows(range(0, 10, 3), 2, 2.0))
    return kind(table.storage)


@BOTH
@pytest.mark.parametrize("key_index", ["record", "bloom"])
def test_the_first_clause_that_holds_is_taken_for_each_row(tmp_path, table_type, key_index):
    table = filled(tmp_path, table_type, key_index=key_index)
    before, seq = dict(as_state(table.scan().to_arrow())), table.snapshot().seq
    source = rows([0, 1, 2, 20, 21], 3, 5.0).append_column(
        "op", pa.array(["gone", "more", "more", "new", None])
    )
    clauses = [
        ("matched", "source.op = 'gone'", None),
        ("matched", "target.fare < source.fare", {"fare": "source.fare * 10 + target.fare"}),
        ("not_matched", "source.op is not null", "*"),
        ("not_matched_by_source", "target.ts = 2 and target.id > 'k5'", {"fare": 9.0, "ts": 3}),
        ("not_matched_by_source", "target.id = 'k3'", None),
    ]
    merge = said(table.merge(source), clauses)
    assert table.snapshot().seq == seq, "nothing happens before execute"
    done = merge.execute()
    assert (done.inserted, done.updated, done.deleted, done.seq) == (1, 4, 2, seq + 1)
    files = 2 if table_type == COW else 4
    assert (done.source_rows, done.files_scanned + done.files_skipped) == (5, files)
    assert done.files_written >= 2 and done.total_ms >= done.match_ms > 0
    assert table.history()["operation"].to_pylist()[-1] == "merge"
    del before["k0"], before["k3"]
    before |= dict.fromkeys(("k1", "k2"), (1, 51.0)) | dict.fromkeys(("k6", "k9"), (3, 9.0))
    before["k20"] = (3, 5.0)
    assert as_state(agreed(table)) == before
    told = table.changes(seq, mode="all").to_arrow()["_change"].to_pylist()
    expected = {"delete": 2, "insert": 1, "update_after": 4, "update_before": 4}
    assert Counter(told) == expected
    table.compact()
    assert as_state(agreed(table)) == before


@pytest.mark.parametrize(
    "type, value",
    [
        (pa.string_view(), "x"),
        (pa.binary_view(), b"x"),
        (pa.list_(pa.string_view()), ["x"]),
        (pa.struct([("a", pa.string_view())]), {"a": "x"}),
    ],
)
def test_views_are_merged_and_set_as_other_texts_are(type, value):
    schema = pa.schema([("id", pa.string()), ("v", type)])
    table = mdt.create(MemoryStorage(), schema, key=["id"])
    table.upsert(pa.table({"id": ["a", "b"], "v": pa.array([None, None], type)}))
    ids = pa.array(["a", "c"], pa.string_view())
    source = pa.table({"id": ids, "v": pa.array([value, value], type)})
    done = merged(table, source, ("matched", "source.id < 'b'", "*"), NEW_ALL)
    assert (done.updated, done.inserted) == (1, 1)
    assert table.update_where(values={"v": value}, where="id = 'b'").updated == 1
    assert table.scan().to_arrow().select(["v"]).to_pylist() == [{"v": value}] * 3
    assert table.schema == schema


def test_rows_go_into_log_files_unless_an_ordering_value_falls(tmp_path):
    table = filled(tmp_path)
    merged(table, rows([0, 1], 2, 7.0))
    record = table.metadata.record(table.snapshot().seq)
    assert record is not None and set(record.table("files")["kind"].to_pylist()) == {LOG}
    merged(table, rows([0, 1], 1, 8.0))
    assert as_state(agreed(table))["k0"] == (1, 8.0)


@EVERY_KIND
def test_rows_that_cannot_be_merged_are_refused_by_name(tmp_path, kind):
    table = filled(tmp_path, kind=kind)
    before = table.snapshot().seq
    twice = pa.concat_tables([rows([0, 1, 30], 3, 3.0), rows([1, 30], 3, 4.0)])
    moved = rows([0], 3, 3.0)
    for source, on, clause, why in (
        (twice, None, STAR[0], r"1 rows of the table match several rows of the source: \['k1'\]"),
        (twice, None, NEW_ALL, r"1 new rows repeat a key: \['k30'\]"),
        (
            moved,
            "source.id = target.id and source.city = target.city and target.fare > 7",
            NEW_ALL,
            r"1 rows to insert have keys that exist already: \['k0'\]",
        ),
    ):
        with pytest.raises(Invalid, match=why):
            merged(table, source, clause, on=on)
    assert table.snapshot().seq == before and not list(table.storage.list(".hoodie/.mdt/pending"))
    assert merged(table, twice, ("not_matched", "source.fare = 4.0", "*")).inserted == 1, (
        "without clauses for matched rows, matched ones do not matter"
    )


@pytest.mark.parametrize(
    "on, updated",
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
def test_rows_are_matched_by_other_columns_and_conditions(tmp_path, on, updated):
    table = filled(tmp_path)
    source = rows_of(
        columns("fare double, low int64, id string, city string"),
        "2 1 k1 x",
        "- 1 - x",
        "77 1 zz -",
    )
    done = merged(table, source, ("matched", None, {"fare": "source.fare + 100"}), on=on)
    assert done.updated == updated
    agreed(table)


def test_under_partition_scope_a_key_alone_matches_its_rows_in_every_partition(
    tmp_path,
):
    table = filled(tmp_path)
    table.upsert([{"id": "k1", "city": "x", "ts": 1, "fare": 3.0}])
    assert merged(table, {"id": ["k1"]}, ("matched", None, None), on="id").deleted == 2
    with pytest.raises(Invalid, match="cannot change the column 'city'"):
        table.merge(rows([0], 3, 3.0), on="id").when_matched().update("*")
    with pytest.raises(Invalid, match="matched by city, which the source lacks"):
        table.merge({"id": ["k1"]})


@EVERY_KIND
def test_null_is_not_true_and_null_keys_match_nothing(tmp_path, kind):
    table = filled(tmp_path, kind=kind, partition_by=[], ordering=None)
    table.update_where(values={"fare": None}, where="id = 'k1'")

    def matched(fare, condition, value):
        source = {"id": ["k0", "k1", None], "fare": [fare] * 3}
        return merged(table, source, ("matched", condition, value))

    assert matched(5.0, "target.fare < source.fare", {"fare": "source.fare"}).updated == 1
    kept = matched(9.0, "not (target.fare < source.fare)", None)
    assert (kept.deleted, kept.instant) == (0, "")
    assert matched(9.0, "target.fare is null", None).deleted == 1
    whole = rows([0], 1, 1.0).set_column(0, "id", pa.array([None], pa.string()))
    with pytest.raises(Invalid, match="'id' is null|does not fit the table"):
        merged(table, whole, NEW_ALL)
    assert merged(table, whole.slice(1)).instant == "", "a source without rows does nothing"


def test_values_are_cast_as_an_upsert_casts_them():
    schema = pa.schema(
        {
            "id": pa.int32(),
            "n": pa.uint8(),
            "at": pa.timestamp("ns"),
            "tag": pa.dictionary(pa.int8(), pa.string()),
            "s": pa.struct({"a": pa.int16()}),
        }
    )
    table = mdt.create(MemoryStorage(), schema, ["id"])
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
    values = {
        "n": "source.n + target.n",
        "at": mdt.col("source.at"),
        "tag": "target.tag || source.tag",
        "s": "source.s",
    }
    newer = ("matched", "source.at > target.at and source.s.a > target.s.a", values)
    assert merged(table, source, newer, NEW_ALL, ignore=["more"]).updated == 1
    found = table.scan(order_by="id").to_arrow().select(["id", "n", "tag", "s"]).to_pylist()
    assert found == [
        {"id": 1, "n": 3, "tag": "ab", "s": {"a": 5}},
        {"id": 2, "n": 3, "tag": "c", "s": {"a": 6}},
    ]
    for text in ("source.n + 300", "source.n / 2"):
        with pytest.raises(Invalid, match="n"):
            merged(table, source, ("matched", None, {"n": text}))
    assert len(table.history()) == 3


@pytest.mark.parametrize(
    "clauses, why",
    [
        ([], "no clause"),
        ([("matched", None, {})], "a mapping of columns to values"),
        ([("matched", None, {"far": "1"})], "no column 'far'"),
        ([("matched", None, {"fare": "fare"})], "no column 'fare'"),
        ([("matched", None, {"fare": mdt.col("source.far")})], "did you mean source.fare"),
        ([("matched", None, {"fare": "source.id"})], "fare"),
        ([("matched", None, {"fare": object()})], "is not a valid value for the column 'fare'"),
        ([("matched", None, {"id": "source.id || 'x'"})], "cannot change the column 'id'"),
        ([("matched", None, {"city": "'x'"})], "cannot change the column 'city'"),
        ([("matched", "source.id > target.ts", None)], "cannot be compared with"),
        ([("matched", "source.id =", None)], "missing"),
        ([("matched", 7, None)], "must be text"),
        ([("not_matched", "target.ts = 1", "*")], "no column 'target.ts'"),
        ([("not_matched", None, {"id": "source.id"})], "needs a value for the column 'ts'"),
        ([("not_matched_by_source", "source.ts = 1", None)], "no column 'source.ts'"),
        ([("not_matched_by_source", None, "*")], "a mapping of columns to values"),
        ([("matched", None, None), ("matched", "source.ts = 1", None)], "has no condition"),
        ([("matched", None, {"fare": ":fare"})], "expressions do not support parameters"),
        ([("matched", None, {"fare": "source.fare / (target.ts - 1)"})], "division by zero"),
    ],
)
def test_what_cannot_be_merged_is_said_and_nothing_is_left(tmp_path, clauses, why):
    table = filled(tmp_path)
    files = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(Invalid, match=why):
        said(table.merge(rows([0, 1, 2], 3, 3.0)), clauses).execute()
    assert files == sorted((tmp_path / "t").rglob("*"))


@pytest.mark.parametrize(
    "on, kind, why",
    [
        (["nothing"], Invalid, "there is no column 'nothing'"),
        ([], Invalid, "names no column"),
        (7, Invalid, "takes text"),
        ("source.fare < target.fare", Unsupported, "equates no source column"),
        (
            "source.id = target.id or source.fare = target.fare",
            Unsupported,
            "equates no source column",
        ),
        ("source.fare + 1 = target.fare", Unsupported, "equates no source column"),
        ("source.fare = 1", Unsupported, "equates no source column"),
        ("source.id = target.x", Invalid, "target.x"),
    ],
)
def test_an_on_that_cannot_be_joined_is_refused(tmp_path, on, kind, why):
    with pytest.raises(kind, match=why):
        filled(tmp_path).merge(rows([0], 3, 3.0), on)


@pytest.mark.parametrize("on", [["tags"], "source.tags = target.tags", "source.tags = target.n"])
def test_lists_are_not_joined(on):
    data = pa.table({"id": [1], "n": [1], "tags": [["x"]]})
    table = mdt.create(MemoryStorage(), data.schema, ["id"])
    table.upsert(data)
    with pytest.raises(Invalid, match="in the table but|cannot be compared with"):
        merged(table, data, ("matched", None, None), on=on)


def test_moments_far_from_today_are_joined_or_refused():
    far = pa.array([0, 2**62], pa.timestamp("ms"))
    data = pa.table({"id": [1, 2], "at": far, "micros": far[:1].take([0, 0]).cast("timestamp[us]")})
    table = mdt.create(MemoryStorage(), data.schema, ["id"])
    table.upsert(data)
    setting = "matched", None, {"micros": "null"}
    assert merged(table, pa.table({"at": far}), setting, on=["at"]).updated == 2
    with pytest.raises(Invalid, match="'micros': .* cannot be joined"):
        merged(table, pa.table({"when": far}), setting, on="source.when = target.micros")


def test_new_rows_whose_key_lives_are_refused_where_rows_are_matched_otherwise(
    tmp_path,
):
    with pytest.raises(Invalid, match=r"1 rows to insert have keys that exist already: \['k0'\]"):
        merged(filled(tmp_path), rows([0, 30], 3, 77.0), NEW_ALL, on="fare")


def test_only_columns_that_clauses_name_are_read(tmp_path, monkeypatch):
    from mdt.write import matching, merge

    asked = []
    real = merge.rows_at

    def seen(metadata, snapshot, where, names, *, threads):
        asked.append(list(names))
        return real(metadata, snapshot, where, names, threads=threads)

    monkeypatch.setattr(merge, "rows_at", seen)
    monkeypatch.setattr(matching, "rows_at", seen)
    table = filled(tmp_path)
    merged(table, rows([0, 30], 3, 3.0))
    assert asked == [], "whole rows come from the source"
    merged(table, rows([0], 3, 3.0), ("matched", "source.ts >= target.ts", "*"))
    assert asked == [["ts"]]


def test_a_table_of_the_past_takes_no_merge(tmp_path):
    filled(tmp_path)
    with pytest.raises(Invalid, match="read-only"):
        mdt.open(tmp_path / "t", as_of=1).merge(rows([0], 3, 3.0))


def test_an_empty_source_leaves_rows_to_the_last_kind_of_clause(tmp_path):
    table = filled(tmp_path)
    gone = [("matched", None, None), ("not_matched_by_source", None, None)]
    assert merged(table, rows([], 0, 0.0), *gone).deleted == 10
    assert not len(agreed(table))


def test_a_clause_of_many_columns_lists_the_columns_of_the_table_once(
    monkeypatch,
):
    names, asked = [f"c{n}" for n in range(50)], []
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in names)])
    table = mdt.create(MemoryStorage(), schema, ["id"])
    table.upsert([{"id": "a", **dict.fromkeys(names, 1)}])
    monkeypatch.setattr(clauses, "as_target", lambda schema: asked.append(1) or as_target(schema))
    values = {name: f"source.{name} + 1" for name in names}
    merged(table, [{"id": "a", **dict.fromkeys(names, 2)}], ("matched", None, values))
    assert table.get({"id": "a"}) == {"id": "a", **dict.fromkeys(names, 3)} and len(asked) == 1


def test_a_source_may_have_a_dictionary_in_each_of_its_chunks():
    schema = pa.schema({"id": pa.int64(), "tag": pa.string(), "s": pa.struct({"a": pa.string()})})
    table = mdt.create(MemoryStorage(), schema, ["id"])
    code, tags = pa.array([0], pa.int8()), [f"v{i}" for i in range(200)]
    coded = [pa.DictionaryArray.from_arrays(code, pa.array([text])) for text in tags]
    inside = [pa.StructArray.from_arrays([one], ["a"]) for one in coded]
    source = pa.table(
        {"id": range(200), "tag": pa.chunked_array(coded), "s": pa.chunked_array(inside)}
    )
    for _ in range(2):
        merged(table, source)
    found = table.scan(order_by="id").to_arrow()
    assert found["tag"].to_pylist() == tags == [row["a"] for row in found["s"].to_pylist()]
