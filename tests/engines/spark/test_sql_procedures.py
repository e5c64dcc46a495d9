"""``CALL mdt.…``, ``mdt_changes`` and ``match`` in Spark's SQL have the effects and results of a
table's methods. Errors have conditions.
"""

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from reader import bag
from sql_tables import cases, sound, tuples

import mdt
import mdt.spark
from mdt import errors
from mdt.errors import MdtError

ROWS = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "city": ["Oslo", "Rome", "Oslo", "Oslo"],
        "note": ["A Black umbrella", "blackbird", None, "black. UMBRELLA!"],
    }
)


@pytest.fixture
def sql(named, tmp_path):
    index = "text(note, tokenizer='word')"
    table = mdt.create(tmp_path / "t", ROWS.schema, "id", partition_by="city", indexes=[index])
    table.upsert(ROWS)
    table.upsert([{"id": "b", "city": "Rome", "note": "white"}])
    named.sql(f"create table served using mdt location '{tmp_path / 't'}'")
    return named


def call_procedure(spark, statement):
    """Return the only result row of a procedure."""
    (row,) = spark.sql(f"call mdt.{statement}").collect()
    answer = row.asDict()
    return answer


def ids(spark, query):
    return tuples(spark.sql(query))


def test_services_are_called_as_procedures(sql, tmp_path):
    assert sql.sql("explain call mdt.compact('served')").count() == 1
    assert call_procedure(sql, "tag('served', 'before')") == {"seq": 2}
    assert (
        call_procedure(sql, "compact(table => 'default.served', spark => true)")["engine"]
        == "spark"
    )
    other = sql.newSession()
    clustered = call_procedure(other, "cluster('served', by => 'note, id', curve => 'sort')")
    assert clustered["by"] == ["note", "id"]
    sql.sql("delete from served where id < 'c'")
    assert call_procedure(sql, "restore(table => 'served', to => 'before')")["updated"] == 0
    assert sql.table("served").count() == 4
    assert call_procedure(sql, "rollback('served', 2)")
    assert ids(sql, "select note from served where id = 'b'") == ["blackbird"]
    sql.sql("call mdt.untag('served', name => 'before')")
    assert call_procedure(sql, f"clean('{tmp_path / 't'}', retain_commits => 1 + 1)")["horizon"] > 3
    assert call_procedure(sql, "check('served')")["problems"] == []
    operations = mdt.open(tmp_path / "t").history()["operation"].to_pylist()
    last = ["tag", "compact", "delete_where", "restore", "restore", "untag", "clean"]
    assert operations[3:] == last
    assert bag(sound(tmp_path / "t")) == bag(ROWS)


def test_the_locale_of_the_jvm_does_not_change_names(sql):
    locale = sql.sparkContext._jvm.java.util.Locale
    before = locale.getDefault()
    locale.setDefault(locale.forLanguageTag("tr"))
    try:
        assert sql.sql("CALL mdt.BUILD_INDEXES('served')").count() == 1
    finally:
        locale.setDefault(before)


ANSWERS = cases(
    """
    compact('served') -> seq bigint, instant string, inserted bigint
    check('served') -> problems array<string>, files bigint, rows bigint
    clean('served') -> horizon bigint, files bigint, records bigint
    tag('served', 'a') -> seq bigint
    """
)


def test_a_procedure_returns_the_fields_of_its_result_as_typed_columns(sql):
    for call, columns in ANSWERS:
        assert sql.sql(f"explain call mdt.{call}").count() == 1
        fields = [f"{name} {type}" for name, type in sql.sql(f"call mdt.{call}").dtypes]
        assert ", ".join(fields).startswith(columns), call
    assert sql.sql("explain call mdt.untag('served', 'a')").count() == 1
    assert sql.sql("call mdt.untag('served', 'a')").columns == []
    stats = sql.sql("call mdt.analyze('served', columns => 'city')").where("column = 'city'")
    assert tuples(stats.select("rows", "distinct")) == [(4, 2)]


