"""Filters on floating point columns give the same rows on Spark, in process and by hand: both
zeros, NaN and infinities.

parquet-java decides by row group and page whether a filter can hold, with bits where SQL has
values: -0.0 equals 0.0.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from trees import create

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
"""Columns that are filtered, with the suffix of their type's literals."""
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
"""What the files of a partition hold, so that row groups can be skipped by what they lack."""
LITERALS = {
    "0.0": 0.0,
    "-0.0": -0.0,
    "double('NaN')": math.nan,
    "double('infinity')": math.inf,
    "-1e0": -1.0,
}
Test = Callable[[float, float], bool]


def order(value: float) -> tuple[bool, float]:
    """Return a key by which Spark orders: NaN above all, equal to itself; both zeros equal."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def ordered(compare: Callable[[Any, Any], bool]) -> Test:
    return lambda a, b: compare(order(a), order(b))


OPERATORS: dict[str, Test] = {
    "{c} = {v}": ordered(operator.eq),
    "{c} <=> {v}": ordered(operator.eq),
    "{c} != {v}": ordered(operator.ne),
    "{c} < {v}": ordered(operator.lt),
    "{c} <= {v}": ordered(operator.le),
    "{c} > {v}": ordered(operator.gt),
    "{c} >= {v}": ordered(operator.ge),
    "{c} in ({v}, -7)": ordered(operator.eq),
    "{c} not in ({v}, -7)": ordered(operator.ne),
    "not {c} = {v}": ordered(operator.ne),
    "{c} between {v} and {v}": ordered(operator.eq),
    "{v} > {c}": ordered(operator.lt),
}


def rows(repeat: int, spread: float = 0.0) -> pa.Table:
    """Return rows of every kind, ``repeat`` of each value; ``spread``: a step between plain values,
    so that there are many.
    """
    found, ids = [], itertools.count()
    for kind, values in KINDS.items():
        for i, value in itertools.product(range(repeat), values):
            x = (
                value + i * spread
                if spread and value is not None and value not in (0.0, math.nan)
                else value
            )
            found.append(
                {
                    "id": next(ids),
                    "p": kind,
                    "d": x,
                    "f": x,
                    "st": {"d": x, "f": x, "n": {"d": x}},
                    "l": [x],
                    "m": [("k", x)],
                    "ls": [{"d": x}],
                }
            )
    return pa.Table.from_pylist(found, SCHEMA)


def in_spark(spark: SparkSession, table: mdt.Table, wheres: list[str]) -> dict[str, list[int]]:
    """Return the ids that each filter finds.  Together in a union: the filters are pushed down as
    in queries of their own.
    """
    mdt.read(spark, table.path).createOrReplaceTempView("floats")
    found: dict[str, list[int]] = {where: [] for where in wheres}
    for start in range(0, len(wheres), 30):
        numbered = list(enumerate(wheres))[start : start + 30]
        text = " union all ".join(
            f"select {q} q, id from floats where {where}" for q, where in numbered
        )
        answer = spark.sql(text).toArrow()
        for q, i in zip(answer["q"].to_pylist(), answer["id"].to_pylist(), strict=True):
            found[wheres[q]].append(i)
    return {where: sorted(ids) for where, ids in found.items()}


def filters(
    paths: Sequence[str], templates: Sequence[str], literals: Sequence[str]
) -> Iterator[tuple[str, str, Test, float]]:
    """Yield filter, column, and what is compared with what, for each combination."""
    for path, template, text in itertools.product(paths, templates, literals):
        literal = text if "(" in text or "e" in text else text + PATHS[path]
        yield template.format(c=path, v=literal), path, OPERATORS[template], LITERALS[text]


def assert_right(
    spark: SparkSession,
    table: mdt.Table,
    held: pa.Table,
    wheres: Iterable[tuple[str, str, Test, float]],
) -> None:
    """Assert that every filter finds, on Spark and in process, what Python finds in ``held``."""
    values = {path: held.column("d" if PATHS[path] == "D" else "f").to_pylist() for path in PATHS}
    ids = held["id"].to_pylist()
    wanted = {
        where: sorted(
            i for i, v in zip(ids, values[path], strict=True) if v is not None and test(v, literal)
        )
        for where, path, test, literal in wheres
    }
    found = in_spark(spark, table, list(wanted))
    for where, expected in wanted.items():
        assert found[where] == expected, where
        assert sorted(table.scan(where, ["id"]).to_arrow()["id"].to_pylist()) == expected, where


def dictionaries(path: Path) -> set[str]:
    """Return the leaves of floats that have a dictionary in a base file below ``path``."""
    found = set()
    for file in path.rglob("*.parquet"):
        if ".hoodie" not in file.parts:
            metadata = pq.ParquetFile(file).metadata
            for group, column in itertools.product(
                range(metadata.num_row_groups), range(metadata.num_columns)
            ):
                chunk = metadata.row_group(group).column(column)
                if chunk.physical_type in ("FLOAT", "DOUBLE") and chunk.has_dictionary_page:
                    found.add(chunk.path_in_schema)
    return found


EVERY = (tuple(PATHS), tuple(OPERATORS), tuple(LITERALS))
SOME = (
    ("d", "st.f"),
    ("{c} = {v}", "{c} >= {v}", "{c} <= {v}", "{c} in ({v}, -7)"),
    ("0.0", "-0.0"),
)
SHAPES = list(itertools.product(("lz4", "snappy", "zstd", "uncompressed"), (3, 2100), (0.0, 0.5)))
"""Codec, rows of each value, step.  Few rows are one page, without a page index; many of few values
are what dictionaries pay for.
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("codec", "repeat", "spread", "wheres"),
    [
        ("lz4", 2100, 0.0, SOME),
        *(pytest.param(*shape, EVERY, marks=pytest.mark.nightly) for shape in SHAPES),
    ],
)
def test_zeros_nan_and_infinities_are_found_whatever_pages_hold_them(
    spark: SparkSession, tmp_path: Path, codec: str, repeat: int, spread: float, wheres: Any
) -> None:
    table = create(
        tmp_path / "t",
        SCHEMA,
        partition_by=["p"],
        table_type="MERGE_ON_READ",
        options={"mdt.compression": codec},
    )
    held = rows(repeat, spread)
    table.bulk_insert(held)
    table.upsert(held.filter(pa.array([i % 7 == 0 for i in range(len(held))])))
    assert any(".log." in name for name in table.files()["name"].to_pylist())
    assert dictionaries(tmp_path) == set()
    assert_right(spark, table, held, filters(*wheres))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("wheres", [SOME, pytest.param(EVERY, marks=pytest.mark.nightly)])
def test_files_that_have_dictionaries_of_floats_are_read_right_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheres: Any
) -> None:
    monkeypatch.setattr(
        base_file,
        "_repetitive",
        lambda table: {
            leaf.path: 0.0
            for leaf in leaf_columns(table.schema)
            if not pa.types.is_boolean(leaf.type)
        },
    )
    table = create(tmp_path / "t", SCHEMA, partition_by=["p"])
    held = rows(3)
    table.bulk_insert(held)
    assert {"d", "f", "st.n.d", "l.list.element"} <= dictionaries(tmp_path)
    assert_right(spark, table, held, filters(*wheres))
