"""Invalid input is refused before anything is written. The error names the mistake, and no byte on
disk changes.
"""

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import trees
from refusals import refused
from texts import columns

import mdt
from mdt import Unsupported
from mdt.stores.storage import LocalStorage

SCHEMA = columns("id string, city string, ts int64, fare double, n int32")
SCHEMA = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
VALID = {
    "id": ["a", "b"],
    "city": ["x", "y"],
    "ts": [1, 1],
    "fare": [1.0, 2.0],
    "n": [1, 2],
    "at": [datetime(2024, 1, 1, tzinfo=UTC)] * 2,
}
ROW = {name: values[0] for name, values in VALID.items()}
NOT_UTF8 = pa.StringArray.from_buffers(2, *pa.array([b"a", b"\xff"]).buffers()[1:])
INVALID_INDICES = pa.DictionaryArray.from_arrays(
    pa.array([0, 5], pa.int8()), pa.array(["x"]), safe=False
)


def rows(**changed):
    """Return two valid rows. A column given as an Arrow array keeps its type, a column given as a list
    gets the type of the table.
    """
    columns = {**VALID, **changed}
    arrays = [
        c if isinstance(c, pa.Array) else pa.array(c, SCHEMA.field(n).type)
        for n, c in columns.items()
    ]
    return pa.table(arrays, names=list(columns))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    table = trees.create(folder / "t", SCHEMA, partition_by=["city"], ordering="ts")
    table.upsert(rows())
    return folder


@pytest.fixture
def table(root):
    return mdt.open(LocalStorage(root / "t", durable=False))


@pytest.fixture(autouse=True)
def nothing_changes(root):
    before = trees.tree(root)
    yield
    assert trees.tree(root) == before


def times(unit, zone=None):
    return pa.array([1, 2], pa.timestamp(unit, zone))


