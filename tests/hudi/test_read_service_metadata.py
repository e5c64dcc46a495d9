"""The content of instants of table services of any writer."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import pytest

from mdt.errors import Corrupt
from mdt.hudi import clean_metadata, clustering_plan, compaction_plan, restore_metadata
from mdt.hudi.commit_metadata import Cleaned
from mdt.hudi.read import service_metadata
from mdt.hudi.read.service_metadata import CompactionOperation, DeletedFiles

T = "20240229120000123"
BASE = f"6f2c-0_3-77-0_{T}.parquet"
LOG = f".6f2c-0_{T}.log.1_0-1-0"


def encoded(schema: Any, value: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, [value])
    return out.getvalue()


def rollback(**changes: Any) -> dict[str, Any]:
    of_partition = {
        "partitionPath": "a",
        "successDeleteFiles": [f"file:/tables/t/a/{BASE}", LOG],
        "failedDeleteFiles": ["file:/tables/t/a/other"],
    }
    return {
        "startRollbackTime": T,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 2,
        "commitsRollback": ["20240101000000000"],
        "partitionMetadata": {"a": of_partition},
        **changes,
    }


def test_a_compaction_plan_names_file_groups_and_their_slices():
    operation = {
        "baseInstantTime": T,
        "fileId": "6f2c-0",
        "partitionPath": "a",
        "dataFilePath": f"a/{BASE}",
        "deltaFilePaths": [LOG],
    }
    only_logs = {"baseInstantTime": T, "fileId": "b-0", "dataFilePath": None}
    data = compaction_plan.encode([operation, only_logs])
    assert service_metadata.decode_compaction_plan(data, "p") == (
        CompactionOperation("a", "6f2c-0", T, BASE, frozenset({LOG})),
        CompactionOperation("", "b-0", T, "", frozenset()),
    )


def test_a_clustering_plan_names_the_file_groups_that_go():
    pieces = [{"fileId": "b-0", "partitionPath": "a"}, {"fileId": "c-0", "partitionPath": "d"}]
    data = clustering_plan.encode([{"slices": pieces, "outputs": ["n-0"]}])
    assert service_metadata.decode_clustering_plan(data, "p") == {("a", "b-0"), ("d", "c-0")}


def test_a_requested_overwrite_has_no_clustering_plan():
    data = clustering_plan.encode([], "INSERT_OVERWRITE")
    assert service_metadata.decode_clustering_plan(data, "p") == frozenset()
    assert service_metadata.decode_clustering_plan(b"", "p") == frozenset()


def test_a_clean_names_the_files_that_it_deleted():
    cleaned = Cleaned(T, "KEEP_LATEST_COMMITS", "", "", {"a": [BASE, LOG], "": [BASE]})
    data = clean_metadata.encode_metadata(cleaned)
    expected = DeletedFiles({"a": frozenset({BASE, LOG}), "": frozenset({BASE})})
    assert service_metadata.decode_clean(data, "p") == expected


def test_a_clean_can_delete_whole_partitions_and_fail_to_delete_files():
    of_partition = {
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
        "partitionMetadata": {"a": of_partition},
    }
    data = encoded(clean_metadata._METADATA, value)
    expected = DeletedFiles({"a": frozenset({BASE})}, partitions=frozenset({"a"}))
    assert service_metadata.decode_clean(data, "p") == expected


def test_a_rollback_names_deleted_files_and_instants():
    data = encoded(restore_metadata._ROLLBACK, rollback())
    assert service_metadata.decode_rollback(data, "p") == DeletedFiles(
        {"a": frozenset({BASE, LOG})}, instants=frozenset({"20240101000000000"})
    )


def test_a_restore_joins_its_rollbacks():
    partition = {"partitionPath": "a", "successDeleteFiles": ["x"], "failedDeleteFiles": []}
    other = rollback(commitsRollback=["20240102000000000"], partitionMetadata={"a": partition})
    value = {
        "startRestoreTime": T,
        "timeTakenInMillis": 1,
        "instantsToRollback": [],
        "hoodieRestoreMetadata": {"1": [rollback(), None], "2": [other]},
    }
    data = encoded(restore_metadata._METADATA, value)
    assert service_metadata.decode_restore(data, "p") == DeletedFiles(
        {"a": frozenset({BASE, LOG, "x"})},
        instants=frozenset({"20240101000000000", "20240102000000000"}),
    )


DECODERS = [
    service_metadata.decode_compaction_plan,
    service_metadata.decode_clustering_plan,
    service_metadata.decode_clean,
    service_metadata.decode_rollback,
    service_metadata.decode_restore,
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", [b"{}", b"Obj", compaction_plan.encode([])[:-1]])
def test_damaged_content_names_the_object(decode: Callable[[bytes, str], object], data):
    with pytest.raises(Corrupt) as caught:
        decode(data, "t/1.clean")
    assert caught.value.path == "t/1.clean"


@pytest.mark.parametrize("decode", DECODERS)
def test_fields_of_other_types_are_corrupt(decode: Callable[[bytes, str], object]):
    names = (
        "operations",
        "clusteringPlan",
        "partitionMetadata",
        "hoodieRestoreMetadata",
        "commitsRollback",
    )
    fields = [{"name": name, "type": "string"} for name in names]
    schema = {"type": "record", "name": "R", "fields": fields}
    with pytest.raises(Corrupt, match="wrong type"):
        decode(encoded(schema, dict.fromkeys(names, "x")), "p")
