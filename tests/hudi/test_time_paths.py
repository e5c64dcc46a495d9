"""Partition paths that are formatted times, as made by Hudi's timestamp-based key generator."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pooled import PooledTable
from reader import bag, hudi_table
from refusals import refused

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.hudi import properties
from mdt.hudi.partitions import NULL_PARTITION, partition_paths
from mdt.metadata.files import paths
from mdt.schema.time_paths import TimePath
from mdt.stores.storage import MemoryStorage

TIME = pa.timestamp("us", "UTC")
DAY = {"hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd"}
_STRFTIME = {"yyyy-MM-dd-HH": "%Y-%m-%d-%H", "yyyy-MM-dd": "%Y-%m-%d"}
TIMES = [
    datetime(2024, 2, 29, 23, 30, 1, 5, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    None,
]


def schema_of(type):
    return pa.schema([("id", pa.string()), ("at", type), ("v", pa.int64())])


def rows(type, values, v=0):
    ids = [f"k{n}" for n in range(len(values))]
    return pa.table([ids, pa.array(values, type), [v] * len(values)], schema=schema_of(type))


def create_table(path, type, kind=mdt.Table, **changes):
    arguments = {
        "key": ["id"],
        "partition_by": ["at"],
        "options": {**DAY, "mdt.durable": False},
        **changes,
    }
    return kind(mdt.create(path, schema_of(type), **arguments).storage)


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (TIME, TIMES),
        (pa.timestamp("ms"), [datetime(2024, 2, 29, 23), datetime(1969, 12, 31), None]),
        (pa.date32(), [date(2024, 2, 29), date(1969, 12, 31), None]),
        (pa.int64(), [1709249401000, -1, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("pattern", "hive_style", "expected"),
    [
        ("yyyy-MM-dd", True, ["at=2024-02-29", "at=1969-12-31", f"at={NULL_PARTITION}"]),
        ("yyyy/MM", False, ["2024/02", "1969/12", NULL_PARTITION]),
        ("yyyyMMdd", False, ["20240229", "19691231", NULL_PARTITION]),
    ],
)
def test_paths_are_formatted_times(type, values, pattern, hive_style, expected):
    codes, unique_paths = partition_paths(
        rows(type, values), ["at"], hive_style, TimePath(pattern, "ms", "UTC")
    )
    assert [unique_paths[code] for code in codes] == expected


TEXTS = {
    "days": ("yyyy-MM-dd", "UTC", ["2024-02-29", "1969-12-31"], ["2024/02/29/00", "1969/12/31/00"]),
    "months": ("yyyyMM", "Asia/Tokyo", ["202402"], ["2024/02/01/00"]),
    "with quotes": ("'at' yyyy.MM'. Mai' HH", "", ["at 2024.05. Mai 23"], ["2024/05/01/23"]),
    "offsets": (
        "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        "UTC",
        ["2024-02-29T23:30:00.999-0130", "2024-02-29T23:30:00.000Z"],
        ["2024/03/01/01", "2024/02/29/23"],
    ),
    "offsets with colons": (
        "yyyy/MM/dd HH:mmZZ",
        "UTC",
        ["2024/01/01 00:00+01:00"],
        ["2023/12/31/23"],
    ),
    "offsets of no zone": ("yyyy/MM/dd HH:mmZZ", "", ["2024/01/01 00:00+01:00"], ["2024/01/01/00"]),
    "nothing": ("yyyy", "UTC", [], []),
}


@pytest.mark.parametrize(("input", "zone", "texts", "expected"), TEXTS.values(), ids=TEXTS)
def test_times_in_texts_are_parsed_and_formatted_as_paths(input, zone, texts, expected):
    path = TimePath("yyyy/MM/dd/HH", "ms", zone, input=input)
    path.check(pa.field("at", pa.string()))
    assert path.texts(pa.array([*texts, None], pa.string())).to_pylist() == [*expected, None]
    many = pa.array([None, *texts] * 3, pa.large_string())
    assert path.texts(many).to_pylist() == [None, *expected] * 3


@pytest.mark.parametrize(
    ("input", "expected"),
    [
        ("yyyy-MM-dd HH", "1969/12/31/19"),
        ("yyyy-MM-dd", "1969/12/31/00"),
        ("yyyy", "1969/01/01/00"),
        ("", "1969/12/31/19"),
    ],
)
def test_a_null_of_another_writer_counts_as_the_first_moment_of_1970_in_the_input_format(
    input, expected
):
    path = TimePath("yyyy/MM/dd/HH", "ms", "America/New_York", null_is_first=True, input=input)
    null = pa.array([None], pa.string() if input else pa.int64())
    assert path.texts(null).to_pylist() == [expected]


@pytest.mark.parametrize("text", ["2024-13-01", "2024-02-30", "2024-1-1", "2024-01-01 ", "", "x"])
def test_a_text_that_is_not_a_time_is_refused_and_the_error_has_its_value(text):
    path = TimePath("yyyy", "ms", "UTC", input="yyyy-MM-dd")
    with pytest.raises(Invalid) as error:
        path.texts(pa.array(["2024-01-01", None, text]))
    assert f"{text!r} in a partition column is no time" in str(error.value)


@pytest.mark.parametrize(
    ("form", "text"),
    [("Z", "+2400"), ("Z", "-0060"), ("Z", "+9999"), ("ZZ", "+24:00"), ("ZZ", "-00:60")],
)
def test_an_offset_that_java_does_not_parse_is_refused(form, text):
    path = TimePath("yyyy", "ms", "UTC", input=f"yyyy-MM-dd{form}")
    with pytest.raises(Invalid, match="is no time"):
        path.texts(pa.array([f"2024-01-01{text}"]))


@pytest.mark.parametrize(
    "input", ["yyyy,yyyy-MM", "yy", "MM-dd", "yyyy-MM-MM", "yyyyZZZ", "yyyy'", "yyyyT"]
)
def test_an_unsupported_input_pattern_is_refused(input):
    options = {**DAY, "mdt.partition.time.input": input}
    message = "is not a pattern of times in texts"
    refused(message, create_table, MemoryStorage(), pa.string(), options=options)


def test_a_table_is_partitioned_by_times_in_texts(tmp_path):
    options = {
        "mdt.partition.time.pattern": "yyyy/MM/dd",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd'T'HH:mm",
        "mdt.durable": False,
        "mdt.hive.style": False,
    }
    table = create_table(tmp_path, pa.string(), options=options)
    first = rows(pa.string(), ["2024-01-01T01:00", "2024-01-01T02:00", "2024-01-02T01:00"])
    table.upsert(first)
    later = rows(pa.string(), ["2024-01-01T05:00"], 7)
    assert table.upsert(later).updated == 1, "the same day, another hour"
    expected = bag(pa.concat_tables([first.slice(1), later]))
    assert bag(table.scan().to_arrow()) == expected
    assert bag(hudi_table(tmp_path, schema_of(pa.string()))) == expected
    assert table.get({"id": "k0", "at": "2024-01-01T09:59"})["v"] == 7
    assert table.delete_partition("2024/01/02").deleted == 1
    assert mdt.open(tmp_path).check().ok
    stored = properties.decode((tmp_path / ".hoodie/hoodie.properties").read_bytes())
    names = ("timestamp.type", "timezone", "input.dateformat")
    values = [stored[f"hoodie.keygen.timebased.{name}"] for name in names]
    assert values == ["DATE_STRING", "UTC", "yyyy-MM-dd'T'HH:mm"]


@pytest.mark.parametrize(
    ("zone", "pattern", "moments", "expected"),
    [
        (
            "Europe/Oslo",
            "yyyy-MM-dd-HH",
            ["2024-03-31 00:30", "2024-03-31 01:30", "2024-03-31 22:30"],
            ["2024-03-31-01", "2024-03-31-03", "2024-04-01-00"],
        ),
        (
            "Europe/Oslo",
            "yyyy-MM-dd-HH",
            ["2024-10-27 00:30", "2024-10-27 01:30"],
            ["2024-10-27-02"],
        ),
        ("America/Havana", "yyyy-MM-dd", ["2024-11-03 04:30", "2024-11-03 20:00"], ["2024-11-03"]),
        (
            "America/Sao_Paulo",
            "yyyy-MM-dd",
            ["2018-11-04 02:30", "2018-11-04 12:00"],
            ["2018-11-03", "2018-11-04"],
        ),
    ],
    ids=["an hour left out", "an hour twice", "a midnight twice", "a day without midnight"],
)
def test_paths_have_local_times_also_when_clocks_change(zone, pattern, moments, expected):
    at = [datetime.fromisoformat(f"{moment}+00:00") for moment in moments]
    path = TimePath(pattern, "ms", zone)
    _, unique_paths = partition_paths(rows(TIME, at), ["at"], False, path)
    local = {f"{time.astimezone(ZoneInfo(zone)):{_STRFTIME[pattern]}}" for time in at}
    assert sorted(unique_paths) == expected == sorted(local)


@pytest.mark.parametrize("kind", [mdt.Table, PooledTable], ids=["here", "tasks"])
@pytest.mark.parametrize("pattern", ["yyyy-MM-dd", "yyyy/MM/dd"])
def test_a_table_partitioned_by_days_is_written_read_and_emptied_by_partition(
    tmp_path, pattern, kind
):
    options = {"mdt.partition.time.pattern": pattern, "mdt.durable": False, "mdt.hive.style": False}
    table = create_table(tmp_path, TIME, kind, options=options)
    hours = [(1, 1), (1, 2), (2, 1), (2, 2)]
    first = rows(TIME, [datetime(2024, 1, *day_and_hour, tzinfo=UTC) for day_and_hour in hours])
    table.upsert(first)
    later = rows(TIME, [datetime(2024, 1, 1, 5, tzinfo=UTC)], 7)
    assert table.upsert(later).updated == 1, "the same day, another hour"
    expected = pa.concat_tables([first.slice(1), later])
    assert (
        bag(table.scan().to_arrow()) == bag(expected) == bag(hudi_table(tmp_path, schema_of(TIME)))
    )
    where = "at >= timestamp '2024-01-01 03:00:00' and at < timestamp '2024-01-02 02:00:00'"
    assert table.scan(where).count() == 2
    assert table.get({"id": "k0", "at": datetime(2024, 1, 1, tzinfo=UTC)})["v"] == 7
    assert mdt.open(tmp_path).check().ok
    assert table.delete_partition({"at": datetime(2024, 1, 1, 9, tzinfo=UTC)}).deleted == 2
    assert table.delete_partition("2024-01-02" if "/" not in pattern else "2024/01/02").deleted == 2
    assert not len(table.scan().to_arrow()) and mdt.open(tmp_path).check().ok


def test_the_table_properties_have_hudis_key_generator_and_its_options():
    storage = MemoryStorage()
    options = {
        **DAY,
        "mdt.partition.time.unit": "s",
        "hoodie.keygen.timebased.timezone": "Asia/Tokyo",
    }
    create_table(storage, pa.int64(), options=options)
    stored = properties.decode(storage.read(paths.PROPERTIES))
    assert stored["hoodie.table.keygenerator.class"].endswith("TimestampBasedKeyGenerator")
    names = ("timestamp.type", "timezone", "output.dateformat")
    values = [stored[f"hoodie.keygen.timebased.{name}"] for name in names]
    assert values == ["UNIX_TIMESTAMP", "Asia/Tokyo", "yyyy-MM-dd"]


@pytest.mark.parametrize("pattern", ["EEE", "yyyy//dd", "../yyyy", "yyyy/MMMM", "yyyy-dddd"])
def test_a_pattern_that_gives_no_valid_path_is_refused(pattern):
    options = {"mdt.partition.time.pattern": pattern}
    refused(
        "is not a pattern for time-based partition paths",
        create_table,
        MemoryStorage(),
        TIME,
        options=options,
    )


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"options": {**DAY, "mdt.partition.time.zone": "Nowhere/Land"}}, Invalid, "Nowhere/Land"),
        ({"options": {**DAY, "mdt.partition.time.zone": ""}}, Invalid, "need a time zone"),
        ({"options": {**DAY, "mdt.partition.time.input": "yyyy"}}, Invalid, "a pattern of texts"),
        ({"partition_by": ["v", "at"]}, Unsupported, "one partition column"),
        ({"key": ["id", "v"]}, Unsupported, "one key column"),
        ({"partition_by": ["id"], "key": ["v"]}, Invalid, "of type string"),
        (
            {"options": {**DAY, "mdt.update.partition.path": False}},
            Invalid,
            "mdt.partition.time.pattern",
        ),
    ],
)
def test_tables_that_cannot_have_time_based_paths_are_refused(given, kind, said):
    refused(said, create_table, MemoryStorage(), TIME, kind=kind, **given)
