"""The native read path: requests to the planner, the files that Spark reads, and errors."""

from __future__ import annotations

import functools
import gc
import logging
import math
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap
from pyspark.sql.types import StructType
from sql_tables import lines, settings, stored
from whole_files import WholeFiles

import mdt
from indexes.predicate import And, Leaf, Or, Predicate, Unknown, leaves, matches
from mdt.engines.spark import file_index
from mdt.engines.spark.file_index import PlannerWarning, relation
from mdt.engines.spark.listing import Listing
from mdt.engines.spark.private import collect_garbage, java_frame
from mdt.errors import Unsupported

SCHEMA = StructType().add("id", "long").add("s", "string").add("f", "float")


def write(folder, name, columns):
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def rows_file(folder, number, rows=10):
    ids = range(number * rows, number * rows + rows)
    values = {
        "id": pa.array(ids, pa.int64()),
        "s": [f"s{i}" for i in ids],
        "f": pa.array(map(float, ids), pa.float32()),
    }
    return write(folder, f"{number}.parquet", values)


def true_if_unknown(predicate):
    """Return the predicate with everything unknown replaced by true."""
    if isinstance(predicate, Unknown):
        return And(())
    if isinstance(predicate, Leaf):
        return predicate
    return type(predicate)(tuple(true_if_unknown(child) for child in predicate.children))


@dataclass
class Table(file_index.Lister):
    """A lister of real files with perfect pruning: it reads the rows. The version is the number of
    files.

    ``dead``: positions of deleted rows for each file.
    """

    files: list[Path]
    prune: bool = True
    dead: dict[Path, list[int]] = field(default_factory=dict)
    calls: list[tuple[str, Predicate]] = field(default_factory=list)
    pruned_lists: list[list[int]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    pins: dict[str, int] = field(default_factory=dict)

    def list(self, query, predicate, rows=None):
        self.calls.append((query, predicate))
        version = self.pins.setdefault(query, len(self.files))
        files = self.files[:version]
        dead = [BitMap(self.dead[file]).serialize() if file in self.dead else b"" for file in files]
        native = WholeFiles(
            [file.as_uri() for file in files], [file.stat().st_size for file in files], dead
        )
        if not self.prune:
            return Listing(version, native)
        keep = [i for i, file in enumerate(files) if self._holds(file, predicate)]
        self.pruned_lists.append(keep)
        return Listing(version, native, np.array(keep, np.int32))

    def release(self, query):
        self.released.append(query)

    def _holds(self, file, predicate):
        return bool(matches(true_if_unknown(predicate), rows_of(file)).to_numpy().any())


@functools.cache
def rows_of(file):
    return pq.read_table(file)


@pytest.fixture
def table(tmp_path):
    return Table([rows_file(tmp_path, number) for number in range(4)])


@dataclass
class Merged:
    """Files 0 to 6. Rows 41, 43 and 50 to 58 are deleted."""

    files: Table
    folder: Path

    def frame(self, spark):
        return relation(spark, self.files, SCHEMA, self.folder.as_uri())

    def keys(self):
        """Return the query keys of all calls so far, and clear them."""
        query_keys = {query for query, _ in self.files.calls if not query.startswith("call:")}
        self.files.calls.clear()
        return query_keys


LIVE = [*range(41), 42, *range(44, 50), *range(59, 70)]


@pytest.fixture
def merged(tmp_path):
    files = [rows_file(tmp_path, number) for number in range(7)]
    return Merged(Table(files, dead={files[4]: [1, 3], files[5]: list(range(9))}), tmp_path)


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


# --- predicates ------------------------------------------------------------------------------------------------------

VALUES = {
    "t": (pa.int8(), [-128, 5, None, 127]),
    "i": (pa.int32(), [-(2**31), 0, 7, None, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), 0, 16_777_217, None, 2**63 - 1]),
    "f": (pa.float32(), [math.nan, -0.0, 0.0, 0.7, None, math.inf, -math.inf]),
    "d": (pa.float64(), [math.nan, -0.0, 0.7, None, math.inf, 1e300]),
    "m": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-0.01"), None, Decimal("99999999.99")]),
    "s": (pa.string(), ["", "a", "a%b", "ab", "é\U0001f600", None, "\\"]),
    "y": (pa.binary(), [b"", b"\x00\xff", None]),
    "b": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), None, date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 3, 29, 1, 30, tzinfo=UTC), None, datetime(1, 1, 3, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime(2026, 3, 29, 1, 30), None]),
    "file_name": (pa.string(), ["x", None]),
}
DDL = """id int, t tinyint, i int, l bigint, f float, d double, m decimal(10,2), s string, y binary, b boolean, day date,
    at timestamp, local timestamp_ntz, file_name string"""