TWICE = rows().append_column("id", pa.array(["c", "d"]))
MISNAMED = rows().rename_columns(["id", "city", "ts", "fair", "n", "at"])
SCALARS = {**ROW, "id": np.array(5)}
UPSERTS = {
    "a missing key column": (rows().drop_columns(["id"]), "'id' is missing … id string"),
    "a missing ordering column": (rows().drop_columns(["ts"]), "'ts' is missing … ts int64"),
    "a null key": (rows(id=["a", None]), "'id' is null … (row 1) … fill it"),
    "an empty key": (rows(id=["", "b"]), "'id' is empty … row 0 … fill it"),
    "an unknown column": (
        rows(zz=pa.array([1, 2])),
        "'zz' is not in the table … hint: … fare double",
    ),
    "a column given twice": (TWICE, "repeated column names: ['id']"),
    "a null ordering value": (rows(ts=[1, None]), "ordering field is null … [1] … hint: … fill"),
    "an integer that overflows": (
        rows(n=pa.array([1, 2**40])),
        "'n' is int64, the table has int32 … row 1 (id='b') has 1099511627776 … hint: … n int32",
    ),
    "an integer that a float cannot hold": (
        rows(fare=pa.array([1, 2**53 + 1])),
        "(id='b') has 9007199254740993: double holds only integers from -9,007,199,254,740,992 to",
    ),
    "a fraction for an integer": (
        rows(n=pa.array([1.5, 2.0])),
        "'n' is double, the table has int32 … hint: … n int32",
    ),
    "a naive timestamp for one with zone": (
        rows(at=times("us")),
        "'at' is timestamp[us], the table has timestamp[us, tz=UTC] … hint: … at timestamp[us, tz=",
    ),
    "nanoseconds that would be cut": (
        rows(at=times("ns", "UTC")),
        "'at' … would lose data: 1 … hint: … at timestamp",
    ),
    "text that is not UTF-8": (
        rows(id=pa.array([b"a", b"\xff"])),
        "'id' is binary, the table has string … hint: … id string",
    ),
    "dictionaries without a column": (
        [{"id": "a"}],
        "'city' is missing … 'ts' is missing … hint: … id string",
    ),
    "a name that is nearly right": (
        [{**ROW, "fair": 1.0}],
        "column 'fair' is not in the table (did you mean 'fare'?) … hint: … fare double",
    ),
    "a column under another name": (
        MISNAMED,
        "column 'fare' is missing (did you mean 'fair'?) … column 'fair' is not in the table (did you mean 'fare",
    ),
    "nothing at all": (None, "type NoneType … hint: … pyarrow Table"),
    "a path": ("rows.parquet", "type str … hint: … read it first"),
    "a number": (5, "type int … hint: … pyarrow Table"),
    "an array that is no table": (pa.array([1]), "Int64Array is not a table"),
    "a list of values": (["a"], "type list with an item of type str … hint: … list of dicts"),
    "batches of different columns": (
        [rows(), rows(n=pa.array(["a", "b"]))],
        "the pieces of the data have different columns … hint: … same schema",
    ),
    "a dict of one row": (ROW, "column 'id' of a dict is a str, not a list … hint: … [row]"),
    "columns of different lengths": (
        {**VALID, "ts": [1]},
        "different lengths … 'ts': 1 … hint: … for each row",
    ),
    "a name that is no text": ([{5: 1}], "the column name 5 is not a string … hint: … strings"),
    "text among numbers": (
        [ROW, {**ROW, "ts": "x"}],
        "column 'ts': row 1 has 'x', which is not a valid int64",
    ),
    "an array without dimensions for a column": (
        SCALARS,
        "column 'id' of a dict is a ndarray, not a list … use a list of one dict: [row]",
    ),
    "true among numbers": (
        [ROW, {**ROW, "ts": True}],
        "column 'ts': row 1 has True, which is not a valid int64",
    ),
    "true for a number": ([{**ROW, "n": True}], "'n' is bool, the table has int32 … n int32"),
    "text for a number": ([{**ROW, "n": "1"}], "'n' is string, the table has int32 … n int32"),
    "a time without zone for one with": (
        [{**ROW, "at": datetime(2024, 1, 1)}],
        "'at' is timestamp[us], the table has timestamp[us, tz=UTC] … hint: … at timestamp",
    ),
    "a lone surrogate": ([ROW, {**ROW, "id": "\ud800"}], "column 'id': row 1 has '\\ud800'"),
    "a key that is not UTF-8": (
        rows(id=NOT_UTF8),
        "column 'id' is string … row 1 … Invalid UTF8 … hint: … id string",
    ),
    "a dictionary whose indices lead nowhere": (
        rows(city=INVALID_INDICES),
        "column 'city' is dictionary … row 1 (id='b') … hint: … id string",
    ),
    "a double that is no integer": (
        rows(ts=pa.array([1.0, float("nan")])),
        "row 1 (id='b') has nan … hint: … ts int64",
    ),
    "an integer that no double is": (
        rows(fare=pa.array([1, 2**53 + 1])),
        "row 1 (id='b') has 9007199254740993 … hint: … fare double",
    ),
    "a decimal that no double is": (
        rows(fare=pa.array([None, Decimal("0.12345678901234567890")])),
        "row 1 (id='b') has Decimal('0.12345678901234567890') … hint: … fare double",
    ),
}
CALLS = {
    "delete of a column given twice": (lambda t: t.delete(TWICE), "repeated column names: ['id']"),
    "insert of keys that occur twice": (
        lambda t: t.insert(rows(id=["q", "q"], city=["x", "x"])),
        "1 rows repeat a key … 'q' … hint: … upsert",
    ),
    "insert of keys that exist": (
        lambda t: t.insert(rows()),
        "2 keys exist already … 'a' … 'b' … hint: … upsert",
    ),
    "bulk_insert of keys that exist": (
        lambda t: t.bulk_insert(rows()),
        "2 keys exist already … 'a' … hint: … upsert",
    ),
    "delete without partition column": (
        lambda t: t.delete(rows().select(["id"])),
        "missing: city … hint: … partition",
    ),
    "delete without key column": (lambda t: t.delete(rows().select(["city"])), "missing: id"),
    "delete of a null key": (
        lambda t: t.delete(rows(id=[None, "b"])),
        "'id' is null … row 0 … hint: … fill",
    ),
    "snapshot of a commit that does not exist": (
        lambda t: t.snapshot(99),
        "no commit 99 … hint: … 0 to 1",
    ),
    "scan of an unknown column": (
        lambda t: t.scan(columns=["id", "fair"]),
        "no column 'fair' … hint: … fare",
    ),
}


