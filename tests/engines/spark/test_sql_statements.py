"""Each statement in docs/spark-sql.md has the documented effect, and the page contains every
statement of Spark's grammar that can name a table.
"""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from sql_tables import cases, lines, settings

import mdt
import mdt.spark
from mdt.engines.spark import private
from mdt.source.statements import REFUSED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark-sql.md"
LINE = re.compile(
    r"^\| (`+)(.+?)\1 \| (done|refused by Spark|refused)(?:: (.+))? \|$", re.MULTILINE
)
LINES = {
    groups[1].strip(): (groups[2], groups[3])
    for groups in (match.groups() for match in LINE.finditer(PAGE.read_text()))
}
IN_4_0 = re.compile(
    r"CHANGES FROM|REPLACE USING|SCHEMA EVOLUTION|CONSTRAINT|PRIMARY KEY|CHECK \(|MATERIALIZED"
    r"|COMMENT ON COLUMN"
)
"""Syntax that the grammar of Spark 4.0 lacks. Such lines may fail in its parser."""

SHOWN_AS = cases(
    r"""
    CREATE TABLE made (id STRING NOT NULL COMMENT 'the key', n INT) USING mdt OPTIONS (key 'id') COMMENT 'rows' -> describe made -> id, string, the key / n, int, None
    CREATE TABLE made (id STRING, city STRING) USING mdt OPTIONS (key 'id') PARTITIONED BY (city) LOCATION '/data/made' -> show partitions made -> nothing
    CREATE TABLE made (id STRING, n INT) USING mdt TBLPROPERTIES (primaryKey 'id', 'mdt.compression' 'zstd', made_by 'me') -> show tblproperties made ('made_by') -> made_by, me
    CREATE TABLE made USING mdt OPTIONS (key 'id') AS SELECT * FROM t -> select count(*) from made -> 2
    CREATE TABLE IF NOT EXISTS t (id STRING) USING mdt OPTIONS (key 'id') -> select count(n) from t -> 2
    CREATE TABLE made LIKE t USING parquet -> select count(city) from made -> 0
    DROP TABLE t -> show tables like 't' -> nothing
    DROP TABLE IF EXISTS t PURGE -> show tables like 't' -> nothing
    ALTER TABLE t RENAME TO renamed -> select count(*) from renamed -> 2
    TRUNCATE TABLE t -> select count(*) from t union all select count(*) from t version as of 1 -> 0 / 2
    CREATE VIEW v AS SELECT id FROM t -> select id from v -> a / b
    CREATE TEMPORARY VIEW v USING mdt OPTIONS (path '/data/t') -> delete from v where id = 'a' -> 1
    ALTER TABLE t ADD COLUMNS (a INT, b STRING COMMENT 'note') -> describe t -> … b, string, note
    ALTER TABLE t ADD COLUMNS (a INT FIRST, b INT AFTER id) -> columns -> a, id, b, n, price, city
    ALTER TABLE t DROP COLUMN n -> columns -> id, price, city
    ALTER TABLE t DROP COLUMNS IF EXISTS (n, nothing) -> columns -> id, price, city
    ALTER TABLE t ALTER COLUMN n TYPE BIGINT -> select typeof(n), n from t where id = 'b' -> bigint, 2
    ALTER TABLE t ALTER COLUMN n COMMENT 'how many' -> describe t -> … n, int, how many
    COMMENT ON COLUMN t.n IS 'how many' -> describe t -> … n, int, how many
    ALTER TABLE t CHANGE COLUMN n n BIGINT COMMENT 'how many' -> describe t -> … n, bigint, how many
    ALTER TABLE t ALTER COLUMN n FIRST -> columns -> n, id, price, city
    ALTER TABLE t ALTER COLUMN n AFTER price, id COMMENT 'key' -> columns -> id, price, n, city
    ALTER TABLE t ALTER COLUMN n DROP NOT NULL -> select count(n) from t -> 2
    ALTER TABLE t SET TBLPROPERTIES ('mdt.compression' = 'zstd', 'hoodie.cleaner.commits.retained' = '20') -> show create table t -> … 'mdt.compression' = 'zstd'
    ALTER TABLE t UNSET TBLPROPERTIES ('mdt.compression') -> select operation from mdt_history('t') where seq > 0 -> upsert
    COMMENT ON TABLE t IS 'trips' -> describe extended t -> … Comment, trips, 
    SHOW PARTITIONS t -> itself -> city=Oslo / city=Rome
    ALTER TABLE t DROP PARTITION (city = 'Oslo') -> show partitions t -> city=Rome
    TRUNCATE TABLE t PARTITION (city = 'Oslo') -> show partitions t -> city=Rome
    INSERT INTO t VALUES ('a', 9, 9.0, 'Oslo'), ('z', 9, 9.0, 'Oslo') -> itself -> 2, 1, 0, 1, 0
    INSERT INTO t (id, city) VALUES ('z', 'Oslo') -> itself -> 1, 0, 0, 1, 0
    INSERT INTO t BY NAME SELECT 'Bern' AS city, 'z' AS id -> itself -> 1, 0, 0, 1, 0
    INSERT INTO t PARTITION (city = 'Bern') VALUES ('z', 9, 9.0) -> itself -> 1, 0, 0, 1, 0
    INSERT INTO t PARTITION (city) SELECT 'z', 9, 9.0, 'Bern' -> itself -> 1, 0, 0, 1, 0
    INSERT OVERWRITE t VALUES ('z', 9, 9.0, 'Oslo') -> itself -> 3, 0, 2, 1, 0
    INSERT OVERWRITE t PARTITION (city = 'Oslo') VALUES ('z', 9, 9.0) -> itself -> 2, 0, 1, 1, 0
    FROM t INSERT INTO t SELECT concat(id, '1'), n, price, city INSERT INTO other SELECT * -> select count(*) from t -> 4
    DELETE FROM t WHERE n = 1 -> itself -> 1
    UPDATE t SET n = n + 10 WHERE id = 'a' -> itself -> 1
    MERGE INTO t USING other s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE -> itself -> 3, 1, 1, 1
    CALL mdt.compact('t') -> select count(*) from t -> 2
    SELECT count(*) FROM t VERSION AS OF 0 -> itself -> 0
    SELECT count(*) FROM t TIMESTAMP AS OF current_timestamp() -> itself -> 2
    SELECT operation FROM mdt_history('t') WHERE seq = 1 -> itself -> upsert
    SELECT sum(rows) FROM mdt_files('t') -> itself -> 2
    SELECT count(*) FROM mdt_snapshots('t') -> itself -> 2
    SELECT count(*) FROM mdt_changes('t', 0) -> itself -> 2
    EXPLAIN DELETE FROM t -> select count(*) from t -> 2
    EXECUTE IMMEDIATE 'SELECT count(*) FROM t' -> itself -> 2
    DESCRIBE t -> itself -> … n, int, None
    DESCRIBE EXTENDED t -> itself -> … Provider, mdt, 
    DESCRIBE EXTENDED t AS JSON -> itself -> … "provider":"mdt"
    DESCRIBE t n -> itself -> … data_type, int
    DESCRIBE QUERY SELECT n FROM t -> itself -> … n, int, None
    SHOW COLUMNS IN t -> itself -> … city
    SHOW CREATE TABLE t -> itself -> … PARTITIONED BY (`city`)
    SHOW TBLPROPERTIES t ('option.key') -> itself -> option.key, id
    SHOW TABLES LIKE 't' -> itself -> statements, t, False
    SHOW TABLE EXTENDED LIKE 't' -> itself -> … Provider: mdt
    ANALYZE TABLES COMPUTE STATISTICS -> select count(*) from t -> 2
    REFRESH TABLE t -> select count(*) from t -> 2
    REFRESH '/data/t' -> select count(*) from t -> 2
    CACHE TABLE t -> delete from t where id = 'a' -> 1
    UNCACHE TABLE t -> select count(*) from t -> 2
    """
)
"""Evidence of the effect of a statement: a query (``itself`` for the statement, ``columns`` for the
columns of the table) and the rows that it returns. After "…" only a part of the rows follows.
"""


