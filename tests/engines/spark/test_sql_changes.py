"""DELETE, UPDATE and MERGE INTO in Spark's SQL leave the rows that Spark's own queries compute from
the rows before. hudi-rs reads the same rows.
"""

import threading
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from reader import bag
from sql_tables import (
    BEFORE,
    LOCAL_BYTES,
    SCHEMA,
    TABLE,
    cases,
    check,
    counts,
    expected,
    kept,
    path,
    plain_copy,
    rows,
    settings,
    stored,
    tuples,
)

import mdt
import mdt.spark
from mdt.engines.spark.statement import Statement, WrittenRows

NULLS = dict.fromkeys(SCHEMA.names)
NEW = {**NULLS, "id": 99, "city": "Oslo", "n": 900, "ts": 8}
"""The row that SOURCE adds."""


def operations(sql):
    """Return the operations since the table was filled."""
    return mdt.open(path(sql)).history()["operation"].to_pylist()[2:]


def numbers(sql):
    """Return the values of ``n``, by the keys of their rows."""
    table = mdt.open(path(sql)).scan().to_arrow()
    return dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


CONDITIONS = cases(
    r"""
    n = 3
    n is null and city <> 'Rome'
    n <> 4 or ok
    not (n > 4 and ok)
    n <=> null
    n in (1, 2, null)
    n not in (1, 2, null)
    city = 'O\'Hare' and name = 'it\'s'
    name like '50\\%%' or name = 'back\\slash'
    name = 'say "hi"' or name = ''
    upper(name) = 'STRASSE' and n + 1 > 3
    day = date '2024-02-05' or day > '2024-02-25'
    at < timestamp '2024-03-10 03:00:00'
    at between '2024-03-10 01:30:00' and '2024-03-10 12:00:00+02:00'
    date(at) = '2024-03-09'
    wall >= timestamp_ntz '2024-03-10 20:30:00'
    hour(wall) = 3 or hour(at) = 3
    price > 10.255 and price < 60
    price = 12.5
    fare = 0 or fare = double('nan')
    fare > 1e300
    address.zip > 40 or address.street = 's1'
    address is null
    ok
    id = n
    id in (select max(id) from changed group by city)
    exists (select 1 from before_it b where b.id = changed.id + 1 and b.n > 7)
    n > (select avg(n) from changed)
    """
)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in (1, 2, 3))]
)
def test_a_delete_leaves_the_rows_that_do_not_satisfy_its_condition(sql, part):
    for (condition,) in CONDITIONS[part::4]:
        before = kept(sql)
        remains = f"not coalesce({condition.replace('changed', BEFORE)}, false)"
        remaining = sql.sql(f"select * from {BEFORE} where {remains}").toArrow().cast(SCHEMA)
        deleted = counts(sql, f"delete from {TABLE} where {condition}")
        assert deleted == (len(before) - len(remaining),), condition
        assert bag(mdt.open(path(sql)).scan().to_arrow()) == bag(remaining), condition
        mdt.open(path(sql)).upsert(before)
    check(sql, rows())


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"n": "7", "name": "'it\\'s'"}, "n = 3"),
        pytest.param(
            {"n": "null", "price": "3.14159", "fare": "2", "ok": "true"},
            "city = 'Rome'",
            marks=NIGHTLY,
        ),
        (
            {
                "day": "'2020-02-29'",
                "at": "'2024-03-10 02:30:00'",
                "wall": "timestamp_ntz '2024-03-10 02:30:00'",
            },
            "n < 5",
        ),
        (
            {"n": "n * 2 + id", "name": "concat(name, '!')", "price": "price / 3"},
            "name is not null",
        ),
        ({"at": "at + interval 1 day", "day": "at", "wall": "at"}, "hour(at) < 12"),
        pytest.param(
            {"fare": "case when n > 4 then fare / 2 when ok then null else id end"},
            "true",
            marks=NIGHTLY,
        ),
        pytest.param(
            {"address": "named_struct('zip', n, 'street', name)"}, "id % 2 = 0", marks=NIGHTLY
        ),
        ({"n": "(select count(*) from before_it)"}, "n = (select max(n) from before_it)"),
        ({"ts": "ts - 5", "n": "1"}, "id = 5"),
        ({"n": "1", "fare": "double('-0.0')"}, "id = 5"),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, dict) else "",
)
def test_an_update_sets_the_values_that_an_insert_would_store(sql, values, where):
    assignments = ", ".join(f"{name} = {value}" for name, value in values.items())
    assert_updates(sql, assignments, values, where)


