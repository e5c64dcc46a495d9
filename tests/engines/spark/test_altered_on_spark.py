"""Spark reads and writes declared and altered columns as Arrow does. Frames of a table that has
been altered or replaced raise an error.
"""

import math
import random
import shutil
import struct
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from declared_types import GOOD, REQUIRED, types_in_readme
from reader import bag
from sql_tables import IN_TASKS, settings, stored

import mdt
from mdt.errors import Invalid, Missing, Unsupported

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.int32())),
    ]
)
WIDER = {"n": "int64", "f": "double", "day": "timestamp[us]", "s.a": "double"}
ALTERS = {
    "added": [{"add": {"more": "int64"}}],
    "added with a default": [{"add": {"more": "int64"}, "defaults": {"more": 7}}],
    "added inside": [{"add": {"s.c": "string"}}],
    "dropped": [{"drop": ["note", "s.a"]}],
    "renamed": [{"rename": {"note": "remark", "s.b": "bb"}}],
    "swapped": [{"rename": {"note": "o"}}, {"rename": {"n": "note"}}, {"rename": {"o": "n"}}],
    "widened": [{"widen": {**WIDER, "l.element": "int64"}}],
    "came back": [{"drop": ["note"]}, {"add": {"NOTE": "string"}}],
    "reordered": [{"reorder": ["s", "note"]}],
}


def rows(ids, first=0):
    items = []
    for n, id in enumerate(ids, first + 1):
        nested = {"s": {"a": n, "b": id}, "l": [n, None]}
        items.append({"id": id, "n": n, "f": n / 8, "day": date(2026, 1, n), "note": f"n{n}"})
        items[-1] |= nested
    return pa.Table.from_pylist(items, SCHEMA)


def assert_same_rows(spark, table):
    """Compare the results of both engines: all rows, one column, and filtered rows."""
    names = table.schema.names
    frame = mdt.read(spark, table.path)
    assert frame.columns == names
    expected = table.scan().to_arrow()
    assert bag(frame.toArrow().cast(expected.schema)) == bag(expected)
    last = expected.select(names[-1:])
    assert bag(frame.select(names[-1]).toArrow().cast(last.schema)) == bag(last)
    ids = expected["id"].to_pylist()
    assert {row.id for row in frame.where("id > 'b'").collect()} == {i for i in ids if i > "b"}
    non_null_count = len(expected) - expected[names[1]].null_count
    assert frame.where(f"{names[1]} is not null").count() == non_null_count


@pytest.mark.parametrize("name", ALTERS)
def test_spark_reads_files_of_older_versions(spark, tmp_path, name):
    table = stored(tmp_path, rows("abcdef"))
    table.upsert(rows("bc", 7))
    for change in ALTERS[name]:
        table.alter(**change, beyond_hudi=True)
    assert_same_rows(spark, table)
    table.upsert(table.scan(where="id in ('a', 'b')").to_arrow())
    table.delete({"id": ["f"]})
    table.upsert(mdt.read(spark, str(tmp_path)).where("id = 'c'"))
    assert_same_rows(spark, table)
    assert table.check().ok


@pytest.mark.parametrize("what", ["altered", "replaced"])
def test_a_frame_of_an_altered_or_replaced_table_is_refused(spark, tmp_path, what):
    path = tmp_path / "t"
    table = stored(path, rows("ab"))
    frame = mdt.read(spark, str(path))
    assert frame.count() == 2
    if what == "altered":
        table.alter(drop=["note"])
    else:
        shutil.rmtree(path)
        stored(path, rows("abc"))
    message = rf"{what}.* after this DataFrame was created\n.*hint: create it again"
    for run in (frame.collect, frame.toArrow, frame.where("id = 'a'").count):
        with pytest.raises(Invalid, match=message), pytest.warns(UserWarning, match=what):
            run()
    assert mdt.read(spark, str(path)).count() == (2 if what == "altered" else 3)


def test_a_frame_reads_a_backup_restored_in_place_of_its_table(spark, tmp_path):
    path, saved = tmp_path / "t", tmp_path / "saved"
    table = stored(path, rows("abc"))
    frame = mdt.read(spark, str(path))
    shutil.copytree(path, saved)
    table.delete({"id": ["a"]})
    assert sorted(row.id for row in frame.collect()) == ["b", "c"]
    shutil.rmtree(path)
    shutil.copytree(saved, path)
    mdt.open(path).delete({"id": ["b"]})  # has the seq of the lost commit
    assert sorted(row.id for row in frame.collect()) == ["a", "c"]
    assert frame.where("id > 'a'").count() == 1


