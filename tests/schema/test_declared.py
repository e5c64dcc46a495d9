"""The types and required fields of a declared schema are restored exactly when reading.
docs/schema.md lists the types that Hudi's files have instead.
"""

import json
from datetime import date, datetime, timedelta

import pyarrow as pa
import pytest
import trees
from declared_types import ENCODED, FLAT, GOOD, REQUIRED, types_in_readme
from hudi import HudiTable
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import QUIET
from refusals import refused
from texts import columns

import mdt
from mdt.hudi.avro_schema import to_avro
from mdt.schema.convert import convert
from mdt.schema.declared import Restoration, plain, stored_schema
from mdt.stores.storage import MemoryStorage

NESTED = (
    ("list", pa.list_, lambda v: [v, None]),
    ("large_list", pa.large_list, lambda v: [v]),
    ("list_view", pa.list_view, lambda v: [v, v]),
    ("large_list_view", pa.large_list_view, lambda v: []),
    ("pair", lambda t: pa.list_(t, 2), lambda v: [v, None]),
    ("map", lambda t: pa.map_(pa.large_string(), t), lambda v: [("k", v)]),
    ("struct", lambda t: pa.struct([("a", t), ("b", pa.int8())]), lambda v: {"a": v, "b": None}),
)


def _array(type, values):
    return convert(pa.array(values, plain(type)), type)


def _rows(kinds):
    """Return three rows of flat and nested types. The last one has nulls except for the key."""
    columns = {
        name: _array(type, [*values, None]) for name, (type, values) in (kinds | ENCODED).items()
    }
    for name, make, wrap in NESTED:
        for inner_name, (type, (first, second)) in kinds.items():
            columns[f"{name}_{inner_name}"] = _array(make(type), [wrap(first), wrap(second), None])
    return pa.table({"id": pa.array([1, 2, 3], pa.int16()), **columns})


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
def test_a_scan_returns_the_declared_types_and_the_written_values(table_type, tmp_path):
    data = _rows(FLAT)
    table = trees.create(
        tmp_path / "t", data.schema, table_type=table_type, options={"mdt.durable": False}
    )
    table.bulk_insert(data)
    table.upsert(data.slice(0, 2))
    for read_rows in (table.scan().to_arrow(), pa.table(mdt.open(tmp_path / "t").scan())):
        assert read_rows.schema.equals(data.schema, check_metadata=True)
        for column, field in zip(read_rows.columns, data.schema, strict=True):
            assert column.type.equals(field.type, check_metadata=True)
        assert _by_id(read_rows) == data.to_pylist()
    assert table.get(2) == data.to_pylist()[1]
    trees.assert_readers_agree(table, tmp_path / "t")
    table.compact()
    assert _by_id(table.scan().to_arrow()) == data.to_pylist()


def _by_id(table):
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def _leaf_values(type):
    values = next(values for known, values in FLAT.values() if known == type)
    return st.none() | st.sampled_from(values)


@st.composite
def arrays(draw, depth=0):
    """Draw a type, nested up to three deep, and a strategy for its values."""
    if depth == 3 or draw(st.booleans()):
        type = draw(st.sampled_from([type for type, _ in FLAT.values()]))
        return type, _leaf_values(type)
    kind = draw(st.integers(0, len(NESTED) - 1))
    name, make, _ = NESTED[kind]
    type, values = draw(arrays(depth + 1))
    if name == "struct":
        element_values = st.fixed_dictionaries({"a": values, "b": st.none() | st.integers(-3, 3)})
    elif name == "map":
        element_values = st.lists(st.tuples(st.text("ab", max_size=2), values), max_size=3)
    elif name == "pair":
        element_values = st.lists(values, min_size=2, max_size=2)
    else:
        element_values = st.lists(values, max_size=3)
    return make(type), st.none() | element_values


@settings(**QUIET)
@given(st.data())
def test_values_of_any_nested_type_survive_conversion_to_the_stored_type_and_back(data):
    type, values = data.draw(arrays())
    given_values = data.draw(st.lists(values, max_size=6))
    array = _array(type, given_values)
    start = data.draw(st.integers(0, len(array)))
    array = array.slice(start, data.draw(st.integers(0, len(array) - start)))
    field = pa.field("c", type)
    stored = stored_schema(pa.schema([field]))
    converted = convert(array, stored.field(0).type)
    converted.validate(full=True)
    restored = Restoration.from_schemas(pa.schema([field]), stored).restore(
        pa.table([converted], schema=stored)
    )
    restored.validate(full=True)
    assert restored.column(0).type.equals(type, check_metadata=True)
    assert restored.column(0).to_pylist() == array.to_pylist()
    assert stored_schema(stored) == stored, "a stored schema needs no further conversion"


def test_a_dictionary_column_may_have_more_values_than_its_index_type_can_count():
    type = pa.dictionary(pa.int8(), pa.string())
    table = mdt.create(MemoryStorage(), pa.schema([("id", pa.int64()), ("c", type)]), ["id"])
    texts = [f"t{n}" for n in range(1_000)]
    table.upsert(pa.table({"id": range(1_000), "c": texts}))
    read_rows = table.scan().to_arrow()
    assert read_rows["c"].type == type and [row["c"] for row in _by_id(read_rows)] == texts