def assert_updates(sql, assignments, values, where):
    """Assert that an update sets ``values`` in the rows that satisfy ``where``."""
    kept(sql)
    expected_rows = expected(sql, values, where)
    affected = counts(sql, f"select count(*) from {BEFORE} where {where}")
    assert counts(sql, f"update {TABLE} x set {assignments} where {where}") == affected
    check(sql, expected_rows)


@pytest.mark.parametrize(
    ("said", "zip", "street"),
    [
        ("address.zip = address.zip + n", "address.zip + n", "address.street"),
        ("x.address.street = name, address.zip = 7L", "7", "name"),
        ("address.zip = null", "null", "address.street"),
    ],
)
def test_an_update_sets_struct_fields_and_keeps_the_other_fields(sql, said, zip, street):
    struct_values = {"address": f"named_struct('zip', {zip}, 'street', {street})"}
    assert_updates(sql, said, struct_values, "n < 6")


def test_a_merge_sets_struct_fields(sql):
    kept(sql)
    struct_values = {"address": "named_struct('zip', int(id) * 3, 'street', address.street)"}
    expected_rows = expected(sql, struct_values, "id < 9")
    source = f"(select distinct id, id * 3 as zip from {BEFORE} where id < 9) s on t.id = s.id"
    update = "when matched then update set t.address.zip = int(s.zip)"
    sql.sql(f"merge into {TABLE} t using {source} {update}")
    check(sql, expected_rows)


def test_statements_run_as_where_operations_if_mdt_can_evaluate_them_and_else_as_merges(
    sql,
):
    exact = "at < '2024-03-10 03:00:00' and address.zip in (1, 2, 30)"
    sql.sql(f"update {TABLE} set n = 1 + 1, day = current_date() where {exact}")
    sql.sql(f"delete from {TABLE} where name like 'it%' and not (n <=> 4)")
    sql.sql(f"update {TABLE} set n = n + 1 where ok")
    sql.sql(f"delete from {TABLE}")
    assert operations(sql) == ["update_where", "delete_where", "merge", "delete_where"]
    check(sql, SCHEMA.empty_table())


WITHOUT_CHANGES = cases(
    """
    update {} set id = id, city = city where id < 5 -> (5,)
    merge into {} t using (select 1L id union all select 999L) s on t.id = s.id when matched then update set id = s.id -> (1, 1, 0, 0)
    merge into {} t using (select 1L id) s on t.id = s.id and t.n > 1 when not matched by source then update set city = t.city -> (60, 60, 0, 0)
    """
)


def test_rows_set_to_their_own_values_count_as_updated(sql):
    before = kept(sql)
    for statement, affected in WITHOUT_CHANGES:
        assert str(counts(sql, statement.format(TABLE))) == affected, statement
    check(sql, before)


@pytest.mark.parametrize("kind", ["temporary view", "view"])
@pytest.mark.parametrize(
    "query",
    [
        "select * from changed",
        "select * from changed where id > 3",
        "select id as n, n as id from changed",
    ],
)
def test_statements_on_views_over_queries_are_refused(sql, query, kind):
    sql.sql(f"create or replace {kind} asked_for as {query}")
    for statement in (
        "delete from asked_for where id = 4",
        "update asked_for set n = 1",
        "merge into asked_for v using (select 1L id) s on v.id = s.id when matched then delete",
    ):
        with pytest.raises(PySparkException, match=r"Unsupported: .* for a view"):
            sql.sql(statement)
    assert sql.table("asked_for").count() > 50
    sql.sql("drop view asked_for")


