"""mdt reads the rows of Hudi in each state of tables that Hudi makes step by step.

MDT_HUDI_STATES names a folder with states that ``make_states.py`` has made before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from compare_states import EQUAL, compared, comparisons, difference
from hudi_kinds import TABLES
from hudi_session import command, environment

import mdt.spark
from mdt.hudi.avro_schema import META_FIELDS

REFUSED = {
    "bootstrapped": "hoodie.bootstrap.base.path",
    "dropped_columns": "hoodie.datasource.write.drop.partition.columns",
    "dropped_columns_mor": "hoodie.datasource.write.drop.partition.columns",
    "keyed_by_decimal": "decimal128(9, 2) cannot be a key",
    "keyed_by_double": "double cannot be a key",
    "partial_payload_v6": "hoodie.compaction.payload.class",
    "partial_payload_v8": "hoodie.record.merge.strategy.id",
    "strings_cow": "double cannot be converted to string",
    "strings_mor": "double cannot be converted to string",
}
"""Table -> part of the message with which mdt refuses all of its states, or the last ones."""
BY_POSITION = pytest.mark.xfail(
    strict=True, reason="Hudi finds rows of repeated keys by their positions, and we find the first"
)
EVERY_TABLE = [
    pytest.param(name, marks=[BY_POSITION] if name == "duplicates_mor" else []) for name in TABLES
]
WITH_METADATA_TABLE = [
    name
    for name, (_, _, options, _) in TABLES.items()
    if options.get("hoodie.metadata.enable") == "true"
]
ON_SPARK = (
    "cow_v6",
    "mor_v8",
    "mor_v9",
    "cdc_mor",
    "evolved_v9",
    "log_compaction_v8",
    "partial_v9",
    "simple_keys",
    "three_levels",
)
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def states(tmp_path_factory) -> Path:
    """The folder with all states. Making them takes a quarter of an hour."""
    if "MDT_HUDI_STATES" in os.environ:
        return Path(os.environ["MDT_HUDI_STATES"])
    folder = tmp_path_factory.mktemp("states")
    call = [*command("make_states.py"), str(folder)]
    with (folder / "output").open("w") as output:
        subprocess.run(call, check=True, stdout=output, stderr=output, env=environment())
    return folder


@pytest.mark.parametrize("name", EVERY_TABLE)
def test_mdt_reads_the_rows_of_hudi_in_each_state(name, states):
    failed = states / f"{name}.failed"
    assert not failed.exists(), failed.read_text()[:2000]
    results = dict(comparisons(states, name))
    assert results
    refused = [result for result in results.values() if result != EQUAL]
    assert bool(refused) == (name in REFUSED), results
    assert all(REFUSED[name] in result for result in refused), results


@pytest.mark.parametrize("name", WITH_METADATA_TABLE)
def test_mdt_reads_the_rows_of_hudi_without_the_metadata_table(name, states, tmp_path):
    folders = sorted(states.glob(f"{name}-*"))
    assert folders
    for state in folders:
        table = tmp_path / state.name
        shutil.copytree(state / "table", table, ignore=shutil.ignore_patterns("metadata"))
        assert (state / "table/.hoodie/metadata").exists()
        assert compared(table, state / "rows.parquet", None) == EQUAL, state.name


@pytest.mark.parametrize("name", ON_SPARK)
def test_mdt_on_spark_reads_the_rows_of_hudi(name, states, spark):
    mdt.spark.enable(spark)
    folders = sorted(states.glob(f"{name}-*"))
    assert folders
    for state in folders[-3:]:
        ours = mdt.read(spark, str(state / "table")).toArrow()
        hudis = pq.read_table(state / "rows.parquet")
        assert set(hudis.column_names) - set(ours.column_names) <= set(META_FIELDS)
        assert difference(ours, hudis.select(ours.column_names)) == EQUAL, state.name
