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
    given: dict[str, Any] = {
        "schema_json": "{}",
        "operation": "UPSERT",
        "compacted": False,
        "extra": {},
        "replaced": None,
        **changes,
    }
    return commit_metadata.encode_commit(
        CommitMetadata(pa.Table.from_pylist(files, schema=WRITTEN), **given)
    )


@given(
    FILES,
    st.booleans(),
    st.dictionaries(st.sampled_from(["mdt.seq", "mdt.txn"]), st.text(max_size=5)),
)
def test_every_file_is_told_under_its_partition(files, compacted, extra):
    data = encode(files, compacted=compacted, extra=extra, replaced={"p": ("f-0", "g-0")})
    value = json.loads(data)
    told = [stat for stats in value["partitionToWriteStats"].values() for stat in stats]
    given = sorted(files, key=lambda file: file["partition"])
    assert [stat["partitionPath"] for stat in told] == [file["partition"] for file in given]
    assert [stat["path"] for stat in told] == [
        f"{f['partition']}/{f['name']}".removeprefix("/") for f in given
    ]
    for name, column in (
        ("numWrites", "rows"),
        ("prevCommit", "previous_instant"),
        ("fileSizeInBytes", "size"),
    ):
        assert [stat[name] for stat in told] == [file[column] for file in given]
    assert ["logFiles" in stat for stat in told] == [file["log_version"] > 0 for file in given]
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


def test_a_base_file_has_the_fields_that_java_writes():
    value = json.loads(encode([BASE]))["partitionToWriteStats"]["city=x"][0]
    assert sorted(value) == JAVA_FIELDS.split()
    assert value["prevCommit"] == "null"
    assert value["runtimeStats"] == {"totalScanTime": 0, "totalUpsertTime": 0, "totalCreateTime": 0}


def test_a_log_file_names_its_slice():
    value = json.loads(encode([LOG]))["partitionToWriteStats"]["city=x"][0]
    told = [value[name] for name in ("logVersion", "logOffset", "prevCommit", "baseFile")]
    assert told == [1, 0, "20261121053000001", BASE["name"]]
    assert value["logFiles"] == [LOG["name"]]


def test_bytes_do_not_depend_on_the_order_of_partitions():
    other = {**BASE, "partition": "a"}
    assert encode([BASE, other], extra={"a": "1", "b": "2"}) == encode(
        [other, BASE], extra={"b": "2", "a": "1"}
    )


def test_replaced_file_groups_only_stand_in_a_replacecommit():
    assert b"partitionToReplaceFileIds" not in encode([BASE])
    assert json.loads(encode([], replaced={}))["partitionToReplaceFileIds"] == {}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"{'a': 1}"])
def test_what_is_no_json_is_corrupt(data):
    with pytest.raises(Corrupt):
        commit_metadata.decode_extra(data)


@pytest.mark.parametrize(
    "data", [b"[]", b"null", b"{}", b'{"extraMetadata": 7}', b'{"extraMetadata": {"mdt.seq": 7}}']
)
def test_a_commit_of_another_form_has_no_private_texts(data):
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
def test_hudi_is_told_only_words_that_its_enumeration_has(name, word):
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


def test_a_compaction_plan_reads_back_and_is_deterministic():
    data = compaction_plan.encode(PLAN)
    assert data == compaction_plan.encode(PLAN)
    (plan,) = fastavro.reader(BytesIO(data))
    assert [{key: operation[key] for key in PLAN[0]} for operation in plan["operations"]] == PLAN
    assert (plan["version"], plan["preserveHoodieMetadata"]) == (1, True)
    metrics = [operation["metrics"] for operation in plan["operations"]]
    assert metrics == [{"TOTAL_LOG_FILES_SIZE": 0}], "without it, Hudi's writers cannot go on"