REFUSED = cases(
    """
    update changed set id = 5 -> belongs to the key
    update changed set city = concat(city, '!') -> the key or the partition
    update changed set address.zip = 5, address.zip = 6 -> zip.* is set twice
    update changed set address.zip = 5, address = null -> address is set twice
    update changed set address.zip = 'five and a half' -> CAST_INVALID_INPUT|cannot be cast
    update changed set address.nowhere = 5 -> nowhere
    update changed set n = name -> (?i)cannot|invalid|requires int
    update changed set n = 10000000000 -> (?i)overflow|out of range
    update changed set n = n * 1000000000 -> (?i)overflow
    update changed set n = 1, n = 2 -> (?i)set twice|duplicate|conflicting
    update changed set n = 1, N = 2 -> (?i)set twice|duplicate|conflicting
    update changed set ID = 5 -> belongs to the key
    delete from changed where cast(name as int) = 3 -> (?i)cannot be cast
    delete from changed where nope = 3 -> (?i)nope
    delete from changed where n / 0 > 1 -> (?i)divi
    merge into changed t using (select 1L id, 5 n union all select 1L, 6) s on t.id = s.id when matched then update set n = s.n -> match several rows
    merge into changed t using (select 1L id) s on t.id = s.id when matched then update set id = 3 -> belongs to the key
    merge into changed t using (select 1000L id) s on t.id + 1 = s.id when not matched then insert (id, city, ts) values (1, 'Rome', 1) -> exist already
    merge into changed t using (select 77L id) s on t.id = s.id when not matched then insert (id, city) values (s.id, 'Rome') -> needs a value for the column 'ts'
    merge with schema evolution into changed t using before_it s on t.id = s.id when matched then update set * -> SCHEMA EVOLUTION
    """
)


@pytest.mark.parametrize(("statement", "reason"), REFUSED)
def test_invalid_statements_are_refused_and_write_nothing(
    spark, tmp_path_factory, statement, reason
):
    mdt.spark.enable(spark)
    folder = tmp_path_factory.getbasetemp() / "refused_sql" / "t"
    if not folder.exists():
        stored(folder, rows(), partition_by="city", ordering="ts")
    plain_copy(spark, rows(), folder.parent)
    spark.sql(f"create table if not exists {TABLE} using mdt location '{folder}'")
    with pytest.raises(PySparkException, match=reason):
        spark.sql(statement)
    spark.sql(f"drop table {TABLE}")
    assert len(mdt.open(folder).history()) == 2


def with_changes(before, change):
    """Return rows with ``change`` applied: id -> changed columns, or None for a deleted row."""
    by_id = {row["id"]: row for row in before.to_pylist()}
    for key, values in change.items():
        by_id[key] = {**NULLS, **by_id.get(key, {}), **(values or {})}
        if values is None:
            del by_id[key]
    return pa.Table.from_pylist(list(by_id.values()), SCHEMA)


def assert_merges(
    sql,
    source,
    statement,
    change,
    counted,
    into=TABLE,
):
    """Assert the rows after a MERGE of ``source``, and its counts."""
    expected_rows = with_changes(kept(sql), change)
    sql.sql(source).createOrReplaceTempView("given")
    assert counts(sql, f"merge into {into} t using given s on {statement}") == counted
    check(sql, expected_rows)


SOURCE = """select * from values (1L, 'Rome', 100, 5L), (2L, 'O\\'Hare', null, 6L),
    (3L, 'Rome', 300, 7L), (99L, 'Oslo', 900, 8L), (null, 'Oslo', 1, 1L) as v(id, city, n, ts)"""
CLAUSES = """t.city = s.city when matched and s.n is null then delete
    when matched then update set n = s.n + 1, ts = s.ts when not matched and s.n > 500 then
    insert (id, city, n, ts) values (s.id, s.city, s.n, s.ts)"""
CHANGE = {1: {"n": 101, "ts": 5}, 2: None, 99: NEW}


@pytest.mark.parametrize("key", ["t.id", "t.id + 0"])
def test_a_merge_by_key_and_a_merge_by_join_have_the_same_result(sql, key):
    # id 3 is in Oslo, so the row of the source for Rome matches no row.
    assert_merges(sql, SOURCE, f"{key} = s.id and {CLAUSES}", CHANGE, (3, 1, 1, 1))


