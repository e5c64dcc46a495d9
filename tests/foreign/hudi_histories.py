"""Histories of tables that Hudi writes, one function each."""

from __future__ import annotations

from hudi_table import MOR

OLD_LISTS = "parquet.avro.write-old-list-structure"
"""Setting of Hudi's Parquet writer: lists without a group for each element. Elements cannot be
null.
"""


def whole_life(t):
    """Every kind of write and every service."""
    is_mor = t.kind == MOR
    t.insert(range(40), 10)
    t.keep("insert")
    t.upsert(range(10, 22), 20, 100)
    t.delete(range(4, 8), 20)
    t.keep("deleted")
    t.upsert(range(15, 30), 15, 500)
    t.upsert(range(4, 6), 5, 900)
    t.keep("late")
    if t.version >= 8 or not is_mor:
        t.sql("update {t} set v = -1 where id in ('k001', 'k011')")
        t.sql("delete from {t} where id = 'k002'")
        t.keep("sql")
    if is_mor:
        t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
        t.keep("compacted")
        t.upsert(range(30, 45), 40, 7)
        t.sql("call run_compaction(op => 'schedule', table => '{t}')")
        t.keep("compaction_planned")
        t.upsert(range(33, 47), 50, 9)
        t.keep("compaction_pending")
        t.sql("call run_compaction(op => 'run', table => '{t}')")
        t.keep("compacted_late")
    t.sql(f"call create_savepoint(table => '{t.name}', commit_time => '{t.last()}')")
    t.upsert(range(1, 9), 60, 11)
    t.keep("savepoint")
    if t.options["hoodie.metadata.enable"] == "false":
        t.upsert(range(5), 70, 13)
        t.uncomplete()
        t.keep("writer_died")
        t.upsert(range(3), 75, 17)
        t.keep("rolled_back")
    t.sql("call run_clustering(table => '{t}', op => 'schedule', order => 'v')")
    t.keep("clustering_pending")
    t.sql("call run_clustering(table => '{t}', op => 'execute')")
    t.keep("clustered")
    t.upsert(range(20, 36), 80, 19)
    t.keep("upsert", as_of=True)
    t.sql("call run_clean(table => '{t}', retain_commits => 2)")
    t.keep("cleaned")
    t.write("insert_overwrite", [3, 6, 9], 90, 23)
    t.keep("overwritten")
    t.sql("alter table {t} drop partition (city='rome')")
    t.keep("partition_dropped", as_of=True)
    for n in range(4):
        t.upsert(
            range(n, n + 3),
            100 + n,
            29,
            **{
                "hoodie.archive.automatic": "true",
                "hoodie.keep.min.commits": "3",
                "hoodie.keep.max.commits": "4",
                "hoodie.clean.automatic": "true",
                "hoodie.clean.commits.retained": "1",
            },
        )
    t.keep("archived", as_of=True)


def merges(t):
    """Late rows, deletes of all kinds, keys inserted again, several blocks and a compaction."""
    t.insert(range(30), 10)
    t.upsert(range(5, 12), 20, 100)
    t.delete(range(8, 14), 20)
    t.upsert(range(10, 20), 15, 500)
    t.upsert(range(8, 10), 5, 900)
    t.keep("late")
    t.delete(range(18, 40), 1)
    t.upsert(range(28, 34), 10, 7)
    t.upsert(range(28, 31), 9, 8)
    t.keep("deleted_absent")
    if t.kind == MOR:
        t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
    t.upsert(range(3), 9, 1)
    t.upsert(range(2), 10, 2)
    t.delete([20, 21], 30)
    t.upsert([20], 8, 3)
    t.keep("after_compaction", as_of=True)


def soft_deletes(t):
    """Rows that ``_hoodie_is_deleted`` marks as deletes, whose ordering values are compared."""
    t.columns["_hoodie_is_deleted"] = "false"
    deleted = {"_hoodie_is_deleted": "true"}
    t.insert(range(20), 10)
    t.write("upsert", range(5), 20, 0, deleted)
    t.write("upsert", range(5, 10), 5, 0, deleted)
    t.write("upsert", range(10, 12), 10, 0, deleted)
    t.keep("deleted")
    t.upsert(range(3), 15, 1)
    t.upsert(range(2, 7), 20, 2)
    t.write("upsert", [2, 6, 30], 25, 3, {"_hoodie_is_deleted": "n % 2 = 0"})
    t.keep("returned")