class World:
    """The tables for the statements. They are created again only after a statement that changed
    them.
    """

    def __init__(self, spark, folder):
        self.spark = spark.newSession()
        self.folder = folder
        self.number = 0
        self.is_new = False
        mdt.spark.enable(spark)
        self.spark.sql("create database if not exists statements")
        self.spark.sql("use statements")

    def renew(self):
        if self.is_new:
            return
        self.drop()
        self.number += 1
        columns = "(id string, n int, price double, city string)"
        self.run(
            f"create table t {columns} using mdt options (key 'id') partitioned by (city) location"
            " '/data/t'"
        )
        self.run("insert into t values ('a', 1, 1.0, 'Oslo'), ('b', 2, 2.0, 'Rome')")
        self.run(f"create table other {columns} using parquet location '/data/other'")
        self.run("insert into other values ('a', 5, 1.0, 'Oslo'), ('c', 6, 2.0, 'Rome')")
        self.is_new = True

    def drop(self):
        self.spark.catalog.clearCache()
        for row in self.spark.sql("show tables").collect():
            kind = "view" if row["isTemporary"] or row["tableName"] == "v" else "table"
            self.spark.sql(f"drop {kind} {row['tableName']}")

    def run(self, statement):
        return self.spark.sql(statement.replace("/data", self.data)).collect()

    @property
    def data(self):
        return str(self.folder / str(self.number))

    def state(self):
        """Return the state of the catalog and of the table."""
        description = [
            tuple(row)
            for row in self.run("describe extended t")
            if row["col_name"] != "Last Access"
        ]
        return (
            description,
            mdt.open(f"{self.data}/t").snapshot().seq,
            self.run("show tables"),
            sorted(self.folder.glob("*/*")),
        )


