"""ALTER TABLE on columns, VERSION AS OF and TIMESTAMP AS OF on catalog tables: the effects on the
table and on the catalog.
"""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from sql_tables import cases, sound, tuples

import mdt


@pytest.fixture
def sql(named, tmp_path):
    """A session with the table `altered`, which has one row."""
    named.sql(
        f"""create table altered (id string, n int not null comment 'a number', price float,
            old string, place struct<x: int>) using mdt options (key 'id', type 'mor')
            location '{tmp_path / "t"}'"""
    )
    named.sql("insert into altered values ('a', 1, 1.5, 'x', named_struct('x', 1))")
    return named


def described(spark, table="altered"):
    return [tuple(row) for row in spark.sql(f"describe {table}").collect()]


COLUMNS = [
    ("id", "string", None),
    ("n", "int", "a number"),
    ("price", "float", None),
    ("old", "string", None),
    ("place", "struct<x:int>", None),
]


def test_columns_are_dropped_widened_and_made_nullable(sql, tmp_path):
    assert described(sql) == COLUMNS
    for change in (
        "alter column N type bigint",
        "alter column n drop not null",
        "drop columns if exists (place.nothing, nothing.x)",
        "drop columns (old, Place)",
        "drop column if exists old",
    ):
        sql.sql(f"alter table altered {change}")
    assert described(sql) == [COLUMNS[0], ("n", "bigint", "a number"), COLUMNS[2]]
    sql.sql("insert into altered values ('b', 5000000000, 2.5), ('c', null, null)")
    rows = [("a", 1, 1.5), ("b", 5_000_000_000, 2.5), ("c", None, None)]
    assert tuples(sql.table("altered")) == rows and len(sound(tmp_path / "t")) == 3
    past = sql.sql("select * from altered version as of 1")
    assert past.columns == [name for name, _, _ in COLUMNS]
    operations = mdt.open(tmp_path / "t").history()["operation"].to_pylist()
    assert operations.count("alter_schema") == 3


def test_another_session_can_alter_columns_and_explain_alters_none(sql, tmp_path):
    sql.newSession().sql("alter table default.altered drop column old")
    sql.sql("alter table altered alter column price comment 'in euros'")
    assert described(sql) == [*COLUMNS[:2], ("price", "float", "in euros"), COLUMNS[4]]
    assert sql.sql("explain alter table altered drop column price").count() == 1
    assert len(mdt.open(tmp_path / "t").schema) == 4


def test_statements_use_columns_that_the_catalog_does_not_have_yet(sql, tmp_path):
    mdt.open(tmp_path / "t").alter(add={"late": pa.int32()})
    assert "`late` INT" in sql.sql("show create table altered").head()[0]
    sql.sql("alter table altered alter column LATE first")
    assert described(sql)[0][:2] == ("late", "int")


def test_refresh_table_copies_columns_altered_in_python_into_the_catalog(sql, tmp_path):
    sql.sql("cache table altered")
    t = mdt.open(tmp_path / "t")
    t.alter(add={"late": pa.int32()}, drop=["old"], widen={"n": pa.int64()})
    sql.sql("refresh table altered")
    expected = [
        COLUMNS[0],
        ("n", "bigint", "a number"),
        COLUMNS[2],
        COLUMNS[4],
        ("late", "int", None),
    ]
    assert described(sql) == expected
    columns = sql.catalog.listColumns("altered")
    listed = [(column.name, column.dataType, column.description) for column in columns]
    assert listed == expected
    assert [row[0] for row in sql.sql("show columns in altered").collect()] == t.schema.names
    assert (
        sql.table("altered").columns == sql.sql("select * from altered").columns == t.schema.names
    )
    t.upsert([{"id": "b", "n": 5_000_000_000, "late": 4}], partial=True)
    sql.sql("refresh table altered")
    rows = sql.sql("select id, n, late from altered order by id")
    assert tuples(rows) == [("a", 1, None), ("b", 5_000_000_000, 4)]
    sql.sql("uncache table altered")


@pytest.mark.parametrize(
    "statement",
    [
        "insert into altered select * from altered",
        "update altered set n = n + 1 where n + 1 > 0",
        (
            "merge into altered t using (select 'b' id) s on t.id = s.id"
            " when matched then update set n = t.n + 1"
        ),
    ],
)
def test_statements_with_older_columns_are_refused_until_refresh_table(sql, tmp_path, statement):
    assert sql.table("altered").count() == 1
    t = mdt.open(tmp_path / "t")
    t.alter(widen={"n": pa.int64()})
    t.upsert([{"id": "b", "n": 5_000_000_000}], partial=True)
    with pytest.raises((PySparkException, mdt.Invalid), match="(?s)altered.*REFRESH"):
        sql.sql(statement).collect()
    assert t.get({"id": "b"})["n"] == 5_000_000_000
    sql.sql("refresh table altered")
    sql.sql(statement).collect()