def test_history_files_and_snapshots_are_table_functions(sql, tmp_path):
    sql.sql("delete from served where id = 'c'")
    sql.sql("call mdt.tag('served', 'old', 1)")
    history = sql.sql("select * from mdt_history('served') order by seq").collect()
    operations = [row["operation"] for row in history]
    assert operations == ["create", "upsert", "upsert", "delete_where", "tag"]
    changed = [(row["inserted"], row["updated"], row["deleted"]) for row in history[1:4]]
    assert changed == [(4, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert all(isinstance(row["time"], datetime) for row in history)
    late = "time > current_timestamp() - interval 1 hour"
    assert ids(sql, f"select count(*) from mdt_history('served') where {late}") == [5]
    assert timedelta(0) <= history[-1]["time"] - history[0]["time"] < timedelta(hours=1)
    files = sql.newSession().sql(
        """select partition, kind, sum(rows) rows, min(bytes) > 0 ok
           from mdt_files(table => 'default.served') group by all"""
    )
    assert tuples(files) == [
        ("city=Oslo", "base", 3, True),
        ("city=Oslo", "log", 0, True),
        ("city=Rome", "base", 1, True),
        ("city=Rome", "log", 1, True),
    ]
    sql.sql("call mdt.clean('served', retain_commits => 1)")
    states = tuples(sql.sql(f"select seq, tags from mdt_snapshots('{tmp_path / 't'}')"))
    assert states[0] == (1, ["old"]) and states[-1][0] == 5
    for seq, _ in states:
        assert sql.sql(f"select count(*) from served version as of {seq}").count() == 1


def test_the_output_of_show_create_table_creates_an_equal_table(named, tmp_path):
    named.sql(f"""
        create table shown (id string not null comment 'it''s a key', n decimal(9, 2) not null,
            s struct<a: int, b: array<date>>, city string)
        using mdt options (key 'id', ordering 'n', type 'cow', scope 'table',
            indexes 'bitmap(city);text(id, tokenizer=''word'')', `mdt.compression` 'zstd')
        partitioned by (city) location '{tmp_path / "shown"}'
    """)
    named.sql("alter table shown add column m bigint comment 'more' after id")
    (text,) = tuples(named.sql("show create table shown"))
    columns = named.sql("describe shown").collect()
    named.sql("drop table shown")
    named.sql(text.replace(str(tmp_path / "shown"), str(tmp_path / "again")))
    assert named.sql("describe shown").collect() == columns
    first, again = (mdt.open(tmp_path / name).definition for name in ("shown", "again"))
    attributes = "declared key partition_by ordering table_type scope key_index indexes options"
    for name in attributes.split():
        assert getattr(again, name) == getattr(first, name), name


REFUSED = cases(
    """
    call mdt.nope('served') -> one of compact, cluster
    call mdt.compact() -> the table is missing
    call mdt.compact('nowhere') -> no mdt table nowhere
    call mdt.compact('served', nope => 1) -> an argument of mdt.compact
    call mdt.compact('served', budget_bytes => 'x') -> budget_bytes => 'x'
    call mdt.untag('served', 'a', 'false', 'b') -> takes 3 arguments
    call mdt.untag('served', 'a', name => 'b') -> given twice|positional
    call mdt.restore('served', 99) -> no commit 99
    call other.compact('served') -> (?i)other|procedures
    select * from mdt_changes('served') -> takes a table, since
    select * from mdt_history() -> mdt_history takes a table
    select * from mdt_files('served', 1) -> mdt_files takes a table
    select * from mdt_snapshots(path => 'served') -> mdt_snapshots takes a table
    select * from mdt_files('nowhere') -> no mdt table nowhere
    select * from mdt_changes('served', 99) -> 99
    select * from served where match(note) -> takes a text, words
    select * from served where match(note, id) -> id is not a constant
    select * from served where match(note, words => 'x') -> is not a constant
    select * from mdt_changes(table => 'served') -> takes a table, since
    select * from mdt_changes('served', 1, up_to => 2) -> takes a table, since
    select * from mdt_changes('served', 1, 2, 'all', 5) -> takes a table, since
    select * from served where match(note, 'x', 'nope') -> nope
    """
)


def test_unknown_procedures_and_wrong_arguments_are_refused(sql):
    for statement, reason in REFUSED:
        with pytest.raises(PySparkException, match=reason):
            sql.sql(statement).collect()


def test_changes_are_a_table_function(sql):
    sql.sql("delete from served where id = 'c'")
    net = "select id || _change from mdt_changes('served', 1)"
    assert ids(sql, net) == ["bupdate_after", "bupdate_before", "cdelete"]
    first = "select id from mdt_changes('served', 'earliest', 1, 'all') where city = 'Oslo'"
    assert ids(sql.newSession(), first) == ["a", "c", "d"]
    joined = """select a.id from mdt_changes('served', 0, 1) a join mdt_changes('served', 1, 2) b
        on a.id = b.id where b._change = 'update_after'"""
    assert ids(sql, joined) == ["b"]
    by_name = "since => 0, until => 1, table => 'served', changes => 'all'"
    results = [
        ids(sql, f"select id || _change from mdt_changes({arguments})")
        for arguments in (by_name, "'served', 0, 1, 'all'")
    ]
    assert results[0] == results[1]


def test_match_in_sql_equals_the_match_function_in_any_position(sql):
    table = sql.table("served")
    for words in ("black umbrella", "BLACK", "white", "", "bird", "umbrella nothing"):
        matching = ids(sql, f"select id from served where match(note, '{words}')")
        assert matching == tuples(table.where(mdt.spark.match("note", words)).select("id"))
    assert ids(sql, "select id from served where match(note, 'black umbrella')") == ["a", "d"]
    either = """select id from served where match(concat(note, 'bird'), 'umbrellabird')
        or match(note, 'hit', 'ngram(3)')"""
    assert ids(sql, either) == ["a", "b"]
    null = "select id from (select id, match(note, 'black') m from served) where m is null"
    assert ids(sql, null) == ["c"]
    assert ids(sql, "delete from served where match(note, 'umbrella')") == [2]
    assert ids(sql, "select id from served") == ["b", "c"]


# --- error conditions ----------------------------------------------------------------------


def cut(table):
    """Damage the newest commit."""
    record = max(Path(table.path, ".hoodie/.mdt/log").iterdir())
    record.write_bytes(record.read_bytes()[:-7])


def lost(table):
    """Remove the data files."""
    for file in Path(table.path).glob("city=*/*.parquet"):
        file.unlink()


@pytest.mark.parametrize(
    ("harm", "text", "condition", "state"),
    [
        (None, "update served set id = '3'", "MDT_INVALID", "22023"),
        (None, "call mdt.compact('served', budget => 'x')", "MDT_INVALID", "22023"),
        (None, "create table others like served", "MDT_UNSUPPORTED", "0A000"),
        (None, "call mdt.restore('served', '99')", "MDT_INVALID", "22023"),
        (cut, "call mdt.compact('served')", "MDT_CORRUPT", "XX001"),
        (lost, "frame", "MDT_MISSING", "58P01"),
        (None, "option", "MDT_INVALID", "22023"),
    ],
)
def test_errors_have_a_condition_and_an_sqlstate_like_errors_of_spark(
    sql,
    tmp_path,
    harm,
    text,
    condition,
    state,
):
    path = str(tmp_path / "t")
    if harm is not None:
        harm(mdt.open(path))
    with pytest.raises((PySparkException, MdtError)) as caught:
        if text == "frame":
            mdt.read(sql, path).toArrow()
        elif text == "option":
            sql.read.format("mdt").option("fare", 1).load(path)
        else:
            sql.sql(text)
    assert (caught.value.getCondition(), caught.value.getSqlState()) == (condition, state)


def kinds(error_type):
    return [error_type, *(kind for child in error_type.__subclasses__() for kind in kinds(child))]


def test_every_kind_of_error_is_in_the_table_of_the_error_page():
    page = Path(__file__).parents[3].joinpath("docs/reference/errors.md").read_text()
    error_types = [kind for kind in kinds(MdtError)[1:] if kind.__module__ == errors.__name__]
    for kind in error_types:
        error = kind("")
        assert f"| `{kind.__name__}` | `{error.getCondition()}` | `{error.getSqlState()}` |" in page


HINTS = cases(
    """
    call mdt.check('/no/table') -> in SQL CREATE TABLE
    call mdt.cluster('served') -> in SQL by =>
    alter table served set tblproperties ('mdt.cache.dir' = '/x') -> in SQL SET spark.mdt.cache.dir
    alter table served rename column note to remark -> t.alter(rewrite=True)
    merge into served t using served s on t.city = s.city when matched then update set note = s.note -> in SQL by GROUP BY
    """
)


@pytest.mark.parametrize(("statement", "hint"), HINTS)
def test_hints_in_sql_name_the_sql_statement_if_one_exists(sql, statement, hint):
    with pytest.raises(PySparkException) as caught:
        sql.sql(statement).collect()
    assert hint in str(caught.value)
