"""Hudi's archive of instants: one Avro block per file, with a record of each instant's contents."""

from __future__ import annotations

import json
from io import BytesIO

import fastavro
import pytest
from worlds import MOR, make, rows

from mdt.errors import Corrupt
from mdt.hudi import archived_timeline, log_file
from mdt.hudi.timeline import COMPLETED, Instant, InstantContent
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import MemoryStorage


def decode_archive(data):
    """Return the records of an archive file, decoded by the schema in its header."""
    (block,) = log_file.parse(data, path="archive")
    assert block.kind == log_file.AVRO and set(block.header) == {log_file.SCHEMA}
    schema = fastavro.parse_schema(json.loads(block.header[log_file.SCHEMA]))
    content = bytes(block.content)
    version, count = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:8], "big")
    assert version == log_file.CONTENT_VERSION
    records, at = [], 8
    for _ in range(count):
        length = int.from_bytes(content[at : at + 4], "big")
        record = BytesIO(content[at + 4 : at + 4 + length])
        records.append(fastavro.schemaless_reader(record, schema, None))
        at += 4 + length
    assert at == len(content)
    return records


def test_instants_removed_from_the_timeline_are_archived_with_their_contents(
    monkeypatch,
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 4)
    table = make(MemoryStorage(), MOR, "record", **{"mdt.metadata.compact.records": 3})
    for n in range(12):
        table.upsert(rows(range(n, n + 4), n + 1, 1.0))
    table.cluster(["fare"])
    for n in range(4):
        table.upsert(rows(range(n, n + 4), n + 50, 1.0))
    before = {
        info.path: table.storage.read(info.path) for info in table.storage.list_dir(".hoodie")
    }
    table.clean(retain_commits=2)
    after = {info.path for info in table.storage.list_dir(".hoodie")}
    removed = {path: data for path, data in before.items() if path not in after}
    completed = sorted(
        path for path in removed if path.endswith((".commit", ".deltacommit", ".replacecommit"))
    )
    (file,) = table.storage.list_dir(archived_timeline.FOLDER)
    entries = decode_archive(table.storage.read(file.path))
    assert [f".hoodie/{e['commitTime']}.{e['actionType']}" for e in entries] == completed
    assert len(completed) > 10 and {e["actionState"] for e in entries} == {"COMPLETED"}
    for entry, path in zip(entries, completed, strict=True):
        original = json.loads(removed[path])
        replaces = entry["actionType"] == "replacecommit"
        archived = entry["hoodieReplaceCommitMetadata" if replaces else "hoodieCommitMetadata"]
        assert isinstance(archived, dict)
        for name in ("extraMetadata", "operationType", "partitionToReplaceFileIds"):
            assert archived.get(name) == original.get(name)
        for partition, stats in original["partitionToWriteStats"].items():
            for stat, archived_stat in zip(
                stats, archived["partitionToWriteStats"][partition], strict=True
            ):
                assert {name: stat.get(name) for name in archived_stat} == archived_stat


def test_archiving_an_instant_with_invalid_commit_metadata_is_corrupt():
    instant = Instant("20240101000000000", "commit", COMPLETED)
    for body in (
        b"",
        b"[]",
        b"{}",
        b'{"partitionToWriteStats": {"x": [3]}}',
        b'{"partitionToWriteStats": 3}',
        b'{"partitionToWriteStats": {"x": [{"numWrites": "3"}]}}',
        b'{"partitionToWriteStats": {"x": [{"numWrites": %d}]}}' % (1 << 70),
        b'{"partitionToWriteStats": {"x": [{"path": "\\ud800"}]}}',
        b'{"partitionToWriteStats": {}, "extraMetadata": [1]}',
        b'{"partitionToWriteStats": {}, "extraMetadata": {"x": 1}}',
        b'{"partitionToWriteStats": {}, "operationType": {}}',
        b'{"partitionToWriteStats": {"x": [{"logFiles": ["%s", 1]}]}}' % (b"x" * 100_000),
        b"[" * 100_000,
    ):
        with pytest.raises(
            Corrupt, match="commit at 20240101000000000 has invalid commit metadata"
        ) as error:
            archived_timeline.encode([InstantContent(instant, body)])
        assert len(str(error.value)) < 500


def test_null_values_of_other_writers_are_left_out_of_the_archive():
    instant = Instant("20240101000000000", "commit", COMPLETED)
    body = b'{"partitionToWriteStats": {"": [{"path": "a", "baseFile": null}]}, "compacted": null,'
    body += b'"operationType": null, "extraMetadata": {"schema": null, "note": "x"}}'
    [entry] = decode_archive(archived_timeline.encode([InstantContent(instant, body)]))
    commit = entry["hoodieCommitMetadata"]
    assert commit["extraMetadata"] == {"note": "x"}
    assert commit["partitionToWriteStats"][""][0]["path"] == "a"
