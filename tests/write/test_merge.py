"""Merges: rows are matched by key, by other columns or by a SQL condition. The first clause whose
condition is true applies. Every reader sees the same rows.
"""

from collections import Counter
from datetime import datetime

import pyarrow as pa
import pytest
from merges import NEW_ALL, STAR, merged, with_clauses
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


def filled_table(folder, table_type=MOR, kind=mdt.Table, **more):
    """Return a table with two partitions. On merge-on-read each has a base and a log file."""
    settings = {"ordering": "ts", "key_index": "record", "partition_by": ["city"], **more}
    options = {"mdt.durable": False, "mdt.services.auto": False}
    schema = rows([], 0, 0.0).schema
    table = mdt.create(
        folder / "t", schema, ["id"], table_type=table_type, options=options, **settings
    )
    table.upsert(rows(range(10), 1, 1.0))
    table.upsert(rows(range(0, 10, 3), 2, 2.0))
    return kind(table.storage)


@BOTH
@pytest.mark.parametrize("key_index", ["record", "bloom"])
def test_the_first_clause_whose_condition_is_true_applies_to_each_row(
    tmp_path, table_type, key_index
):
    table = filled_table(tmp_path, table_type, key_index=key_index)
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
    merge = with_clauses(table.merge(source), clauses)
    assert table.snapshot().seq == seq, "nothing is written before execute"
    result = merge.execute()
    assert (result.inserted, result.updated, result.deleted, result.seq) == (1, 4, 2, seq + 1)
    files = 2 if table_type == COW else 4
    assert (result.source_rows, result.files_scanned + result.files_skipped) == (5, files)
    assert result.files_written >= 2 and result.total_ms >= result.match_ms > 0
    assert table.history()["operation"].to_pylist()[-1] == "merge"
    del before["k0"], before["k3"]
    before |= dict.fromkeys(("k1", "k2"), (1, 51.0)) | dict.fromkeys(("k6", "k9"), (3, 9.0))
    before["k20"] = (3, 5.0)
    assert as_state(agreed(table)) == before
    change_kinds = table.changes(seq, mode="all").to_arrow()["_change"].to_pylist()
    expected = {"delete": 2, "insert": 1, "update_after": 4, "update_before": 4}
    assert Counter(change_kinds) == expected
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
def test_string_and_binary_view_columns_can_be_merged_and_updated(type, value):
    schema = pa.schema([("id", pa.string()), ("v", type)])
    table = mdt.create(MemoryStorage(), schema, key=["id"])
    table.upsert(pa.table({"id": ["a", "b"], "v": pa.array([None, None], type)}))
    ids = pa.array(["a", "c"], pa.string_view())
    source = pa.table({"id": ids, "v": pa.array([value, value], type)})
    result = merged(table, source, ("matched", "source.id < 'b'", "*"), NEW_ALL)
    assert (result.updated, result.inserted) == (1, 1)
    assert table.update_where(values={"v": value}, where="id = 'b'").updated == 1
    assert table.scan().to_arrow().select(["v"]).to_pylist() == [{"v": value}] * 3
    assert table.schema == schema


def test_merged_rows_go_into_log_files_unless_an_ordering_value_decreases(tmp_path):
    table = filled_table(tmp_path)
    merged(table, rows([0, 1], 2, 7.0))
    record = table.metadata.record(table.snapshot().seq)
    assert record is not None and set(record.table("files")["kind"].to_pylist()) == {LOG}
    merged(table, rows([0, 1], 1, 8.0))
    assert as_state(agreed(table))["k0"] == (1, 8.0)


@EVERY_KIND
def test_ambiguous_rows_of_a_merge_raise_an_error_that_names_their_keys(tmp_path, kind):
    table = filled_table(tmp_path, kind=kind)
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
        "without a matched clause, matched rows are ignored"
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
def test_rows_can_be_matched_by_other_columns_and_by_conditions(tmp_path, on, updated):
    table = filled_table(tmp_path)
    source = rows_of(
        columns("fare double, low int64, id string, city string"),
        "2 1 k1 x",
        "- 1 - x",
        "77 1 zz -",
    )
    result = merged(table, source, ("matched", None, {"fare": "source.fare + 100"}), on=on)
    assert result.updated == updated
    agreed(table)


def test_with_keys_per_partition_a_key_alone_matches_rows_in_every_partition(
    tmp_path,
):
    table = filled_table(tmp_path)
    table.upsert([{"id": "k1", "city": "x", "ts": 1, "fare": 3.0}])
    assert merged(table, {"id": ["k1"]}, ("matched", None, None), on="id").deleted == 2
    with pytest.raises(Invalid, match="cannot change the column 'city'"):
        table.merge(rows([0], 3, 3.0), on="id").when_matched().update("*")
    with pytest.raises(Invalid, match="matched by city, which the source lacks"):
        table.merge({"id": ["k1"]})


@EVERY_KIND
def test_a_null_condition_does_not_apply_and_null_keys_do_not_match(tmp_path, kind):
    table = filled_table(tmp_path, kind=kind, partition_by=[], ordering=None)
    table.update_where(values={"fare": None}, where="id = 'k1'")

    def merge_matched(fare, condition, value):
        source = {"id": ["k0", "k1", None], "fare": [fare] * 3}
        return merged(table, source, ("matched", condition, value))

    assert merge_matched(5.0, "target.fare < source.fare", {"fare": "source.fare"}).updated == 1
    result = merge_matched(9.0, "not (target.fare < source.fare)", None)
    assert (result.deleted, result.instant) == (0, "")
    assert merge_matched(9.0, "target.fare is null", None).deleted == 1
    null_key_row = rows([0], 1, 1.0).set_column(0, "id", pa.array([None], pa.string()))
    with pytest.raises(Invalid, match="'id' is null|does not fit the table"):
        merged(table, null_key_row, NEW_ALL)
    assert merged(table, null_key_row.slice(1)).instant == "", (
        "a source without rows commits nothing"
    )