def test_metadata_of_fields_are_kept_and_metadata_of_the_schema_are_dropped():
    fields = [pa.field("id", pa.int64(), metadata={"unit": "1"}), pa.field("x", pa.float64())]
    table = mdt.create(MemoryStorage(), pa.schema(fields, metadata={"pandas": "{}"}), ["id"])
    table.upsert(pa.table({"id": [1], "x": [1.0]}))
    for schema in (table.schema, table.scan().to_arrow().schema, table.scan(columns="id").schema):
        assert schema.field("id").metadata == {b"unit": b"1"} and not schema.metadata


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
def test_required_fields_are_kept_by_every_reader_and_writer(table_type, tmp_path):
    other = {**GOOD, "id": 2, "s": None, "l": None, "m": []}
    data = pa.Table.from_pylist([GOOD, other], schema=REQUIRED)
    table = trees.create(tmp_path / "t", REQUIRED, table_type=table_type, key_index="record")
    table.upsert(data)
    table.upsert(data.slice(1))
    assert trees.assert_readers_agree(table, tmp_path / "t") == data.to_pylist()
    assert table.scan("id = 2").to_arrow().to_pylist() == data.to_pylist()[1:]
    assert table.get([2, 7], columns="v")["v"].to_pylist() == [1, None]
    table.compact()
    assert trees.assert_readers_agree(table, tmp_path / "t") == data.to_pylist()
    hudi_rs_schema = pa.schema(HudiTable(str(tmp_path / "t")).get_schema())
    assert [name for name in REQUIRED.names if not hudi_rs_schema.field(name).nullable] == [
        "id",
        "v",
        "m",
    ]


def test_null_structs_may_have_nulls_in_their_required_fields(tmp_path):
    def struct(**types):
        return pa.struct([pa.field(name, type, nullable=False) for name, type in types.items()])

    inner = struct(t=pa.string(), l=pa.list_(pa.int8()))
    outer = struct(a=pa.decimal128(5, 2), s=inner)
    leaves = [pa.nulls(3, field.type) for field in outer]
    null_structs = pa.StructArray.from_arrays(leaves, fields=list(outer), mask=pa.array([True] * 3))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), null_structs)
    keys = pa.array(["a", "b", "c"])
    mapped = pa.MapArray.from_arrays(pa.array([0, 0, 1, 3], pa.int32()), keys, null_structs)
    data = pa.table({"id": [1, 2, 3], "s": null_structs, "ls": lists, "m": mapped})
    table = trees.create(tmp_path / "t", data.schema)
    table.upsert(data)
    rows = trees.assert_readers_agree(table, tmp_path / "t")
    assert [row["s"] for row in rows] == [None] * 3
    assert [row["ls"] for row in rows] == [[None, None], [], [None]]
    table.upsert(data.slice(2))
    for _ in range(2):
        assert trees.assert_readers_agree(table, tmp_path / "t") == rows
        table.compact()


@pytest.mark.parametrize("is_required", [False, True])
@pytest.mark.parametrize("kind", ["struct", "list", "map"])
def test_null_structs_may_contain_structs_whose_required_fields_are_null(
    kind, is_required, tmp_path
):
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    structs = pa.StructArray.from_arrays([pa.array([None, 5])], fields=list(inner))
    ends, keys = pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"])
    part, value = {
        "struct": (structs, {"x": 5}),
        "list": (pa.ListArray.from_arrays(ends, structs), [{"x": 5}]),
        "map": (pa.MapArray.from_arrays(ends, keys, structs), [("b", {"x": 5})]),
    }[kind]
    fields = [pa.field("part", part.type, nullable=not is_required)]
    outer = pa.StructArray.from_arrays([part], fields=fields, mask=pa.array([True, False]))
    table = mdt.create(tmp_path / "t", pa.schema({"id": pa.int64(), "s": outer.type}), key="id")
    table.upsert(pa.table({"id": [1, 2], "s": outer}))
    assert table.scan().to_arrow()["s"].to_pylist() == [None, {"part": value}]


BROKEN = [
    ({"v": None}, "column 'v' is required, but null in 2 rows, first in row 1"),
    (
        {"s": {"a": None, "b": "x"}},
        "column 's.a' is required, but null in 2 rows, first in row 1",
    ),
    (
        {"l": [{"x": 1}, None]},
        "column 'l.element' is required, but null in 2 rows, first in row 1",
    ),
    ({"l": [{"x": 1}, {"x": None}]}, "column 'l.element.x' is required, but null in 2 rows"),
    (
        {"m": [("a", 1), ("b", None)]},
        "column 'm.value' is required, but null in 2 rows, first in row 1",
    ),
]