def test_merge_clauses_use_both_sides_and_rows_without_a_match(sql):
    deleted_ids = [
        row["id"]
        for row in rows().to_pylist()
        if row["n"] == 9 and row["id"] % 4 == 1 and row["id"] % 8 != 7
    ]
    change = {
        99: {"id": 99, "city": "Oslo", "ts": 8, "fare": 1 / 800},
        3: {"n": None, "name": "RomeOslo"},
        58: {"n": -1, "name": "BACK\\SLASH"},
        59: {"n": -1, "name": "50%_OFF"},
        **dict.fromkeys(deleted_ids),
    }
    statement = """t.id = s.id when matched and s.n > t.id + 150 then
        update set n = t.n + s.n, name = concat(s.city, t.city)
        when not matched and s.id is not null then
        insert (id, city, ts, fare) values (s.id, s.city, s.ts, 1 / (s.n - 100))
        when not matched by source and t.n = 9 and t.address.street = 's1' then delete
        when not matched by source and t.id >= 58 then
        update set n = -1, name = upper(t.name)"""
    assert deleted_ids
    assert_merges(sql, SOURCE, statement, change, (len(deleted_ids) + 4, 3, len(deleted_ids), 1))


def test_a_merge_with_star_assigns_columns_by_name(sql):
    kept(sql)
    source = f"""select id, city, 5 n, name, day, at, wall, price, fare, ok, address, 2L ts
        from {BEFORE} where id in (4, 5) union all
        select 70L, 'New', null, 'x', null, null, null, 1.5, 2, true, null, 2L"""
    new = {"id": 70, "city": "New", "name": "x", "price": Decimal("1.50"), "fare": 2.0}
    change = {4: {"n": 5, "ts": 2}, 5: {"n": 5, "ts": 2}}
    change[70] = new | {"ok": True, "ts": 2}
    clauses = "when matched then update set * when not matched then insert *"
    assert_merges(sql, source, f"t.id = s.id and t.city = s.city {clauses}", change, (3, 2, 0, 1))


def test_column_names_may_be_written_in_any_case(sql):
    kept(sql)
    address = "if(address is null, null, named_struct('zip', 5, 'street', address.street))"
    expected_rows = expected(sql, {"n": "8", "address": address}, "id = 3")
    sql.sql(f"update {TABLE} set N = 4 + 4 where ID = 3")
    sql.sql(f"update {TABLE} set Address.ZIP = 5 where Id = 3")
    assert operations(sql) == ["update_where", "merge"]
    check(sql, expected_rows)
    assert_merges(
        sql,
        "select 4L as ID, 'Rome' as CITY, 9 as N union all select 71L, 'New', 1",
        """T.Id = s.iD and T.City = s.citY when matched then update set N = s.n
           when not matched then insert (ID, City, TS) values (s.id, s.City, 2L)""",
        {4: {"n": 9}, 71: {"id": 71, "city": "New", "ts": 2}},
        (2, 1, 0, 1),
    )
    sql.sql(f"delete from {TABLE} where Id >= 0")
    assert operations(sql)[-1] == "delete_where"


READING = cases(
    """
    with c as (select 4L id) merge into changed t using c on t.id = c.id when matched then delete -> (1, 0, 1, 0)
    merge into changed t using changed s on t.id = s.id and t.city = s.city when matched and s.id < 3 then update set n = s.n + 1 -> (3, 3, 0, 0)
    merge into changed t using (with c as (select 5L id) select id from c) s on t.id = s.id and s.id in (select id from changed) when matched then update set n = (select max(id) from changed) -> (1, 1, 0, 0)
    merge into changed t using (select 5L id) s on t.id = s.id when matched and t.n <> 59 then delete -> (0, 0, 0, 0)
    """
)


def test_a_merge_reads_ctes_subqueries_and_the_table_itself(sql):
    for statement, counted in READING:
        assert str(counts(sql, statement)) == counted, statement
    remaining = numbers(sql)
    assert 4 not in remaining and [remaining[i] for i in (0, 1, 2, 5)] == [1, 2, 3, 59]