@pytest.mark.parametrize(("data", "said"), UPSERTS.values(), ids=UPSERTS.keys())
def test_an_upsert_with_invalid_data_is_refused(data, said, table):
    assert not refused(said, table.upsert, data).retryable


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS.keys())
def test_a_call_with_invalid_arguments_is_refused(call, said, table):
    refused(said, call, table)


def test_the_error_has_a_line_for_each_column_of_a_wrong_type(table):
    invalid = rows(ts=pa.array(["1", "2"]), fare=pa.array(["1", "2"]), n=pa.array([True, False]))
    error = refused("hint: … ts int64, fare double, n int32", table.upsert, invalid)
    lines = error.message.splitlines()[1:]
    assert [line.split("'")[1] for line in lines] == ["ts", "fare", "n"]
    assert all("the types do not fit" in line for line in lines)


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "delete"])
def test_writes_without_rows_are_accepted_and_commit_nothing(operation, table):
    result = getattr(table, operation)(rows().slice(0, 0))
    assert (result.seq, result.instant, result.inserted, result.missing) == (1, "", 0, 0)


DIGITS = "1" * 6_000
FILTERS = {
    "that does not parse": ("fare >", "not SQL … \n  fare >\n        ^"),
    "of an unknown column": ("n = 1 and fair > 1", "no column 'fair' … \n            ^ … fare"),
    "of an unknown column in a list": ([("fair", ">", 1)], "no column 'fair' … hint: … fare"),
    "with a number for text": ("city = 3", "'city' has type string … \n         ^"),
    "with text for a number": ("fare > 'x'", "'fare' has type double … 'x' is not a number"),
    "with a date that does not exist": ("at > '2024-13-01'", "'2024-13-01' is not a date"),
    "with an unknown operator": ([("fare", "~", 1)], "unknown operator '~' … 'fare'"),
    "without a value": ([("fare", "=")], "is not valid … no value"),
    "as one tuple": (("fare", ">", 1), "is not a test … hint: … [('fare', '>', 10)]"),
    "that is empty": ("", "empty … hint: … leave where out"),
    "that compares columns of two types": (
        "fare > city",
        "double cannot be compared with string … \n  ^ … hint: … cast(x as",
    ),
    "that is a number": (5, "where does not take a int … hint: … SQL text"),
    "that is bytes": (b"n = 1", "where does not take a bytes … hint: … SQL text"),
    "that is a dict": ({"n": 1}, "where does not take a dict … hint: … list of tests"),
    "with a pattern of 400,000 characters": (
        f"city like '{'a_' * 200_000}'",
        "the pattern has 400,000",
    ),
    "with a part of 400,000 characters": (
        f"contains(city, '{'a' * 400_000}')",
        "the pattern has 400,002",
    ),
    "with a literal of 6,000 digits": (f"n = {DIGITS}", "the number has 6000 characters"),
    "with 6,000 digits and a suffix": (f"n = {DIGITS}L", "the number has 6001 characters"),
    "with text of 6,000 digits": (f"n = '{DIGITS}'", "the number has 6000 characters"),
    "with an integer of 6,000 digits": ([("n", "=", 10**6_000)], "19932 bits"),
    "with an exponent of a billion": ("n = 1e1000000000", "the exponent 1000000000"),
    "with a decimal's exponent of a billion": ("n = 1e1000000000BD", "the exponent 1000000000"),
    "with an exponent that no decimal has": (
        "n = 1e99999999999999999999BD",
        "the exponent 99999999999999999999",
    ),
    "with 5,000 brackets": (
        "(" * 5_000 + "n = 1" + ")" * 5_000,
        "nested too deeply … hint: … IN",
    ),
    "with 5,000 brackets around a literal": (
        "n = " + "(" * 5_000 + "1" + ")" * 5_000,
        "nested too deeply … hint: … IN",
    ),
    "with brackets that never close": ("(" * 100_000, "nested too deeply … hint: … IN"),
    "of two megabytes": ("n = 1 or " * 250_000, "2250000 bytes … hint: … join"),
    "with a NUL": ("n = 1 \0", r"unexpected character '\x00'"),
    "with half a character": ("city = '\ud800'", "lone surrogate"),
    "with half a character escaped": (r"city = '\ud800'", "not a Unicode character"),
    "with half a character in a list": ([("city", "=", "\ud800")], "lone surrogate"),
    "with a column that is half a character": ([("\ud800", "=", 1)], "there is no column"),
    "with a list that cannot be hashed": ([("n", "in", [[1], [2]])], "list"),
    "with a list for one value": ([("n", "=", [1])], "type list"),
    "with an object": ([("n", "=", object())], "type object"),
    "with a dict": ([("n", "=", {})], "type dict"),
    "with a null test that has a value": ([("n", "is null", 1)], "takes no value"),
    "of a year beyond the calendar": ("at > '12024-01-01'", "is not a timestamp"),
    "of a moment before the calendar": ("at > timestamp '0000-01-01 00:00:00'", "is not a date"),
}