def ordering_by(expression, history=soft_deletes):
    """Return a history of rows with an expression of ``ts`` as the ordering field."""

    def ordered(t):
        t.columns["ts"] = expression
        history(t)

    return ordered


def deletes_in_a_log(t):
    """Deletes by key and by a condition, in a table with keys in several columns."""
    t.insert(range(20), 10)
    t.delete(range(3), 20)
    t.upsert([2, 3, 4], 30, 5)
    t.sql("delete from {t} where v between 6 and 8")
    t.keep("deleted")
    t.upsert([7], 5, 9)
    t.keep("returned")


def two_writes(t):
    """An insert, an update and a delete."""
    t.insert(range(20), 10)
    t.upsert(range(5, 9), 20, 100)
    t.delete(range(7, 10), 20)
    t.keep("updated")


def statements(t):
    """SQL INSERT, UPDATE, DELETE and MERGE on a table that SQL created, without record keys."""
    t.sql(
        "create table {t} (name string, n int, v double, city string) using hudi"
        f" tblproperties (type = '{t.kind[0].replace('C', 'cow').replace('M', 'mor')}')"
        " partitioned by (city) location '{path}'"
    )
    t.sql("insert into {t} values ('a', 1, 1.5, 'x'), ('b', 2, null, 'x'), ('c', 3, 3.5, 'y')")
    t.sql("insert into {t} values ('a', 1, 1.5, 'x'), ('d', 4, 0.0, 'z')")
    t.keep("inserted")
    t.sql("update {t} set v = n * 2 where name = 'a'")
    t.sql("delete from {t} where name = 'c'")
    t.keep("updated")
    t.sql(
        "merge into {t} as t using (select 'd' as name, 40 as n) as s on t.name = s.name"
        " when matched then update set t.n = s.n"
    )
    t.keep("merged")


def vectors(t):
    """Columns of Hudi's types VECTOR and BLOB, written by SQL."""
    t.sql(
        "create table {t} (id string, ts bigint, e vector(3), d vector(2, double),"
        " i vector(3, int8), b blob) using hudi tblproperties (primaryKey = 'id',"
        f" orderingFields = 'ts', type = '{t.kind[0].replace('C', 'cow').replace('M', 'mor')}')"
        " location '{path}'"
    )
    row = (
        "select '{}' as id, {}L as ts, array(cast({} as float), cast(-1.25 as float), float(3)) as e,"
        " array(1.5D, {}D) as d, array(tinyint(1), tinyint({}), tinyint(-3)) as i, named_struct("
        "'type', 'INLINE', 'data', binary('{}'), 'reference', cast(null as struct<external_path:"
        " string, offset: bigint, length: bigint, managed: boolean>)) as b"
    )
    nothing = "select '{}' as id, {}L as ts, null as e, null as d, null as i, null as b"
    for number in range(3):
        values = [f"{number}.5", number, number, f"bytes {number}"]
        rows = [row.format(f"k{number}", number, *values), row.format("k9", number, *values)]
        t.sql(f"insert into {{t}} {' union all '.join(rows)} union all {nothing.format('k8', 1)}")
        t.keep(f"written_{number}")
    t.sql("update {t} set e = null, ts = 7 where id = 'k1'")
    t.sql("delete from {t} where id = 'k2'")
    t.keep("changed", as_of=True)
    if t.kind == MOR:
        t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
        t.keep("compacted")