def in_tasks(sql, local_bytes=0):
    """Return a view of the table whose rows are written in tasks, unless they are few."""
    options = f"path '{path(sql)}', `mdt.spark.local.bytes.max` '{local_bytes}'"
    sql.sql(f"create or replace temporary view changed_in_tasks using mdt options ({options})")
    return "changed_in_tasks"


def test_statements_that_change_too_many_rows_for_the_driver_run_in_tasks(sql):
    view = in_tasks(sql)
    kept(sql)
    expected_rows = expected(sql, {"n": "n + 1", "name": "upper(name)"}, "id % 3 = 1")
    update = f"update {view} set n = n + 1, name = upper(name) where id % 3 = 1"
    assert counts(sql, update) == (20,)
    check(sql, expected_rows)
    assert_merges(sql, SOURCE, f"t.id = s.id and {CLAUSES}", CHANGE, (3, 1, 1, 1), view)
    elsewhere = "t.id + 1 = s.id when not matched then insert (id, city, ts) values (s.id, 'x', 1)"
    with pytest.raises(PySparkException, match="have the key by which they are matched"):
        sql.sql(f"merge into {view} t using given s on {elsewhere}")
    assert operations(sql) == ["merge", "merge"]


@pytest.fixture
def meanwhile(sql, monkeypatch):
    """A function that lets another writer change a row while the edits of a statement are computed.
    It returns the list of commits for which edits are computed.
    """
    compute_edits = Statement.edits

    def begin(is_planned=True, **other):
        commits = []

        def edits(self, seq):
            computed = compute_edits(self, seq) if is_planned else None
            if other and not commits:
                mdt.open(path(sql)).upsert([NULLS | other])
            commits.append(seq)
            return compute_edits(self, seq) if computed is None else computed

        monkeypatch.setattr(Statement, "edits", edits)
        return commits

    return begin


@pytest.mark.parametrize("local_bytes", [0, 1 << 26])
@pytest.mark.parametrize("other", [{"id": 99, "city": "Oslo", "n": 4, "ts": 9}, {}])
def test_a_merge_that_inserts_by_key_notices_concurrent_inserts_and_repeated_keys(
    sql, meanwhile, local_bytes, other
):
    view, commits = in_tasks(sql, local_bytes), meanwhile(**other)
    sql.sql(SOURCE).createOrReplaceTempView("given")

    def merge(source):
        update = "when matched then update set n = coalesce(t.n, 0) + s.n"
        insert = "when not matched then insert (id, city, n, ts) values (s.id, s.city, s.n, s.ts)"
        on = f"t.id = s.id and t.city = s.city {update} {insert}"
        return counts(sql, f"merge into {view} t using ({source}) s on {on}")

    merged = merge("select * from given where id is not null and n is not null")
    assert merged == ((3, 2, 0, 1) if other else (3, 1, 0, 2))
    assert len(commits) == 1 + bool(other) and numbers(sql)[99] == (904 if other else 900)
    twice = """select * from given where id = 99 union all select 100L, 'Oslo', 1, 1L
        union all select 100L, 'Oslo', 2, 1L"""
    with pytest.raises(PySparkException, match="occurs? twice|several rows|repeat|same key"):
        merge(twice)
    mdt.open(path(sql)).upsert([{**NULLS, "id": 101, "ts": 1}])
    problem = "exist already" if local_bytes else "equate in ON every column of the key and of"
    with pytest.raises(PySparkException, match=problem):
        merge("select 101L id, nullif('a', 'a') city, 5 n, 1L ts")


@pytest.mark.parametrize(
    ("other", "times", "n"), [({"id": 1, "city": "Rome"}, 2, 51), ({"id": 3, "city": "Oslo"}, 1, 2)]
)
def test_edits_are_computed_again_if_others_change_their_rows_meanwhile(
    sql, meanwhile, other, times, n
):
    commits = meanwhile(**other, n=50, ts=9)
    assert counts(sql, f"update {TABLE} set n = n + 1 where id = 1 and n + 1 > 0") == (1,)
    assert len(commits) == times and numbers(sql)[1] == n


