"""Column names that Avro does not allow. The table has them as they were declared, and Hudi's files
have them escaped.
"""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import documents, shown
from hypothesis import given
from hypothesis import strategies as st
from reader import bag, hudi_table
from refusals import refused
from texts import columns
from trees import TABLE_TYPES

import mdt
from indexes.predicate import matches
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.filters.where import parse_where
from mdt.schema import names
from mdt.schema.declared import stored_schema
from mdt.schema.definition import FORMAT_VERSION, from_json
from mdt.schema.versions import schema_text
from mdt.write import large_files, new_files

PLACE = pa.struct(
    [("zip code", pa.int64()), ("seen-by", pa.list_(pa.struct([("who?", pa.string())])))]
)
SCHEMA = pa.schema(
    [
        ("trip id", pa.string()),
        ("pick-up city", pa.string()),
        ("ts (ms)", pa.int64()),
        ("fare amount", pa.float64()),
        ("1st", pa.uint8()),
        ("größe", pa.dictionary(pa.int32(), pa.string())),
        ("a.b", pa.string()),
        ("x-y", PLACE),
        ("per/day", pa.map_(pa.string(), pa.struct([("µ m", pa.int64())]))),
        ("plain", pa.int64()),
    ]
)
IN_FILES = {
    "trip id": "trip_x20_id",
    "pick-up city": "pick_x2D_up_x20_city",
    "ts (ms)": "ts_x20__x28_ms_x29_",
    "fare amount": "fare_x20_amount",
    "1st": "_x31_st",
    "größe": "gr_xF6__xDF_e",
    "a.b": "a_x2E_b",
    "x-y": "x_x2D_y",
    "per/day": "per_x2F_day",
    "plain": "plain",
}
INDEXES = [
    "bitmap('fare amount')",
    "text('a.b')",
    "bloom('1st')",
    "bitmap('x-y.zip code')",
    "table_stats('größe')",
]


def row(number, **more):
    """Return one row of SCHEMA."""
    values = {
        "trip id": f"t{number:04d}",
        "pick-up city": ("Oslo", "Bern")[number % 2],
        "ts (ms)": number,
        "fare amount": number * 0.5,
        "1st": number % 200,
        "größe": f"g{number % 3}",
        "a.b": f"note {number % 7}",
        "x-y": {"zip code": number, "seen-by": [{"who?": f"w{number % 5}"}]},
        "per/day": [("k", {"µ m": number})],
        "plain": number,
    }
    return {**values, **more}


def rows(*numbers, **more):
    """Return rows of SCHEMA."""
    return pa.Table.from_pylist([row(number, **more) for number in numbers], SCHEMA)


def create_table(path, **more):
    """Create an empty table of SCHEMA."""
    settings = {
        "key": ["trip id"],
        "partition_by": ["pick-up city"],
        "ordering": "ts (ms)",
        "indexes": INDEXES,
    }
    return mdt.create(path, SCHEMA, **{**settings, **more})


def as_hudi_reads(table):
    """Return the rows as hudi-rs reads them, under the declared column names."""
    columns = table.definition.schema
    hudi_rows = hudi_table(table.path, names.in_files(columns)).combine_chunks()
    arrays = zip(hudi_rows.to_struct_array().chunk(0).flatten(), columns.types, strict=True)
    return pa.table([array.view(type) for array, type in arrays], schema=columns)


def assert_rows_agree(table, expected=None):
    """Check the table, and compare the rows of mdt with those of hudi-rs and with the expected
    ones.
    """
    mdt_rows = table.scan().to_arrow()
    assert mdt_rows.schema.names == table.schema.names
    if expected is not None:
        assert bag(mdt_rows) == bag(expected)
    assert bag(as_hudi_reads(table)) == bag(mdt_rows)
    assert not table.check().problems


@pytest.fixture
def table(tmp_path):
    new_table = create_table(tmp_path / "t", options={"mdt.row.group.rows": 64})
    new_table.upsert(rows(*range(300)))
    return new_table


# Names


@pytest.mark.parametrize(("name", "escaped"), sorted(IN_FILES.items()))
def test_a_name_is_escaped_in_files(name, escaped):
    assert names.avro_name(name) == escaped


NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)


@given(st.lists(NAMES, min_size=1, max_size=8, unique=True))
def test_escaped_names_are_distinct_avro_names(given_names):
    escaped = {name: names.avro_name(name) for name in given_names}
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in escaped.values())
    changed = {name: text for name, text in escaped.items() if text != name}
    assert len({text.lower() for text in changed.values()}) == len({*map(_in_one_case, changed)})


def _in_one_case(name):
    """Return the name with ASCII letters in lower case. Avro names can differ in case, and in the
    characters that are escaped.
    """
    return re.sub("[A-Z]", lambda letter: letter[0].lower(), name)


SIMILAR = st.text(st.sampled_from("aXx_ 20.FZ"), min_size=1, max_size=8)


@given(SIMILAR, SIMILAR)
def test_names_similar_to_escaped_ones_do_not_collide(one, other):
    both = [names.avro_name(name) != name for name in (one, other)]
    if _in_one_case(one) != _in_one_case(other) and both[0] == both[1]:
        assert names.avro_name(one).lower() != names.avro_name(other).lower()


@given(st.lists(NAMES, min_size=1, max_size=5), NAMES)
def test_columns_of_any_names_are_restored_from_escaped_ones(given_names, field):
    columns = {"id": pa.int64(), **dict.fromkeys(given_names, pa.struct([(field, pa.int32())]))}
    schema = pa.schema(columns)
    try:
        stored = stored_schema(schema)
    except Invalid as error:
        assert "rename" in error.hint
        return
    escaped = names.in_files(stored)
    assert names.with_declared_names(escaped, schema) == stored
    assert names.are_avro(escaped)
    table = pa.table(
        [pa.array([1]), *(pa.array([{field: 7}], stored.field(1).type) for _ in stored.names[1:])],
        schema=stored,
    )
    assert names.with_file_names(table).schema == escaped


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["a", "A"], "have the same name, ignoring case"),
        (["_HOODIE_x"], "reserved for Hudi"),
        ([""], "is empty"),
        (["a\0b"], "contains a control character"),
        (["a\nb"], "contains a control character"),
        (["ä" * 256], "has 256 characters, more than 255"),
        (["fare amount", "fare_x20_amount"], "would both be 'fare_x20_amount' in Hudi's files"),
        (["Größe", "größe"], "have the same name, ignoring case"),
        (["gr\u00f6sse", "gro\u0308sse"], "have the same name, ignoring case"),
        (["_hoodie_file name"], "reserved for Hudi"),
        (["_hoodie x"], "reserved for Hudi"),
        (["__mdt_ x"], "reserved for mdt"),
    ],
)
def test_an_invalid_or_reserved_column_name_is_refused(columns, said):
    fields = [(name, pa.int64()) for name in columns]
    refused(said, stored_schema, pa.schema(fields))
    if "reserved for" not in said:
        refused(said, stored_schema, pa.schema([("s", pa.struct(fields))]))


@pytest.mark.parametrize(
    "columns",
    [
        {"a.b": pa.int64(), "a": pa.struct([("b", pa.int64())])},
        {"a": pa.struct([("b.c", pa.int64()), ("b", pa.struct([("c", pa.int64())]))])},
        {"a.element.c": pa.int64(), "a": pa.list_(pa.struct([("c", pa.int64())]))},
    ],
)
def test_two_fields_with_the_same_path_are_refused(columns):
    refused("have the path", stored_schema, pa.schema(columns))


def test_a_definition_has_both_names_and_an_invalid_one_is_refused(table):
    definition_json = table.definition.to_json()
    assert definition_json["format"] == 5 < FORMAT_VERSION
    assert from_json(definition_json, path="x") == table.definition

    def refuse_forged(message, kind=Corrupt, **changed):
        refused(message, from_json, {**definition_json, **changed}, path="x", kind=kind)

    refuse_forged(
        "the stored columns do not match the declared columns", schema=definition_json["declared"]
    )
    hostile, stored = (
        schema.set(9, pa.field("pl\nain", pa.int64()))
        for schema in (table.definition.declared, table.definition.schema)
    )
    texts = {"declared": schema_text(hostile), "schema": schema_text(names.in_files(stored))}
    refuse_forged("contains a control character", **texts)
    refuse_forged(f"format {FORMAT_VERSION + 1}", Unsupported, format=FORMAT_VERSION + 1)