def partial_updates(t):
    """MERGE INTO statements that set a few columns, late ones too, with deletes and inserts."""
    merge = (
        "merge into {{t}} t using (select * from values {rows} as r({names})) s on t.id = s.id"
        " when matched then update set {sets}"
    )
    t.insert(range(20), 10)
    t.sql(
        merge.format(
            rows="('k001', 50L, 77, 'rome'), ('k006', 15L, 78, 'paris'), ('k007', 5L, 79, 'rome')",
            names="id, ts, v, city",
            sets="t.v = s.v, t.ts = s.ts",
        )
    )
    t.keep("merged")
    t.upsert([6, 7, 8], 20, 100)
    t.sql(
        merge.format(
            rows="('k001', 40L, 1.5D), ('k008', 30L, 2.5D), ('k009', 30L, null)",
            names="id, ts, price",
            sets="t.price = s.price, t.ts = s.ts",
        )
    )
    t.sql(
        merge.format(
            rows="('k008', 31L, 0.25), ('k009', 9L, 0.5), ('k010', 31L, 0.75)",
            names="id, ts, cost",
            sets="t.cost = s.cost, t.ts = s.ts",
        )
    )
    t.keep("merged_again")
    t.delete([8], 40)
    t.sql(
        merge.format(
            rows="('k008', 50L, true), ('k010', 50L, true)",
            names="id, ts, ok",
            sets="t.ok = s.ok, t.ts = s.ts",
        )
    )
    t.sql(
        "merge into {t} t using (select 'k011' id, 60L ts, 'gone' as what union all"
        " select 'k012', 60L, 'new') s on t.id = s.id"
        " when matched and s.what = 'gone' then delete"
        " when matched then update set t.ts = s.ts, t.tags = array(s.what)"
    )
    t.keep("merged_after_a_delete")
    t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
    t.upsert([12], 70, 9)
    t.sql(
        merge.format(
            rows="('k012', 80L, 5), ('k013', 80L, 6)",
            names="id, ts, v",
            sets="t.v = s.v, t.ts = s.ts",
        )
    )
    t.keep("compacted")


def evolved(t):
    """Columns that are added, widened and reordered, then old rows beside new ones."""
    t.columns |= {"ratio": "cast(n + 0.1 as float)", "code": "cast(n as int)"}
    t.insert(range(20), 10)
    t.columns["note"] = "if(n < 0, null, concat('note ', n))"
    t.upsert([1, 2], 20, 1)
    t.keep("added")
    t.columns["code"] = "cast(n as bigint) + 5000000000"
    t.columns["ratio"] = "cast(n as double) / 3"
    t.columns["v"] = "cast(n as double) + 0.5"
    t.upsert([3, 4], 20, 2)
    t.keep("widened")
    t.columns = dict(sorted(t.columns.items(), reverse=True))
    t.upsert([5, 6], 20, 3)
    t.keep("reordered")
    struct = "named_struct('x', cast(n as bigint), 'name', 'at {ts}', 'z', if(n < 8, null, n / 3))"
    t.columns["spot"] = f"if(n < 0, null, {struct})"
    t.upsert([7, 8], 20, 4)
    t.keep("nested_added")
    t.upsert([1], 30, 5)
    t.delete([2], 30)
    t.keep("updated", as_of=True)


def to_strings(t):
    """Columns whose type changes from numbers to texts."""
    t.columns |= {"ratio": "cast(n + 0.1 as float)", "code": "cast(n as int)"}
    t.insert(range(20), 10)
    t.columns |= {"code": "concat('c', n)", "ratio": "concat('r', n)", "v": "concat('v', n)"}
    t.columns |= {"price": "concat('p', n)"}
    t.upsert([1, 2], 20, 1)
    t.keep("strings")


def left_out(t):
    """Columns that are missing in a later write."""
    t.insert(range(20), 10)
    del t.columns["price"], t.columns["tags"]
    t.upsert([1, 2], 20, 1)
    t.keep("left_out")


def schema_on_read(t):
    """Columns that ALTER TABLE renames, retypes, drops and adds again, with Hudi's schema on read."""
    t.insert(range(20), 10)
    t.sql("alter table {t} add columns (extra int)")
    t.keep("added")
    t.sql("alter table {t} rename column v to w")
    t.keep("renamed")
    t.columns["w"], t.columns["extra"] = t.columns.pop("v"), "cast(n as int)"
    t.upsert(range(5, 25), 20, 100)
    t.keep("written")
    t.sql("alter table {t} alter column w type bigint")
    t.columns["w"] = "n + {add} + 5000000000"
    t.sql("alter table {t} drop column price")
    del t.columns["price"]
    t.keep("dropped")
    t.upsert(range(15, 30), 30, 200)
    t.sql("alter table {t} add columns (price double)")
    t.keep("added_again")
    t.columns["price"] = "n / 2"
    t.upsert(range(3), 40, 300)
    t.keep("written_again", as_of=True)
    t.sql("alter table {t} rename column spot.x to east")
    t.sql("alter table {t} rename column extra to v")
    t.keep("renamed_in_struct")
    t.columns["spot"] = t.columns["spot"].replace("'x'", "'east'")
    t.columns["v"] = t.columns.pop("extra")
    t.upsert(range(2, 6), 50, 400)
    t.delete(range(8, 10), 50)
    t.keep("deleted")
    if t.kind == MOR:
        t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
        t.keep("compacted")
    t.sql("call run_clustering(table => '{t}', op => 'scheduleAndExecute')")
    t.keep("clustered", as_of=True)
    t.upsert(range(4), 60, 500)
    t.keep("updated")


