"""What does not fit is refused before anything is written: the error names the thing, and no byte
on disk changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import trees

import mdt
from mdt import Invalid, MdtError, Unsupported
from mdt.stores.storage import LocalStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("n", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
GOOD: dict[str, list[Any]] = {
    "id": ["a", "b"],
    "city": ["x", "y"],
    "ts": [1, 1],
    "fare": [1.0, 2.0],
    "n": [1, 2],
    "at": [datetime(2024, 1, 1, tzinfo=UTC)] * 2,
}
Change = Callable[[mdt.Table], object]
ROW = {name: values[0] for name, values in GOOD.items()}
NOT_UTF8 = pa.StringArray.from_buffers(2, *pa.array([b"a", b"\xff"]).buffers()[1:])
ASTRAY = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int8()), pa.array(["x"]), safe=False)


def rows(**changed: Any) -> pa.Table:
    """Return two good rows; a column given as Arrow array keeps its type, one given as list gets
    the table's.
    """
    columns = {**GOOD, **changed}
    arrays = [
        c if isinstance(c, pa.Array) else pa.array(c, SCHEMA.field(n).type)
        for n, c in columns.items()
    ]
    return pa.table(arrays, names=list(columns))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    table = trees.create(folder / "t", SCHEMA, partition_by=["city"], ordering="ts")
    table.upsert(rows())
    return folder


@pytest.fixture
def table(root: Path) -> mdt.Table:
    return mdt.open(LocalStorage(root / "t", durable=False))


@pytest.fixture(autouse=True)
def nothing_changes(root: Path) -> Iterator[None]:
    before = trees.tree(root)
    yield
    assert trees.tree(root) == before


def refused(
    kind: type[MdtError], change: Callable[[], object], *texts: str, hint: str | None = ""
) -> MdtError:
    """Assert that ``change`` raises exactly ``kind``, with ``texts`` in the message and ``hint`` in
    the hint.
    """
    with pytest.raises(MdtError) as caught:
        change()
    error = caught.value
    assert type(error) is kind, repr(error)
    assert not error.retryable
    for text in texts:
        assert text in error.message, f"{text!r} not in {error.message!r}"
    if hint is not None:
        assert error.hint and hint in error.hint, f"{hint!r} not in {error.hint!r}"
    return error


DATA: dict[str, tuple[Change, tuple[str, ...], str | None]] = {
    "a missing key column": (
        lambda t: t.upsert(rows().drop_columns(["id"])),
        ("'id' is missing",),
        "id string",
    ),
    "a missing ordering column": (
        lambda t: t.upsert(rows().drop_columns(["ts"])),
        ("'ts' is missing",),
        "ts int64",
    ),
    "a null key": (
        lambda t: t.upsert(rows(id=["a", None])),
        ("'id' is null", "(row 1)"),
        "fill it",
    ),
    "an empty key": (lambda t: t.upsert(rows(id=["", "b"])), ("'id' is empty", "row 0"), "fill it"),
    "an unknown column": (
        lambda t: t.upsert(rows(zz=pa.array([1, 2]))),
        ("'zz' is not in the table",),
        "fare double",
    ),
    "a column given twice": (
        lambda t: t.upsert(rows().append_column("id", pa.array(["c", "d"]))),
        ("occur twice: ['id']",),
        None,
    ),
    "a column given twice to delete": (
        lambda t: t.delete(rows().append_column("id", pa.array(["c", "d"]))),
        ("occur twice: ['id']",),
        None,
    ),
    "a null ordering value": (
        lambda t: t.upsert(rows(ts=[1, None])),
        ("ordering field is null", "[1]"),
        "fill",
    ),
    "an integer that overflows": (
        lambda t: t.upsert(rows(n=pa.array([1, 2**40]))),
        ("'n' is int64, the table has int32", "1099511627776"),
        "n int32",
    ),
    "a fraction for an integer": (
        lambda t: t.upsert(rows(n=pa.array([1.5, 2.0]))),
        ("'n' is double, the table has int32",),
        "n int32",
    ),
    "a naive timestamp for one with zone": (
        lambda t: t.upsert(rows(at=pa.array([1, 2], pa.timestamp("us")))),
        ("'at' is timestamp[us], the table has timestamp[us, tz=UTC]",),
        "at timestamp[us, tz=UTC]",
    ),
    "nanoseconds that would be cut": (
        lambda t: t.upsert(rows(at=pa.array([1, 2], pa.timestamp("ns", "UTC")))),
        ("'at'", "would lose data: 1"),
        "at timestamp",
    ),
    "text that is not UTF-8": (
        lambda t: t.upsert(rows(id=pa.array([b"a", b"\xff"]))),
        ("'id' is binary, the table has string",),
        "id string",
    ),
    "keys that occur twice, to insert": (
        lambda t: t.insert(rows(id=["q", "q"], city=["x", "x"])),
        ("1 rows repeat a key", "'q'"),
        "upsert",
    ),
    "keys that exist, to insert": (
        lambda t: t.insert(rows()),
        ("2 keys exist already", "'a'", "'b'"),
        "upsert",
    ),
    "keys that exist, to bulk_insert": (
        lambda t: t.bulk_insert(rows()),
        ("2 keys exist already", "'a'"),
        "upsert",
    ),
    "a delete without partition column": (
        lambda t: t.delete(rows().select(["id"])),
        ("missing: city",),
        "partition",
    ),
    "a delete without key column": (
        lambda t: t.delete(rows().select(["city"])),
        ("missing: id",),
        None,
    ),
    "a delete of a null key": (
        lambda t: t.delete(rows(id=[None, "b"])),
        ("'id' is null", "row 0"),
        "fill",
    ),
    "dictionaries without a column": (
        lambda t: t.upsert([{"id": "a"}]),
        ("'city' is missing", "'ts' is missing"),
        "id string",
    ),
    "a name that is nearly right": (
        lambda t: t.upsert([{**ROW, "fair": 1.0}]),
        ("column 'fair' is not in the table (is it 'fare'?)",),
        "fare double",
    ),
    "a column under another name": (
        lambda t: t.upsert(rows().rename_columns(["id", "city", "ts", "fair", "n", "at"])),
        (
            "column 'fare' is missing (is it 'fair'?)",
            "column 'fair' is not in the table (is it 'fare'?)",
        ),
        "fare double",
    ),
    "nothing at all": (lambda t: t.upsert(None), ("type NoneType",), "pyarrow Table"),
    "a path": (lambda t: t.upsert("rows.parquet"), ("type str",), "read it first"),
    "a number": (lambda t: t.upsert(5), ("type int",), "pyarrow Table"),
    "an array that is no table": (
        lambda t: t.upsert(pa.array([1])),
        ("Int64Array is not a table",),
        None,
    ),
    "a list of values": (
        lambda t: t.upsert(["a"]),
        ("type list with an item of type str",),
        "list of dicts",
    ),
    "batches of different columns": (
        lambda t: t.upsert([rows(), rows(n=pa.array(["a", "b"]))]),
        ("the pieces of the data have different columns",),
        "one schema",
    ),
    "a dict of one row": (
        lambda t: t.upsert(ROW),
        ("column 'id' of a dict is a str, not a list",),
        "[row]",
    ),
    "columns of different lengths": (
        lambda t: t.upsert({**GOOD, "ts": [1]}),
        ("different lengths", "'ts': 1"),
        "each row",
    ),
    "a name that is no text": (lambda t: t.upsert([{5: 1}]), ("column is called 5",), "text"),
    "text among numbers": (
        lambda t: t.upsert([ROW, {**ROW, "ts": "x"}]),
        ("column 'ts': row 1 has 'x', which is no int64",),
        None,
    ),
    "an array without dimensions for a column": (
        lambda t: t.upsert({**{name: [value] for name, value in ROW.items()}, "id": np.array(5)}),
        ("column 'id' of a dict is a ndarray, not a list",),
        "a row is a list of one dict: [row]",
    ),
    "true among numbers": (
        lambda t: t.upsert([ROW, {**ROW, "ts": True}]),
        ("column 'ts': row 1 has True, which is no int64",),
        None,
    ),
    "true for a number": (
        lambda t: t.upsert([{**ROW, "n": True}]),
        ("'n' is bool, the table has int32",),
        "n int32",
    ),
    "text for a number": (
        lambda t: t.upsert([{**ROW, "n": "1"}]),
        ("'n' is string, the table has int32",),
        "n int32",
    ),
    "a time without zone for one with": (
        lambda t: t.upsert([{**ROW, "at": datetime(2024, 1, 1)}]),
        ("'at' is timestamp[us], the table has timestamp[us, tz=UTC]",),
        "at timestamp",
    ),
    "a lone surrogate": (
        lambda t: t.upsert([ROW, {**ROW, "id": "\ud800"}]),
        ("column 'id': row 1 has '\\ud800'",),
        None,
    ),
    "a key that is not UTF-8": (
        lambda t: t.upsert(rows(id=NOT_UTF8)),
        ("column 'id' is string", "row 1", "Invalid UTF8"),
        "id string",
    ),
    "a dictionary whose indices lead nowhere": (
        lambda t: t.upsert(rows(city=ASTRAY)),
        ("column 'city' is dictionary", "row 1 (id='b')"),
        "id string",
    ),
    "a value that does not fit, with its key": (
        lambda t: t.upsert(rows(n=pa.array([1, 2**40]))),
        ("row 1 (id='b') has 1099511627776",),
        "n int32",
    ),
    "a double that is no integer": (
        lambda t: t.upsert(rows(ts=pa.array([1.0, float("nan")]))),
        ("row 1 (id='b') has nan",),
        "ts int64",
    ),
    "an integer that no double is": (
        lambda t: t.upsert(rows(fare=pa.array([1, 2**53 + 1]))),
        ("row 1 (id='b') has 9007199254740993",),
        "fare double",
    ),
    "a decimal that no double is": (
        lambda t: t.upsert(rows(fare=pa.array([None, Decimal("0.12345678901234567890")]))),
        ("row 1 (id='b') has Decimal('0.12345678901234567890')",),
        "fare double",
    ),
    "a commit that does not exist": (lambda t: t.snapshot(99), ("no commit 99",), "0 to 1"),
}


@pytest.mark.parametrize("case", DATA.values(), ids=DATA.keys())
def test_data_with(case: tuple[Change, tuple[str, ...], str | None], table: mdt.Table) -> None:
    change, texts, hint = case
    refused(Invalid, lambda: change(table), *texts, hint=hint)


def test_every_column_of_a_wrong_type_has_its_line(table: mdt.Table) -> None:
    wrong = rows(ts=pa.array(["1", "2"]), fare=pa.array(["1", "2"]), n=pa.array([True, False]))
    error = refused(Invalid, lambda: table.upsert(wrong), hint="ts int64, fare double, n int32")
    lines = error.message.splitlines()[1:]
    assert [line.split("'")[1] for line in lines] == ["ts", "fare", "n"]
    assert all("the types do not fit" in line for line in lines)


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "delete"])
def test_no_rows_are_fine_and_commit_nothing(operation: str, table: mdt.Table) -> None:
    result = getattr(table, operation)(rows().slice(0, 0))
    assert (result.seq, result.instant, result.inserted, result.missing) == (1, "", 0, 0)


FILTERS: dict[str, tuple[Any, type[MdtError], tuple[str, ...], str | None]] = {
    "that does not parse": ("fare >", Invalid, ("not SQL", "\n  fare >\n        ^"), None),
    "of an unknown column": (
        "n = 1 and fair > 1",
        Invalid,
        ("no column 'fair'", "\n            ^"),
        "fare",
    ),
    "of an unknown column in a list": ([("fair", ">", 1)], Invalid, ("no column 'fair'",), "fare"),
    "with a number for text": (
        "city = 3",
        Invalid,
        ("'city' has type string", "\n         ^"),
        None,
    ),
    "with text for a number": (
        "fare > 'x'",
        Invalid,
        ("'fare' has type double", "'x' is no number"),
        None,
    ),
    "with a date that does not exist": (
        "at > '2024-13-01'",
        Invalid,
        ("'2024-13-01' is no date",),
        None,
    ),
    "with an unknown operator": (
        [("fare", "~", 1)],
        Invalid,
        ("unknown operator '~'", "'fare'"),
        None,
    ),
    "without a value": ([("fare", "=")], Invalid, ("is not possible", "no value"), None),
    "as one tuple": (("fare", ">", 1), Invalid, ("is not a test",), "[('fare', '>', 10)]"),
    "that is empty": ("", Invalid, ("empty",), "leave where out"),
    "that calls a function": (
        "median(city) = 'X'",
        Unsupported,
        ("'median'", "\n  ^"),
        "comparisons",
    ),
    "that compares columns of two types": (
        "fare > city",
        Invalid,
        ("double is not compared with string", "\n  ^"),
        "cast(x as",
    ),
    "that is a number": (5, Invalid, ("where is a int",), "SQL text"),
    "that is bytes": (b"n = 1", Invalid, ("where is a bytes",), "SQL text"),
    "that is a dict": ({"n": 1}, Invalid, ("where is a dict",), "list of tests"),
    "with a pattern of 400,000 characters": (
        f"city like '{'a_' * 200_000}'",
        Invalid,
        ("a pattern of 400,000",),
        None,
    ),
    "with a part of 400,000 characters": (
        f"contains(city, '{'a' * 400_000}')",
        Invalid,
        ("a pattern of 400,002",),
        None,
    ),
    "with a literal of 6,000 digits": (
        "n = " + "1" * 6_000,
        Invalid,
        ("a number of 6000 characters",),
        None,
    ),
    "with 6,000 digits and a suffix": (
        "n = " + "1" * 6_000 + "L",
        Invalid,
        ("a number of 6001 characters",),
        None,
    ),
    "with text of 6,000 digits": (
        f"n = '{'1' * 6_000}'",
        Invalid,
        ("a number of 6000 characters",),
        None,
    ),
    "with an integer of 6,000 digits": ([("n", "=", 10**6_000)], Invalid, ("19932 bits",), None),
    "with an exponent of a billion": (
        "n = 1e1000000000",
        Invalid,
        ("an exponent of 1000000000",),
        None,
    ),
    "with a decimal's exponent of a billion": (
        "n = 1e1000000000BD",
        Invalid,
        ("an exponent of 1000000000",),
        None,
    ),
    "with an exponent that no decimal has": (
        "n = 1e99999999999999999999BD",
        Invalid,
        ("an exponent of 99999999999999999999",),
        None,
    ),
    "with 5,000 brackets": (
        "(" * 5_000 + "n = 1" + ")" * 5_000,
        Invalid,
        ("nests too deeply",),
        "IN",
    ),
    "with 5,000 brackets around a literal": (
        "n = " + "(" * 5_000 + "1" + ")" * 5_000,
        Invalid,
        ("nests too deeply",),
        "IN",
    ),
    "with brackets that never close": ("(" * 100_000, Invalid, ("nests too deeply",), "IN"),
    "of two megabytes": ("n = 1 or " * 250_000, Invalid, ("2250000 bytes",), "join"),
    "with a NUL": ("n = 1 \0", Invalid, (r"'\x00' means nothing",), None),
    "with half a character": ("city = '\ud800'", Invalid, ("half a character",), None),
    "with half a character escaped": (r"city = '\ud800'", Invalid, ("no Unicode character",), None),
    "with half a character in a list": (
        [("city", "=", "\ud800")],
        Invalid,
        ("half a character",),
        None,
    ),
    "with a column that is half a character": (
        [("\ud800", "=", 1)],
        Invalid,
        ("there is no column",),
        None,
    ),
    "with a list that cannot be hashed": ([("n", "in", [[1], [2]])], Invalid, ("list",), None),
    "with a list for one value": ([("n", "=", [1])], Invalid, ("type list",), None),
    "with an object": ([("n", "=", object())], Invalid, ("type object",), None),
    "with a dict": ([("n", "=", {})], Invalid, ("type dict",), None),
    "with a null test that has a value": (
        [("n", "is null", 1)],
        Invalid,
        ("takes no value",),
        None,
    ),
    "of a year beyond the calendar": ("at > '12024-01-01'", Invalid, ("is no time",), None),
    "of a moment before the calendar": (
        "at > timestamp '0000-01-01 00:00:00'",
        Invalid,
        ("is no date",),
        None,
    ),
}


@pytest.mark.parametrize("case", FILTERS.values(), ids=FILTERS.keys())
def test_a_filter(
    case: tuple[Any, type[MdtError], tuple[str, ...], str | None], table: mdt.Table
) -> None:
    where, kind, texts, hint = case
    refused(kind, lambda: table.scan(where), *texts, hint=hint)


@pytest.mark.parametrize(
    "columns", [5, [5], [None], b"id", [["id"]], ["id\0"], ["\ud800"], object()]
)
def test_columns_that_are_no_names(columns: Any, table: mdt.Table) -> None:
    with pytest.raises(Invalid) as caught:
        table.scan(columns=columns)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("spec", [5, None, [None], [["bitmap(n)"]], b"bitmap(n)"])
def test_indexes_that_are_no_specifications(spec: Any, table: mdt.Table) -> None:
    with pytest.raises(Invalid, match="text"):
        table.create_index(spec)


def test_an_unknown_column_to_scan_gets_the_nearest_name(table: mdt.Table) -> None:
    refused(Invalid, lambda: table.scan(columns=["id", "fair"]), "no column 'fair'", hint="fare")


OPTIONS: dict[str, tuple[dict[str, object], tuple[str, ...], str]] = {
    "unknown": ({"mdt.bloom.fp": 0.1}, ("'mdt.bloom.fp'",), "mdt.bloom.fpp"),
    "out of range": ({"mdt.max.file.bytes": 10}, ("mdt.max.file.bytes = 10",), "from 1024"),
    "of a wrong type": ({"mdt.durable": "perhaps"}, ("mdt.durable = 'perhaps'",), "true or false"),
    "contradicting each other": (
        {"mdt.max.file.bytes": 10_000, "hoodie.parquet.max.file.size": 20_000},
        ("mdt.max.file.bytes and hoodie.parquet.max.file.size are one option",),
        "one of them",
    ),
    "contradicting the table": (
        {"mdt.hive.style": "false"},
        ("fixed at creation", "this table has 'true'"),
        "leave the option out",
    ),
}


@pytest.mark.parametrize("case", OPTIONS.values(), ids=OPTIONS.keys())
def test_options_at_open(case: tuple[dict[str, object], tuple[str, ...], str], root: Path) -> None:
    options, texts, hint = case
    refused(Invalid, lambda: mdt.open(root / "t", options), *texts, hint=hint)


ID = pa.field("id", pa.string())
NEW: dict[str, tuple[pa.Schema, dict[str, Any], tuple[str, ...], str | None]] = {
    "names that differ in case": (
        pa.schema([ID, ("ID", pa.int32())]),
        {},
        ("'id' and 'ID'", "case"),
        "rename",
    ),
    "a name that is taken": (
        pa.schema([ID, ("_hoodie_x", pa.int32())]),
        {},
        ("'_hoodie_x'",),
        "rename",
    ),
    "a name with a control character": (
        pa.schema([ID, ("a\nb", pa.int32())]),
        {},
        ("control",),
        "rename it",
    ),
    "no schema": ({"id": "string"}, {}, ("a dict",), "pyarrow.Schema"),
    "no key": (SCHEMA, {"key": []}, ("record key",), "key=['id']"),
    "an unknown key": (SCHEMA, {"key": ["idd"]}, ("key", "'idd'"), "id, city"),
    "a key given twice": (SCHEMA, {"key": ["id", "id"]}, ("key", "twice"), None),
    "an unknown partition column": (
        SCHEMA,
        {"partition_by": ["zz"]},
        ("partition_by", "'zz'"),
        "id, city",
    ),
    "a table type": (
        SCHEMA,
        {"table_type": "MOR"},
        ("table_type='MOR'",),
        "MERGE_ON_READ, COPY_ON_WRITE",
    ),
    "a scope": (SCHEMA, {"scope": "global"}, ("scope='global'",), "partition, table"),
    "a key index": (SCHEMA, {"key_index": "hash"}, ("key_index='hash'",), "bloom/1"),
    "an ordering that has no order": (
        pa.schema([ID, ("b", pa.bool_())]),
        {"ordering": "b"},
        ("'b'", "bool"),
        "integers",
    ),
    "an unknown ordering": (SCHEMA, {"ordering": "zz"}, ("ordering", "'zz'"), "id, city"),
    "an index without column": (
        SCHEMA,
        {"indexes": ["bitmap"]},
        ("'bitmap' names no column",),
        "bitmap(column)",
    ),
    "an index of an unknown column": (
        SCHEMA,
        {"indexes": ["bitmap(cty)"]},
        ("bitmap(cty)", "'cty'"),
        "did you mean city?",
    ),
    "an index that nobody has": (
        SCHEMA,
        {"indexes": ["nope(city)"]},
        ("'nope(city)'", "'nope'"),
        None,
    ),
    "an unknown option": (
        SCHEMA,
        {"options": {"mdt.durabel": True}},
        ("'mdt.durabel'",),
        "mdt.durable",
    ),
}


@pytest.mark.parametrize("case", NEW.values(), ids=NEW.keys())
def test_a_new_table_with(
    case: tuple[pa.Schema, dict[str, Any], tuple[str, ...], str | None], root: Path
) -> None:
    schema, more, texts, hint = case
    refused(Invalid, lambda: trees.create(root / "new", schema, **more), *texts, hint=hint)


UNSTORABLE = {
    "an ordered dictionary": (pa.dictionary(pa.int8(), pa.string(), ordered=True), "without order"),
    "a union": (pa.dense_union([pa.field("a", pa.int8())]), "struct"),
    "an extension type": (pa.uuid(), "fixed_size_binary[16]"),
    "null": (pa.null(), "cast"),
    "a map with integer keys": (pa.map_(pa.int32(), pa.string()), "string keys"),
    "an empty struct": (pa.struct([]), "field"),
    "an interval": (pa.month_day_nano_interval(), "duration"),
    "50 decimal digits": (pa.decimal256(50, 2), "38"),
}


@pytest.mark.parametrize(("type", "hint"), UNSTORABLE.values(), ids=UNSTORABLE.keys())
def test_a_column_type_that_hudi_lacks(type: pa.DataType, hint: str, root: Path) -> None:
    schema = pa.schema([ID, ("outer", pa.struct([pa.field("v", type)]))])
    refused(Invalid, lambda: trees.create(root / "new", schema), "'outer.v'", str(type), hint=hint)


@pytest.mark.parametrize(
    "type", [pa.float64(), pa.binary(), pa.decimal128(5, 2), pa.list_(pa.int32())], ids=str
)
def test_a_type_that_cannot_be_a_key_or_a_partition(type: pa.DataType, root: Path) -> None:
    schema = pa.schema([ID, ("v", type)])
    refused(
        Invalid,
        lambda: trees.create(root / "new", schema, ["v"]),
        "'v'",
        "cannot be a key",
        hint="string",
    )
    refused(
        Invalid,
        lambda: trees.create(root / "new", schema, partition_by=["v"]),
        "'v'",
        "cannot partition",
        hint="date",
    )


def test_a_table_that_exists_is_not_created_again(root: Path) -> None:
    refused(
        Invalid, lambda: trees.create(root / "t", SCHEMA), "a table of mdt already", hint="mdt.open"
    )


@pytest.mark.parametrize(
    ("path", "kind", "text"), [("", Invalid, "empty"), ("ftp://h/t", Unsupported, "'ftp'")]
)
def test_a_path_that_leads_nowhere(path: str, kind: type[MdtError], text: str) -> None:
    refused(kind, lambda: mdt.open(path), text, hint=None)


class WithoutConditionalPut(LocalStorage):
    conditional_put = False


def test_storage_without_conditional_put_is_read_but_never_written(root: Path) -> None:
    storage = WithoutConditionalPut(root / "t", durable=False)
    table = mdt.open(storage)
    assert table.scan().count() == 2
    for change in (lambda: table.upsert(rows()), lambda: table.delete(rows()), table.compact):
        refused(Unsupported, change, storage.url, "only if it is absent", hint="reading works")
    new = WithoutConditionalPut(root / "new", durable=False)
    refused(Unsupported, lambda: mdt.create(new, SCHEMA, ["id"]), "only if it is absent", hint="S3")