@pytest.mark.parametrize(("change", "said"), BROKEN)
def test_a_null_in_a_required_field_is_refused_and_not_written(change, said):
    table = mdt.create(MemoryStorage(), REQUIRED, ["id"])
    table.upsert(pa.Table.from_pylist([GOOD], schema=REQUIRED))
    relaxed = pa.schema([pa.field(f.name, plain_nullable(f.type)) for f in REQUIRED])
    changes = [{"s": None, "l": None}, {"id": 2, **change}, {"id": 3, **change}]
    rows = pa.Table.from_pylist([{**GOOD, **changed} for changed in changes], schema=relaxed)
    refused(said, table.upsert, rows)
    assert table.snapshot().seq == 1


def plain_nullable(type):
    """Return ``type`` without required fields."""
    if pa.types.is_struct(type):
        return pa.struct([pa.field(f.name, plain_nullable(f.type)) for f in type])
    if pa.types.is_map(type):
        return pa.map_(type.key_type, plain_nullable(type.item_type))
    return pa.list_(plain_nullable(type.value_type)) if pa.types.is_list(type) else type


def test_filters_statistics_and_indexes_work_on_declared_types():
    schema = columns("id uint64, n uint8, at timestamp[ns], day date64, text string_view")
    schema = schema.append(pa.field("word", pa.dictionary(pa.int8(), pa.string())))
    table = mdt.create(
        MemoryStorage(),
        schema,
        ["id"],
        ordering="at",
        indexes=["bitmap(word)", "bitmap(n)", "text(text)", "bloom(day)"],
        options={"mdt.row.group.rows": 10},
    )
    n = 200
    table.bulk_insert(
        pa.table(
            {
                "id": pa.array([2**64 - 1 - i for i in range(n)], pa.uint64()),
                "n": range(n),
                "at": [datetime(2026, 1, 1) + timedelta(hours=i) for i in range(n)],
                "word": [f"w{i % 7}" for i in range(n)],
                "day": [date(2026, 1, 1) + timedelta(days=i) for i in range(n)],
                "text": [f"number {i}" for i in range(n)],
            }
        )
    )
    for where, rows in (
        (f"id = {2**64 - 1}", 1),
        (f"id >= {2**64 - 10}", 10),
        ("n between 10 and 12", 3),
        ("n = 300", 0),
        ("at < '2026-01-01 05:00:00'", 5),
        ("word = 'w3' and n < 20", 3),
        ("day = '2026-02-01'", 1),
        ("match(text, '17')", 1),
    ):
        scan = table.scan(where)
        matching = scan.to_arrow()
        assert (len(matching), scan.count()) == (rows, rows), where
        assert matching.schema.equals(schema, check_metadata=True)
    assert table.scan(f"id = {2**64 - 1}").explain().rows_read == 1


def _avro_text(type):
    """Return an Avro type as docs/schema.md writes it."""
    if isinstance(type, list):
        return next(_avro_text(branch) for branch in type if branch != "null")
    if isinstance(type, str):
        return type
    if type.get("logicalType") == "decimal":
        return f"decimal({type['precision']}, {type['scale']})"
    if type["type"] == "array":
        return f"array of {_avro_text(type['items'])}"
    if type["type"] == "map":
        return f"map of {_avro_text(type['values'])}"
    return type.get("logicalType") or (_avro_text(type["type"]))


def test_the_documented_types_are_those_of_hudis_schema_and_of_hudi_rs(tmp_path):
    documented = types_in_readme()
    given_types = [type for type, _ in (FLAT | ENCODED).values()]
    missing = [
        type
        for type in given_types
        if type not in [t for t, _ in documented.values()] and not _same_kind(type, documented)
    ]
    assert not missing
    schema = pa.schema(
        [("id", pa.int64()), *((f"c{i}", type) for i, (type, _) in enumerate(documented.values()))]
    )
    table = trees.create(tmp_path / "t", schema)
    table.upsert(pa.table([pa.array([1]), *[pa.nulls(1)] * len(documented)], names=schema.names))
    fields = {
        f["name"]: f["type"] for f in json.loads(to_avro(table.definition.schema, "t"))["fields"]
    }
    hudi_rs_schema = pa.Table.from_batches(
        [pa.record_batch(b) for b in HudiTable(str(tmp_path / "t")).read()]
    ).schema
    for i, (name, (_, (hudi, hudi_rs, *_rest))) in enumerate(documented.items()):
        assert _avro_text(fields[f"c{i}"]) == hudi, name
        assert _shown(hudi_rs_schema.field(f"c{i}").type) == hudi_rs, name


def _shown(type):
    if pa.types.is_decimal(type):
        return "decimal128(p, s)" if type != pa.decimal128(20, 0) else str(type)
    return str(type).replace("element: ", "")


def _same_kind(type, documented):
    kinds = pa.types
    tests = (
        kinds.is_decimal,
        kinds.is_dictionary,
        lambda t: kinds.is_timestamp(t) and t.tz is not None,
    )
    return any(
        test(type) and any(test(known) for known, _ in documented.values()) for test in tests
    )