def texts(t):
    """Keys and partitions that are not ASCII, and with characters that paths escape."""
    t.columns["id"] = (
        "concat(element_at(array('ключ', '日本', '😀', 'a:b,c', 'é/%3D', 'ﬀ'),"
        " cast(n % 6 as int) + 1), n)"
    )
    t.columns["city"] = (
        "element_at(array('münchen', '東京', 'a b', 'x=y', null), cast(n % 5 as int) + 1)"
    )
    two_writes(t)
    t.upsert(range(40), 15, 7)
    t.keep("late")


def three_levels(t):
    """Partitions of three columns."""
    t.columns["country"] = "if(n % 2 = 0, 'fr', 'it')"
    two_writes(t)
    t.write("insert_overwrite", [3, 6], 90, 23)
    t.keep("overwritten")


def pick(*values):
    """Return an expression that picks from ``values`` by the number of a row."""
    return f"element_at(array({', '.join(values)}), 1 + cast(n % {len(values)} as int))"


def special_values(t):
    """Extreme numbers and times, empty texts and lists, and deep nesting with nulls."""
    inner = pick("null", "named_struct('c', cast(n as decimal(20, 3)), 'd', date '2024-01-01')")
    deep = f"array(named_struct('k', map('a', array(n, null)), 'b', {inner}), null)"
    t.columns |= {
        "price": pick("double('NaN')", "-0.0D", "double('-Infinity')", "5e-324D"),
        "ratio": pick("float('NaN')", "-0.0F", "float('Infinity')", "null"),
        "big": pick("9223372036854775807L", "-9223372036854775808L", "0L", "null"),
        "cost": pick("9999999.99BD", "-9999999.99BD", "0BD", "null"),
        "huge": "cast(concat(n, '12345678901234567890123456789.123456') as decimal(38, 6))",
        "day": pick("date '0001-01-01'", "date '9999-12-31'", "date '1582-10-04'", "null"),
        "at": pick(
            "timestamp '0001-01-01 00:00:00'",
            "timestamp '9999-12-31 23:59:59.9'",
            "timestamp '1969-12-31 23:59:59.999999'",
            "null",
        ),
        "wall": pick(
            "timestamp_ntz '2024-03-31 02:30:00.000001'",
            "timestamp_ntz '1900-01-01 00:00:00'",
            "null",
        ),
        "small": "cast(n as smallint)",
        "tiny": "cast(n as tinyint)",
        "tags": pick("array()", "array(null, '')", "null", "array('x')"),
        "deep": f"if(n % 3 = 0, null, {deep})",
        "raw": pick("null", "unhex('00ff80')", "unhex('')"),
    }
    settings = t.spark.sparkContext._jsc.hadoopConfiguration()
    settings.set(OLD_LISTS, "false")
    try:
        two_writes(t)
    finally:
        settings.unset(OLD_LISTS)


def duplicates(t):
    """Keys with two rows in base files. Some of them are updated or deleted."""
    t.write("bulk_insert", [*range(10), *range(5)], 10)
    t.keep("inserted")
    t.upsert([1, 2], 20, 100)
    t.delete([3], 20)
    t.upsert([4], 5, 300)
    t.keep("updated")


def moved_rows(t):
    """Rows that move to another partition by a global index."""
    t.insert(range(20), 10)
    t.write("upsert", range(6), 20, 100, {"city": "'bern'"})
    t.keep("moved")
    t.write("upsert", range(2), 5, 200, {"city": "'late'"})
    t.write("upsert", range(3), 30, 300)
    t.keep("moved_back")