def test_columns_are_added_and_moved_to_positions(sql, tmp_path):
    added = "a int first, b int comment 'second' after ID, c int after b"
    sql.sql(f"alter table altered add columns ({added})")
    assert sql.table("altered").columns == ["a", "id", "b", "c", "n", "price", "old", "place"]
    sql.sql("alter table altered alter column old first, c after old")
    sql.sql("alter table altered change column n n bigint comment 'more' after place")
    new = {"a": ("int", None), "b": ("int", "second"), "c": ("int", None), "n": ("bigint", "more")}
    details = {name: rest for name, *rest in COLUMNS} | new
    order = ["old", "c", "a", "id", "b", "price", "place", "n"]
    assert described(sql) == [(name, *details[name]) for name in order]
    sql.sql("insert into altered values ('y', 3, 2, 'b', 1, 0.5, named_struct('x', 1), 9)")
    assert tuples(sql.sql("select id, n, c from altered")) == [("a", 1, None), ("b", 9, 3)]
    assert len(sound(tmp_path / "t")) == 2


def test_columns_of_any_type_can_be_added(sql, tmp_path):
    types = {
        "flag": "boolean",
        "large": "bigint",
        "real": "double",
        "day": "date",
        "local": "timestamp_ntz",
        "raw": "binary",
        "list": "array<int>",
        "pairs": "map<string,double>",
        "nested": "struct<a:int,b:array<string>>",
    }
    columns = ", ".join(f"{name} {type}" for name, type in types.items())
    sql.sql(f"alter table altered add columns ({columns})")
    assert described(sql) == [*COLUMNS, *((name, type, None) for name, type in types.items())]
    values = """true, 5000000000, 0.1, date '2024-02-29', timestamp_ntz '2024-01-01 00:00:00', x'00ff',
        array(1, null), map('a', 0.5), named_struct('a', 1, 'b', array('x'))"""
    sql.sql(f"insert into altered select 'c', 3, 1.5, 'y', named_struct('x', 2), {values}")
    new = [True, 5_000_000_000, 0.1, date(2024, 2, 29), datetime(2024, 1, 1), b"\x00\xff"]
    new += [[1, None], [("a", 0.5)], {"a": 1, "b": ["x"]}]
    for rows in (sound(tmp_path / "t"), sql.table("altered").toArrow()):
        found = {row["id"]: [row[name] for name in types] for row in rows.to_pylist()}
        assert found == {"a": [None] * len(types), "c": new}


def test_added_columns_are_in_the_table_and_in_the_catalog(sql, tmp_path):
    types = "note string comment 'said', cost decimal(10, 2), at timestamp"
    sql.sql(f"alter table altered add columns ({types})")
    new = [("note", "string", "said"), ("cost", "decimal(10,2)", None), ("at", "timestamp", None)]
    assert described(sql) == [*COLUMNS, *new]
    values = "'c', 3, null, null, null, 'new', 1.5, timestamp '2024-01-01 00:00:00Z'"
    sql.sql(f"insert into altered values ({values})")
    sql.sql("update altered set note = concat('old ', n), cost = n / 3 where note is null")
    assert str(mdt.open(tmp_path / "t").schema.field("at").type) == "timestamp[us, tz=UTC]"
    assert sorted(sound(tmp_path / "t")["note"].to_pylist()) == ["new", "old 1"]
    assert tuples(sql.newSession().sql("select note from altered")) == ["new", "old 1"]


REFUSED_CHANGES = cases(
    """
    drop column id -> part of the record key
    drop column none -> no column 'none'
    rename column price to cost -> Hudi's readers would answer differently
    drop column place.x -> the only field of 'place'
    alter column n type smallint -> cannot be widened to int16
    alter column n type string collate UNICODE_CI -> collation
    alter column price set not null -> SET NOT NULL
    alter column place.x first -> FIRST and AFTER for a field of a struct
    alter column place.x comment 'c' -> COMMENT on a field of a struct
    alter column none comment 'c' -> no column 'none'
    add columns (m int after none) -> no column 'none'
    add columns (m int not null) -> is required
    add columns (m int default 5) -> ADD COLUMN … DEFAULT
    add columns (n int) -> 'n' and 'n' have the same name
    add columns (N int) -> have the same name, ignoring case
    alter column n set default 5 -> SET DEFAULT
    alter column n drop default -> DROP DEFAULT
    replace columns (id string) -> REPLACE COLUMNS
    """
)


