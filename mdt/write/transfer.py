"""The result of an engine task as bytes for the driver, with the sections of a commit record
(:mod:`mdt.metadata.log.commit_log`).

Each task numbers segments and shards from 0. The bytes are only used within a job and are not a
stable format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from mdt.commit.operation import Changes
from mdt.commit.transaction import record_tables
from mdt.metadata.files.file_group import FILES, NewFile, Shard, SummaryRef
from mdt.metadata.log import codec
from mdt.metadata.log.commit_log import SECTIONS, SLICES
from mdt.metadata.snapshot.key_parts import key_parts_of
from mdt.metadata.snapshot.log_tail import segment_rows, summary_of
from mdt.metadata.snapshot.segments import stored_range

_WHERE = "a task's result"
_UNSHARED = ("segment", "instant", "row_group_rows", "shard")
_SAME = [
    name
    for name in FILES.names
    if name not in _UNSHARED and not name.startswith(("key_map", "page_map"))
]
"""Columns of FILES that are fields of NewFile with the same name."""


def encode(changes: Changes) -> bytes:
    """Encode the changes of a task: files, key parts, removed segments, deletion vectors,
    tombstones and counts.
    """
    sections = {name: codec.encode_ipc(table) for name, table in record_tables(changes, "").items()}
    return b"".join(map(bytes, codec.pack(dict(changes.counts), sections)))


def decode(data: bytes, extra: Mapping[str, Any] | None = None) -> Changes:
    """Decode the changes of a task.

    Args:
        extra: Additional header fields of the commit record.
    """
    counts, sections = codec.unpack(data, path=_WHERE)
    tables = {
        name: codec.decode_ipc(sections[name], schema, path=_WHERE)
        for name, schema in SECTIONS.items()
        if name in sections
    }
    vectors = {
        row["segment"]: BitMap.deserialize(row["positions"])
        for row in tables["vectors"].to_pylist()
    }
    removed = tables["removed"]["segment"].to_pylist()
    return Changes(
        _files(tables),
        removed,
        vectors,
        key_parts_of(tables["key_parts"]),
        extra=extra or {},
        tombstones=tables["tombstones"],
        counts=counts,
    )


def _files(tables: Mapping[str, pa.Table]) -> list[NewFile]:
    fresh = {row["segment"]: row["positions"] for row in tables["fresh"].to_pylist()}
    shards = _shards(tables["files"], tables["summaries"])
    slices = tables["slices"].to_pylist()
    files = []
    for row in tables["files"].to_pylist():
        fields = {name: row[name] for name in _SAME}
        fields |= {name: slices[row["segment"]][name] for name in SLICES.names}
        fields["row_group_rows"], fields["log_names"] = (
            tuple(row["row_group_rows"]),
            tuple(fields["log_names"]),
        )
        fields["key_map"], fields["page_map"] = (
            stored_range(row, "key_map"),
            stored_range(row, "page_map"),
        )
        stats = segment_rows(tables["stats"], row["segment"])
        files.append(
            NewFile(
                **fields, stats=stats, shard=shards[row["shard"]], fresh=fresh.get(row["segment"])
            )
        )
    return files


def _shards(files: pa.Table, summaries: pa.Table) -> dict[int, Shard]:
    """Return shard number -> shard of ``files``, including shards without summaries."""
    summaries_of_shards: dict[int, list[tuple[str, SummaryRef]]] = defaultdict(list)
    for row in summaries.to_pylist():
        summary = summary_of(row)
        assert summary is not None, "every row has a summary"
        summaries_of_shards[row["shard"]].append((row["index"], summary))
    return {
        number: Shard(tuple(summaries_of_shards[number]))
        for number in files["shard"].unique().to_pylist()
    }
