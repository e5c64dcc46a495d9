"""FORMAT.md is enough to read a table: this reader follows the page with struct, zlib and json,
without mdt's codec.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trees
from key_hash_reference import multilinear
from pyroaring import BitMap

import mdt

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)
PAGE = (Path(__file__).resolve().parents[2] / "FORMAT.md").read_text(encoding="utf-8")
SALTS = [
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
]
COMMITS = 5
FILE_COLUMNS = [
    "segment",
    "partition",
    "file_id",
    "name",
    "kind",
    "size",
    "crc",
    "rows",
    "row_group_rows",
    "shard",
    "first_row",
    "key_map_path",
]


def rows(numbers: range, ts: int, fare: float) -> pa.Table:
    n = len(numbers)
    columns = {
        "id": [f"key {i:03}" for i in numbers],
        "city": [("x", "y/z")[i % 2] for i in numbers],
    }
    return pa.table({**columns, "ts": [ts] * n, "fare": [fare] * n}, SCHEMA)


@pytest.fixture(scope="module", params=["bloom", "record"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doc") / "t"
    table = trees.create(
        path, SCHEMA, partition_by=["city"], ordering="ts", key_index=request.param
    )
    table.bulk_insert(rows(range(40), -1, 1.5))
    table.upsert(rows(range(30, 50), 2, -2.5))
    table.delete(rows(range(5), 0, 0.0))
    table.bulk_insert(rows(range(60, 70), 3, float("nan")))
    return path


def private(root: Path, name: str) -> bytes:
    return (root / ".hoodie" / ".mdt" / name).read_bytes()


def unframed(data: bytes, kind: bytes) -> bytes:
    magic, found, version, zero, crc, length = struct.unpack_from("<4s4sHHIQ", data)
    assert (magic, found, version, zero, length) == (b"MDT1", kind, 1, 0, len(data) - 24)
    assert zlib.crc32(data[24:], zlib.crc32(data[:12] + bytes(4) + data[16:24])) == crc
    return data[24:]


def unpacked(payload: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    n, zero = struct.unpack_from("<II", payload)
    document = json.loads(payload[8 : 8 + n])
    start = 8 + n + -n % 8
    assert (
        zero == 0 and not any(payload[8 + n : start]) and document.keys() == {"header", "sections"}
    )
    sections, at = {}, 0
    for name, offset, length in document["sections"]:
        assert offset == at
        sections[name] = payload[start + offset : start + offset + length]
        at = offset + length + -length % 8
    assert start + at == len(payload)
    return document["header"], sections


def table_of(stream: bytes) -> list[dict[str, Any]]:
    assert not stream.startswith(b"MDTLZ4")
    return pa.ipc.open_stream(stream).read_all().to_pylist()


def record(root: Path, seq: int) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    header, sections = unpacked(unframed(private(root, f"log/{seq:020}"), b"CMIT"))
    assert header["seq"] == seq
    return header, {name: table_of(section) for name, section in sections.items()}


def folded(root: Path) -> dict[str, Any]:
    """Follow section 4: apply the records in order."""
    state: dict[str, Any] = {"files": {}, "stats": [], "vectors": {}, "key_parts": []}
    for seq in range(COMMITS):
        _, sections = record(root, seq)
        for row in sections.get("removed", ()):
            del state["files"][row["segment"]]
            state["vectors"].pop(row["segment"], None)
        for row in sections.get("files", ()):
            number = seq << 20 | row["segment"]
            state["files"][number] = {**row, "segment": number, "shard": seq << 20 | row["shard"]}
        state["stats"] += [
            {**row, "segment": seq << 20 | row["segment"]} for row in sections.get("stats", ())
        ]
        for row in sections.get("vectors", ()):
            if row["segment"] not in state["files"]:
                continue
            old = state["vectors"].get(row["segment"], BitMap())
            state["vectors"][row["segment"]] = old | BitMap.deserialize(row["positions"])
        state["key_parts"] += sections.get("key_parts", ())
    return state


def parquet_rows(root: Path, file: dict[str, Any]) -> list[dict[str, Any]]:
    data = (root / file["partition"] / file["name"]).read_bytes()
    assert len(data) == file["size"]
    if not file["rows"]:
        assert not file["row_group_rows"]
        return []
    begin = file["block_offset"]
    parquet = pq.ParquetFile(pa.BufferReader(data[begin : begin + file["block_length"]]))
    groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    assert groups == file["row_group_rows"]
    end = begin + file["block_length"]
    assert zlib.crc32(data[end - file["footer_length"] : end]) == file["footer_crc"]
    assert file["footer_length"] == 8 + int.from_bytes(data[end - 8 : end - 4], "little")
    stored = np.frombuffer(
        base64.b64decode(parquet.metadata.metadata[b"mdt.digests"]), "<u4"
    ).tolist()
    chunks = [
        parquet.metadata.row_group(g).column(c)
        for g in range(len(groups))
        for c in range(parquet.metadata.num_columns)
    ]
    starts = [
        begin + (c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset)
        for c in chunks
    ]
    assert stored == [
        digest(data[s : s + c.total_compressed_size]) for s, c in zip(starts, chunks, strict=True)
    ]
    return list(parquet.read().to_pylist())


def stored(root: Path, path: str, offset: int, length: int, crc: int) -> bytes:
    data = (root / path).read_bytes()[offset : offset + length]
    assert offset % 8 == 0 and zlib.crc32(data) == crc
    return data


def key_map(root: Path, file: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """Return (hi, upper 16 bits of lo, ordering, position) of each entry."""
    data = stored(root, *(file[f"key_map_{name}"] for name in ("path", "offset", "length", "crc")))
    magic, flags, n, b, crc, least = struct.unpack_from("<4sIQIIQ", data)
    at = 32 + 4 * (2 ** (b + 1) + 1) + 4
    yes, o, p, zero = flags.to_bytes(4, "little")
    assert (magic, yes, zero, len(data)) == (b"MKM4", 1, 0, at + (10 + o + p) * n)
    assert crc == zlib.crc32(data[:20] + data[24:at])
    starts = struct.unpack_from(f"<{2**b + 1}I", data, 32)
    checks = struct.unpack_from(f"<{2**b}I", data, 32 + 4 * (2**b + 1))
    hi, lo = (
        struct.unpack_from(f"<{n}{of}", data, place) for of, place in (("Q", at), ("H", at + 8 * n))
    )
    third, fourth = at + 10 * n, at + (10 + o) * n
    ordering = [
        least + int.from_bytes(data[third + o * i : third + o * (i + 1)], "little")
        for i in range(n)
    ]
    position = [
        int.from_bytes(data[fourth + p * i : fourth + p * (i + 1)], "little") for i in range(n)
    ]
    assert (
        least == min(ordering)
        and max(ordering) - least < 256**o
        and (o == 1 or max(ordering) - least >= 256 ** (o - 1))
    )
    assert (starts[0], starts[-1]) == (0, n)
    for shard, (first, last) in enumerate(pairwise(starts)):
        assert all(word >> 64 - b == shard for word in hi[first:last] if b)
        digest = 0
        for begin, width in ((at, 8), (at + 8 * n, 2), (third, o), (fourth, p)):
            part = data[begin + width * first : begin + width * last]
            digest = int.from_bytes(mmh3.mmh3_x64_128_digest(part, digest)[:4], "little")
        assert digest == checks[shard]
    return list(zip(hi, lo, ordering, position, strict=True))


def murmur(text: str, seed: int) -> int:
    return mmh3.hash128(text, seed, signed=False) >> 64


def flipped(number: int) -> int:
    return number + 2**63


def double_key(value: float) -> bytes:
    bits = int.from_bytes(struct.pack(">d", value), "big")
    return (bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63).to_bytes(8, "big")


def secret_of(root: Path) -> bytes:
    return bytes.fromhex(record(root, 0)[0]["definition"]["key_hash"]["secret"])


def test_the_fold_of_the_log_gives_the_rows(root: Path) -> None:
    state = folded(root)
    live = [
        {name: row[name] for name in SCHEMA.names}
        for number, file in state["files"].items()
        for position, row in enumerate(parquet_rows(root, file))
        if position not in state["vectors"].get(number, BitMap())
    ]
    found = mdt.open(root).scan().to_arrow().to_pylist()
    assert sorted(map(repr, live)) == sorted(map(repr, found))
    assert (
        len(live) == 55
        and any(state["vectors"].values())
        and any(f["kind"] for f in state["files"].values())
    )


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_records_say_which_rows_died_and_came(tmp_path: Path, table_type: str) -> None:
    table = trees.create(
        tmp_path / "t", SCHEMA, partition_by=["city"], ordering="ts", table_type=table_type
    )
    table.bulk_insert(rows(range(40), 1, 1.5))
    table.upsert(rows(range(30, 50), 2, -2.5))
    table.delete(rows(range(5), 0, 0.0))
    table.compact()
    files: dict[int, list[dict[str, Any]]] = {}
    for seq in range(table.snapshot().seq + 1):
        header, sections = record(tmp_path / "t", seq)
        died = [
            files[row["segment"]][n]
            for row in sections.get("vectors", ())
            for n in BitMap.deserialize(row["positions"])
        ]
        fresh = {
            row["segment"]: BitMap.deserialize(row["positions"])
            for row in sections.get("fresh", ())
        }
        came = []
        for file in sections.get("files", ()):
            found = files[seq << 20 | file["segment"]] = parquet_rows(tmp_path / "t", file)
            came += [found[n] for n in fresh.get(file["segment"], range(len(found)))]
        told = {
            kind: sorted(row["id"] for row in found)
            for kind, found in (("died", died), ("came", came))
        }
        before, after = (
            {row["id"]: row for row in table.scan(as_of=max(0, at)).to_arrow().to_pylist()}
            for at in (seq - 1, seq)
        )
        assert told["died"] == sorted(
            key for key, row in before.items() if after.get(key) != row
        ), header["operation"]
        assert told["came"] == sorted(
            key for key, row in after.items() if before.get(key) != row
        ), header["operation"]
        assert {row["_hoodie_commit_time"] for row in came} <= {header["instant"]}


def test_headers_and_definition_have_the_fields_of_the_page(root: Path) -> None:
    for seq in range(COMMITS):
        header, sections = record(root, seq)
        assert all(f"`{name}`" in PAGE for name in [*header, *sections, *header["counts"]])
        assert re.fullmatch("[0-9a-f]{32}", header["txn"]) and re.fullmatch(
            "[0-9]{17}", header["instant"]
        )
        for table in sections.values():
            assert all(f"`{column}`" in PAGE for column in table[0])
    definition = record(root, 0)[0]["definition"]
    assert all(f"`{name}`" in PAGE for name in definition) and definition["format"] == 4
    assert pa.ipc.read_schema(pa.py_buffer(base64.b64decode(definition["schema"]))) == SCHEMA


def test_key_maps_hold_hashes_ordering_values_and_positions(root: Path) -> None:
    secret = secret_of(root)
    for file in folded(root)["files"].values():
        if not file["rows"]:
            assert file["key_map_path"] is None
            continue
        expected = [
            (*multilinear(secret, row["_hoodie_record_key"].encode()), flipped(row["ts"]), position)
            for position, row in enumerate(parquet_rows(root, file))
        ]
        assert key_map(root, file) == [(hi, lo >> 48, *more) for hi, lo, *more in sorted(expected)]


def test_page_maps_say_where_the_pages_of_each_column_stand(root: Path) -> None:
    for file in folded(root)["files"].values():
        if not file["rows"]:
            assert file["page_map_offset"] is None
            continue
        data = stored(
            root,
            file["key_map_path"],
            *(file[f"page_map_{name}"] for name in ("offset", "length", "crc")),
        )
        magic, zero, c, g, p, n_rows, n, zeros = struct.unpack_from("<4s7I", data)
        assert (magic, zero, n_rows, zeros, len(data)) == (
            b"MPM3",
            0,
            file["rows"],
            0,
            32 + 21 * c * g + 12 * p + n,
        )
        assert (g, p) == (1, c), "small files have one page in each chunk"
        start = struct.unpack_from(f"<{c}Q", data, 32)
        dictionary, pages, size, first = (
            struct.unpack_from(f"<{c}I", data, 32 + 8 * c + 4 * c * i) for i in range(4)
        )
        names = data[len(data) - n :].decode().split("\n")
        assert set(pages) == {1} and set(first) == {0}
        digests = struct.unpack_from(f"<{2 * c}I", data, 32 + 24 * c)
        codecs = {0: "UNCOMPRESSED", 1: "SNAPPY", 7: "LZ4"}
        bytes_ = (root / file["partition"] / file["name"]).read_bytes()[file["block_offset"] :]
        group = pq.ParquetFile(pa.BufferReader(bytes_[: file["block_length"]])).metadata.row_group(
            0
        )
        for i, name in enumerate(names):
            chunk = group.column(i)
            assert (chunk.path_in_schema, chunk.data_page_offset) == (
                name,
                start[i] + dictionary[i],
            )
            assert chunk.total_compressed_size == dictionary[i] + size[i]
            assert bool(dictionary[i]) == chunk.has_dictionary_page
            assert codecs[data[32 + 32 * c + i]] == chunk.compression
            page = start[i] + dictionary[i]
            assert digests[i] == digest(bytes_[start[i] : page]) and digests[c + i] == digest(
                bytes_[page : page + size[i]]
            )


def digest(data: bytes) -> int:
    return int.from_bytes(mmh3.mmh3_x64_128_digest(data, 0)[:4], "little")


def record_groups(key_part: bytes, hi: int) -> set[int]:
    n, groups, b, p, crc = struct.unpack_from("<QQHHI", key_part, 8)
    # tests/indexes/test_record_forms.py has larger ones
    assert key_part[:8] == b"MDTREC\0\3" and b < 8 and p == 64
    shards = 1 << b
    end = 32 + 8 * (shards + 1) + 8 * shards
    assert zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28])) == crc
    assert groups <= 256 and len(key_part) == end + 9 * n
    starts = struct.unpack_from(f"<{shards + 1}Q", key_part, 32)
    shard = hi >> 64 - b if b else 0
    first, last = starts[shard], starts[shard + 1]
    hash_bytes = key_part[end + 8 * first : end + 8 * last]
    group_bytes = key_part[end + 8 * n + first : end + 8 * n + last]
    seed = int.from_bytes(mmh3.mmh3_x64_128_digest(hash_bytes, 0)[:4], "little")
    (check,) = struct.unpack_from("<8s", key_part, 32 + 8 * (shards + 1) + 8 * shard)
    assert mmh3.mmh3_x64_128_digest(group_bytes, seed)[:8] == check
    hashes = struct.unpack(f"<{last - first}Q", hash_bytes)
    numbers = list(group_bytes)
    assert list(hashes) == sorted(hashes) and all(number < groups for number in numbers)
    return {group for found, group in zip(hashes, numbers, strict=True) if found == hi}


def bloom_groups(key_part: bytes, key: bytes, lo: int) -> set[int]:
    assert key_part[:8] == b"MDTBLO\0\1"
    e, _, blocks, bound_bytes = struct.unpack_from("<QQQQ", key_part, 8)
    at = 40 + 32 * blocks
    assert len(key_part) == at + 10 * e + bound_bytes + 4
    assert struct.unpack("<I", key_part[-4:])[0] == zlib.crc32(key_part[:-4])
    groups, sizes = (
        struct.unpack_from(f"<{e}I", key_part, at),
        struct.unpack_from(f"<{e}I", key_part, at + 4 * e),
    )
    lengths = key_part[at + 8 * e : at + 10 * e]
    bounds: list[bytes | None] = []
    where = at + 10 * e
    for length in lengths:
        bounds.append(None if length == 255 else key_part[where : where + length])
        where += 0 if length == 255 else length
    found, first = set(), 0
    for entry in range(e):
        low, high = bounds[entry], bounds[e + entry]
        if low is not None and low <= key and (high is None or key <= high):
            block = 40 + 32 * (first + ((lo >> 32) * sizes[entry] >> 32))
            words = struct.unpack_from("<8I", key_part, block)
            bits = [((lo & 0xFFFFFFFF) * salt % 2**32) >> 27 for salt in SALTS]
            if all(word >> bit & 1 for word, bit in zip(words, bits, strict=True)):
                found.add(groups[entry])
        first += sizes[entry]
    return found


def test_key_parts_find_the_file_group_of_every_key(root: Path) -> None:
    state, secret = folded(root), secret_of(root)
    index = record(root, 0)[0]["definition"]["key_index"]
    false = 0
    for number, file in state["files"].items():
        for position, row in enumerate(parquet_rows(root, file)):
            if position in state["vectors"].get(number, BitMap()):
                continue
            found, key = set(), row["_hoodie_record_key"]
            hi, lo = multilinear(secret, key.encode())
            for key_part in state["key_parts"]:
                assert key_part["index"] == f"{index}/1" and key_part["path"] is None
                data = key_part["payload"]
                numbers = (
                    record_groups(data, hi)
                    if index == "record"
                    else bloom_groups(data, key.encode(), lo)
                )
                found |= {key_part["groups"][group] for group in numbers}
            assert file["file_id"] in found
            false += len(found) - 1
    assert false <= (0 if index == "record" else 10)


def test_statistics_are_keys_of_the_smallest_and_largest_value(root: Path) -> None:
    state = folded(root)
    for row in state["stats"]:
        if row["segment"] not in state["files"]:
            continue
        values = [r[row["column"]] for r in parquet_rows(root, state["files"][row["segment"]])]
        nans = sum(isinstance(value, float) and math.isnan(value) for value in values)
        assert (row["row_group"], row["values"], row["nulls"], row["nans"]) == (
            -1,
            len(values),
            0,
            nans,
        )
        if row["column"] == "fare":
            low, high = double_key(min(values)), double_key(float("nan") if nans else max(values))
        elif row["column"] == "ts":
            low, high = (flipped(value).to_bytes(8, "big") for value in (min(values), max(values)))
        else:
            low, high = min(values).encode(), max(values).encode()
        assert (row["min"], row["max"]) == (low, high)
        assert row["min_exact"] and row["max_exact"]


def test_instants_name_their_record(root: Path) -> None:
    for seq in range(COMMITS):
        header, _ = record(root, seq)
        instant = json.loads((root / ".hoodie" / f"{header['instant']}.deltacommit").read_text())
        assert instant["extraMetadata"]["mdt.seq"] == str(seq)
        assert instant["extraMetadata"]["mdt.txn"] == header["txn"]


def test_write_tokens_carry_the_transaction_s_token(root: Path) -> None:
    for seq in range(1, COMMITS):
        header, sections = record(root, seq)
        for file in sections["files"]:
            pattern = (
                r"\.log\.\d+_(\d+-\d+-\d+)$" if file["kind"] else r"_(\d+-\d+-\d+)_\d{17}\.parquet$"
            )
            found = re.search(pattern, file["name"])
            assert found and found[1].split("-")[1:] == [str(header["token"]), "0"]


def test_compacted_metadata_says_what_the_log_says(root: Path) -> None:
    mdt.open(root).metadata.compact()
    seq = json.loads(private(root, "hint"))["seq"]
    assert seq == COMMITS - 1
    header, sections = unpacked(unframed(private(root, f"checkpoints/{seq:020}.manifest"), b"COLS"))
    assert header["seq"] == seq and header["definition"] == record(root, 0)[0]["definition"]
    assert sections.keys() == {"pages"} and all(f"`{name}`" in PAGE for name in header)
    found, sizes = columns_of(root, header, table_of(sections["pages"]))
    assert all(f"`{re.sub('/.*', '/<', name)}" in PAGE for name in found)
    state = folded(root)
    live = [n for n, file in state["files"].items()]
    for name in FILE_COLUMNS:
        assert [row[name] for row in found[f"files/{name}"]] == [
            file[name] for file in state["files"].values()
        ]
    vectors = [row["value"] for row in found["vector"]]
    assert {
        s: BitMap.deserialize(v) for s, v in zip(live, vectors, strict=True) if v is not None
    } == state["vectors"]
    assert [row["value"] for row in found["dead"]] == [
        len(state["vectors"].get(s, ())) for s in live
    ]
    for row in state["stats"]:
        if row["segment"] in live:
            stored = found[f"stats/{row['column']}"][live.index(row["segment"])]
            assert stored == {name: row[name] for name in stored}
    assert [row["seq"] for row in found["history"]] == list(range(COMMITS))
    assert all(f"`{column}`" in PAGE for column in found["history"][0])
    assert set(sizes) == {
        file.name for file in (root / ".hoodie" / ".mdt" / "checkpoints").glob("*.pages-*")
    }
    check_groups(found, list(state["files"].values()))


def columns_of(
    root: Path, header: dict[str, Any], pages: list[dict[str, int]]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the rows of each column, and how far each object is filled."""
    found: dict[str, Any] = {}
    ends: dict[str, int] = {}
    left = iter(pages)
    for name, every, count in header["columns"]:
        found[name] = []
        for _ in range(count):
            page = next(left)
            path = root / header["objects"][page["object"]]
            assert page["offset"] == ends.get(path.name, 0)
            data = path.read_bytes()[page["offset"] : page["offset"] + page["length"]]
            assert zlib.crc32(data) == page["crc"]
            found[name] += table_of(data)
            ends[path.name] = page["offset"] + page["length"]
        total = (
            "groups"
            if name == "group_name"
            else "shards"
            if name.startswith("summaries/")
            else "rows"
        )
        assert count == (-(-header[total] // every) if every else 1)
    assert next(left, None) is None
    assert all(
        (root / ".hoodie" / ".mdt" / "checkpoints" / name).stat().st_size == end
        for name, end in ends.items()
    )
    return found, ends


def check_groups(found: dict[str, Any], files: list[dict[str, Any]]) -> None:
    one = {
        name: [row["value"] for row in rows]
        for name, rows in found.items()
        if rows and "value" in rows[0]
    }
    names = list(dict.fromkeys(file["file_id"] for file in files))
    assert one["group_name"] == names and one["group"] == [
        names.index(file["file_id"]) for file in files
    ]
    assert sorted(one["group_by_hash"]) == list(range(len(names)))
    assert one["group_hash"] == sorted(murmur(name, 0) for name in names)
    assert [murmur(names[g], 0) for g in one["group_by_hash"]] == one["group_hash"]
    partitions = one["partition_name"]
    for g, name in enumerate(names):
        mine = [n for n, file in enumerate(files) if file["file_id"] == name]
        assert one["members"][one["members_start"][g] : one["members_start"][g + 1]] == mine
        assert one["group_bytes"][g] == sum(files[n]["size"] for n in mine)
        assert one["group_logs"][g] == sum(files[n]["kind"] for n in mine)
        assert partitions[one["group_partition"][g]] == files[mine[0]]["partition"]
    for p, path in enumerate(partitions):
        order = one["group_by_size"][one["partition_start"][p] : one["partition_start"][p + 1]]
        assert sorted(order) == [g for g in range(len(names)) if one["group_partition"][g] == p]
        assert [one["group_bytes"][g] for g in order] == sorted(
            one["group_bytes"][g] for g in order
        )
        base = [file for file in files if file["partition"] == path and not file["kind"]]
        assert one["partition_bytes"][p] == sum(file["size"] for file in base)
        assert one["partition_rows"][p] == sum(file["rows"] for file in base)
    known = {names[g] for row in found["key_parts"] for g in row["groups"] if g >= 0}
    assert known >= {file["file_id"] for file in files if file["inserts"]}


def test_every_object_below_mdt_has_a_name_of_the_page(root: Path) -> None:
    folder = root / ".hoodie" / ".mdt"
    known = re.compile(
        r"log/\d{20}|attachments/\d{17}/\d+.*\.attached|checkpoints/\d{20}(\.manifest|-[0-9a-f]{8}\.(pages|key_part)-\d+)|hint|usage/[0-9a-f]{32}\.json|pending/\d{17}"
    )
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    assert names and all(known.fullmatch(name) for name in names)


def test_a_clustering_says_which_file_groups_end_and_what_follows_them(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, partition_by=["city"], ordering="ts")
    table.bulk_insert(rows(range(40), 1, 1.5))
    table.bulk_insert(rows(range(40, 60), 1, -2.5))
    ended = {(row["partition"], row["file_id"]) for row in table.files().to_pylist()}
    segments = set(table.files()["segment"].to_pylist())
    table.cluster(["fare", "ts"], curve="hilbert")
    header, sections = record(tmp_path / "t", 3)
    assert (header["action"], header["operation"], header["counts"]) == (
        "replacecommit",
        "cluster",
        {},
    )
    assert all(f"`{name}`" in PAGE for name in header)
    assert {(place, name) for place, names in header["replaced"].items() for name in names} == ended
    slices = [one for unit in header["clustering_plan"] for one in unit["slices"]]
    assert {(one["partitionPath"], one["fileId"]) for one in slices} == ended
    outputs = [name for unit in header["clustering_plan"] for name in unit["outputs"]]
    assert outputs == [file["file_id"] for file in sections["files"]]
    assert {row["segment"] for row in sections["removed"]} == segments
    assert all(file["inserts"] == file["rows"] for file in sections["files"])
    assert {name for part in sections["key_parts"] for name in part["groups"]} == set(outputs)
    instant = json.loads(
        (tmp_path / "t" / ".hoodie" / f"{header['instant']}.replacecommit").read_text()
    )
    assert (
        instant["partitionToReplaceFileIds"] == header["replaced"]
        and instant["operationType"] == "CLUSTER"
    )