@pytest.mark.parametrize(("where", "said"), FILTERS.values(), ids=FILTERS.keys())
def test_an_invalid_filter_is_refused(where, said, table):
    refused(said, table.scan, where)


def test_unknown_functions_and_storage_schemes_are_unsupported(table):
    message = "'median' … \n  ^ … hint: functions are … coalesce"
    refused(message, table.scan, "median(city) = 'X'", kind=Unsupported)
    refused("'ftp'", mdt.open, "ftp://h/t", kind=Unsupported)
    refused("empty", mdt.open, "")


@pytest.mark.parametrize(
    "columns", [5, [5], [None], b"id", [["id"]], ["id\0"], ["\ud800"], object()]
)
def test_columns_that_are_not_valid_names_are_refused(columns, table):
    str(refused("", table.scan, columns=columns)).encode("utf-8")


@pytest.mark.parametrize("spec", [5, None, [None], [["bitmap(n)"]], b"bitmap(n)"])
def test_invalid_index_specifications_are_refused(spec, table):
    refused("text", table.create_index, spec)


OPTIONS = {
    "unknown": ({"mdt.bloom.fp": 0.1}, "'mdt.bloom.fp' … hint: … mdt.bloom.fpp"),
    "out of range": ({"mdt.max.file.bytes": 10}, "mdt.max.file.bytes=10 … hint: … from 1024"),
    "of a wrong type": (
        {"mdt.durable": "perhaps"},
        "mdt.durable='perhaps' … hint: … true or false",
    ),
    "contradicting each other": (
        {"mdt.max.file.bytes": 10_000, "hoodie.parquet.max.file.size": 20_000},
        "mdt.max.file.bytes and hoodie.parquet.max.file.size are the same option … one of them",
    ),
    "contradicting the table": (
        {"mdt.hive.style": "false"},
        "fixed at creation … this table has 'true' … leave the option out",
    ),
}


@pytest.mark.parametrize(("options", "said"), OPTIONS.values(), ids=OPTIONS.keys())
def test_opening_a_table_with_invalid_options_is_refused(options, said, root):
    refused(said, mdt.open, root / "t", options)


