"""A check reports entries of Hudi's own indexes that contradict the rows."""

from __future__ import annotations

from pathlib import Path

import index_files
import pytest
from hudi_tables import FIXTURES, ZIPS, fixture, instants

import mdt
from mdt.hudi.read.metadata_state import FOLDER

pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
TABLE = "cow_v9_txns_simple_meta"
MERCHANTS = "secondary_index_merchant_idx"


def problems(folder: Path) -> dict[str, list[str]]:
    """Return the texts of the problems by path in the metadata table."""
    texts: dict[str, list[str]] = {}
    for problem in mdt.open(folder).check().problems:
        texts.setdefault(problem.path.removeprefix(f"{FOLDER}/"), []).append(problem.text)
    return texts


@pytest.mark.parametrize(
    "name",
    (
        "cow_v9_txns_complex_meta",
        "mor_avro_v8_trips_8i3u1d",
        "mor_avro_v9_txns_nonpart_meta",
        "mor_avro_v9_txns_simple_meta",
    ),
)
def test_no_problems_are_reported_for_tables_that_hudi_wrote(name, tmp_path):
    assert problems(fixture(name, tmp_path)) == {}


@pytest.mark.parametrize("name", (TABLE, "mor_avro_v8_trips_8i3u1d"))
def test_instants_missing_from_the_metadata_table_are_reported(name, tmp_path):
    folder = fixture(name, tmp_path)
    missing = instants(folder)[-2:]
    for path in (folder / FOLDER / ".hoodie" / "timeline").iterdir():
        if path.name[:17] in missing:
            path.unlink()
    [text] = problems(folder)[FOLDER]
    assert f"lacks instants of the timeline: {missing[0]}, {missing[1]};" in text


def test_record_index_entries_that_contradict_the_rows_are_reported(tmp_path):
    folder = fixture(TABLE, tmp_path)

    def change(key, record):
        location = record["recordIndexMetadata"][1]
        if key == "TXN-012":
            location["fileIdLowBits"] ^= 1
        return None if key == "TXN-014" else record

    index_files.compact(folder, "record_index", change)
    assert problems(folder) == {
        "record_index": [
            "rows without a record (1): TXN-014",
            "rows in another file group than their record says (1): TXN-012",
        ]
    }


def test_keys_in_another_file_group_and_records_without_rows_are_reported(tmp_path):
    folder = fixture("mor_avro_v9_nonpartitioned_rollback", tmp_path)
    [text] = problems(folder)["record_index"]
    assert text == "rows in another file group than their record says (1): TXN-002"
    folder = fixture(TABLE, tmp_path / "other")
    renamed = {"TXN-012": "TXN-912"}
    index_files.compact(folder, "record_index", rename=renamed)
    assert problems(folder)["record_index"] == [
        "rows without a record (1): TXN-012",
        "records without a row (1): TXN-912",
    ]


def test_secondary_index_entries_that_contradict_the_rows_are_reported(tmp_path):
    folder = fixture("mor_avro_v9_txns_simple_meta", tmp_path)
    index_files.compact(folder, MERCHANTS, rename={"Uber$TXN-014": "Über$TXN-014"})
    assert problems(folder) == {
        MERCHANTS: [
            "rows without a record (1): Uber$TXN-014",
            "records without a row (1): Über$TXN-014",
        ]
    }


@pytest.mark.parametrize("bound, other", (("minValue", "maxValue"), ("maxValue", "minValue")))
@pytest.mark.parametrize("name", ("cow_v9_txns_nonpart_meta", "mor_avro_v8_trips_8i3u1d"))
def test_statistics_that_exclude_existing_values_are_reported(name, bound, other, tmp_path):
    folder = fixture(name, tmp_path)
    files = set(mdt.open(folder).files()["name"].to_pylist())
    changed = set()

    def change(key, record):
        statistics = record["ColumnStatsMetadata"][1]
        if statistics["fileName"] in files and statistics[bound] != statistics[other]:
            changed.add((statistics["fileName"], statistics["columnName"]))
            statistics[bound] = statistics[other]
        return record

    index_files.compact(folder, "column_stats", change)
    [text] = problems(folder)["column_stats"]
    assert text.startswith(f"statistics exclude values of {len(changed)} columns of files: '")


def test_wrong_null_counts_are_reported(tmp_path):
    folder = fixture("cow_v9_txns_nonpart_meta", tmp_path)

    def change(key, record):
        statistics = record["ColumnStatsMetadata"][1]
        if statistics["columnName"] == "merchant_name":
            statistics["nullCount"] = 0
        if statistics["columnName"] == "txn_id":
            statistics["nullCount"] = statistics["valueCount"]
        return record

    index_files.compact(folder, "column_stats", change)
    [text] = problems(folder)["column_stats"]
    assert "'merchant_name' of" in text and "nulls, not 0" in text
    assert "'txn_id' of" in text and "has values" in text


@pytest.mark.parametrize("partition", ("record_index", "column_stats", MERCHANTS))
def test_damaged_indexes_are_reported(partition, tmp_path):
    folder = fixture(TABLE, tmp_path)
    for path in index_files.compact(folder, partition):
        content = path.read_bytes()
        path.write_bytes(content[:-4096] + bytes(96) + content[-4000:])
    assert "damaged HFile" in str(problems(folder))


def test_a_damaged_file_of_index_definitions_is_reported(tmp_path):
    folder = fixture(TABLE, tmp_path)
    path = folder / ".hoodie" / ".index_defs" / "index.json"
    path.write_bytes(path.read_bytes()[:-9])
    [problem] = mdt.open(folder).check().problems
    assert problem.path == ".hoodie/.index_defs/index.json" and "not JSON" in problem.text