@pytest.fixture(scope="module")
def the_world(spark, tmp_path_factory):
    world = World(spark, tmp_path_factory.mktemp("statements"))
    yield world
    world.drop()
    spark.sql("drop database statements cascade")


@pytest.fixture
def world(the_world):
    the_world.renew()
    return the_world


@pytest.mark.parametrize("statement", LINES)
def test_a_statement_has_the_documented_effect(world, statement):
    outcome, reason = LINES[statement]
    if outcome == "done":
        world.is_new = False
        try:
            _assert_effect(world, statement)
        except ParseException:
            assert IN_4_0.search(statement)
        return
    before = world.state()
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        world.run(statement)
    is_parsers = isinstance(caught.value, ParseException)
    assert isinstance(caught.value, PySparkException), "the error is a raw error of Py4J"
    if outcome == "refused":
        assert reason in str(caught.value) or is_parsers and IN_4_0.search(statement)
    assert world.state() == before


def _assert_effect(world, statement):
    ((query, expected),) = [evidence for name, *evidence in SHOWN_AS if name == statement]
    result = world.run(statement)
    if query == "columns":
        result = [tuple(world.spark.table("t").columns)]
    elif query != "itself":
        result = world.run(query)
    shown = " / ".join(sorted(", ".join(map(str, row)) for row in result)) or "nothing"
    if expected.startswith("… "):
        assert expected[2:] in shown
    else:
        assert expected == shown


def test_every_supported_statement_has_an_expected_effect():
    supported = [statement for statement, (outcome, _) in LINES.items() if outcome == "done"]
    assert sorted(supported) == sorted(statement for statement, *_ in SHOWN_AS)
    assert LINES and PAGE.read_text().count("\n| `") == len(LINES)


def test_inserts_return_how_many_rows_they_inserted_updated_and_dropped(world):
    world.is_new = False
    world.run(
        "create table made (id string, n int, at int) using mdt options (key 'id', ordering 'at')"
        " location '/data/made'"
    )
    frame = world.spark.sql("insert into made values ('a', 1, 1), ('b', 1, 5), ('b', 2, 4)")
    kinds = ("affected", "updated", "deleted", "inserted", "dropped")
    assert frame.columns == [f"num_{kind}_rows" for kind in kinds]
    assert frame.collect() == [(2, 0, 0, 2, 1)]
    assert world.run("insert into made values ('a', 2, 2), ('b', 9, 1), ('c', 1, 1)") == [
        (2, 1, 0, 1, 1)
    ]
    assert "LocalRelation" in str(world.run("explain insert into made values ('a', 2, 3)"))
    assert world.run("with w as (select 'd' id, 1 n, 1 at) insert into made select * from w") == [
        (1, 0, 0, 1, 0)
    ]


