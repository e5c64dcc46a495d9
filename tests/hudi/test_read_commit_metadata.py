"""Metadata of completed writes by any writer, as JSON and as Avro."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt
from mdt.hudi import commit_metadata as written
from mdt.hudi.avro import NAMESPACE, array, mapping, optional, record
from mdt.hudi.read.commit_metadata import CommitContent, WrittenFile, decode

T = "20240229120000123"
BASE = f"6f2c-0_3-77-0_{T}.parquet"
LOG = f".6f2c-0_{T}.log.1_0-1-0"
STAT = {
    "fileId": "6f2c-0",
    "path": f"city=Oslo/{BASE}",
    "prevCommit": "null",
    "numWrites": 10,
    "numInserts": 7,
    "numUpdateWrites": 3,
    "numDeletes": 1,
    "fileSizeInBytes": 4321,
}
CONTENT = {
    "partitionToWriteStats": {"city=Oslo": [STAT], "": [{"fileId": "b-0", "path": LOG}]},
    "compacted": False,
    "extraMetadata": {"schema": "{}", "mine": "yes"},
    "operationType": "UPSERT",
    "partitionToReplaceFileIds": {"city=Rome": ["c-0", "d-0"], "city=Bonn": []},
}
EXPECTED = CommitContent(
    files=(
        WrittenFile("city=Oslo", "6f2c-0", f"city=Oslo/{BASE}", 4321, 10, 7, 3, 1),
        WrittenFile("", "b-0", LOG, 0, 0, 0, 0, 0),
    ),
    replaced={"city=Rome": ("c-0", "d-0"), "city=Bonn": ()},
    schema_json="{}",
    operation="UPSERT",
    extra={"schema": "{}", "mine": "yes"},
)


def as_json(**changes: Any) -> bytes:
    return json.dumps({**CONTENT, **changes}).encode()


def as_avro(value: dict[str, Any], string: Any) -> bytes:
    """Return Avro as Hudi writes it.

    Args:
        string: Hudi's type of strings, with or without ``avro.java.string``.
    """
    stat = record(
        "HoodieWriteStat",
        *(optional(name, string) for name in ("fileId", "path", "prevCommit")),
        *(
            optional(name, "long")
            for name in ("numWrites", "numInserts", "numUpdateWrites", "numDeletes")
        ),
        optional("fileSizeInBytes", "long"),
    )
    schema = record(
        "HoodieReplaceCommitMetadata",
        optional("partitionToWriteStats", mapping(array(stat))),
        optional("compacted", "boolean"),
        optional("extraMetadata", {**mapping(string), "avro.java.string": "String"}),
        {"name": "version", "type": ["int", "null"], "default": 1},
        optional("operationType", string),
        optional("partitionToReplaceFileIds", mapping(array(string))),
        namespace=NAMESPACE,
    )
    out = io.BytesIO()
    fastavro.writer(out, schema, [value])
    return out.getvalue()


def test_json_metadata_of_version_6_is_read():
    assert decode(as_json(), "p") == EXPECTED


@pytest.mark.parametrize("string", ["string", {"type": "string", "avro.java.string": "String"}])
def test_avro_metadata_of_versions_8_and_9_is_read(string):
    assert decode(as_avro(CONTENT, string), "p") == EXPECTED


def test_metadata_written_by_mdt_is_read():
    rows = {name: [None] for name in written.WRITTEN.names}
    rows |= {"partition": ["a"], "file_id": ["f-0"], "name": [BASE], "log_version": [0]}
    rows |= {"size": [5], "rows": [4], "inserts": [3], "updates": [2], "deletes": [1]}
    metadata = written.CommitMetadata(
        pa.table(rows, schema=written.WRITTEN), "{}", "INSERT", False, {"k": "v"}, {"a": ["x-0"]}
    )
    content = decode(written.encode_commit(metadata), "p")
    assert content.files == (WrittenFile("a", "f-0", f"a/{BASE}", 5, 4, 3, 2, 1),)
    assert (content.replaced, content.operation) == ({"a": ("x-0",)}, "INSERT")
    assert content.extra == {"schema": "{}", "k": "v"}


def test_missing_and_null_fields_are_empty():
    empty = CommitContent((), {}, "", "", {})
    assert decode(b"{}", "p") == empty
    assert decode(as_avro({}, "string"), "p") == empty
    assert decode(json.dumps(dict.fromkeys(CONTENT)).encode(), "p") == empty
    stats = {"a": None, "b": [], "c": [None, {"fileId": "x", "path": None}]}
    assert decode(as_json(partitionToWriteStats=stats), "p").files == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"3",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"Obj\x01",
        as_json(partitionToWriteStats=[]),
        as_json(partitionToWriteStats={"a": {}}),
        as_json(partitionToWriteStats={"a": [3]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "path": 3}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "path": "../x"}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "path": "/x"}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "path": "a\0"}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "fileId": "\ud800"}]}),
        as_json(partitionToWriteStats={"\ud800": [STAT]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "fileSizeInBytes": "5"}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "fileSizeInBytes": True}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "fileSizeInBytes": 1.5}]}),
        as_json(partitionToWriteStats={"a": [{**STAT, "fileSizeInBytes": 1 << 64}]}),
        as_json(partitionToReplaceFileIds={"a": "b"}),
        as_json(partitionToReplaceFileIds={"a": [1]}),
        as_json(extraMetadata={"schema": {}}),
        as_json(operationType=5),
        b'{"operationType": ' + b"9" * 5000 + b"}",
    ],
    ids=range(27),
)
def test_damaged_metadata_is_corrupt_and_the_error_names_the_object(data):
    with pytest.raises(Corrupt) as caught:
        decode(data, "t/1.commit")
    assert caught.value.path == "t/1.commit"


@given(st.data())
def test_metadata_with_a_flipped_byte_is_read_or_corrupt(data):
    stored = bytearray(data.draw(st.sampled_from([as_json(), as_avro(CONTENT, "string")])))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert isinstance(decode(bytes(stored), "p"), CommitContent)
    except Corrupt as error:
        assert error.path == "p"
