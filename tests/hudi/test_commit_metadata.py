from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt
from mdt.hudi import commit_metadata, compaction_plan
from mdt.hudi.commit_metadata import CommitMetadata, WriteStat

BASE = WriteStat(
    "f-0", "city=x/f-0_0-0-0_20261121053000001.parquet", "city=x", num_writes=5, num_inserts=5, total_scan_time=7
)
LOG = WriteStat(
    "f-0", "city=x/.f-0_20261121053000001.log.1_0-0-0", "city=x", "20261121053000001", num_writes=1, log_version=1,
    base_file="f-0_0-0-0_20261121053000001.parquet", log_files=(".f-0_20261121053000001.log.1_0-0-0",),
)  # fmt: skip
STATS = st.lists(
    st.builds(
        replace,
        st.sampled_from([BASE, LOG]),
        partition_path=st.sampled_from(["", "city=x", "city=ü"]),
        num_writes=st.integers(0, 2**40),
        prev_commit=st.sampled_from([None, "20261121053000001"]),
    ),
    max_size=5,
)


def encode(stats: list[WriteStat], **changes: Any) -> bytes:
    given: dict[str, Any] = {
        "schema_json": "{}", "operation": "UPSERT", "compacted": False, "extra": {}, "replaced": None, **changes,
    }  # fmt: skip
    return commit_metadata.encode_commit(CommitMetadata(tuple(stats), **given))


@given(STATS, st.booleans(), st.dictionaries(st.sampled_from(["mdt.seq", "mdt.txn"]), st.text(max_size=5)))
def test_what_is_written_is_read_back(stats: list[WriteStat], compacted: bool, extra: dict[str, str]) -> None:
    found = commit_metadata.decode_commit(
        encode(stats, compacted=compacted, extra=extra, replaced={"p": ("f-0", "g-0")})
    )
    assert found.stats == tuple(sorted(stats, key=lambda stat: stat.partition_path))
    assert (found.schema_json, found.operation, found.compacted) == ("{}", "UPSERT", compacted)
    assert found.extra == extra
    assert found.replaced == {"p": ("f-0", "g-0")}


def test_a_base_file_has_the_fields_that_java_writes() -> None:
    value = json.loads(encode([BASE]))["partitionToWriteStats"]["city=x"][0]
    assert value.keys() == {
        "fileId", "path", "cdcStats", "prevCommit", "numWrites", "numDeletes", "numUpdateWrites", "numInserts",
        "totalWriteBytes", "totalWriteErrors", "tempPath", "partitionPath", "totalLogRecords", "totalLogFilesCompacted",
        "totalLogSizeCompacted", "totalUpdatedRecordsCompacted", "totalLogBlocks", "totalCorruptLogBlock",
        "totalRollbackBlocks", "fileSizeInBytes", "minEventTime", "maxEventTime", "runtimeStats",
    }  # fmt: skip
    assert value["prevCommit"] == "null"
    assert value["runtimeStats"] == {"totalScanTime": 7, "totalUpsertTime": 0, "totalCreateTime": 0}


def test_a_log_file_names_its_slice() -> None:
    value = json.loads(encode([LOG]))["partitionToWriteStats"]["city=x"][0]
    assert (value["logVersion"], value["logOffset"], value["prevCommit"]) == (1, 0, "20261121053000001")
    assert value["baseFile"] == LOG.base_file
    assert value["logFiles"] == list(LOG.log_files or ())


def test_bytes_do_not_depend_on_the_order_of_partitions() -> None:
    other = replace(BASE, partition_path="a")
    assert encode([BASE, other], extra={"a": "1", "b": "2"}) == encode([other, BASE], extra={"b": "2", "a": "1"})


def test_replaced_file_groups_only_stand_in_a_replacecommit() -> None:
    assert b"partitionToReplaceFileIds" not in encode([BASE])
    assert json.loads(encode([], replaced={}))["partitionToReplaceFileIds"] == {}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"partitionToWriteStats":{"p":[1]}}', b'{"partitionToWriteStats":{"p":[{}]}}',
     b'{"partitionToWriteStats":{"p":[{"fileId":"f","path":"p","numWrites":"x"}]}}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_commit_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        commit_metadata.decode_commit(data)


PLAN = [
    {
        "baseInstantTime": "20261121053000001", "fileId": "f-0", "partitionPath": "city=x", "dataFilePath": "f.parquet",
        "deltaFilePaths": [".f-0_20261121053000001.log.1_0-0-0"],
    }
]  # fmt: skip


def test_a_compaction_plan_reads_back_and_is_deterministic() -> None:
    data = compaction_plan.encode(PLAN)
    assert data == compaction_plan.encode(PLAN)
    plan = compaction_plan.decode(data)
    assert [{key: operation[key] for key in PLAN[0]} for operation in plan["operations"]] == PLAN
    assert (plan["version"], plan["preserveHoodieMetadata"]) == (1, True)


@pytest.mark.parametrize("cut", [0, 4, 200, -1])
def test_a_torn_compaction_plan_is_corrupt(cut: int) -> None:
    with pytest.raises(Corrupt):
        compaction_plan.decode(compaction_plan.encode(PLAN)[:cut])