def log_compaction(t):
    """Log files whose blocks Hudi merges into a block for several instants."""
    t.insert(range(20), 10)
    for n in range(5):
        t.upsert(range(n, n + 4), 20 + n, 100 * n)
    t.delete([1], 40)
    t.upsert([2], 5, 9)
    instant = t.plan_log_compaction()
    t.keep("planned")
    t.compact_logs(instant)
    t.keep("compacted")
    t.upsert(range(3, 8), 50, 9)
    t.keep("updated")


def restored(t):
    """A table that returns to a savepoint."""
    t.insert(range(20), 10)
    t.upsert(range(5), 20, 100)
    saved = t.last()
    t.sql(f"call create_savepoint(table => '{t.name}', commit_time => '{saved}')")
    t.upsert(range(3, 8), 30, 200)
    t.delete([1], 40)
    t.insert(range(20, 25), 40)
    t.sql(f"call rollback_to_savepoint(table => '{t.name}', instant_time => '{saved}')")
    t.keep("restored")
    t.upsert([4, 21], 35, 300)
    t.keep("updated")


def rolled_back(t):
    """A completed write that is rolled back."""
    t.insert(range(20), 10)
    t.upsert(range(5), 20, 100)
    t.upsert(range(3, 8), 30, 200)
    t.sql(f"call rollback_to_instant(table => '{t.name}', instant_time => '{t.last()}')")
    t.keep("rolled_back")
    t.upsert([4, 21], 35, 300)
    t.keep("updated")


def upgraded(t):
    """A table of version 6 that Hudi upgrades to 8 and 9, and downgrades again."""
    t.insert(range(20), 10)
    t.upsert(range(5), 20, 100)
    t.delete([7], 20)
    for version in (8, 9, 8, 6):
        t.upgrade(version)
        t.upsert([version, version + 1], 20 + version + t.states, 300)
        t.upsert([version], 15, 400)
        t.keep(f"version_{version}")


def long_archive(t):
    """Many writes, most of which are archived, and compacted files of the archive."""
    t.insert(range(20), 10)
    archiving = {
        "hoodie.archive.automatic": "true",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1",
        "hoodie.timeline.compaction.batch.size": "2",
        "hoodie.commits.archival.batch": "1",
    }
    for n in range(14):
        t.upsert([n, n + 1], 20 + n, 100 * n, **archiving)
    t.keep("archived", as_of=True)


def dms(t):
    """Rows that the column ``Op`` marks as deletes."""
    t.columns["Op"] = "'I'"
    t.insert(range(20), 10)
    t.write("upsert", [1, 2, 3], 20, 100, {"Op": "if(n = 2, 'D', 'U')"})
    t.write("upsert", [4, 5], 5, 100, {"Op": "if(n = 4, 'D', 'U')"})
    t.keep("deleted")


def delete_marks(t):
    """Rows that the value of a column of the user's choice marks as deletes."""
    t.columns["what"] = "'kept'"
    t.insert(range(20), 10)
    t.write("upsert", [1, 2, 3], 20, 100, {"what": "if(n = 2, 'gone', 'kept')"})
    t.write("upsert", [4, 5], 5, 100, {"what": "if(n = 4, 'gone', 'kept')"})
    t.keep("deleted")


def with_nulls(t):
    """Rows with values in some columns and nulls in the others."""
    nulls = dict.fromkeys(("price", "spot", "day", "tags", "counts"), "null")
    types = {"price": "double", "day": "date", "tags": "array<string>"}
    types |= {"counts": "map<string,int>", "spot": "struct<x:int,name:string>"}
    nulls = {name: f"cast(null as {types[name]})" for name in nulls}
    t.insert(range(20), 10)
    t.write("upsert", [1, 2, 3], 20, 100, nulls)
    t.write("upsert", [3, 4], 5, 200, {"v": "cast(0 as int)", "ok": "false"})
    null_cost = "cast(null as decimal(9, 2))"
    t.write("upsert", [5, 6], 15, 300, {"v": "cast(null as int)", "ok": "false", "cost": null_cost})
    t.keep("nulls")
    t.write("upsert", [1, 5], 30, 400, {"price": "cast(null as double)", "v": "cast(0 as int)"})
    t.keep("nulls_again")
    if t.kind == MOR:
        t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
        t.write("upsert", [7], 40, 500, nulls)
        t.keep("compacted")


