from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt
from mdt.hudi import commit_metadata, compaction_plan
from mdt.hudi.commit_metadata import NO_PREVIOUS, WRITTEN, CommitMetadata

BASE: dict[str, Any] = {
    "partition": "city=x",
    "file_id": "f-0",
    "name": "f-0_0-0-0_20261121053000001.parquet",
    "log_version": 0,
    "size": 70,
    "rows": 5,
    "inserts": 5,
    "updates": 0,
    "deletes": 0,
    "previous_instant": NO_PREVIOUS,
    "base_name": "",
    "log_names": [],
}
LOG: dict[str, Any] = {
    **BASE,
    "name": ".f-0_20261121053000001.log.1_0-0-0",
    "previous_instant": "20261121053000001",
    "rows": 1,
    "inserts": 0,
    "updates": 1,
    "log_version": 1,
    "base_name": BASE["name"],
    "log_names": [".f-0_20261121053000001.log.1_0-0-0"],
}
CHANGES = st.fixed_dictionaries(
    {
        "partition": st.sampled_from(["", "city=x", "city=ü"]),
        "rows": st.integers(0, 2**40),
        "previous_instant": st.sampled_from([NO_PREVIOUS, "20261121053000001"]),
    }
)
FILES = st.lists(
    st.builds(lambda file, changes: file | changes, st.sampled_from([BASE, LOG]), CHANGES),
    max_size=5,
)


def encode(files, **changes):
    fields: dict[str, Any] = {
        "schema_json": "{}",
        "operation": "UPSERT",
        "compacted": False,
        "extra": {},
        "replaced": None,
        **changes,
    }
    return commit_metadata.encode_commit(
        CommitMetadata(pa.Table.from_pylist(files, schema=WRITTEN), **fields)
    )


@given(
    FILES,
    st.booleans(),
    st.dictionaries(st.sampled_from(["mdt.seq", "mdt.txn"]), st.text(max_size=5)),
)
def test_every_file_has_a_write_stat_under_its_partition(files, compacted, extra):
    data = encode(files, compacted=compacted, extra=extra, replaced={"p": ("f-0", "g-0")})
    value = json.loads(data)
    write_stats = [stat for stats in value["partitionToWriteStats"].values() for stat in stats]
    sorted_files = sorted(files, key=lambda file: file["partition"])
    assert [stat["partitionPath"] for stat in write_stats] == [
        file["partition"] for file in sorted_files
    ]
    assert [stat["path"] for stat in write_stats] == [
        f"{f['partition']}/{f['name']}".removeprefix("/") for f in sorted_files
    ]
    for name, column in (
        ("numWrites", "rows"),
        ("prevCommit", "previous_instant"),
        ("fileSizeInBytes", "size"),
    ):
        assert [stat[name] for stat in write_stats] == [file[column] for file in sorted_files]
    assert ["logFiles" in stat for stat in write_stats] == [
        file["log_version"] > 0 for file in sorted_files
    ]
    assert (value["operationType"], value["compacted"]) == ("UPSERT", compacted)
    assert value["extraMetadata"] == {"schema": "{}", **extra}
    assert value["partitionToReplaceFileIds"] == {"p": ["f-0", "g-0"]}
    assert commit_metadata.decode_extra(data) == value["extraMetadata"]


JAVA_FIELDS = """
    cdcStats fileId fileSizeInBytes maxEventTime minEventTime numDeletes numInserts numUpdateWrites
    numWrites partitionPath path prevCommit runtimeStats tempPath totalCorruptLogBlock totalLogBlocks
    totalLogFilesCompacted totalLogRecords totalLogSizeCompacted totalRollbackBlocks
    totalUpdatedRecordsCompacted totalWriteBytes totalWriteErrors
"""


def test_the_write_stat_of_a_base_file_has_the_fields_that_java_writes():
    value = json.loads(encode([BASE]))["partitionToWriteStats"]["city=x"][0]
    assert sorted(value) == JAVA_FIELDS.split()
    assert value["prevCommit"] == "null"
    assert value["runtimeStats"] == {"totalScanTime": 0, "totalUpsertTime": 0, "totalCreateTime": 0}


def test_the_write_stat_of_a_log_file_names_the_files_of_its_slice():
    value = json.loads(encode([LOG]))["partitionToWriteStats"]["city=x"][0]
    values = [value[name] for name in ("logVersion", "logOffset", "prevCommit", "baseFile")]
    assert values == [1, 0, "20261121053000001", BASE["name"]]
    assert value["logFiles"] == [LOG["name"]]


def test_bytes_do_not_depend_on_the_order_of_files_or_of_extra_metadata():
    other = {**BASE, "partition": "a"}
    assert encode([BASE, other], extra={"a": "1", "b": "2"}) == encode(
        [other, BASE], extra={"b": "2", "a": "1"}
    )


def test_replaced_file_groups_are_written_only_if_given_even_if_there_are_none():
    assert b"partitionToReplaceFileIds" not in encode([BASE])
    assert json.loads(encode([], replaced={}))["partitionToReplaceFileIds"] == {}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"{'a': 1}"])
def test_invalid_json_is_corrupt(data):
    with pytest.raises(Corrupt):
        commit_metadata.decode_extra(data)


@pytest.mark.parametrize(
    "data", [b"[]", b"null", b"{}", b'{"extraMetadata": 7}', b'{"extraMetadata": {"mdt.seq": 7}}']
)
def test_extra_metadata_that_is_missing_or_not_text_is_left_out(data):
    assert commit_metadata.decode_extra(data) == {}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("upsert", "UPSERT"),
        ("bulk_insert", "BULK_INSERT"),
        ("compact", "COMPACT"),
        ("alter_schema", "ALTER_SCHEMA"),
        ("purge", "UNKNOWN"),
        ("delete_where", "DELETE"),
        ("truncate", "INSERT_OVERWRITE_TABLE"),
    ],
)
def test_operations_are_mapped_to_members_of_hudis_enumeration(name, word):
    assert commit_metadata.operation_type(name) == word


PLAN = [
    {
        "baseInstantTime": "20261121053000001",
        "fileId": "f-0",
        "partitionPath": "city=x",
        "dataFilePath": "f.parquet",
        "deltaFilePaths": [".f-0_20261121053000001.log.1_0-0-0"],
    }
]


def test_a_compaction_plan_round_trips_and_its_bytes_are_deterministic():
    data = compaction_plan.encode(PLAN)
    assert data == compaction_plan.encode(PLAN)
    (plan,) = fastavro.reader(BytesIO(data))
    assert [{key: operation[key] for key in PLAN[0]} for operation in plan["operations"]] == PLAN
    assert (plan["version"], plan["preserveHoodieMetadata"]) == (1, True)
    metrics = [operation["metrics"] for operation in plan["operations"]]
    assert metrics == [{"TOTAL_LOG_FILES_SIZE": 0}], "Hudi's writers fail on a plan without metrics"
