"""Filters on floating point columns return the same rows on Spark, in process, and on rows that are
not stored in files: both zeros, NaN and infinities.

parquet-java decides for each row group and page whether a filter can match. It compares bits, where
SQL compares values: -0.0 equals 0.0.
"""

import itertools
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sql_tables import lines, stored

import mdt
from mdt.hudi import base_file
from mdt.parquet.nested import leaf_columns

STRUCT = pa.struct(
    [("d", pa.float64()), ("f", pa.float32()), ("n", pa.struct([("d", pa.float64())]))]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("st", STRUCT),
        ("l", pa.list_(pa.float64())),
        ("m", pa.map_(pa.string(), pa.float32())),
        ("ls", pa.list_(pa.struct([("d", pa.float64())]))),
    ]
)
PATHS = {"d": "D", "f": "F", "st.d": "D", "st.f": "F", "st.n.d": "D"}
"""Filtered columns, each with the suffix of literals of its type."""
KINDS = {
    "neg": [-0.0],
    "pos": [0.0],
    "both": [-0.0, 0.0],
    "nan": [math.nan, 1.0],
    "nans": [math.nan],
    "zero and one": [0.0, 1.0],
    "below": [-1.0, -0.0],
    "infinite": [math.inf, -math.inf],
    "null": [None, -0.0],
    "nulls": [None],
    "plain": [1.5, 2.5],
}
"""Values in the files of each partition, so that row groups can be skipped."""
LITERALS = ("0.0", "-0.0", "double('NaN')", "double('infinity')", "-1e0")
OPERATORS = lines(
    """
    {c} = {v}
    {c} <=> {v}
    {c} != {v}
    {c} < {v}
    {c} <= {v}
    {c} > {v}
    {c} >= {v}
    {c} in ({v}, -7)
    {c} not in ({v}, -7)
    not {c} = {v}
    {c} between {v} and {v}
    {v} > {c}
    """
)


def rows(repeat, spread=0.0):
    """Return rows of every kind, ``repeat`` for each value.

    ``spread``: step between plain values, so that there are many distinct ones.
    """
    items = []
    for kind, values in KINDS.items():
        for i, value in itertools.product(range(repeat), values):
            x = value + i * spread if value and not math.isnan(value) else value
            nested = {"st": {"d": x, "f": x, "n": {"d": x}}, "l": [x], "m": [("k", x)]}
            items.append({"id": len(items), "p": kind, "d": x, "f": x, **nested, "ls": [{"d": x}]})
    return pa.Table.from_pylist(items, SCHEMA)


def in_spark(spark, rows, wheres):
    """Return the ids that each filter finds. The queries are joined by UNION ALL. Filters are
    pushed down as in separate queries.
    """
    rows.createOrReplaceTempView("floats")
    ids_of_filters = [[] for _ in wheres]
    numbered = [f"select {q} q, id from floats where {where}" for q, where in enumerate(wheres)]
    for start in range(0, len(wheres), 30):
        parts = numbered[start : start + 30]
        for q, id in spark.sql(" union all ".join(parts)).collect():
            ids_of_filters[q].append(id)
    return [sorted(ids) for ids in ids_of_filters]


def filters(paths, templates, literals):
    """Yield a filter for each combination."""
    for path, template, text in itertools.product(paths, templates, literals):
        literal = text if "(" in text or "e" in text else text + PATHS[path]
        yield template.format(c=path, v=literal)


def assert_right(spark, table, held, wheres):
    """Assert that every filter finds, on Spark and in process, the rows that Spark finds in
    ``held``.
    """
    expected = in_spark(spark, spark.createDataFrame(held), wheres)
    assert any(expected)
    on_spark = in_spark(spark, mdt.read(spark, table.path), wheres)
    for where, ids_on_spark, right in zip(wheres, on_spark, expected, strict=True):
        assert ids_on_spark == right, where
        assert sorted(table.scan(where, ["id"]).to_arrow()["id"].to_pylist()) == right, where


def dictionaries(path):
    """Return the floating point leaves that have a dictionary in a base file below ``path``."""
    leaves = set()
    for file in path.rglob("*.parquet"):
        if ".hoodie" in file.parts:
            continue
        metadata = pq.read_metadata(file)
        places = itertools.product(range(metadata.num_row_groups), range(metadata.num_columns))
        for group, column in places:
            chunk = metadata.row_group(group).column(column)
            if chunk.physical_type in ("FLOAT", "DOUBLE") and chunk.has_dictionary_page:
                leaves.add(chunk.path_in_schema)
    return leaves


EVERY = (tuple(PATHS), tuple(OPERATORS), LITERALS)
SOME = (
    ("d", "st.f"),
    ("{c} = {v}", "{c} >= {v}", "{c} <= {v}", "{c} in ({v}, -7)"),
    ("0.0", "-0.0"),
)
SHAPES = list(itertools.product(("lz4", "snappy", "zstd", "uncompressed"), (3, 2100), (0.0, 0.5)))
"""Codec, rows for each value, step between values. Few rows make one page without a page index.
Many rows with few values make dictionaries worthwhile.
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("codec", "repeat", "spread", "wheres"),
    [
        ("lz4", 2100, 0.0, SOME),
        *(pytest.param(*shape, EVERY, marks=pytest.mark.nightly) for shape in SHAPES),
    ],
)
def test_filters_find_zeros_nan_and_infinities_in_every_layout_of_pages(
    spark, tmp_path, codec, repeat, spread, wheres
):
    data = rows(repeat, spread)
    options = {"mdt.compression": codec}
    table = stored(tmp_path / "t", data, partition_by="p", options=options)
    table.upsert(data.filter(pa.array([i % 7 == 0 for i in range(len(data))])))
    assert any(".log." in name for name in table.files()["name"].to_pylist())
    assert dictionaries(tmp_path) == set()
    assert_right(spark, table, data, list(filters(*wheres)))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("wheres", [SOME, pytest.param(EVERY, marks=pytest.mark.nightly)])
def test_filters_are_right_on_files_with_dictionaries_of_floats(
    spark, tmp_path, monkeypatch, wheres
):
    def all_but_booleans(table):
        leaves = leaf_columns(table.schema)
        return {leaf.path: 0.0 for leaf in leaves if not pa.types.is_boolean(leaf.type)}

    monkeypatch.setattr(base_file, "_repetitive", all_but_booleans)
    data = rows(3)
    table = stored(tmp_path / "t", data, partition_by="p")
    assert {"d", "f", "st.n.d", "l.list.element"} <= dictionaries(tmp_path)
    assert_right(spark, table, data, list(filters(*wheres)))
