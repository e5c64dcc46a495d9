"""Finished assignments as bytes: how a Spark task tells the driver what it has written.

One header of plain values and one Arrow section of statistics a file (see :func:`mdt.metadata.codec.pack`); the bytes live for
the length of one job and are no format.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pyroaring import BitMap

from mdt.metadata import codec
from mdt.metadata.commit_log import KEY_PARTS
from mdt.metadata.file_group import NewFile, Shard, SummaryRef, shards_of
from mdt.metadata.key_parts import KeyPart, key_parts_of, key_parts_table
from mdt.stores.object_range import ObjectRange

_WHERE = "a task's result"
_PLAIN = tuple(f.name for f in fields(NewFile) if f.name not in ("key_map", "page_map", "stats", "shard", "fresh"))


@dataclass(frozen=True, slots=True)
class Finished:
    """What one task wrote: files with key maps in place, key parts, removed segments, additions to deletion vectors."""

    files: Sequence[NewFile]
    key_parts: Sequence[KeyPart]
    removed: Sequence[int]
    vectors: dict[int, BitMap]


def encode(done: Finished) -> bytes:
    """Return ``done`` as bytes."""
    shards, of_file = shards_of(done.files)
    header = {
        "files": [_file(file) for file in done.files],
        "shards": [[[spec, _summary(data)] for spec, data in shard.summaries] for shard in shards],
        "of_file": of_file,
        "removed": list(done.removed),
        "vectors": {str(s): base64.b64encode(v.serialize()).decode() for s, v in done.vectors.items()},
    }
    sections = {f"stats-{n}": codec.encode_ipc(f.stats) for n, f in enumerate(done.files) if f.stats is not None}
    sections["key_parts"] = codec.encode_ipc(key_parts_table(tuple(done.key_parts)))
    return b"".join(bytes(part) for part in codec.pack(header, sections))


def decode(data: bytes) -> Finished:
    """Return what :func:`encode` was given."""
    header, sections = codec.unpack(data, path=_WHERE)
    shards = [Shard(tuple((spec, _parsed(data)) for spec, data in found)) for found in header["shards"]]
    files = []
    for n, (fields_, shard) in enumerate(zip(header["files"], header["of_file"], strict=True)):
        stats = sections.get(f"stats-{n}")
        file = _new_file(fields_, shards[shard])
        files.append(file if stats is None else replace(file, stats=codec.decode_ipc(stats, None, path=_WHERE)))
    vectors = {int(s): BitMap.deserialize(base64.b64decode(v)) for s, v in header["vectors"].items()}
    key_parts = key_parts_of(codec.decode_ipc(sections["key_parts"], KEY_PARTS, path=_WHERE))
    return Finished(files, key_parts, header["removed"], vectors)


def _file(file: NewFile) -> dict[str, Any]:
    return {
        **{name: getattr(file, name) for name in _PLAIN},
        "fresh": None if file.fresh is None else base64.b64encode(file.fresh).decode(),
        "key_map": _stored(file.key_map),
        "page_map": _stored(file.page_map),
    }


def _summary(data: SummaryRef) -> str | list[Any]:
    if isinstance(data, bytes):
        return base64.b64encode(data).decode()
    return _fields(data)


def _parsed(data: str | list[Any]) -> SummaryRef:
    return base64.b64decode(data) if isinstance(data, str) else ObjectRange(*data)


def _fields(stored: ObjectRange) -> list[Any]:
    return [stored.path, stored.offset, stored.length, stored.crc]


def _stored(stored: ObjectRange | None) -> list[Any] | None:
    return None if stored is None else _fields(stored)


def _new_file(value: dict[str, Any], shard: Shard) -> NewFile:
    return NewFile(
        **{
            **value,
            "row_group_rows": tuple(value["row_group_rows"]),
            "log_names": tuple(value["log_names"]),
            **{name: None if value[name] is None else ObjectRange(*value[name]) for name in ("key_map", "page_map")},
            "shard": shard,
            "fresh": None if value["fresh"] is None else base64.b64decode(value["fresh"]),
        }
    )