NEW = {
    "no schema": ({"id": "string"}, {}, "a dict … hint: … pyarrow.Schema"),
    "no key": (SCHEMA, {"key": []}, "record key … hint: … key=['id']"),
    "an unknown key": (SCHEMA, {"key": ["idd"]}, "key … 'idd' … hint: did you mean id?"),
    "a key given twice": (SCHEMA, {"key": ["id", "id"]}, "key … twice"),
    "an unknown partition column": (
        SCHEMA,
        {"partition_by": ["zz"]},
        "partition_by … 'zz' … hint: … id, city",
    ),
    "a table type": (
        SCHEMA,
        {"table_type": "MOO"},
        "table_type='MOO' … hint: … MERGE_ON_READ, COPY_ON_WRITE",
    ),
    "a scope": (SCHEMA, {"scope": "global"}, "scope='global' … hint: … partition, table"),
    "a key index": (SCHEMA, {"key_index": "hash"}, "unknown key index 'hash' … hint: … bloom/1"),
    "an ordering that has no order": (
        columns("id string, b bool"),
        {"ordering": "b"},
        "'b' … bool … hint: use an integer",
    ),
    "an unknown ordering": (SCHEMA, {"ordering": "zz"}, "ordering … 'zz' … hint: … id, city"),
    "an index without column": (
        SCHEMA,
        {"indexes": ["bitmap"]},
        "'bitmap' names no column … hint: … bitmap(column)",
    ),
    "an index of an unknown column": (
        SCHEMA,
        {"indexes": ["bitmap(cty)"]},
        "bitmap(cty) … 'cty' … did you mean city?",
    ),
    "an index that nobody has": (
        SCHEMA,
        {"indexes": ["nope(city)"]},
        "'nope(city)' … 'nope'",
    ),
    "an unknown option": (
        SCHEMA,
        {"options": {"mdt.durabel": True}},
        "'mdt.durabel' … hint: … mdt.durable",
    ),
    "a type that Hudi lacks": (
        pa.schema([("id", pa.string()), ("outer", pa.struct([("v", pa.null())]))]),
        {},
        "'outer.v' … null … hint: … cast",
    ),
}


@pytest.mark.parametrize(("columns", "more", "said"), NEW.values(), ids=NEW.keys())
def test_creating_a_table_with_invalid_arguments_is_refused(columns, more, said, root):
    refused(said, trees.create, root / "new", columns, **more)


@pytest.mark.parametrize(
    "type", [pa.float64(), pa.binary(), pa.decimal128(5, 2), pa.list_(pa.int32())], ids=str
)
def test_keys_and_partitions_of_unsupported_types_are_refused(type, root):
    columns = pa.schema([("id", pa.string()), ("v", type)])
    for more, message in (
        ({"key": ["v"]}, "'v' … cannot be a key … hint: … string"),
        ({"partition_by": ["v"]}, "'v' … cannot partition … hint: … date"),
    ):
        refused(message, trees.create, root / "new", columns, **more)


def test_a_table_that_exists_is_not_created_again(root):
    refused("already an mdt table … hint: … mdt.open", trees.create, root / "t", SCHEMA)


class WithoutConditionalPut(LocalStorage):
    conditional_put = False


def test_storage_without_conditional_put_is_readable_but_refuses_writes(root):
    storage = WithoutConditionalPut(root / "t", durable=False)
    table = mdt.open(storage)
    assert table.scan().count() == 2
    message = f"{storage.url} … does not support conditional puts … hint: … reading works"
    for change in (lambda: table.upsert(rows()), lambda: table.delete(rows()), table.compact):
        refused(message, change, kind=Unsupported)
    new = WithoutConditionalPut(root / "new", durable=False)
    message = "does not support conditional puts … hint: … S3"
    refused(message, mdt.create, new, SCHEMA, ["id"], kind=Unsupported)
