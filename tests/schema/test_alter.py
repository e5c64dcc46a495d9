"""``t.alter``: older files stay unchanged and are read with the newest schema. Alterations that are
not possible are refused with the reason.
"""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from reader import bag, hudi_table
from refusals import refused
from texts import columns
from trees import TABLE_TYPES, create, tree

import mdt
from mdt.commit import transaction
from mdt.schema import alter, versions
from mdt.schema.evolve import evolution
from mdt.schema.versions import SchemaVersion, stored_bytes
from mdt.services.history.altering import Alter
from mdt.stores.storage import MemoryStorage

SCHEMA = columns(
    "id string, city string, ts int64, n int32, f float, d decimal(6, 2), day date32, note string,"
    " must int32 not null"
)
for field in (
    pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    pa.field("l", pa.list_(pa.int32())),
    pa.field("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
):
    SCHEMA = SCHEMA.append(field)
INDEXES = ["bitmap(note)", "bitmap(n)", "bloom(f)", "column_stats(s.a)"]


def rows(ids):
    return [
        {
            "id": id,
            "city": "x" if n % 2 else "y",
            "ts": n,
            "n": n,
            "f": n / 10,
            "d": Decimal(n) / 4,
            "day": date(2026, 1, 1 + n),
            "note": f"note {n}",
            "must": n,
            "s": {"a": n, "b": id} if n % 3 else None,
            "l": [n, None],
            "m": [("k", {"x": n})],
        }
        for n, id in enumerate(ids)
    ]


DEFINED = {"partition_by": ["city"], "ordering": "ts", "indexes": INDEXES}


def create_filled_table(path, table_type="MERGE_ON_READ"):
    """Return a table with files without deleted rows, files with deleted rows and, for
    merge-on-read, log files.
    """
    return fill(create(path, SCHEMA, table_type=table_type, **DEFINED))


def fill(table):
    table.upsert(rows("abcdefgh"))
    table.upsert(rows("abcd"))
    table.delete({"id": ["g"], "city": ["y"]})
    return table


def data_files(table):
    files = tree(Path(table.path)).items()
    return {name: data for name, data in files if not name.startswith(".hoodie")}


def assert_hudi_agrees(table):
    hudi_rows = hudi_table(table.path, table.definition.schema)
    assert bag(hudi_rows) == bag(table.scan().to_arrow())


def rewrite(table, key, **changed):
    """Upsert the row with this key again, with other values."""
    (row,) = table.scan([("id", "=", key)]).to_arrow().to_pylist()
    table.upsert([{**row, **changed}])


def alter_and_compare(table, **change):
    """Alter ``table`` and return its rows in key order, after comparing every way to read them,
    before and after files are rewritten.
    """
    files = data_files(table)
    table.alter(**change)
    assert data_files(table) == files
    rows_in_order = rows_of_every_read(table)
    table.build_indexes()
    table.upsert(table.scan("id in ('a', 'h')").to_arrow())
    assert rows_of_every_read(table) == rows_in_order
    table.compact()
    table.metadata.compact()
    assert rows_of_every_read(mdt.open(table.path)) == rows_in_order
    return rows_in_order


def rows_of_every_read(table):
    """Return the rows of a scan in key order. Look-ups of single rows, filters on each column and
    the first rows of an order must agree with it.
    """
    report = table.check()
    assert report.ok, str(report)
    scanned = table.scan(order_by="id").to_arrow()
    assert scanned.schema == table.schema
    values = scanned.to_pylist()
    assert table.get(scanned.select(["id", "city"])).to_pylist() == values
    for field in list(table.schema)[2::2]:
        if field.type.num_fields or pa.types.is_floating(field.type):
            continue
        value = values[3][field.name]
        test = (field.name, "is null") if value is None else (field.name, "=", value)
        expected = [row for row in values if row[field.name] == value]
        assert table.scan([test], order_by="id").to_arrow().to_pylist() == expected, field.name
        order = [(field.name, "desc"), "id"]
        first_rows = table.scan(order_by=order, limit=3).to_arrow()
        assert first_rows.to_pylist() == table.scan(order_by=order).to_arrow()[:3].to_pylist()
    return values


def test_an_added_column_has_its_default_in_older_rows_and_may_be_required(tmp_path):
    table = create_filled_table(tmp_path)
    change = {
        "add": {"more": pa.field("more", pa.int16(), nullable=False), "t": pa.timestamp("us")},
        "defaults": {"more": 7, "t": datetime(2026, 1, 1)},
    }
    refused("older rows have null in 'more' instead of the default", table.alter, **change)
    for row in alter_and_compare(table, **change, beyond_hudi=True):
        assert (row["more"], row["t"]) == (7, datetime(2026, 1, 1))
    extra = {"extra": pa.struct([("y", pa.int8())])}
    assert {row["extra"] for row in alter_and_compare(table, add=extra, beyond_hudi=True)} == {None}
    for row in alter_and_compare(
        table, widen={"more": pa.int64()}, rename={"more": "most"}, beyond_hudi=True
    ):
        assert row["most"] == 7


def test_filters_on_an_added_column_read_no_files_older_than_it(tmp_path):
    table = create_filled_table(tmp_path, "COPY_ON_WRITE")
    table.alter(
        add={"more": "int64", "s.c": "string", "given": "int64"},
        defaults={"given": 1},
        beyond_hudi=True,
    )
    for where in ("more = 5", "s.c like 'x%'", "more > 2 and n < 100", "more = 1 or s.c = 'x'"):
        assert table.scan(where).explain().files_read == 0, where
    for where in ("more is null", "given = 1", "more = 5 or n = 3"):
        assert table.scan(where).explain().files_read > 0, where
    rewrite(table, "a", more=5)
    plan = table.scan("more = 5")
    assert plan.to_arrow()["id"].to_pylist() == ["a"] and plan.explain().files_read == 1
    assert "schema_versions" in str(plan.explain())


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_dropped_column_disappears_and_a_new_one_with_its_name_has_none_of_its_values(
    tmp_path, table_type
):
    table = create_filled_table(tmp_path, table_type)
    assert all("note" not in row for row in alter_and_compare(table, drop=["note", "n"]))
    assert_hudi_agrees(table)
    assert not [spec for spec in table.definition.indexes if "note" in spec or "(n)" in spec]
    message = "older rows have in 'note' the values of the dropped column of that name"
    refused(message, table.alter, add={"note": "string"})
    table.create_index("bitmap(must)")
    table.alter(add={"note": "int64", "n": "string"}, beyond_hudi=True)
    table.create_index("bitmap(note)")
    assert all(row["note"] is None and row["n"] is None for row in rows_of_every_read(table))
    rewrite(table, "a", note=5, n="five")
    assert table.scan("note = 5 and n = 'five'").to_arrow()["id"].to_pylist() == ["a"]
    assert table.scan("note is null").count() == 6
    rows_of_every_read(table)


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_renamed_column_keeps_its_values_statistics_and_indexes(tmp_path, table_type):
    table = create_filled_table(tmp_path, table_type)
    message = "older rows have null in 'remark', which was 'note'"
    refused(message, table.alter, rename={"note": "remark"})
    notes_by_id = {row["id"]: row["note"] for row in table.scan().to_arrow().to_pylist()}
    table.alter(rename={"note": "remark", "n": "note"}, beyond_hudi=True)
    assert table.scan("remark = 'nowhere'").explain().files_read == 0
    assert table.scan("note = 99").explain().files_read == 0
    assert {row["id"]: row["remark"] for row in rows_of_every_read(table)} == notes_by_id
    assert "bitmap/1(remark)" in table.definition.indexes
    alter_and_compare(table, rename={"remark": "n"}, beyond_hudi=True)


WIDER = {"n": "int64", "f": "double", "d": "decimal(20, 2)", "must": "double"}


def test_widened_columns_keep_their_values(tmp_path):
    table = create_filled_table(tmp_path)
    wider = {"day": "timestamp[us]", "s.a": "int64", "l.element": "double", "m.value.x": "int64"}
    altered = alter_and_compare(table, widen=WIDER | wider, beyond_hudi=True)
    for n, row in enumerate(rows("abcdef")):
        assert altered[n] == {**row, "day": datetime(2026, 1, 1 + n)}
    alter_and_compare(table, widen={"n": pa.float64()})


@pytest.mark.parametrize("at_once", [False, True])
def test_no_column_is_widened_while_log_files_lack_another_column(tmp_path, at_once):
    """hudi-rs takes such rows for partial updates, and fails if their columns have another type."""
    table = create_filled_table(tmp_path)
    if not at_once:
        table.alter(add={"more": "int64"})
    change = {"widen": {"n": "int64"}, "add": {"more": "int64"} if at_once else {}}
    message = (
        "would fail: there are log files that lack 'more', and in which 'n' is int32 … compact"
    )
    refused(message, table.alter, **change)
    table.compact()
    alter_and_compare(table, **change)
    assert_hudi_agrees(table)
    table.upsert(table.scan("id in ('a', 'h')").to_arrow())
    table.alter(add={"most": "int64"})
    message = "there are log files that lack 'most', and in which 'must' is int32"
    refused(message, table.alter, widen={"must": "double"})
    assert_hudi_agrees(table)
    table.alter(widen={"must": "double"}, beyond_hudi=True)
    rows_of_every_read(table)


def test_fields_of_structs_are_added_dropped_and_renamed(tmp_path):
    table = create_filled_table(tmp_path, "COPY_ON_WRITE")
    assert alter_and_compare(table, add={"s.c": "string"})[1]["s"] == {"a": 1, "b": "b", "c": None}
    assert_hudi_agrees(table)
    altered = alter_and_compare(
        table,
        drop=["s.b"],
        rename={"s.a": "z", "m.value.x": "xx"},
        add={"s.b": "int32", "m.value.y": "int32"},
        defaults={"m.value.y": 3},
        beyond_hudi=True,
    )
    assert altered[1]["s"] == {"z": 1, "c": None, "b": None} and altered[0]["s"] is None
    assert altered[1]["m"] == [("k", {"xx": 1, "y": 3})]
    assert table.scan("s.z = 99").explain().files_read == 0
    assert table.scan("s.z = 4").to_arrow()["id"].to_pylist() == ["e"]


def test_columns_are_reordered_and_made_nullable(tmp_path):
    table = create_filled_table(tmp_path)
    alter_and_compare(table, reorder=["must", "id"], nullable=["must"])
    assert table.schema.names[:3] == ["must", "id", "city"]
    rewrite(table, "a", must=None)
    flat = table.definition.schema.remove(11)
    assert bag(hudi_table(tmp_path, flat)) == bag(table.scan(columns=flat.names).to_arrow())


def test_older_snapshots_keep_their_schema(tmp_path):
    table = create_filled_table(tmp_path)
    seq, old_rows = table.snapshot().seq, table.scan(order_by="id").to_arrow()
    table.alter(drop=["note"], widen={"n": "int64"})
    table.alter(add={"note": "int32"}, beyond_hudi=True)
    table.metadata.compact()
    past = mdt.open(tmp_path, as_of=seq)
    assert past.schema == old_rows.schema == SCHEMA
    assert table.scan(as_of=seq, order_by="id").to_arrow() == old_rows
    assert table.scan("note = 'note 5'", as_of=seq).to_arrow()["id"].to_pylist() == ["f"]
    between = table.scan(as_of=seq + 1).to_arrow().schema
    assert "note" not in between.names and between.field("n").type == pa.int64()


REFUSED = {
    "a key": ({"rename": {"id": "key"}}, "is part of the record key"),
    "a partition column": (
        {"drop": ["city"]},
        "is a partition column, whose values are directory names",
    ),
    "the order": ({"widen": {"ts": "double"}}, "is an ordering field"),
    "nothing": ({}, "no alteration was given"),
    "narrower": ({"widen": {"n": "int16"}}, "'n' of type int32 cannot be widened to int16"),
    "another family": ({"widen": {"note": "int64"}}, "cannot be widened to int64"),
    "fewer digits": ({"widen": {"d": "decimal(5, 2)"}}, "cannot be widened to decimal128"),
    "another scale": ({"widen": {"d": "decimal(20, 3)"}}, "cannot be widened to decimal128"),
    "unsigned": ({"widen": {"n": "uint64"}}, "cannot be widened to uint64"),
    "a struct": ({"widen": {"s": "int64"}}, "cannot be widened to int64"),
    "no column": ({"drop": ["nope"]}, "no column 'nope'"),
    "no field": ({"drop": ["s.nope"]}, "no column 's.nope'"),
    "an element": ({"drop": ["l.element"]}, "is not a column of the table or a field of a struct"),
    "no struct": ({"add": {"n.x": "int32"}}, "is not a column of the table or a field of a struct"),
    "a name that is there": ({"add": {"note": "int32"}}, "have the same name, ignoring case"),
    "a name but for its case": ({"rename": {"n": "NOTE"}}, "have the same name, ignoring case"),
    "no name": ({"rename": {"n": ""}}, "is empty"),
    "a reserved name": ({"add": {"_hoodie_x": "int32"}}, "reserved for Hudi"),
    "a name of ours": ({"add": {"__mdt_kind": "int32"}}, "reserved for mdt"),
    "required": (
        {"add": {"x": pa.field("x", pa.int32(), nullable=False)}},
        "existing rows have no value",
    ),
    "a default of nothing": (
        {"add": {"x": "int32"}, "defaults": {"y": 1}},
        "'y' has a default, but is not added",
    ),
    "another default": (
        {"add": {"x": "int32"}, "defaults": {"x": "seven"}},
        "default of 'x' is 'seven', which is not a valid int32 … hint: give a value of the column's",
    ),
    "no type": ({"add": {"x": "integer"}}, "'integer' is not a type"),
    "no such type here": ({"add": {"x": pa.null()}}, "which a Hudi table cannot hold"),
    "an order of strangers": ({"reorder": ["nope"]}, "must name distinct columns"),
    "twice": ({"reorder": ["n", "n"]}, "must name distinct columns"),
    "all of a struct": ({"drop": ["s.a", "s.b"]}, "is the only field of 's'"),
    "no text": ({"rename": {"n": 3}}, "is not a column name"),
    "inside, where log files are": (
        {"add": {"s.c": "int32"}},
        "there are log files in which 's' is struct<a: int32",
    ),
    "wider inside": (
        {"widen": {"s.a": "int64"}},
        "they fail if the type of 's' differs",
    ),
    "dates": ({"widen": {"day": "timestamp[us]"}}, "cannot read the dates"),
}


@pytest.fixture(scope="module")
def whole():
    storage = MemoryStorage()
    fill(mdt.create(storage, SCHEMA, ["id"], **DEFINED))
    return storage


@pytest.mark.parametrize("name", REFUSED)
def test_an_impossible_alteration_is_refused_with_the_reason(whole, name):
    change, message = REFUSED[name]
    table = mdt.open(whole.copy())
    refused(message, table.alter, **change)
    assert table.snapshot().seq == 3 and table.schema == SCHEMA


def test_hudi_reads_the_altered_schema_from_the_newest_instant(tmp_path):
    table = create_filled_table(tmp_path)
    instant = table.alter(add={"more": "int64"}).instant
    text = (tmp_path / ".hoodie" / f"{instant}.deltacommit").read_text()
    assert '"ALTER_SCHEMA"' in text and '\\"more\\"' in text
    assert table.alter(reorder=["id"]).seq == table.snapshot().seq, (
        "an alteration without effect is not committed"
    )


def test_a_date_is_widened_to_a_time_with_the_requested_zone(tmp_path):
    table = create_filled_table(tmp_path)
    altered = alter_and_compare(table, widen={"day": pa.timestamp("ms", "UTC")}, beyond_hudi=True)
    assert altered[0]["day"] == datetime(2026, 1, 1, tzinfo=UTC)


def test_an_upsert_with_evolve_adds_columns_and_widens_numbers(tmp_path):
    table = create_filled_table(tmp_path, "COPY_ON_WRITE")
    seq = table.snapshot().seq
    data = pa.table(
        {
            "id": ["a", "z"],
            "city": ["y", "x"],
            "ts": [9, 9],
            "n": pa.array([2**40, 1]),
            "f": [0.1, 0.2],
            "must": pa.array([1, 2], pa.int32()),
            "s": pa.array([{"b": "x", "new": 1.5}, None]),
            "fresh": pa.array([[1], None]),
            "nothing": pa.nulls(2),
        }
    )
    refused("does not fit the table", table.upsert, data)
    result = table.upsert(data, evolve=True)
    assert (result.inserted, result.updated, table.snapshot().seq) == (1, 1, seq + 2)
    assert table.schema.names == [*SCHEMA.names, "fresh"]
    rows_by_id = {row["id"]: row for row in rows_of_every_read(table)}
    assert (
        rows_by_id["a"]["n"] == 2**40
        and rows_by_id["a"]["note"] is None
        and rows_by_id["b"]["fresh"] is None
    )
    assert rows_by_id["a"]["s"] == {"a": None, "b": "x", "new": 1.5}
    assert (rows_by_id["a"]["f"], rows_by_id["b"]["f"]) == (0.1, 0.1)
    assert_hudi_agrees(table)
    table.upsert([{"id": "b", "city": "x", "ts": 9, "must": 3, "n": 1}], evolve=True)
    assert table.snapshot().seq == seq + 3, "data that fits does not alter the table"
    table.upsert([{"id": "b", "city": "x", "ts": 10, "must": 3, "extra": "text"}], evolve=True)
    assert table.scan("extra = 'text'").to_arrow()["id"].to_pylist() == ["b"]


def test_an_upsert_of_dicts_with_evolve_adds_their_unknown_fields(tmp_path):
    table = create_filled_table(tmp_path, "COPY_ON_WRITE")
    table.alter(add={"items": pa.list_(pa.struct([("n", pa.int8())]))})
    row = {
        "id": "new",
        "city": "x",
        "ts": 1,
        "must": 1,
        "n": 3,
        "s": {"a": 1, "z": [1]},
        "items": [{"n": 1, "m": "x"}],
    }
    table.upsert([row, {**row, "id": "old", "s": None, "items": []}], evolve=True)
    assert (
        table.schema.field("n").type == pa.int32()
        and table.schema.field("s").type.field("a").type == pa.int32()
    )
    new_row = table.scan("id = 'new'").to_arrow().to_pylist()[0]
    assert (new_row["s"], new_row["items"]) == ({"a": 1, "b": None, "z": [1]}, [{"n": 1, "m": "x"}])
    rows_of_every_read(table)


def test_two_writers_may_add_the_same_column_and_a_type_that_differs_is_refused(tmp_path):
    table = create_filled_table(tmp_path)
    other = mdt.open(tmp_path)
    other.definition  # noqa: B018 - loads the definition before the first writer alters it
    for n, writer in enumerate((table, other)):
        writer.upsert(
            [{"id": f"new {n}", "city": "x", "ts": 1, "must": 3, "extra": n}], evolve=True
        )
    assert sorted(table.scan("extra >= 0").to_arrow()["extra"].to_pylist()) == [0, 1]
    other_type = [{"id": "a", "city": "y", "ts": 1, "must": 3, "extra": "text"}]
    refused("the types do not fit", table.upsert, other_type, evolve=True)


def test_at_the_limit_of_schema_versions_alterations_are_refused_and_the_table_stays_usable(
    monkeypatch, tmp_path
):
    for module in (alter, versions):
        monkeypatch.setattr(module, "SCHEMA_VERSIONS_MAX", 4)
    table = create_filled_table(tmp_path)
    before = table.snapshot().seq
    for name in "xyz":
        table.alter(add={name: "int64"})
    newest_seq = table.snapshot().seq
    for act in (
        lambda: table.alter(drop=["x"]),
        lambda: table.restore(before),
        lambda: table.upsert([{"id": "q", "v": 1}], evolve=True),
    ):
        refused("keeps at most 4 versions", act)
    assert mdt.open(tmp_path).snapshot().seq == newest_seq and table.check().ok
    table.upsert(table.scan("id = 'a'").to_arrow())


def test_at_the_limit_of_version_bytes_alterations_are_refused_and_the_table_stays_usable(
    monkeypatch, tmp_path
):
    table = create_filled_table(tmp_path)
    table.alter(add={"x": "int64"})
    versions_json = [version.to_json() for version in table.definition.versions]
    size = len(json.dumps(versions_json, separators=(",", ":"))) - 1
    assert stored_bytes(table.definition.versions) == size
    monkeypatch.setattr(alter, "SCHEMA_VERSIONS_BYTES_MAX", 2 * size)
    newest_seq = table.snapshot().seq
    for name in "yz":
        table.alter(add={name: "int64"})
    message = "the 4 schema versions and a new one would take … bytes"
    refused(message, table.alter, add={"u": "int64"})
    refused("schema versions and a new one", table.upsert, [{"id": "q", "v": 1}], evolve=True)
    assert mdt.open(tmp_path).snapshot().seq == newest_seq + 2 and table.check().ok
    table.upsert(table.scan("id = 'a'").to_arrow())


def test_an_alteration_measures_only_the_version_it_adds(
    monkeypatch,
):
    table = mdt.create(MemoryStorage(), columns("id string"), ["id"])
    encoded_versions, to_json = list[int](), SchemaVersion.to_json
    monkeypatch.setattr(
        SchemaVersion, "to_json", lambda self: encoded_versions.append(self.since) or to_json(self)
    )
    for n in range(12):
        encoded_versions.clear()
        table.alter(add={f"x{n}": "int64"})
    assert set(encoded_versions) <= {table.snapshot().seq - 1, table.snapshot().seq}


def types_inside(*names):
    """Return a struct, a list and a map of structs with fields of these names."""
    struct = pa.struct([(name, pa.int32()) for name in names])
    return {"s": struct, "l": pa.list_(struct), "m": pa.map_(pa.string(), struct)}


IDS = {"id": pa.string(), "ts": pa.int64()}
INSIDE = pa.schema({**IDS, **types_inside("a")})
MORE_INSIDE = {
    "s": {"a": 5, "b": 6},
    "l": [{"a": 5, "b": 6}],
    "m": [("k", {"a": 5, "b": 6})],
}


def evolved_inside(name):
    return pa.schema({**IDS, name: types_inside("a", "b")[name]})


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("name", MORE_INSIDE)
def test_a_new_nested_field_evolves_a_merge_on_read_table_and_hudi_rs_reads_it(
    tmp_path, name, logs
):
    table = create(tmp_path / "t", INSIDE, ordering="ts")
    plain = {"s": {"a": 1}, "l": [{"a": 1}], "m": [("k", {"a": 1})]}
    table.upsert([{"id": key, "ts": 1, **plain} for key in "abcd"])
    if logs:
        table.upsert([{"id": "b", "ts": 2, **plain}])
    row = {"id": "a", "ts": 3, name: MORE_INSIDE[name]}
    more = pa.Table.from_pylist([row], schema=evolved_inside(name))
    assert table.upsert(more, evolve=True).updated == 1
    assert table.history()["operation"].to_pylist().count("compact") == logs
    assert table.files()["kind"].to_pylist().count(1) == 1, "the updated row is in a log file"
    assert_hudi_agrees(table)
    assert table.get("a")[name] == MORE_INSIDE[name] and table.check().ok
    table.upsert(more.set_column(1, "ts", pa.array([4])), evolve=True)
    assert table.history()["operation"].to_pylist().count("alter_schema") == 1
    assert_hudi_agrees(table)


def test_a_nested_alteration_checks_the_table_again_after_another_writer_adds_a_log_file(tmp_path):
    table = create(tmp_path / "t", INSIDE, ordering="ts")
    row = {"id": "a", "ts": 1, "s": {"a": 1}, "l": [], "m": []}
    table.upsert([row])
    storage = table.metadata.storage
    operation = Alter(storage, lambda now: evolution(evolved_inside("s"), now), "deltacommit")
    steps = transaction.steps(table.metadata, operation)
    assert next(steps) == "begun" and next(steps) == "prepared"
    mdt.open(tmp_path / "t").upsert([row])
    refused("there are log files in which 's' is struct<a: int32", list, steps)
    assert table.schema == INSIDE