FILTERS = lines(
    r"""
    t < 6
    t = 5.0
    t > 300
    t != 5
    not (t <= 5)
    t <=> null
    not (t <=> 5)
    t + 1 > 5
    i >= 6.5
    not (i > 6.5 and b)
    i in (7, null)
    i not in (7, 8)
    i not in (7, null)
    i between 0 and 8
    i in (1,2,3,4,5,6,7,8,9,10,11,12,13)
    i not in (1,2,3,4,5,6,7,8,9,10,11,12,13)
    i % 10 = 7
    i is null or l = 0
    l = 16777217
    cast(l as float) = cast(16777216 as float)
    cast(l as double) >= 9.3e18
    l > i
    7 > i
    f = 0.7
    f < 0.7
    f <= 0.7
    f >= 0.7
    f = cast(0.7 as float)
    f = double('NaN')
    f > 1e38
    f <=> double('NaN')
    not (f > 1)
    isnan(f)
    not isnan(f)
    f = 0
    f < 0
    f in (0, float('NaN'))
    d > 5
    not (d <= 5)
    d = double('Infinity')
    d <=> null
    d != 0.7
    d in (0.0, 0.7)
    nanvl(d, 1) = 1
    m = 1.25
    m < 1.255
    m > 1
    m <= -0.011
    m in (1.25, 2.555)
    m > 1e5
    m = '1.25'
    s = 'a'
    s like 'a%'
    s like '%b'
    s like '%\\%%'
    s like 'a!%b' escape '!'
    s like '_'
    s not like 'a%'
    not startswith(s, 'a')
    contains(s, '%')
    endswith(s, 'b')
    s > 'a'
    s < 'é'
    upper(s) = 'A'
    s = '\\'
    s in ('', 'ab')
    not (s = 'a' or s is null)
    s collate utf8_lcase = 'A'
    length(s) = 0
    y = X'00ff'
    y > X''
    b
    not b
    b = false
    b or i = 7
    b is not null
    not (b <=> true)
    day = date'0001-01-01'
    day >= date'1970-01-01'
    day < '1970-01-02'
    day > date'9999-12-30'
    day < timestamp'1970-01-01 00:00:00'
    year(day) = 1970
    at = timestamp'2026-03-28 18:30:00'
    at >= timestamp'2026-03-29 01:30:00Z'
    at < timestamp_ntz'2026-03-28 18:30:01'
    at < date'2026-03-29'
    local = timestamp_ntz'2026-03-29 01:30:00'
    local > timestamp'2026-03-28 18:30:00'
    true
    1 = 0
    cast(null as boolean)
    file_name = 'x'
    file_name = _metadata.file_name
    _metadata.file_name = 'x'
    _metadata.file_size > 0
    _metadata.row_index = 0
    if(b, i = 7, l = 0)
    coalesce(i, 7) = 7
    i = (select 7)
    """
)


@pytest.fixture(scope="module")
def single_rows(tmp_path_factory):
    """A folder with one file for each value of each column. The other columns are null, so any
    wrong proof loses a row.
    """
    folder = tmp_path_factory.mktemp("rows")
    number = 0
    for name, (_, values) in VALUES.items():
        for value in values:
            row = {"id": pa.array([number], pa.int32())}
            row |= {n: pa.array([value if n == name else None], t) for n, (t, _) in VALUES.items()}
            write(folder, f"{number}.parquet", row)
            number += 1
    return folder


def list_files(frame):
    """Plan the query and list its files without running it."""
    leaves = java_frame(frame).queryExecution().sparkPlan().collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.getClass().getSimpleName() == "FileSourceScanExec":
            leaf.selectedPartitions()


