"""Common mistakes of new users, and the hints in the errors."""

import re
from datetime import UTC, datetime
from importlib import import_module

import pyarrow as pa
import pytest
from refusals import refused

import mdt
from mdt.errors import Unsupported
from mdt.familiar_names import CHANGES_NAMES, SCAN_NAMES, TABLE_NAMES
from mdt.filters.scalar_functions import names_hint
from mdt.source.option_keywords import parse_options
from mdt.stores.storage import MemoryStorage, open_storage

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "status": pa.string(),
        "fare": pa.float64(),
        "day": pa.date32(),
        "at": pa.struct({"place": pa.string()}),
    }
)


@pytest.fixture
def table():
    return mdt.create(MemoryStorage(), SCHEMA, ["id"])


@pytest.mark.parametrize(
    "where",
    [
        "status = paid",
        "fare > 1 and status <> paid",
        "paid = status",
        "lower(status) = paid",
        "at.place = paid",
        "status in ('lost', paid)",
        "status not in (paid, lost)",
        "status like paid",
    ],
)
def test_text_without_quotes_gets_the_hint_to_quote_it(where, table):
    refused("no column 'paid' … hint: text needs quotes: 'paid'", table.scan, where)


def test_a_misspelled_column_is_not_taken_for_text(table):
    refused("no column 'stauts' … hint: did you mean status?", table.scan, "stauts = 'paid'")
    refused("hint: did you mean status? text needs", table.scan, "id = statu")
    refused("no column 'ten' … hint: columns: id, status, fare", table.scan, "fare > ten")


def test_a_field_of_a_struct_cannot_be_selected(table):
    refused(
        "no column 'at.place' … hint: name the whole column: at",
        table.scan,
        columns=["id", "at.place"],
    )


def test_rows_that_lack_columns_can_be_written_with_partial(table):
    row = {"id": "a", "fare": 1.0}
    refused("'status' is missing … hint: upsert with partial=True writes only", table.upsert, [row])
    assert table.upsert([row], partial=True).inserted == 1
    refused("hint: the table's columns are", table.upsert, [{"fare": 1.0}])
    refused("hint: the table's columns are", table.upsert, [{**row, "stauts": "paid"}])


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("status", "column 'status' has type string and is not a condition … hint: compare it"),
        ("status = 5", "hint: text needs quotes: '5'"),
        ("day > 2024-01-31", "hint: dates need quotes: '2024-01-31'"),
    ],
)
def test_conditions_and_literals_of_the_wrong_type_get_a_hint(where, reason, table):
    refused(reason, table.scan, where)


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("fare > 1 && status = 'paid'", "hint: write AND"),
        ("lenght(status) > 3", "hint: did you mean length?"),
        ("contain(status, 'x')", "hint: did you mean contains?"),
        ("median(fare) > 3", "hint: functions are abs"),
    ],
)
def test_unsupported_operators_and_functions_get_a_hint(where, hint, table):
    refused(hint, table.scan, where, kind=Unsupported)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mdt.compresion", "hint: did you mean mdt.compression?"),
        ("versionAsOf", "hint: did you mean the argument as_of?"),
        ("readChangeFeed", "hint: t.changes"),
        ("nothing.like.it", "hint: mdt.option_lists.options_table()"),
    ],
)
def test_an_unknown_option_gets_the_closest_name_as_a_hint(name, hint, table):
    refused(f"unknown option '{name}' … {hint}", mdt.open, table.storage, {name: "1"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("versionAsOf", "as_of"),
        ("timestampAsOf", "as_of"),
        ("readChangeFeed", "changes"),
        ("startingVersion", "since"),
        ("endingVersion", "until"),
        ("partiton_by", "partition_by"),
    ],
)
def test_an_unknown_option_of_a_spark_read_gets_the_closest_name_as_a_hint(name, meant):
    refused(f"hint: did you mean {meant}?", parse_options, {"path": "trips", name: "1"})


def test_a_misspelled_index_kind_gets_a_suggestion(table):
    refused(
        "'bitmp(status)' cannot be used … did you mean bitmap?", table.create_index, "bitmp(status)"
    )
    refused("did you mean bloom?", mdt.create, MemoryStorage(), SCHEMA, ["id"], key_index="blom")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("fpp='many'", "invalid fpp='many'; use a number between 0 and 1"),
        ("bits='8'", "unknown option 'bits'; options: fpp"),
    ],
)
def test_an_invalid_index_option_raises_with_the_allowed_values(options, reason, table):
    refused(reason, table.create_index, f"bloom(status, {options})")
    refused(reason, mdt.create, MemoryStorage(), SCHEMA, ["id"], key_index=f"bloom({options})")


def test_an_index_specification_that_is_too_long_is_refused():
    name = "x" * 4090
    table = mdt.create(MemoryStorage(), pa.schema({"id": "string", name: "int32"}), ["id"])
    refused(
        "a specification of 4,100 bytes, more than 4,096", table.create_index, f"bitmap({name})"
    )


def test_the_table_class_refuses_a_path_with_a_hint():
    refused("mdt.Table takes a storage, not a str … hint: mdt.open(path)", mdt.Table, "trips")


