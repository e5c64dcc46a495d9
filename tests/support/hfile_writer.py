"""HFiles as Hudi and HBase write them, with small blocks and many levels if a test needs them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping

GZIP, NONE = 1, 2
SUFFIX = b"\0" + struct.pack(">qb", 0x7FFF_FFFF_FFFF_FFFF, 4)
"""The bytes after the row in a key: no family, the largest timestamp, the type of a value."""
TRAILER_BYTES = 4096


def hfile(
    entries: Iterable[tuple[bytes, bytes]],
    *,
    info: Mapping[str, bytes] | None = None,
    codec: int = NONE,
    block_entries: int = 3,
    fan_out: int = 0,
    suffix: bytes = SUFFIX,
    index_suffix: bytes = b"",
    after_value: bytes = b"\0",
    trailer: Mapping[int, int | bytes] | None = None,
    version: int = 3,
) -> bytes:
    """Return a file with sorted ``entries``.

    Args:
        fan_out: Entries of each block of the index below the root, and at most of the root. 0 for
            a root index of any size.
        index_suffix: Follows the row in keys of the index. HBase writes SUFFIX.
        after_value: Tags and the version of an entry.
    """
    entries = list(entries)
    out = bytearray()

    def block(magic: bytes, content: bytes) -> tuple[int, int]:
        stored = content
        if codec == GZIP and content:
            stored = gzip.compress(content, mtime=0)
        end = 33 + len(stored)
        checksums = bytes(4 * -(-end // 16384))
        sizes = (len(stored) + len(checksums), len(content), -1, 0, 16384, end)
        offset = len(out)
        out.extend(magic + struct.pack(">iiqbii", *sizes) + stored + checksums)
        return offset, len(out) - offset

    blocks = []
    for part in batches(entries, block_entries):
        content = b"".join(entry(key, value, suffix, after_value) for key, value in part)
        blocks.append((block(b"DATABLK*", content), row(part[0][0]) + index_suffix))
    levels = 1
    magic = b"IDXLEAF2"
    while fan_out and len(blocks) > fan_out:
        parts = batches(blocks, fan_out)
        blocks = [(block(magic, lower_index(part)), part[0][1]) for part in parts]
        magic = b"IDXINTE2"
        levels += 1
    index_offset = len(out)
    block(b"IDXROOT2", root_index(blocks))
    block(b"IDXROOT2", b"")
    pairs = {"KEY_VALUE_VERSION": b"\0\0\0\1", "MAX_MEMSTORE_TS_KEY": bytes(8), **(info or {})}
    texts = b"".join(field(1, field(1, name.encode()) + field(2, pairs[name])) for name in pairs)
    info_offset, _ = block(b"FILEINF2", b"PBUF" + varint(len(texts)) + texts)
    numbers: dict[int, int | bytes] = {
        1: info_offset,
        2: index_offset,
        5: len(blocks),
        6: 0,
        7: len(entries),
        8: levels,
        11: b"org.apache.hudi.io.storage.HoodieHBaseKVComparator",
        12: codec,
        **(trailer or {}),
    }
    message = b"".join(field(number, numbers[number]) for number in sorted(numbers))
    head = b'TRABLK"$' + varint(len(message)) + message
    return bytes(out) + head.ljust(TRAILER_BYTES - 4, b"\0") + struct.pack(">i", version)


def batches(items: list, size: int) -> list[list]:
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def entry(key: bytes, value: bytes, suffix: bytes, after_value: bytes) -> bytes:
    stored = row(key) + suffix
    return struct.pack(">ii", len(stored), len(value)) + stored + value + after_value


def row(key: bytes) -> bytes:
    return struct.pack(">H", len(key)) + key


def root_index(blocks: list[tuple[tuple[int, int], bytes]]) -> bytes:
    parts = []
    for place, key in blocks:
        parts.append(struct.pack(">qi", *place) + hadoop_integer(len(key)) + key)
    return b"".join(parts)


def lower_index(blocks: list[tuple[tuple[int, int], bytes]]) -> bytes:
    entries = [struct.pack(">qi", *place) + key for place, key in blocks]
    offsets = [sum(map(len, entries[:number])) for number in range(len(entries) + 1)]
    return struct.pack(f">{len(offsets) + 1}i", len(entries), *offsets) + b"".join(entries)


def hadoop_integer(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8)
    return bytes([0x90 - len(data)]) + data


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
