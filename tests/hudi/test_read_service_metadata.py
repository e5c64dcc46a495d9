"""Metadata of table services of any writer: compaction plans, cleans and savepoints."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import pytest

from mdt.errors import Corrupt
from mdt.hudi import clean_metadata, compaction_plan
from mdt.hudi.commit_metadata import Cleaned
from mdt.hudi.read import service_metadata

T = "20240229120000123"
BASE = f"6f2c-0_3-77-0_{T}.parquet"
LOG = f".6f2c-0_{T}.log.1_0-1-0"


def avro_file(schema: Any, value: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, [value])
    return out.getvalue()


def test_the_file_groups_of_a_compaction_plan_are_read():
    operation = {
        "baseInstantTime": T,
        "fileId": "6f2c-0",
        "partitionPath": "a",
        "dataFilePath": f"a/{BASE}",
        "deltaFilePaths": [LOG],
    }
    only_logs = {"baseInstantTime": T, "fileId": "b-0", "dataFilePath": None}
    data = compaction_plan.encode([operation, only_logs])
    groups = [("a", "6f2c-0"), ("", "b-0")]
    assert service_metadata.decode_compaction_plan(data, "p") == groups


def test_a_clean_names_the_files_that_it_deleted():
    cleaned = Cleaned(T, "KEEP_LATEST_COMMITS", "", "", {"a": [BASE, LOG], "": [BASE]})
    data = clean_metadata.encode_metadata(cleaned)
    expected = {"a": {BASE, LOG}, "": {BASE}}
    assert service_metadata.decode_clean(data, "p") == expected


def test_a_clean_of_a_whole_partition_names_only_the_files_that_it_deleted():
    partition_metadata = {
        "partitionPath": "a",
        "policy": "",
        "deletePathPatterns": [f"/t/a/{BASE}", "/t/a/other"],
        "successDeleteFiles": [f"/t/a/{BASE}"],
        "failedDeleteFiles": ["/t/a/other"],
        "isPartitionDeleted": True,
    }
    value = {
        "startCleanTime": T,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 1,
        "earliestCommitToRetain": "",
        "partitionMetadata": {"a": partition_metadata},
    }
    data = avro_file(clean_metadata._METADATA, value)
    assert service_metadata.decode_clean(data, "p") == {"a": {BASE}}


DECODERS = [
    service_metadata.decode_compaction_plan,
    service_metadata.decode_clean,
    service_metadata.decode_savepoint,
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", [b"{}", b"Obj", compaction_plan.encode([])[:-1]])
def test_damaged_metadata_is_corrupt_and_the_error_names_the_object(
    decode: Callable[[bytes, str], object], data
):
    with pytest.raises(Corrupt) as caught:
        decode(data, "t/1.clean")
    assert caught.value.path == "t/1.clean"


@pytest.mark.parametrize("decode", DECODERS)
def test_fields_of_other_types_are_corrupt(decode: Callable[[bytes, str], object]):
    names = ("operations", "partitionMetadata")
    fields = [{"name": name, "type": "string"} for name in names]
    schema = {"type": "record", "name": "R", "fields": fields}
    with pytest.raises(Corrupt, match="wrong type"):
        decode(avro_file(schema, dict.fromkeys(names, "x")), "p")