def test_calling_limit_on_a_scan_gets_the_hint_to_pass_it_as_an_argument(table):
    refused("hint: write t.scan(limit=5)", table.scan().limit, 5)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("count", "t.scan().count()"),
        ("to_pandas", "t.scan().to_arrow().to_pandas()"),
        ("head", "t.scan(limit=10).to_arrow()"),
        ("to_pyarrow_table", "t.scan().to_arrow()"),
        ("append", "t.insert(rows)"),
        ("columns", "t.schema.names"),
    ],
)
def test_a_method_name_of_another_library_gets_the_equivalent_call_as_a_hint(name, call, table):
    message = f"a Table has no attribute '{name}'\n  hint: did you mean {call}?"
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(table, name)
    assert not hasattr(table, name)


@pytest.mark.parametrize("name", ["toPandas", "to_polars", "show", "collect", "where"])
def test_unknown_attributes_of_scans_and_changes_get_the_equivalent_call(name, table):
    with pytest.raises(AttributeError, match=r"a Scan has no .*\n  hint: did you mean .*scan"):
        getattr(table.scan(), name)
    if name not in ("show", "where"):
        with pytest.raises(AttributeError, match=r"a ChangeStream .*\n  hint: .*changes"):
            getattr(table.changes(0), name)


@pytest.mark.parametrize("names", [TABLE_NAMES, SCAN_NAMES, CHANGES_NAMES])
def test_every_call_named_in_a_hint_exists(names, table):
    objects = {
        "t": table,
        "scan": table.scan(),
        "changes": table.changes(0),
        "mdt": mdt,
        "duckdb": import_module("duckdb"),
        "pl": import_module("polars"),
    }
    calls = {part for call in names.values() for part in call.split(" or ")}
    for call in calls:
        path = re.sub(r"\([^()]*(\(\))?[^()]*\)", "()", call).split(".")
        target = objects[path[0]]
        for attribute in path[1:]:
            target = getattr(target, attribute.removesuffix("()"))
            if attribute == "scan()":
                target = objects["scan"]
            elif attribute == "to_arrow()":
                target = objects["scan"].to_arrow()


def test_an_error_within_a_property_is_not_hidden_by_a_hint(table):
    class Broken(type(table)):
        @property
        def path(self):
            return None.nothing

    broken = Broken(table.storage)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'nothing'"):
        _ = broken.path
    with pytest.raises(AttributeError, match="'Table' object has no attribute 'scna'"):
        _ = table.scna


@pytest.mark.parametrize("word", ["array_contains", "list_contains", "map_keys", "size"])
def test_functions_on_lists_and_maps_get_their_own_hint(word, table):
    hint = "hint: functions of lists and maps are not built in: define one with mdt.function"
    refused(hint, table.scan, f"{word}(status) = 'paid'", kind=Unsupported)
    refused(hint, table.update_where, {"fare": f"{word}(status)"}, kind=Unsupported)
    assert "lists" not in names_hint("listen")


def test_a_time_with_or_without_a_zone_in_the_wrong_column_gets_a_hint():
    types = pa.schema(
        {
            "at": pa.timestamp("us", "UTC"),
            "ts": pa.timestamp("us", "UTC"),
            "day": pa.timestamp("us"),
        }
    )
    table = mdt.create(MemoryStorage(), types, ["at"])
    utc, naive = datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 1, 31)
    table.upsert([{"at": utc, "ts": utc, "day": naive}])
    add = "add a time zone, e.g. tzinfo=datetime.timezone.utc"
    remove = "remove the time zone, e.g. time.replace(tzinfo=None)"
    rows = [{"at": utc, "ts": naive, "day": utc}]
    refused(f"column 'ts' is … {add}\n … column 'day' is … {remove}\n", table.upsert, rows)
    refused(f"cannot hold datetime … hint: {add}", table.get, naive)
    refused(f"cannot hold datetime … hint: {add}", table.get, [utc, naive])
    refused(f"the column 'ts' … hint: {add}", table.update_where, values={"ts": naive})
    refused(f"the column 'day' … hint: {remove}", table.update_where, values={"day": utc})
    assert table.scan("ts = :at", params={"at": naive}).count() == 1


def test_reading_with_spark_needs_a_session():
    refused("takes a SparkSession … hint: mdt.open(path).scan()", mdt.read, "trips")
    refused("takes a SparkSession … hint: mdt.open(path).scan()", mdt.read, "trips", "trips")


def test_a_key_of_the_wrong_type_is_named_in_the_error(table):
    refused("key column 'id' has type string, which cannot hold 5", table.get, 5)
    refused("cannot hold 5 … a list", table.get, ["a", 5])


def test_a_path_may_begin_with_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    mdt.create("~/trips", SCHEMA, ["id"])
    assert mdt.open("~/trips").path == mdt.open(tmp_path / "trips").path
    assert open_storage("~").url == open_storage(tmp_path).url
    assert open_storage("a~/b").url.endswith("a~/b")


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("MOR", "MERGE_ON_READ"),
        ("mor", "MERGE_ON_READ"),
        ("merge_on_read", "MERGE_ON_READ"),
        ("cow", "COPY_ON_WRITE"),
        ("COW", "COPY_ON_WRITE"),
        ("copy-on-write", "COPY_ON_WRITE"),
    ],
)
def test_a_table_type_may_be_short_and_in_any_case(given, stored):
    created = mdt.create(MemoryStorage(), SCHEMA, ["id"], table_type=given)
    assert created.definition.table_type == stored


def test_a_refused_rollback_lists_the_commits_that_can_be_rolled_back(table):
    refused("commit 0 cannot be rolled back … no commits to roll back", table.rollback, 0)