# Rows


def test_hudi_reads_rows_properties_and_partitions_with_escaped_names(table):
    new = rows(0, 1, 2, **{"ts (ms)": 9_000, "plain": -1})
    table.upsert(new)
    assert_rows_agree(table, pa.concat_tables([new, rows(*range(3, 300))]))
    properties = Path(table.path, ".hoodie/hoodie.properties").read_text()
    for line in (
        "hoodie.table.recordkey.fields=trip_x20_id",
        "hoodie.table.partition.fields=pick_x2D_up_x20_city",
        "hoodie.table.precombine.field=ts_x20__x28_ms_x29_",
    ):
        assert line in properties.splitlines()
    assert Path(table.path, "pick_x2D_up_x20_city=Oslo").is_dir()


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_composite_keys_and_buckets_work_with_any_names_in_both_table_types(tmp_path, table_type):
    table = create_table(
        tmp_path / "t",
        key=["trip id", "größe"],
        partition_by=["pick-up city", "a.b"],
        table_type=table_type,
        key_index="bucket",
        options={"mdt.bucket.count": 4, "mdt.bucket.fields": "größe"},
    )
    new = rows(*range(25), **{"ts (ms)": 900})
    table.upsert(rows(*range(50)))
    table.upsert(new)
    keys = table.scan("`trip id` = 't0000'", columns=["_hoodie_record_key"]).to_arrow()
    assert keys[0].to_pylist() == ["trip_x20_id:t0000,gr_xF6__xDF_e:g0"]
    assert_rows_agree(table, pa.concat_tables([new, rows(*range(25, 50))]))
    assert table.get(("t0007", "g1"), columns=["1st"]) == {"1st": 7}


FILTERS = [
    "`fare amount` > 140",
    "`fare amount` = 7.5 and `1st` < 100",
    "`FARE AMOUNT` between 3 and 4",
    "größe = 'g1' and plain < 20",
    "`a.b` = 'note 3' or `a.b` is null",
    "match(`a.b`, 'note')",
    "`x-y`.`zip code` in (3, 4, 5)",
    "`pick-up city` = 'Oslo' and `trip id` = 't0004'",
    "`ts (ms)` >= 295",
]


@pytest.mark.parametrize("where", FILTERS)
def test_pruned_scans_return_the_rows_of_a_full_scan(table, where):
    table.upsert(rows(*range(10), **{"ts (ms)": 5_000, "fare amount": 3.5}))
    all_rows = table.scan().to_arrow()
    matching = table.scan(where).to_arrow()
    assert len(matching)
    assert bag(matching) == bag(all_rows.filter(matches(parse_where(where, SCHEMA), all_rows)))


def test_indexes_and_orders_work_with_quoted_names(table):
    explanation = str(table.scan("`fare amount` = 7.5").explain())
    assert "bitmap/1('fare amount')" in explanation and "1 of 2" in explanation
    for order in ([("fare amount", "desc")], "`x-y`.`zip code` desc"):
        first_row = table.scan(order_by=order, limit=1, columns=["1st", "plain"]).to_arrow()
        assert first_row.to_pylist() == [{"1st": 99, "plain": 299}]


def test_wrong_names_are_refused_with_the_most_similar_column(table):
    for text in ('"fare amount" > 3', "3 < 'fare amount'"):
        message = (
            "'fare amount' is text here, not a column … hint: write the column as `fare amount`"
        )
        refused(message, table.scan, text)
    refused("two literals", table.scan, '"fare" > 3', kind=Unsupported)
    message = "there is no column 'fare amont' … hint: did you mean fare amount?"
    refused(message, table.scan, columns=["fare amont"])
    fewer = rows(1).drop_columns(["fare amount"])
    refused("column 'fare amount' is missing", table.upsert, fewer)