READS_ITSELF = cases(
    """
    update changed set n = (select count(*) from changed) where id = 1 -> 60
    merge into changed t using changed s on t.id = s.id and s.id = 1 when matched then update set n = (select count(*) from changed) -> 60
    merge into changed t using (select 1L id, 'Rome' city) s on t.id = s.id and t.city = s.city when matched and s.id < (select count(*) from changed) then update set n = (select count(*) from changed) -> 60
    merge into changed t using (select max(id) id from changed) s on t.id = 1 when matched then update set n = s.id -> 59
    merge into changed t using (select max(id) id from by_path) s on t.id = 1 when matched then update set n = s.id -> 59
    update changed set n = (select count(*) from by_path) where id = 1 -> 60
    update changed set n = (select count(*) from of_a_frame) where id = 1 -> 60
    update by_path set n = (select count(*) from changed) where id = 1 -> 60
    """
)


@pytest.fixture
def other_names(sql):
    """Views of the table."""
    options = f"path '{path(sql)}', `mdt.spark.local.bytes.max` '1000000'"
    sql.sql(f"create or replace temporary view by_path using mdt options ({options})")
    mdt.read(sql, path(sql)).createOrReplaceTempView("of_a_frame")


@pytest.mark.parametrize("is_planned", [True, False])
@pytest.mark.parametrize(("statement", "n"), READS_ITSELF, ids=range(len(READS_ITSELF)))
def test_a_statement_reads_one_state_of_its_table_under_all_its_names(
    sql, meanwhile, other_names, statement, n, is_planned
):
    commits = meanwhile(is_planned, id=99, city="Bern", n=1, ts=9)
    assert counts(sql, statement)[0] == 1
    assert len(commits) == 1 and numbers(sql)[1] == int(n)


@pytest.fixture
def commits_read(sql, monkeypatch):
    """The commits at which a query reads the table that it writes. Another writer commits rows
    after the first read.
    """
    original_at, commits = WrittenRows.at, []

    def at(self, root, seq):
        result = original_at(self, root, seq)
        if not commits:
            mdt.open(path(sql)).upsert(
                [NULLS | {"id": key, "city": "Rome", "n": 70, "ts": 9} for key in (1, 99)]
            )
        commits.append(seq)
        return result

    monkeypatch.setattr(WrittenRows, "at", at)
    return commits


COLUMNS = ", ".join(name for name in SCHEMA.names if name != "n")
FRAME_WRITES = {
    "append": lambda writer, path: writer.mode("append").save(path),
    "overwrite": lambda writer, path: writer.mode("overwrite").save(path),
    "overwrite of partitions": lambda writer, path: (
        writer.mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    ),
    "saveAsTable": lambda writer, _: writer.mode("append").saveAsTable(TABLE),
}


@pytest.mark.parametrize("how", ["into", "overwrite"])
@pytest.mark.parametrize("name", [TABLE, "by_path", "of_a_frame"])
@pytest.mark.parametrize("local_bytes", ["0", "1000000"])
def test_an_insert_that_reads_its_table_keeps_rows_that_others_write_meanwhile(
    sql, commits_read, other_names, how, name, local_bytes
):
    with settings(sql, {LOCAL_BYTES: local_bytes}):
        sql.sql(f"insert {how} {TABLE} by name select n + 1 n, {COLUMNS} from {name}")
    stored_numbers = numbers(sql)
    assert len(stored_numbers) == 61 and (stored_numbers[1], stored_numbers[2]) == (71, 3)
    assert len(commits_read) == 2 and commits_read[0] < commits_read[1] and stored_numbers[99] == 71


def test_an_insert_into_several_tables_keeps_rows_that_others_write_meanwhile(sql, commits_read):
    sql.sql("create table found_ids using mdt options (key 'id') as select 0L id")
    sql.sql(
        f"from {TABLE} insert into found_ids select id"
        f" insert overwrite {TABLE} by name select n + 1 n, {COLUMNS}"
    )
    stored_numbers = numbers(sql)
    assert len(stored_numbers) == 61 and (
        stored_numbers[1],
        stored_numbers[2],
        stored_numbers[99],
    ) == (71, 3, 71)
    assert len(commits_read) == 2 and sql.table("found_ids").count() == 60