def test_refused_alterations_leave_table_and_catalog_unchanged(sql, tmp_path):
    for change, reason in REFUSED_CHANGES:
        with pytest.raises(PySparkException, match=reason):
            sql.sql(f"alter table altered {change}")
    assert described(sql) == COLUMNS
    assert mdt.open(tmp_path / "t").snapshot().seq == 1


def test_alter_table_on_a_parquet_table_is_left_to_spark(named):
    named.sql("create table files (id string, n int) using parquet")
    with pytest.raises(PySparkException, match="does not support DROP COLUMN"):
        named.sql("alter table files drop column n")


def test_the_catalog_has_the_columns_of_a_restored_state(sql):
    sql.sql("alter table altered add columns (w int comment 'late')")
    sql.sql("insert into altered values ('b', 2, 2, 'x', null, 2)")
    sql.sql("call mdt.restore('altered', '1')")
    assert described(sql) == COLUMNS
    assert tuples(sql.sql("select id, n from altered")) == [("a", 1)]
    sql.sql("insert into altered values ('c', 3, 3, 'x', null)")
    assert sql.table("altered").count() == 2


def test_describe_and_frames_show_the_comment_of_a_column(sql):
    def describe_column(column):
        rows = dict(map(tuple, sql.sql(f"describe extended altered {column}").collect()))
        return [rows[name] for name in ("col_name", "data_type", "comment")]

    assert describe_column("n") == ["n", "int", "a number"] and describe_column("id")[2] == "NULL"
    sql.sql("alter table altered alter column n comment 'how many'")
    sql.sql("alter table altered alter column n type bigint")
    assert describe_column("n") == ["n", "bigint", "how many"]
    assert sql.table("altered").schema["n"].metadata == {"comment": "how many"}
    assert tuples(sql.sql("select n, old from altered where n > 0")) == [(1, "x")]
    assert sql.sql("select n from altered version as of 1").count() == 1


# --- states ------------------------------------------------------------------------------------


@pytest.fixture
def states(named, tmp_path):
    """A session with a table that has the states 1 (a), 2 (a, b) and 3 (b). State 2 has the tag
    "both".
    """
    place = f"location '{tmp_path / 't'}'"
    named.sql(f"create table states (id string, n int) using mdt options (key 'id') {place}")
    named.sql("insert into states values ('a', 1)")
    named.sql("insert into states values ('b', 2)")
    mdt.open(tmp_path / "t").tag("both")
    named.sql("delete from states where id = 'a'")
    return named


STATE_QUERIES = cases(
    """
    select id from states -> b
    select id from states version as of 1 -> a
    select id from default.states for system_version as of 2 where n < 5 -> a b
    select id from spark_catalog.default.states version as of 'both' -> a b
    select s.id from states version as of 2 s join states t on s.id = t.id -> b
    with x as (select * from states version as of 2) select x.id from x join states using (id) -> b
    select id from states version as of 2 where id not in (select id from states version as of 1) -> b
    select states.id from states version as of 1 -> a
    select id from states timestamp as of current_timestamp() + interval 1 day -> b
    """
)
REFUSED_STATE_QUERIES = cases(
    """
    select * from states version as of 99 -> there is no commit 99
    select * from states version as of 'nope' -> nope
    select * from states version as of 1 with (as_of = '2') -> given twice
    select * from states timestamp as of null -> (?i)null
    select * from nowhere version as of 1 -> nowhere
    """
)


def test_version_as_of_selects_a_commit_or_a_tag(states):
    for query, ids in STATE_QUERIES:
        for session in (states, states.newSession()):
            assert tuples(session.sql(query)) == ids.split(), query
    states.sql("create or replace temporary view then as select * from states version as of 1")
    assert tuples(states.sql("select id from then")) == ["a"]
    for query, reason in REFUSED_STATE_QUERIES:
        with pytest.raises(PySparkException, match=reason):
            states.sql(query).collect()


def test_timestamp_as_of_selects_the_state_at_that_time(states, tmp_path):
    history = mdt.open(tmp_path / "t").history().to_pylist()
    assert states.conf.get("spark.sql.session.timeZone") == "America/Los_Angeles"
    (instant,) = [row["instant"] for row in history if row["seq"] == 2]
    moment = datetime.strptime(instant, "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    micros = round(moment.timestamp() * 1e6)
    for text in (f"'{moment.isoformat()}'", f"timestamp_micros({micros})"):
        assert tuples(states.sql(f"select id from states timestamp as of {text}")) == ["a", "b"]
    early = (moment - timedelta(days=2)).isoformat()
    with pytest.raises(PySparkException, match="did not exist yet"):
        states.sql(f"select * from states timestamp as of '{early}'")