def test_all_operations_on_rows_work_with_any_names(table):
    table.update_where(
        {"fare amount": "`fare amount` + `1st`", "a.b": "'set'"}, "`1st` = 10 and plain = 10"
    )
    assert table.get("t0010", columns=["fare amount", "a.b"]) == {"fare amount": 15.0, "a.b": "set"}
    table.update_where(values={"größe": "other"}, where="`trip id` = 't0011'")
    assert table.get("t0011", columns=["größe"]) == {"größe": "other"}
    table.upsert(
        [{"trip id": "t0012", "pick-up city": "Oslo", "ts (ms)": 9_000, "fare amount": -1.0}],
        partial=True,
    )
    expected = {"plain": 12, "fare amount": -1.0}
    assert table.get("t0012", columns=["plain", "fare amount"]) == expected
    source = rows(13, 900, **{"ts (ms)": 9_000, "fare amount": 0.25})
    on = "source.`trip id` = target.`trip id` and source.`pick-up city` = target.`pick-up city`"
    merge = table.merge(source, on=on).when_not_matched().insert()
    merge = merge.when_matched("target.`1st` = 13")
    merge.update({"fare amount": "source.`fare amount`"}).execute()
    merged = table.scan("`fare amount` = 0.25", columns="trip id", order_by="`trip id`").to_arrow()
    assert merged[0].to_pylist() == ["t0013", "t0900"]
    table.delete(pa.table({"trip id": ["t0014"], "pick-up city": ["Oslo"]}))
    table.delete_where("`x-y`.`zip code` = 15")
    assert table.scan("plain in (14, 15)").count() == 0
    table.insert_overwrite(rows(16))
    assert table.scan("`pick-up city` = 'Oslo'").count() == 1
    assert_rows_agree(table)
    table.delete_partition({"pick-up city": "Oslo"})
    table.delete_partition("pick-up city=Bern")
    assert table.scan().count() == 0


def test_changes_as_of_and_restore_work_with_any_names(table):
    before = table.scan().to_arrow()
    table.upsert(rows(1, **{"ts (ms)": 9_000, "fare amount": -5.0}))
    changed = table.changes(since=1, where="`fare amount` < 0", columns="trip id").to_arrow()
    assert [changed[name].to_pylist() for name in ("_change", "trip id")] == [
        ["update_after"],
        ["t0001"],
    ]
    assert bag(mdt.open(table.path, as_of=1).scan().to_arrow()) == bag(before)
    table.restore(1)
    assert_rows_agree(table, before)


def test_services_work_with_any_names(table):
    for round in range(3):
        table.upsert(rows(*range(round, 40), **{"ts (ms)": 1_000 + round}))
    expected = table.scan().to_arrow()
    table.compact(partitions="pick-up city=Oslo")
    table.compact()
    table.cluster(["fare amount", "größe"])
    table.create_index("bloom('trip id')")
    table.drop_index("text('a.b')")
    table.rekey()
    table.clean()
    assert not table.repair().lost
    assert_rows_agree(table, expected)


def test_large_base_files_are_rewritten_with_any_names(table, monkeypatch):
    calls = []

    def record_rewrite(*args, **more):
        calls.append(1)
        return large_files.rewrite(*args, **more)

    monkeypatch.setattr(large_files, "_FILE_SHARE", 1 << 60)
    monkeypatch.setattr(new_files, "rewrite", record_rewrite)
    nan = rows(*range(100, 400), **{"ts (ms)": 9_000, "fare amount": float("nan")})
    table.upsert(nan)
    table.compact()
    assert calls
    assert_rows_agree(table, pa.concat_tables([rows(*range(100)), nan]))


# Columns