def debezium(t):
    """Rows of PostgreSQL from Debezium, with values that Debezium could not read."""
    t.columns |= {
        "_event_lsn": "{ts}L",
        "_change_operation_type": "'c'",
        "note": "concat('note ', n)",
    }
    t.insert(range(20), 10)
    missing = {"note": "'__debezium_unavailable_value'", "_change_operation_type": "'u'"}
    t.write("upsert", [1, 2, 3], 20, 100, missing)
    t.write("upsert", [4, 5], 20, 100, {"_change_operation_type": "if(n = 4, 'd', 'u')"})
    t.keep("filled")


def indexes(t):
    """A secondary index and an index of an expression."""
    t.insert(range(30), 10)
    t.sql("create index idx_v on {t} (v)")
    t.sql(
        "create index idx_ts on {t} using column_stats(ts)"
        " options(expr='from_unixtime', format='yyyy-MM-dd')"
    )
    t.keep("created")
    t.upsert(range(5, 12), 20, 100)
    t.delete([3], 30)
    t.keep("updated")


def changes(t):
    """Log files of changes (CDC) beside those of rows."""
    two_writes(t)
    t.upsert(range(18, 24), 30, 5)
    t.keep("inserted")


def buckets(t):
    """File groups that begin with log files, because the bucket index also finds keys in these."""
    t.insert(range(20), 10)
    t.keep("log_only")
    t.upsert(range(15, 25), 20, 100)
    t.delete([3], 20)
    t.upsert([16], 15, 9)
    t.keep("updated")
    if t.kind == MOR:
        t.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
        t.upsert([5, 40], 30, 7)
        t.keep("compacted")


def replaced(t):
    """A table that is overwritten as a whole, loses a partition and is emptied."""
    t.insert(range(20), 10)
    t.write("insert_overwrite_table", range(5, 15), 20)
    t.keep("overwritten")
    t.write(
        "delete_partition",
        [5],
        30,
        **{"hoodie.datasource.write.partitions.to.delete": "city=paris"},
    )
    t.keep("partition_deleted")
    t.sql("truncate table {t}")
    t.upsert(range(3), 40, 5)
    t.keep("filled_again")


def keyed_by(expression):
    """Return a history of updates and deletes of keys that are an expression of ``n``."""

    def history(t):
        t.columns["id"] = expression
        two_writes(t)
        t.upsert(range(30), 15, 7)
        t.keep("late")

    return history


def nested_fields(t):
    """Keys, partitions and ordering values within a struct."""
    t.columns = {
        "who": "named_struct('id', concat('k', n), 'city', concat('c', n % 3), 'ts', {ts}L)",
        "v": "cast(n + {add} as int)",
    }
    t.insert(range(20), 10)
    t.upsert(range(5, 9), 20, 100)
    t.upsert(range(7, 12), 15, 200)
    t.delete([3], 20)
    t.keep("updated")


def late_completions(t):
    """Writes that complete after a later write, and after the plan of a compaction."""
    t.insert(range(20), 10)
    t.upsert(range(5), 20, 100)
    first = t.uncomplete()
    t.upsert(range(3, 8), 20, 200)
    t.keep("pending")
    t.complete(first)
    t.keep("completed_late")
    t.upsert(range(2, 6), 20, 300)
    second = t.uncomplete()
    t.sql("call run_compaction(op => 'schedule', table => '{t}')")
    t.keep("planned")
    t.complete(second)
    t.keep("completed_after_the_plan")
    t.upsert([5, 6], 20, 400)
    t.keep("updated")
    t.sql("call run_compaction(op => 'run', table => '{t}')")
    t.keep("compacted", as_of=True)


def bootstrapped(t):
    """A table whose first rows are stored in files that Hudi did not write."""
    source = t.folder / ".live" / f"{t.name}_source"
    t.frame(range(20), 10).write.partitionBy("city").parquet(str(source))
    t.write(
        "bootstrap",
        [0],
        10,
        **{
            "hoodie.bootstrap.base.path": str(source),
            "hoodie.bootstrap.mode.selector": (
                "org.apache.hudi.client.bootstrap.selector.MetadataOnlyBootstrapModeSelector"
            ),
        },
    )
    t.keep("bootstrapped")
    t.upsert([1, 2], 20, 5)
    t.keep("updated")