@pytest.mark.parametrize("how", FRAME_WRITES)
@pytest.mark.parametrize("name", [TABLE, "of_a_frame"])
def test_writing_a_frame_of_the_same_table_keeps_rows_that_others_write_meanwhile(
    sql, commits_read, other_names, how, name
):
    rows = sql.table(name).withColumn("n", sf.col("n") + 1)
    FRAME_WRITES[how](rows.write.format("mdt"), path(sql))
    stored_numbers = numbers(sql)
    assert len(stored_numbers) == 61 and (stored_numbers[1], stored_numbers[2]) == (71, 3)
    assert len(commits_read) == 2 and commits_read[0] < commits_read[1] and stored_numbers[99] == 71


def test_writing_a_frame_of_the_same_table_may_add_a_column(sql):
    rows = sql.table(TABLE).withColumn("twice", sf.col("n") * 2)
    rows.write.format("mdt").mode("append").option("evolve", "true").save(path(sql))
    [row] = mdt.open(path(sql)).scan("id = 2").to_arrow().to_pylist()
    assert row["twice"] == 2 * row["n"]


def test_writing_a_frame_created_before_an_alteration_of_its_table_is_refused(sql, other_names):
    rows = sql.table("of_a_frame")
    mdt.open(path(sql)).alter(add={"extra": pa.int64()})
    with pytest.raises(PySparkException, match="altered after this session has read it"):
        rows.write.format("mdt").mode("overwrite").save(path(sql))


def test_statements_run_once_in_any_thread_and_session_and_not_when_explained(
    sql,
):
    sql.sql(f"explain extended delete from {TABLE}").collect()
    affected = []

    def run(session, key):
        affected.append(counts(session, f"delete from {TABLE} where id = {key}"))

    sessions = [sql, *(sql.newSession() for _ in range(3))]
    mdt.spark.enable(sessions[1])  # already enabled in the whole process
    threads = [threading.Thread(target=run, args=each[::-1]) for each in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert affected == [(1,)] * 4
    update = sql.sql(f"update {TABLE} set n = n + 1 where id = 11")
    assert update.collect() == update.collect() and update.columns == ["num_affected_rows"]
    check(sql, with_changes(rows(), {0: None, 1: None, 2: None, 3: None, 11: {"n": 2}}))


def test_views_of_a_path_accept_statements_and_views_of_past_states_refuse_them(sql):
    view = "create or replace temporary view"
    sql.sql(f"{view} by_path using mdt options (path '{path(sql)}')")
    sql.sql(f"{view} of_the_past using mdt options (path '{path(sql)}', as_of '1')")
    assert counts(sql, "delete from by_path where id < 5") == (5,)
    assert counts(sql, "update by_path set n = n + id where id = 5") == (1,)
    with pytest.raises(PySparkException, match="read options are not allowed in a write: as_of"):
        sql.sql("delete from of_the_past")
    with pytest.raises(PySparkException):
        sql.sql("delete from changed with (as_of = '1') where id = 7")
    assert sql.table("by_path").count() == 55 and sql.table("of_the_past").count() == 60


def test_a_cached_table_is_read_again_after_a_statement(sql):
    sql.sql(f"cache table {TABLE}")
    assert sql.table(TABLE).count() == 60
    sql.sql(f"delete from {TABLE} where id < 10")
    assert sql.table(TABLE).count() == 50
    sql.sql(f"uncache table {TABLE}")


def test_tables_with_repeated_keys_refuse_updates_with_values_of_rows(named, tmp_path):
    rows = pa.table({"id": [1, 2], "n": [1, 2]})
    table = stored(tmp_path / "twice", rows, options={"mdt.keys.repeat": True})
    table.insert(rows, check=False)
    named.sql(f"create table twice using mdt location '{tmp_path / 'twice'}'")
    with pytest.raises(PySparkException, match="requires unique keys"):
        named.sql("update twice set n = n + 1")
    assert counts(named, "update twice set n = 5 where id = 1") == (2,)
    assert counts(named, "delete from twice where n = 2") == (2,)
    assert tuples(named.table("twice")) == [(1, 5), (1, 5)]