def test_columns_are_renamed_added_dropped_and_reordered_with_any_names(table):
    table.alter(
        rename={"fare amount": "fare (€)", "x-y.zip code": "zip.code", "plain": "not plain"},
        add={"new col": "int64", "`d.e`": "int32", "x-y.`f.g`": "int32"},
        drop=["1st"],
        defaults={"new col": 7},
        reorder=["new col", "trip id"],
        beyond_hudi=True,
    )
    expected = "new col, trip id, pick-up city, ts (ms), fare (€), größe, a.b, x-y, per/day"
    assert table.schema.names == [*expected.split(", "), "not plain", "d.e"]
    (row_10,) = table.scan("`fare (€)` = 5 and `x-y`.`zip.code` = 10").to_arrow().to_pylist()
    expected_struct = {"zip.code": 10, "seen-by": [{"who?": "w0"}], "f.g": None}
    expected_row = {
        "new col": 7,
        "fare (€)": 5.0,
        "x-y": expected_struct,
        "not plain": 10,
        "d.e": None,
    }
    assert expected_row.items() <= row_10.items()
    assert any("fare (€)" in text for text in table.definition.indexes)
    table.upsert([{"trip id": "new", "pick-up city": "Oslo", "ts (ms)": 1, "d.e": 3}], partial=True)
    assert table.get("new", columns="d.e") == {"d.e": 3} and table.scan("`d.e` = 3").count() == 1
    assert mdt.open(table.path).schema == table.schema
    assert not table.check().problems
    table.update_where({"not plain": "`not plain` + 1"}, "`ts (ms)` >= 0")
    table.compact()  # after this, all files have the newest columns
    assert_rows_agree(table)


def test_a_table_has_the_newer_format_only_while_a_column_name_needs_it(tmp_path):
    table = mdt.create(tmp_path / "t", columns("id int64, v int64"), key=["id"])
    name = "v"
    for number, (new, format) in enumerate((("v", 4), ("the v", 5), ("w", 4))):
        if new != name:
            table.alter(rename={name: new}, beyond_hudi=True)
        table.upsert([{"id": number, new: number}])
        assert table.definition.to_json()["format"] == format
        name = new
    read_rows = mdt.open(table.path).scan(order_by="id").to_arrow().to_pylist()
    assert read_rows == [{"id": number, "w": number} for number in range(3)]
    assert not table.check().problems


def test_an_upsert_with_evolve_adds_columns_with_any_names(table):
    for number, struct_value in ((1, {"i j": 1}), (2, {"i j": 1, "k.l": 2})):
        more = rows(number, **{"ts (ms)": 9_000}).append_column("e.f", pa.array([number]))
        table.upsert(more.append_column("g h", pa.array([struct_value])), evolve=True)
    read_rows = table.get(["t0001", "t0002"], columns=["e.f", "g h"]).to_pylist()
    assert read_rows == [
        {"e.f": 1, "g h": {"i j": 1, "k.l": None}},
        {"e.f": 2, "g h": {"i j": 1, "k.l": 2}},
    ]
    assert not table.check().problems


def test_statistics_of_a_column_do_not_collide_with_a_column_named_like_them(
    tmp_path,
):
    table = mdt.create(tmp_path / "t", columns("id int64, v int64"), key=["id"])
    table.upsert([{"id": 1, "v": 1}])
    table.alter(drop=["v"], beyond_hudi=True)  # the new schema version begins at commit 2
    table.alter(add={"v": "int64", "`v@2.3`": "int64"}, beyond_hudi=True)
    table.upsert([{"id": 2, "v": 20, "v@2.3": 900}])
    statistics_names = [table.definition.statistics_name(path) for path in ("v", "v@2.3")]
    assert len(set(statistics_names)) == 2
    assert table.scan("`v@2.3` = 900").count() == 1
    assert table.scan("v = 20").count() == 1


# Output


def test_a_table_shows_declared_names_and_no_escaped_ones(table):
    table.scan("`fare amount` = 7.5").count()
    representations = (
        table,
        table.definition.key,
        table.stats(),
        table.history().to_pylist(),
        table.advise(),
    )
    text = "\n".join(map(str, representations))
    assert "trip id" in text and "_x20_" not in text
    assert "fare amount" in table._repr_html_()


def test_the_command_line_shows_and_accepts_declared_names(table):
    assert "fare amount" in shown("info", table.path)
    where = ("--where", "`fare amount` = 7.5", "--columns", "trip id")
    assert documents("scan", table.path, *where) == [{"trip id": "t0015"}]