FORMS = lines(
    """
    execute immediate 'alter table t set location ''/data/elsewhere'''
    alter table identifier('st' || 'atements.t') set location '/data/elsewhere'
    alter table identifier('st' || 'atements.t') alter column n set default 5
    alter table t add constraint c check (n > 0)
    begin alter table spark_catalog.statements.T set location '/data/elsewhere'; end
    msck repair table t add partitions
    repair table t sync partitions
    alter table t partition (city = 'Oslo') set location '/data/elsewhere'
    alter table t add if not exists partition (city = 'Bern') location '/data/x'
    alter table t cluster by none
    alter table t drop constraint if exists c
    analyze table t partition (city = 'Oslo') compute statistics
    alter table t set serde 'x'
    insert overwrite directory using MDT options (path '/data/out') select * from t
    """
)


@pytest.mark.parametrize("statement", FORMS)
def test_refused_statements_are_refused_in_every_form(world, statement):
    before = world.state()
    with pytest.raises(PySparkException, match="is not supported for mdt tables\n  hint: "):
        world.run(statement)
    assert world.state() == before


def test_table_properties_are_the_options_of_the_table_whatever_the_catalog_stores(world):
    world.is_new = False
    world.run(
        """create table made (id string, n int) using mdt options (key 'id', `mdt.clean.retain.commits` '7')
                 tblproperties ('hoodie.parquet.compression.codec' 'snappy') location '/data/made'"""
    )
    world.run(
        "alter table made set tblproperties ('mdt.compression' = 'zstd',"
        " 'hoodie.cleaner.commits.retained' = '9')"
    )
    world.run("insert into made values ('a', 1)")
    assert (
        world.run("show tblproperties made ('hoodie.parquet.compression.codec')")[0]["value"]
        != "snappy"
    )
    assert (
        mdt.open(f"{world.data}/made").definition.options.items()
        >= {"mdt.compression": "zstd", "mdt.clean.retain.commits": "9"}.items()
    )
    (file,) = Path(f"{world.data}/made").glob("*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(5).compression == "ZSTD"
    world.run("alter table made unset tblproperties ('mdt.clean.retain.commits')")
    assert "mdt.clean.retain.commits" not in world.run("show create table made")[0][0]
    for text in ("'mdt.cache.dir' = '/x'", "'mdt.compression' = 'zip'", "'x' = 'y'", "'key' = 'n'"):
        with pytest.raises(PySparkException, match="Invalid: "):
            world.run(f"alter table made set tblproperties ({text})")


def test_statements_under_a_search_path_are_refused_unless_they_name_the_database(
    world,
):
    world.is_new = False
    with settings(world.spark, {"spark.sql.path.enabled": "true"}):
        with pytest.raises(PySparkException, match="is not supported for mdt tables"):
            world.run("alter table t add columns (m int first)")
        world.run("alter table statements.t add columns (m int first)")
    assert world.spark.table("t").columns[0] == "m"


def test_explain_refuses_the_same_statements_and_changes_nothing(world):
    before = world.state()
    assert "is not supported for mdt tables" in str(
        world.run("explain alter table t set location '/data/elsewhere'")
    )
    world.run("explain alter table t add columns (m int first)")
    world.run("explain alter table t set tblproperties ('mdt.compression' = 'zstd')")
    assert world.state() == before


def test_identifier_expressions_name_the_same_table(world):
    world.is_new = False
    name = "identifier(lower('STATE') || 'ments.t')"
    world.run(f"alter table {name} add columns (m int first)")
    world.run(f"alter table {name} alter column n comment 'how many'")
    assert (
        world.spark.table("t").columns == ["m", "id", "n", "price", "city"]
        and mdt.open(f"{world.data}/t").schema.names[0] == "m"
    )
    with pytest.raises(PySparkException, match="(?i)table_or_view_not_found"):
        world.run("alter table identifier('no' || 'where') set location '/data/elsewhere'")


def test_statements_on_other_tables_and_views_are_left_to_spark(world):
    world.is_new = False
    world.run("alter table other set tblproperties ('x' = 'y')")
    world.run("alter table other alter column n set default 5")
    world.run("create or replace temporary view t as select 1")  # hides the table
    with pytest.raises(PySparkException, match="(?i)view"):
        world.run("alter table t set tblproperties ('x' = 'y')")
    world.run("create table alike like t")
    assert world.run("show columns in alike") == [("1",)]
    world.run("drop table alike")
    world.run("drop view t")


def test_a_table_without_a_location_is_renamed_with_its_files(world):
    world.is_new = False
    world.run("create table made (id string, n int) using mdt options (key 'id')")
    world.run("insert into made values ('a', 1)")
    world.run("alter table made rename to renamed")
    world.run("insert into renamed values ('b', 1)")
    assert world.run("select count(*) from renamed") == [(2,)]
    assert world.run("alter table renamed add column m int") == []
    world.run("drop table renamed")


# The grammar


WITHOUT_TABLES = set(
    lines(
        """
        Use
        UseNamespace
        SetCatalog
        CreateNamespace
        SetNamespaceProperties
        UnsetNamespaceProperties
        SetNamespaceLocation
        SetNamespaceCollation
        DropNamespace
        ShowNamespaces
        CommentNamespace
        DescribeNamespace
        ShowCurrentNamespace
        CreateFunction
        CreateUserDefinedFunction
        DropFunction
        ShowFunctions
        DescribeFunction
        RefreshFunction
        CreateVariable
        DropVariable
        SetVariable
        ShowCatalogs
        ShowCollations
        ShowProcedures
        DescribeProcedure
        ShowViews
        ClearCache
        ManageResource
        SetPath
        SetConfiguration
        SetQuotedConfiguration
        ResetConfiguration
        ResetQuotedConfiguration
        SetTimeZone
        FailSetRole
        CloseCursorStatement
        FetchCursorStatement
        OpenCursorStatement
        """
    )
)
OF_PIPELINES_AND_QUERIES = set(
    lines(
        """
        DeclareCursorStatement
        CreateMetricView
        CreateFlowAutoCdc
        CreatePipelineInsertIntoFlow
        CreatePipelineDataset
        AnalyzeTables
        """
    )
)
"""Statements that Spark runs only in pipelines, and statements about cursors and metrics over a
query.
"""


def _alternatives(spark):
    """Return the names of the alternatives of a statement in the grammar of this release."""
    loaded = private.jvm(spark).java.lang.Class.forName
    package = "org.apache.spark.sql.catalyst.parser.SqlBaseParser"
    alternatives = set()
    for each in loaded(package).getDeclaredClasses():
        superclass = each.getSuperclass()
        if superclass is not None and superclass.getSimpleName() in (
            "StatementContext",
            "DmlStatementNoWithContext",
            "InsertIntoContext",
        ):
            alternatives.add(each.getSimpleName().removesuffix("Context"))
    return alternatives


def _parsed(spark, statement):
    """Return the names of the nodes at the head of the parse tree of a statement."""
    jvm = private.jvm(spark)
    parser, antlr = jvm.org.apache.spark.sql.catalyst.parser, jvm.org.antlr.v4.runtime
    text = parser.UpperCaseCharStream(antlr.CharStreams.fromString(statement))
    tree = parser.SqlBaseParser(
        antlr.CommonTokenStream(parser.SqlBaseLexer(text))
    ).singleStatement()
    node_names, queue = set(), [tree]
    while queue and len(node_names) < 12:  # the head of the tree identifies the statement
        node = queue.pop(0)
        node_names.add(node.getClass().getSimpleName().removesuffix("Context"))
        queue += [node.getChild(i) for i in range(min(node.getChildCount(), 2))]
    return node_names


def test_every_statement_of_the_grammar_is_on_the_page(spark):
    covered = set[str]().union(*(_parsed(spark, statement) for statement in LINES))
    missing = _alternatives(spark) - covered - WITHOUT_TABLES - OF_PIPELINES_AND_QUERIES
    assert not missing


def test_every_refusal_is_on_the_page_or_in_a_test():
    texts = (
        PAGE.read_text()
        + Path(__file__).read_text()
        + Path(__file__).with_name("test_sql_columns.py").read_text()
    )
    for kind, (statement, hint) in REFUSED.items():
        assert hint in texts or statement in texts, kind