@pytest.mark.parametrize(
    "filters", [FILTERS[::4], pytest.param(FILTERS, marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_pruning_loses_no_row_of_any_type_under_any_filter(spark, single_rows, filters):
    files = [
        single_rows / f"{number}.parquet" for number in range(len(list(single_rows.iterdir())))
    ]
    schema = StructType(StructType.fromDDL(DDL).fields)  # type: ignore[attr-defined]
    unpruned = relation(spark, Table(files, prune=False), schema, single_rows.as_uri())
    answers = unpruned.selectExpr(
        "id", *(f"({text}) as q{n}" for n, text in enumerate(filters))
    ).collect()
    pruned = Table(files)
    frame = relation(spark, pruned, schema, single_rows.as_uri())
    useful = 0
    for n, text in enumerate(filters):
        pruned.pruned_lists.clear()
        list_files(frame.where(text))
        matching = {row.id for row in answers if row[f"q{n}"]}
        if pruned.pruned_lists:
            assert matching <= set(pruned.pruned_lists[0]), text
            useful += len(pruned.pruned_lists[0]) < len(files)
        else:
            assert not matching, "a scan was optimized away although rows match"
    assert useful > 0.5 * len(filters), "most of these filters should prune"


def test_a_query_after_a_commit_of_another_hudi_writer_is_refused(spark, tmp_path):
    table = stored(tmp_path / "taken", pa.table({"id": ["a", "b"], "v": [1, 2]}))
    frame = mdt.read(spark, table.path)
    assert frame.where("v > 1").count() == 1
    commit_file = tmp_path / "taken" / ".hoodie" / "20990101000000000.deltacommit"
    commit_file.write_text("{}")
    with pytest.raises(Exception, match=r"another Hudi writer(.*\n)*.*t\.refresh\(\)"):
        frame.where("v > 0").count()
    assert mdt.read(spark, table.path).where("v > 0").count() == 2
    commit_file.unlink()
    assert frame.where("v > 0").count() == 2


def test_long_chains_of_or_reach_the_planner(spark, table, tmp_path):
    frame = relation(spark, table, SCHEMA, tmp_path.as_uri())
    assert ids(frame.where(" or ".join(f"id = {i} and f < {i + 1}" for i in range(120)))) == list(
        range(40)
    )
    (top,) = (p for p in table.calls[-1][1].children if isinstance(p, Or))  # type: ignore[union-attr]
    assert len(top.children) == 120


# --- versions and keys -----------------------------------------------------------------------------------------------


def write_and_read(spark, v):
    """Write a join as Parquet files and return the ids in them."""
    with tempfile.TemporaryDirectory() as folder:
        v.join(v.select("id"), "id").write.parquet(f"{folder}/copy")
        return ids(spark.read.parquet(f"{folder}/copy"))


ACTIONS = {
    "self join": lambda spark, v: spark.sql("select a.id from v a join v b using (id)").collect(),
    "subqueries": (
        lambda spark, v: spark.sql(
            "select id from v where id > (select min(id) - 1 from v) and s in (select s from v)"
        ).collect()
    ),
    "rdd": lambda spark, v: v.join(v.select("id"), "id").rdd.collect(),
    "exists": (
        lambda spark, v: spark.sql(
            "with w as (select * from v) select id from w a where exists (select 1 from w b where"
            " a.id = b.id)"
        ).collect()
    ),
    "union": lambda spark, v: v.union(v).distinct().collect(),
    "iterator": lambda spark, v: list(v.join(v.select("id"), "id").toLocalIterator()),
    "checkpoint": lambda spark, v: v.join(v.select("id"), "id").localCheckpoint().collect(),
    "cache": lambda spark, v: v.join(v.select("id"), "id").cache().select("id").collect(),
    "write": write_and_read,
}


@pytest.mark.parametrize(
    ("adaptive", "name"),
    [*(("true", name) for name in ACTIONS), *(("false", name) for name in list(ACTIONS)[:3])],
)
def test_all_relations_of_a_query_get_the_same_key(spark, merged, adaptive, name):
    frame = merged.frame(spark)
    frame.createOrReplaceTempView("v")
    with settings(spark, {"spark.sql.adaptive.enabled": adaptive}):
        assert len(ACTIONS[name](spark, frame)) == len(LIVE)
        first = merged.keys()
        assert len(ACTIONS[name](spark, frame)) == len(LIVE)
        second = merged.keys()
    spark.catalog.clearCache()
    assert len(first) == 1 and (len(second) == 1 and first != second or name == "cache")


def test_a_query_fails_if_its_version_changes_while_it_is_planned(spark, table, tmp_path):
    class Fickle(Table):
        def list(self, query, predicate, rows=None):
            self.pins.clear()
            self.files.append(self.files[0])
            return super().list(query, predicate, rows)

    frame = relation(spark, Fickle(table.files), SCHEMA, tmp_path.as_uri())
    with pytest.raises(Exception, match="version changed during the query"):
        frame.where("id > 3").union(frame.where("id < 2")).collect()


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_frame_returns_live_rows_with_the_declared_columns_and_pushes_filters(spark, merged):
    frame = merged.frame(spark)
    assert frame.columns == SCHEMA.fieldNames() and ids(frame) == LIVE
    assert frame.count() == len(LIVE)
    assert ids(frame.where("id in (41, 42, 58, 59)")) == [42, 59]
    query = frame.where("id >= 35").select("s")
    assert query.count() == len([i for i in LIVE if i >= 35])
    plan = java_frame(query).queryExecution().toString()
    assert plan.count("ReadSchema: struct<id:bigint,s:string") == 1
    assert "Join" not in plan and "Union" not in plan
    assert merged.files.pruned_lists[-1] == [3, 4, 5, 6]
    assert Leaf("id", ">=", 35) in set(leaves(merged.files.calls[-1][1]))


def test_long_file_lists_are_sent_in_a_temporary_file_that_is_removed(spark, tmp_path):
    table = Table([rows_file(tmp_path, 0)] * 1_000, prune=False)
    frame = relation(spark, table, SCHEMA, tmp_path.as_uri())
    assert len(frame.inputFiles()) == 1  # distinct names
    assert (
        java_frame(frame).queryExecution().optimizedPlan().stats().sizeInBytes()
        == 1_000 * table.files[0].stat().st_size
    )
    assert not list(Path(tempfile.gettempdir()).glob("mdt-listing-*"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.plugins", "org.apache.gluten.GlutenPlugin"),
        (
            "spark.sql.extensions",
            "io.delta.sql.DeltaSparkSessionExtension,org.apache.comet.CometSparkSessionExtensions",
        ),
    ],
)
def test_an_accelerator_that_would_return_deleted_rows_is_refused(setting, value):
    class Conf:
        def get(self, name, default):
            return value if name == setting else default

    with pytest.raises(Unsupported, match="would return deleted rows") as caught:
        file_index._require_own_reader(SimpleNamespace(conf=Conf()))  # type: ignore[arg-type]
    assert "scan().to_arrow()" in str(caught.value)


# --- errors and garbage collection ------------------------------------------------------------------------------------


def test_a_planner_that_fails_on_filters_causes_a_warning_and_loses_no_rows(spark, table, tmp_path):
    class Broken(Table):
        def list(self, query, predicate, rows=None):
            if predicate != And(()):
                raise RuntimeError("index is broken")
            return super().list(query, predicate, rows)

    frame = relation(spark, Broken(table.files), SCHEMA, tmp_path.as_uri())
    with pytest.warns(PlannerWarning, match="index is broken"):
        assert ids(frame.where("id > 35")) == [36, 37, 38, 39]


def test_a_failed_request_of_the_optimizer_is_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="mdt.plan"):
        assert file_index._answer_question({"planner": -1}) is None
    assert "a question of Spark's optimizer has no answer: KeyError: -1" in caplog.text


def test_a_planner_that_cannot_list_files_fails_the_query_with_its_own_message(spark, tmp_path):
    class Lost(file_index.Lister):
        def list(self, query, predicate, rows=None):
            raise RuntimeError("the table is gone")

    frame = relation(spark, Lost(), SCHEMA, tmp_path.as_uri())
    with pytest.warns(PlannerWarning), pytest.raises(Exception, match="the table is gone"):
        frame.collect()


def test_collected_frames_free_their_listers_and_release_their_keys(spark, table, tmp_path):
    class Tracked(Table):
        alive = 0

        def __post_init__(self):
            Tracked.alive += 1

        def __del__(self):
            Tracked.alive -= 1

    for _ in range(20):
        assert relation(spark, Tracked(table.files), SCHEMA, tmp_path.as_uri()).count() == 40
    survivor = relation(spark, table, SCHEMA, tmp_path.as_uri())
    for _ in range(20):
        gc.collect()
        collect_garbage(spark)
        if Tracked.alive <= 2:
            break
        time.sleep(0.2)
    assert Tracked.alive <= 2, "the last plans may still be held by Spark's own caches"
    assert survivor.count() == 40
    assert table.released