def test_a_merge_casts_values_to_column_types_as_an_upsert_does():
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
    merged_rows = table.scan(order_by="id").to_arrow().select(["id", "n", "tag", "s"]).to_pylist()
    assert merged_rows == [
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
def test_an_invalid_clause_raises_and_leaves_no_files(tmp_path, clauses, why):
    table = filled_table(tmp_path)
    files = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(Invalid, match=why):
        with_clauses(table.merge(rows([0, 1, 2], 3, 3.0)), clauses).execute()
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
def test_an_on_condition_without_an_equality_of_columns_is_refused(tmp_path, on, kind, why):
    with pytest.raises(kind, match=why):
        filled_table(tmp_path).merge(rows([0], 3, 3.0), on)


@pytest.mark.parametrize("on", [["tags"], "source.tags = target.tags", "source.tags = target.n"])
def test_merging_on_list_columns_is_refused(on):
    data = pa.table({"id": [1], "n": [1], "tags": [["x"]]})
    table = mdt.create(MemoryStorage(), data.schema, ["id"])
    table.upsert(data)
    with pytest.raises(Invalid, match="in the table but|cannot be compared with"):
        merged(table, data, ("matched", None, None), on=on)


def test_timestamps_beyond_the_range_of_their_join_type_are_joined_or_refused():
    far = pa.array([0, 2**62], pa.timestamp("ms"))
    data = pa.table({"id": [1, 2], "at": far, "micros": far[:1].take([0, 0]).cast("timestamp[us]")})
    table = mdt.create(MemoryStorage(), data.schema, ["id"])
    table.upsert(data)
    clause = "matched", None, {"micros": "null"}
    assert merged(table, pa.table({"at": far}), clause, on=["at"]).updated == 2
    with pytest.raises(Invalid, match="'micros': .* cannot be joined"):
        merged(table, pa.table({"when": far}), clause, on="source.when = target.micros")


def test_a_merge_on_other_columns_refuses_to_insert_existing_keys(
    tmp_path,
):
    with pytest.raises(Invalid, match=r"1 rows to insert have keys that exist already: \['k0'\]"):
        merged(filled_table(tmp_path), rows([0, 30], 3, 77.0), NEW_ALL, on="fare")


def test_only_target_columns_that_clauses_reference_are_read(tmp_path, monkeypatch):
    from mdt.write import matching, merge

    columns_read = []
    real = merge.rows_at

    def recording(metadata, snapshot, where, names, *, threads):
        columns_read.append(list(names))
        return real(metadata, snapshot, where, names, threads=threads)

    monkeypatch.setattr(merge, "rows_at", recording)
    monkeypatch.setattr(matching, "rows_at", recording)
    table = filled_table(tmp_path)
    merged(table, rows([0, 30], 3, 3.0))
    assert columns_read == [], "a star clause copies whole rows from the source"
    merged(table, rows([0], 3, 3.0), ("matched", "source.ts >= target.ts", "*"))
    assert columns_read == [["ts"]]


def test_a_table_opened_as_of_an_earlier_version_refuses_merges(tmp_path):
    filled_table(tmp_path)
    with pytest.raises(Invalid, match="read-only"):
        mdt.open(tmp_path / "t", as_of=1).merge(rows([0], 3, 3.0))


def test_with_an_empty_source_only_not_matched_by_source_clauses_apply(tmp_path):
    table = filled_table(tmp_path)
    deletes = [("matched", None, None), ("not_matched_by_source", None, None)]
    assert merged(table, rows([], 0, 0.0), *deletes).deleted == 10
    assert not len(agreed(table))


def test_a_clause_with_many_columns_builds_the_target_schema_once(
    monkeypatch,
):
    names, columns_read = [f"c{n}" for n in range(50)], []
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in names)])
    table = mdt.create(MemoryStorage(), schema, ["id"])
    table.upsert([{"id": "a", **dict.fromkeys(names, 1)}])
    monkeypatch.setattr(
        clauses, "as_target", lambda schema: columns_read.append(1) or as_target(schema)
    )
    values = {name: f"source.{name} + 1" for name in names}
    merged(table, [{"id": "a", **dict.fromkeys(names, 2)}], ("matched", None, values))
    assert (
        table.get({"id": "a"}) == {"id": "a", **dict.fromkeys(names, 3)} and len(columns_read) == 1
    )


def test_a_source_may_have_a_different_dictionary_in_each_chunk():
    schema = pa.schema({"id": pa.int64(), "tag": pa.string(), "s": pa.struct({"a": pa.string()})})
    table = mdt.create(MemoryStorage(), schema, ["id"])
    code, tags = pa.array([0], pa.int8()), [f"v{i}" for i in range(200)]
    coded = [pa.DictionaryArray.from_arrays(code, pa.array([text])) for text in tags]
    inside = [pa.StructArray.from_arrays([codes], ["a"]) for codes in coded]
    source = pa.table(
        {"id": range(200), "tag": pa.chunked_array(coded), "s": pa.chunked_array(inside)}
    )
    for _ in range(2):
        merged(table, source)
    rows = table.scan(order_by="id").to_arrow()
    assert rows["tag"].to_pylist() == tags == [row["a"] for row in rows["s"].to_pylist()]