def test_frames_of_a_deleted_table_raise_errors_that_say_so(spark, tmp_path):
    path = tmp_path / "t"
    table = stored(path, rows("ab"))
    table.upsert(rows("ac"))
    newest, derived = mdt.read(spark, str(path)), mdt.read(spark, str(path)).where("id > 'a'")
    past, changes = mdt.read(spark, str(path), as_of=1), table.changes(1).to_spark(spark)
    assert [len(frame.collect()) for frame in (newest, past, changes, derived)] == [3, 2, 3, 2]
    shutil.rmtree(path)
    spark.newSession()  # reinstalls PySpark's own handling of errors
    with (
        pytest.raises(Invalid, match="is not an mdt table"),
        pytest.warns(UserWarning, match="is not an mdt table"),
    ):
        newest.collect()
    hint = "create the DataFrame again"
    with pytest.raises(Unsupported, match=rf"cannot find the driver's table at (.*\n.*)*{hint}"):
        changes.collect()
    missing = r"is missing: the table was deleted or replaced.*\n.*hint: "
    for frame in (derived, past):
        with pytest.raises(Missing, match=missing + hint):
            frame.collect()


def test_spark_reads_a_past_snapshot_with_the_columns_of_that_time(spark, tmp_path):
    table = stored(tmp_path, rows("ab"))
    seq, expected = table.snapshot().seq, table.scan().to_arrow()
    table.alter(rename={"note": "remark"}, widen={"n": "int64"}, beyond_hudi=True)
    frame = mdt.read(spark, str(tmp_path), as_of=seq)
    assert bag(frame.toArrow().cast(expected.schema)) == bag(expected)


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_a_frame_that_evolves_a_table_may_lack_struct_fields(spark, tmp_path, local_bytes):
    """Fields may be missing at any depth, as with Arrow. Numbers become wider, and columns of type
    null are dropped.
    """
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    types = {"s": inner, "items": pa.list_(inner), "by": pa.map_(pa.string(), inner)}
    value = {"a": 1, "b": "old"}
    data = {"n": None, "s": value, "items": [value], "by": {"k": value}}
    old = [{"id": id, **data} for id in "ab"]
    query = """
        with t as (select named_struct('b', text, 'z', n) s
                   from values ('new', 1L), (null, null) as v(text, n))
        select 'b' id, 2000000000000 n, s, array(s, null) items, map('k', s) by, null nothing
        from t where s.b = 'new' union all select 'z', 3, null, null, null, null"""
    outcomes = []
    for name, data in (("spark", spark.sql(query)), ("arrow", spark.sql(query).toArrow())):
        schema = pa.schema({"id": pa.string(), "n": pa.int32(), **types})
        mdt.create(tmp_path / name, schema, "id", table_type="COPY_ON_WRITE").upsert(old)
        table = mdt.open(tmp_path / name, {"mdt.spark.local.bytes.max": local_bytes})
        result = table.upsert(data, evolve=True)
        in_tasks = name == "spark" and not local_bytes
        assert (result.inserted, result.updated) == (1, 1)
        assert result.engine == ("spark" if in_tasks else "arrow")
        outcomes.append((table.schema, table.scan(order_by="id").to_arrow().to_pylist()))
        with pytest.raises(Invalid, match="repeated column names"):
            table.upsert(spark.sql("select 'a' id, 1 n, 2 n"), evolve=True)
    assert outcomes[0] == outcomes[1]
    rows = outcomes[0][1]
    assert [row["n"] for row in rows] == [None, 2 * 10**12, 3]
    assert rows[1]["s"] == {"a": None, "b": "new", "z": 1}


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_widens_numbers_as_a_scan_in_process_does(spark, tmp_path, vectorized):
    draw = random.Random(3)
    floats = [struct.unpack("<f", struct.pack("<I", draw.getrandbits(32)))[0] for _ in range(3000)]
    floats += [4088288.25, 0.1, 2e-3, 1.4e-45, 3.4028234663852886e38, 2.0**-126, math.inf, -0.0]
    numbers = range(len(floats))
    columns = {
        "id": numbers,
        "f": pa.array(floats, pa.float32()),
        "i": [draw.getrandbits(63) for _ in numbers],
        "m": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(8, 2)),
    }
    table = stored(tmp_path, pa.table(columns))
    table.alter(widen={"f": "double", "i": "double", "m": "decimal(25, 2)"}, beyond_hudi=True)
    with settings(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        read = mdt.read(spark, str(tmp_path)).toArrow()
    expected = table.scan().to_arrow()
    assert bag(read.cast(expected.schema)) == bag(expected)


# --- declared columns ------------------------------------------------------------


def test_the_readme_lists_the_types_that_spark_shows(spark, tmp_path):
    documented = types_in_readme()
    columns = {f"c{i}": pa.nulls(1, type) for i, (type, _) in enumerate(documented.values())}
    table = stored(tmp_path / "t", pa.table({"id": [1], **columns}))
    frame = mdt.read(spark, table.path)
    shown = [field.dataType.simpleString() for field in frame.schema][1:]
    assert shown == [cells[2] for _, cells in documented.values()]
    assert frame.collect()[0].asDict() == {"id": 1, **dict.fromkeys(columns)}


def test_timestamps_without_zone_do_not_depend_on_the_session_time_zone(spark, tmp_path):
    naive, noon = pa.timestamp("us"), datetime(2026, 7, 1, 12)
    types = {"at": naive, "s": pa.struct([("at", pa.timestamp("ms"))]), "l": pa.list_(naive)}
    schema = pa.schema({"id": pa.int64(), **types})
    rows = [
        {"id": n, "at": noon.replace(hour=n), "s": {"at": noon}, "l": [noon, None]}
        for n in range(20)
    ]
    options = {"mdt.row.group.rows": 4, **IN_TASKS}
    data = pa.Table.from_pylist(rows, schema)
    table = stored(tmp_path / "t", data, indexes=["bitmap(at)"], options=options)
    table.upsert(data.slice(0, 3))
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        frame = mdt.read(spark, table.path)
        assert frame.schema["at"].dataType.simpleString() == "timestamp_ntz"
        where = "at between timestamp_ntz'2026-07-01 02:00:00' and '2026-07-01 04:00:00'"
        matches = frame.where(where).orderBy("id").collect()
        assert [row.asDict(recursive=True) for row in matches] == rows[2:5]
        scan = table.scan("at = '2026-07-01 05:00:00'")
        (row,) = scan.to_spark(spark).collect()
        assert row.id == 5 and scan.to_arrow()["id"].to_pylist() == [5]
        assert table.upsert(frame.where("id >= 18")).updated == 2
    assert table.scan(order_by="id").to_arrow().to_pylist() == rows


def test_required_fields_are_read_and_written_by_spark(spark, tmp_path):
    data = pa.Table.from_pylist([GOOD, {**GOOD, "id": 2, "s": None, "l": None}], schema=REQUIRED)
    table = stored(tmp_path / "t", data, options=IN_TASKS)
    table.upsert(data.slice(1))
    frame = mdt.read(spark, table.path)
    assert frame.where("v = 1 and id is not null").count() == 2
    assert table.upsert(frame).updated == 2
    for file in (tmp_path / "t").glob("*.parquet"):
        columns = spark.read.parquet(str(file)).select("id", "v", "s", "l", "m")
        assert columns.count() == 2
    assert table.scan(order_by="id").to_arrow().to_pylist() == data.to_pylist()


def test_a_table_is_created_from_the_schema_of_a_frame(spark, tmp_path):
    frame = spark.sql(
        """select id, cast(id as byte) b, timestamp_ntz'2026-01-01 00:00:00' at, array(id) l
           from range(3)"""
    )
    table = mdt.create(tmp_path / "t", frame.schema, "id")
    assert [table.schema.field(n).type for n in ("b", "at")] == [pa.int8(), pa.timestamp("us")]
    assert not table.schema.field("id").nullable, "the frame declares it so"
    assert table.upsert(frame).inserted == 3
    assert sorted(table.scan().to_arrow()["b"].to_pylist()) == [0, 1, 2]
    with pytest.raises(Invalid, match="which is data"):
        mdt.create(tmp_path / "u", frame, "id")
    months = spark.sql("select id, interval 1 month i from range(1)").schema
    with pytest.raises(Invalid, match="tables do not support"):
        mdt.create(tmp_path / "u", months, "id")
