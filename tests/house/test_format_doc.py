"""FORMAT.md is sufficient to read a table: this reader follows the page with struct, zlib and json,
without the codec of mdt.
"""

import base64
import json
import math
import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trees
from key_hash_reference import multilinear
from pyroaring import BitMap
from texts import columns

import mdt
from mdt.commit.transaction import run
from mdt.services.reclaiming.archiving import archive
from mdt.services.reclaiming.cleaning import Clean

SCHEMA = columns("id string, city string, ts int64, fare float64")
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


def rows(numbers, ts, fare):
    n = len(numbers)
    places = [("x", "y/z")[i % 2] for i in numbers]
    return pa.table([[f"key {i:03}" for i in numbers], places, [ts] * n, [fare] * n], schema=SCHEMA)


@pytest.fixture(scope="module", params=["bloom", "record"])
def root(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("doc") / "t"
    table = trees.create(
        path, SCHEMA, partition_by=["city"], ordering="ts", key_index=request.param
    )
    table.bulk_insert(rows(range(40), -1, 1.5))
    table.upsert(rows(range(30, 50), 2, -2.5))
    table.delete(rows(range(5), 0, 0.0))
    table.bulk_insert(rows(range(60, 70), 3, float("nan")))
    return path


def private(root, name):
    return (root / ".hoodie" / ".mdt" / name).read_bytes()


def unframed(data, kind, version=1):
    magic, stored_kind, stored_version, zero, crc, length = struct.unpack_from("<4s4sHHIQ", data)
    assert (magic, stored_kind, zero, length) == (b"MDT1", kind, 0, len(data) - 24)
    assert stored_version == version
    assert zlib.crc32(data[24:], zlib.crc32(data[:12] + bytes(4) + data[16:24])) == crc
    return data[24:]


def unpacked(payload):
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


def table_of(stream):
    assert not stream.startswith(b"MDTLZ4")
    return pa.ipc.open_stream(stream).read_all().to_pylist()


def decompressed(section):
    assert section.startswith(b"MDTLZ4\0\0")
    size = int.from_bytes(section[8:16], "little")
    assert size <= 255 * (len(section) - 16)
    return pa.decompress(section[16:], decompressed_size=size, codec="lz4", asbytes=True)


def record(root, seq, version=1):
    data = private(root, f"log/{seq:020}")
    header, sections = unpacked(unframed(data, b"CMIT", version))
    assert header["seq"] == seq and header["txn"].encode() in data[:128]
    return header, {name: table_of(section) for name, section in sections.items()}


def apply_log_records(root):
    """Return the state after all records, applied in order as section 4 describes."""
    state = {"files": {}, "stats": [], "vectors": {}, "key_parts": []}
    files, vectors = state["files"], state["vectors"]
    for seq in range(COMMITS):
        _, sections = record(root, seq)
        for row in sections.get("removed", ()):
            del files[row["segment"]]
            vectors.pop(row["segment"], None)
        for row in sections.get("files", ()):
            number = seq << 20 | row["segment"]
            files[number] = {**row, "segment": number, "shard": seq << 20 | row["shard"]}
        for row in sections.get("stats", ()):
            state["stats"].append({**row, "segment": seq << 20 | row["segment"]})
        for row in sections.get("vectors", ()):
            if row["segment"] in files:
                deleted = vectors.get(row["segment"], BitMap())
                vectors[row["segment"]] = deleted | BitMap.deserialize(row["positions"])
        state["key_parts"] += sections.get("key_parts", ())
    return state


def live_rows(root, state):
    """Yield (file, position, row) of each row that is in no deletion vector."""
    for number, file in state["files"].items():
        for position, row in enumerate(parquet_rows(root, file)):
            if position not in state["vectors"].get(number, BitMap()):
                yield file, position, row


def parquet_rows(root, file):
    data = (root / file["partition"] / file["name"]).read_bytes()
    assert len(data) == file["size"]
    if not file["rows"]:
        assert not file["row_group_rows"]
        return []
    begin, end = file["block_offset"], file["block_offset"] + file["block_length"]
    parquet = pq.ParquetFile(pa.BufferReader(data[begin:end]))
    groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
    assert [group.num_rows for group in groups] == file["row_group_rows"]
    assert zlib.crc32(data[end - file["footer_length"] : end]) == file["footer_crc"]
    assert file["footer_length"] == 8 + int.from_bytes(data[end - 8 : end - 4], "little")
    digests = []
    for group in groups:
        for chunk in map(group.column, range(parquet.metadata.num_columns)):
            first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
            start = begin + (first or chunk.data_page_offset)
            digests.append(digest(data[start : start + chunk.total_compressed_size]))
    stored_digests = base64.b64decode(parquet.metadata.metadata[b"mdt.digests"])
    assert np.frombuffer(stored_digests, "<u4").tolist() == digests
    return parquet.read().to_pylist()


def digest(data, seed=0):
    return int.from_bytes(mmh3.mmh3_x64_128_digest(data, seed)[:4], "little")


def stored(root, path, offset, length, crc):
    data = (root / path).read_bytes()[offset : offset + length]
    assert offset % 8 == 0 and zlib.crc32(data) == crc
    return data


def numbers_of(data, start, width, n):
    """Return n little-endian numbers of ``width`` bytes each."""
    places = range(start, start + width * n, width)
    return [int.from_bytes(data[at : at + width], "little") for at in places]


def key_map(root, file):
    """Return (hi, upper 16 bits of lo, ordering, position) of each entry."""
    data = stored(root, *(file[f"key_map_{name}"] for name in ("path", "offset", "length", "crc")))
    magic, flags, n, b, crc, least = struct.unpack_from("<4sIQIIQ", data)
    at = 32 + 4 * (2 ** (b + 1) + 1) + 4
    yes, o, p, zero = flags.to_bytes(4, "little")
    assert (magic, yes, zero, len(data)) == (b"MKM4", 1, 0, at + (10 + o + p) * n)
    assert crc == zlib.crc32(data[:20] + data[24:at])
    starts = numbers_of(data, 32, 4, 2**b + 1)
    checks = numbers_of(data, 32 + 4 * (2**b + 1), 4, 2**b)
    parts = [(at, 8), (at + 8 * n, 2), (at + 10 * n, o), (at + (10 + o) * n, p)]
    hi, lo, ordering_offsets, position = (
        numbers_of(data, begin, width, n) for begin, width in parts
    )
    ordering = [least + number for number in ordering_offsets]
    spread = max(ordering_offsets)
    assert min(ordering_offsets) == 0 and spread < 256**o and (o == 1 or spread >= 256 ** (o - 1))
    assert (starts[0], starts[-1]) == (0, n)
    for shard, (first, last) in enumerate(pairwise(starts)):
        assert all(word >> 64 - b == shard for word in hi[first:last] if b)
        check = 0
        for begin, width in parts:
            check = digest(data[begin + width * first : begin + width * last], check)
        assert check == checks[shard]
    return list(zip(hi, lo, ordering, position, strict=True))


def murmur(text, seed):
    return mmh3.hash128(text, seed, signed=False) >> 64


def flipped(number):
    return number + 2**63


def double_key(value):
    bits = int.from_bytes(struct.pack(">d", value), "big")
    return (bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63).to_bytes(8, "big")


def secret_of(root):
    return bytes.fromhex(record(root, 0)[0]["definition"]["key_hash"]["secret"])


def test_applying_the_log_records_in_order_gives_the_rows_of_the_table(root):
    state = apply_log_records(root)
    live = [{name: row[name] for name in SCHEMA.names} for _, _, row in live_rows(root, state)]
    scanned = mdt.open(root).scan().to_arrow().to_pylist()
    assert sorted(map(repr, live)) == sorted(map(repr, scanned)) and len(live) == 55
    assert any(state["vectors"].values())
    assert any(file["kind"] for file in state["files"].values())


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_commit_records_have_the_positions_of_deleted_and_inserted_rows(tmp_path, table_type):
    table = trees.create(
        tmp_path / "t", SCHEMA, partition_by=["city"], ordering="ts", table_type=table_type
    )
    table.bulk_insert(rows(range(40), 1, 1.5))
    table.upsert(rows(range(30, 50), 2, -2.5))
    table.delete(rows(range(5), 0, 0.0))
    table.compact()
    files = {}
    for seq in range(table.snapshot().seq + 1):
        header, sections = record(tmp_path / "t", seq)
        deleted, inserted = [], []
        for row in sections.get("vectors", ()):
            deleted += [files[row["segment"]][n] for n in BitMap.deserialize(row["positions"])]
        fresh = {row["segment"]: row["positions"] for row in sections.get("fresh", ())}
        for file in sections.get("files", ()):
            file_rows = files[seq << 20 | file["segment"]] = parquet_rows(tmp_path / "t", file)
            positions = fresh.get(file["segment"])
            inserted += (
                file_rows
                if positions is None
                else [file_rows[n] for n in BitMap.deserialize(positions)]
            )
        before, after = (
            {row["id"]: row for row in table.scan(as_of=max(0, at)).to_arrow().to_pylist()}
            for at in (seq - 1, seq)
        )
        for changed, old, new in ((deleted, before, after), (inserted, after, before)):
            expected = sorted(key for key, row in old.items() if new.get(key) != row)
            assert sorted(row["id"] for row in changed) == expected, header["operation"]
        assert {row["_hoodie_commit_time"] for row in inserted} <= {header["instant"]}


def assert_on_page(*names):
    assert not [name for name in names if f"`{name}`" not in PAGE]


def test_headers_sections_and_definition_have_only_fields_of_the_page(root):
    for seq in range(COMMITS):
        header, sections = record(root, seq)
        assert_on_page(*header, *sections, *header["counts"])
        assert re.fullmatch("[0-9a-f]{32}", header["txn"])
        assert re.fullmatch("[0-9]{17}", header["instant"])
        for table in sections.values():
            assert_on_page(*table[0])
    definition = record(root, 0)[0]["definition"]
    assert_on_page(*definition)
    assert definition["format"] == 4
    assert pa.ipc.read_schema(pa.py_buffer(base64.b64decode(definition["schema"]))) == SCHEMA


def test_key_maps_hold_hashes_ordering_values_and_positions(root):
    secret = secret_of(root)
    for file in apply_log_records(root)["files"].values():
        if not file["rows"]:
            assert file["key_map_path"] is None
            continue
        expected = [
            (*multilinear(secret, row["_hoodie_record_key"].encode()), flipped(row["ts"]), position)
            for position, row in enumerate(parquet_rows(root, file))
        ]
        assert key_map(root, file) == [(hi, lo >> 48, *more) for hi, lo, *more in sorted(expected)]


def test_page_maps_have_the_offsets_sizes_and_digests_of_the_pages_of_each_column(root):
    for file in apply_log_records(root)["files"].values():
        if not file["rows"]:
            assert file["page_map_offset"] is None
            continue
        location = [file[f"page_map_{name}"] for name in ("offset", "length", "crc")]
        data = stored(root, file["key_map_path"], *location)
        magic, zero, c, g, p, n_rows, n, zeros = struct.unpack_from("<4s7I", data)
        assert (magic, zero, n_rows, zeros) == (b"MPM3", 0, file["rows"], 0)
        assert len(data) == 32 + 21 * c * g + 12 * p + n
        assert (g, p) == (1, c), "small files have one page in each chunk"
        start = numbers_of(data, 32, 8, c)
        dictionary, pages, size, first = (
            numbers_of(data, 32 + 8 * c + 4 * c * i, 4, c) for i in range(4)
        )
        digests, codecs = numbers_of(data, 32 + 24 * c, 4, 2 * c), data[32 + 32 * c :]
        assert set(pages) == {1} and set(first) == {0}
        bytes_ = (root / file["partition"] / file["name"]).read_bytes()[file["block_offset"] :]
        parquet = pq.ParquetFile(pa.BufferReader(bytes_[: file["block_length"]]))
        for i, name in enumerate(data[len(data) - n :].decode().split("\n")):
            chunk, page = parquet.metadata.row_group(0).column(i), start[i] + dictionary[i]
            assert (chunk.path_in_schema, chunk.data_page_offset) == (name, page)
            assert chunk.total_compressed_size == dictionary[i] + size[i]
            assert bool(dictionary[i]) == chunk.has_dictionary_page
            assert {0: "UNCOMPRESSED", 1: "SNAPPY", 7: "LZ4"}[codecs[i]] == chunk.compression
            assert digests[i] == digest(bytes_[start[i] : page])
            assert digests[c + i] == digest(bytes_[page : page + size[i]])


def record_groups(key_part, hi):
    n, groups, b, p, crc = struct.unpack_from("<QQHHI", key_part, 8)
    # tests/indexes/test_record_forms.py has larger key parts
    assert key_part[:8] == b"MDTREC\0\3" and b < 8 and p == 64
    shards = 1 << b
    end = 32 + 8 * (shards + 1) + 8 * shards
    assert zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28])) == crc
    assert groups <= 256 and len(key_part) == end + 9 * n
    starts = numbers_of(key_part, 32, 8, shards + 1)
    shard = hi >> 64 - b if b else 0
    first, last = starts[shard], starts[shard + 1]
    hash_bytes = key_part[end + 8 * first : end + 8 * last]
    group_bytes = key_part[end + 8 * n + first : end + 8 * n + last]
    check = 32 + 8 * (shards + 1) + 8 * shard
    checksum = mmh3.mmh3_x64_128_digest(group_bytes, digest(hash_bytes))[:8]
    assert checksum == key_part[check : check + 8]
    hashes = numbers_of(hash_bytes, 0, 8, last - first)
    assert hashes == sorted(hashes) and all(number < groups for number in group_bytes)
    return {group for key_hash, group in zip(hashes, group_bytes, strict=True) if key_hash == hi}


def bloom_block_holds(block, lo):
    """Return True if a 32-byte block of a Bloom filter has all bits of a hash."""
    words = numbers_of(block, 0, 4, 8)
    bits = [((lo & 0xFFFFFFFF) * salt % 2**32) >> 27 for salt in SALTS]
    return all(word >> bit & 1 for word, bit in zip(words, bits, strict=True))


def bloom_groups(key_part, key, lo):
    e, _, blocks, bound_bytes = struct.unpack_from("<QQQQ", key_part, 8)
    at = 40 + 32 * blocks
    assert key_part[:8] == b"MDTBLO\0\1" and len(key_part) == at + 10 * e + bound_bytes + 4
    assert numbers_of(key_part, len(key_part) - 4, 4, 1) == [zlib.crc32(key_part[:-4])]
    groups, sizes = (numbers_of(key_part, at + 4 * e * i, 4, e) for i in range(2))
    bounds, bound_start = [], at + 10 * e
    for length in key_part[at + 8 * e : bound_start]:
        bounds.append(None if length == 255 else key_part[bound_start : bound_start + length])
        bound_start += length % 255
    candidates, first = set(), 0
    for entry in range(e):
        low, high = bounds[entry], bounds[e + entry]
        if low is not None and low <= key and (high is None or key <= high):
            block = 40 + 32 * (first + ((lo >> 32) * sizes[entry] >> 32))
            if bloom_block_holds(key_part[block : block + 32], lo):
                candidates.add(groups[entry])
        first += sizes[entry]
    return candidates


def test_key_parts_find_the_file_group_of_every_key_with_few_false_positives(root):
    state, secret = apply_log_records(root), secret_of(root)
    index = record(root, 0)[0]["definition"]["key_index"]
    false_positives = 0
    for file, _, row in live_rows(root, state):
        candidates, key = set(), row["_hoodie_record_key"].encode()
        hi, lo = multilinear(secret, key)
        for part in state["key_parts"]:
            assert part["index"] == f"{index}/1" and part["path"] is None
            data = part["payload"]
            is_exact = index == "record"
            numbers = record_groups(data, hi) if is_exact else bloom_groups(data, key, lo)
            candidates |= {part["groups"][group] for group in numbers}
        assert file["file_id"] in candidates
        false_positives += len(candidates) - 1
    assert false_positives <= (0 if index == "record" else 10)


def test_statistics_have_the_keys_of_the_smallest_and_largest_value_and_counts(root):
    state = apply_log_records(root)
    keys = {
        "fare": double_key,
        "ts": lambda value: flipped(value).to_bytes(8, "big"),
    }
    for row in state["stats"]:
        if row["segment"] not in state["files"]:
            continue
        values = [r[row["column"]] for r in parquet_rows(root, state["files"][row["segment"]])]
        nans = [value for value in values if isinstance(value, float) and math.isnan(value)]
        counts = row["row_group"], row["values"], row["nulls"], row["nans"]
        assert counts == (-1, len(values), 0, len(nans))
        key = keys.get(row["column"], str.encode)
        high = nans[0] if nans else max(values)
        assert (row["min"], row["max"]) == (key(min(values)), key(high))
        assert row["min_exact"] and row["max_exact"]


def test_a_record_with_a_new_key_hash_has_new_key_maps_of_older_files(tmp_path):
    root = tmp_path / "t"
    table = trees.create(root, SCHEMA, partition_by=["city"], ordering="ts")
    table.bulk_insert(rows(range(40), 1, 1.5))
    table.rekey()
    header, sections = record(root, 2, version=2)
    assert (header["action"], header["operation"]) == ("index", "rekey")
    assert_on_page(*header, *sections)
    assert header["key_hash"]["name"] == "multilinear/1"
    secret = bytes.fromhex(header["key_hash"]["secret"])
    assert secret != secret_of(root)
    maps = {row["segment"]: row for row in sections["maps"]}
    files = {1 << 20 | file["segment"]: file for file in record(root, 1)[1]["files"]}
    assert maps.keys() == files.keys()
    for segment, file in files.items():
        keys = [row["_hoodie_record_key"].encode() for row in parquet_rows(root, file)]
        hashes = sorted((*multilinear(secret, key), at) for at, key in enumerate(keys))
        entries = key_map(root, {**file, **maps[segment]})
        assert [(hi, lo, at) for hi, lo, _, at in entries] == [
            (hi, lo >> 48, at) for hi, lo, at in hashes
        ]


def test_the_archive_has_summaries_of_the_records_removed_from_the_log(tmp_path):
    root = tmp_path / "t"
    table = trees.create(root, SCHEMA, partition_by=["city"], ordering="ts")
    for ts in range(4):
        table.upsert(rows(range(10), ts, 1.5))
        table.metadata.compact()
    headers = [record(root, seq)[0] for seq in range(5)]
    run(table.metadata, Clean(table.metadata, table.options, horizon=4, records_min=1))
    cleaning, _ = record(root, 5)
    retention = cleaning["retention"]
    assert_on_page(*cleaning, *retention, *cleaning["clean"])
    assert retention == {"horizon": 4, "first": 4, "instant": headers[3]["instant"]}
    archive(table.metadata)
    [path] = (root / ".hoodie" / ".mdt" / "archive").iterdir()
    header, sections = unpacked(unframed(path.read_bytes(), b"HIST"))
    assert (header, path.name) == ({"first": 0, "last": 3}, f"{0:020}-{3:020}")
    archived = table_of(decompressed(sections["history"]))
    assert sections.keys() == {"history"}
    for row, original in zip(archived, headers[:4], strict=True):
        names = ("seq", "instant", "action", "operation", "txn")
        assert [row[name] for name in names] == [original[name] for name in names]
        assert row["token"] == original.get("token")
        assert row["updated"] == original["counts"].get("updated", 0)


def test_instants_have_the_number_and_the_transaction_of_their_record(root):
    for seq in range(COMMITS):
        header, _ = record(root, seq)
        instant = json.loads((root / ".hoodie" / f"{header['instant']}.deltacommit").read_text())
        assert instant["extraMetadata"]["mdt.seq"] == str(seq)
        assert instant["extraMetadata"]["mdt.txn"] == header["txn"]


def test_write_tokens_in_file_names_have_the_token_of_the_transaction(root):
    for seq in range(1, COMMITS):
        header, sections = record(root, seq)
        for file in sections["files"]:
            pattern = (
                r"\.log\.\d+_(\d+-\d+-\d+)$" if file["kind"] else r"_(\d+-\d+-\d+)_\d{17}\.parquet$"
            )
            match = re.search(pattern, file["name"])
            assert match and match[1].split("-")[1:] == [str(header["token"]), "0"]


def test_a_checkpoint_has_the_same_state_as_the_log(root):
    mdt.open(root).metadata.compact()
    seq = json.loads(private(root, "hint"))["seq"]
    assert seq == COMMITS - 1
    header, sections = unpacked(unframed(private(root, f"checkpoints/{seq:020}.manifest"), b"COLS"))
    assert header["seq"] == seq and header["definition"] == record(root, 0)[0]["definition"]
    assert sections.keys() == {"pages"}
    stored_columns, sizes = columns_of(root, header, table_of(sections["pages"]))
    assert_on_page(*header)
    assert all(f"`{re.sub('/.*', '/<', name)}" in PAGE for name in stored_columns)
    state = apply_log_records(root)
    files, vectors = list(state["files"].values()), state["vectors"]
    live = list(state["files"])
    for name in FILE_COLUMNS:
        assert [row[name] for row in stored_columns[f"files/{name}"]] == [
            file[name] for file in files
        ]
    values = {}
    for name, column in stored_columns.items():
        if column and "value" in column[0]:
            values[name] = [row["value"] for row in column]
    stored_vectors = {s: v for s, v in zip(live, values["vector"], strict=True) if v is not None}
    assert {s: BitMap.deserialize(v) for s, v in stored_vectors.items()} == vectors
    assert values["dead"] == [len(vectors.get(s, ())) for s in live]
    for row in state["stats"]:
        if row["segment"] in live:
            stored = stored_columns[f"stats/{row['column']}"][live.index(row["segment"])]
            assert stored.items() <= row.items()
    assert [row["seq"] for row in stored_columns["history"]] == list(range(COMMITS))
    assert_on_page(*stored_columns["history"][0])
    folder = root / ".hoodie" / ".mdt" / "checkpoints"
    assert set(sizes) == {file.name for file in folder.glob("*.pages-*")}
    check_groups(values, files)
    names = values["group_name"]
    named_groups = {
        names[g] for row in stored_columns["key_parts"] for g in row["groups"] if g >= 0
    }
    assert named_groups >= {file["file_id"] for file in files if file["inserts"]}


def columns_of(root, header, pages):
    """Return the rows of each column, and the number of bytes used in each object."""
    rows_by_column, ends, remaining_pages = {}, {}, iter(pages)
    for name, every, count in header["columns"]:
        rows_by_column[name] = []
        for _ in range(count):
            page = next(remaining_pages)
            path, start = root / header["objects"][page["object"]], page["offset"]
            assert start == ends.get(path.name, 0)
            ends[path.name] = end = start + page["length"]
            data = path.read_bytes()[start:end]
            assert zlib.crc32(data) == page["crc"]
            rows_by_column[name] += table_of(data)
        total = "shards" if name.startswith("summaries/") else "rows"
        total = "groups" if name == "group_name" else total
        assert count == (-(-header[total] // every) if every else 1)
    assert next(remaining_pages, None) is None
    folder = root / ".hoodie" / ".mdt" / "checkpoints"
    assert {name: (folder / name).stat().st_size for name in ends} == ends
    return rows_by_column, ends


def check_groups(values, files):
    """Check the columns of file groups and partitions in a checkpoint against the files."""
    names = list(dict.fromkeys(file["file_id"] for file in files))
    numbers = range(len(names))
    assert values["group_name"] == names
    assert values["group"] == [names.index(file["file_id"]) for file in files]
    assert sorted(values["group_by_hash"]) == list(numbers)
    assert values["group_hash"] == sorted(murmur(name, 0) for name in names)
    assert [murmur(names[g], 0) for g in values["group_by_hash"]] == values["group_hash"]
    for g, (first, last) in enumerate(pairwise(values["members_start"])):
        member_numbers = values["members"][first:last]
        group = [files[n] for n in member_numbers]
        assert member_numbers == [n for n, file in enumerate(files) if file["file_id"] == names[g]]
        assert values["group_bytes"][g] == sum(file["size"] for file in group)
        assert values["group_logs"][g] == sum(file["kind"] for file in group)
        assert values["partition_name"][values["group_partition"][g]] == group[0]["partition"]
    for p, (first, last) in enumerate(pairwise(values["partition_start"])):
        order = values["group_by_size"][first:last]
        assert sorted(order) == [g for g in numbers if values["group_partition"][g] == p]
        assert order == sorted(order, key=lambda g: values["group_bytes"][g])
        path = values["partition_name"][p]
        base = [file for file in files if file["partition"] == path and not file["kind"]]
        assert values["partition_bytes"][p] == sum(file["size"] for file in base)
        assert values["partition_rows"][p] == sum(file["rows"] for file in base)


def test_every_object_in_the_folder_of_mdt_has_a_documented_name(root):
    folder = root / ".hoodie" / ".mdt"
    documented = re.compile(
        r"log/\d{20}|attachments/\d{17}/\d+.*\.attached|checkpoints/\d{20}(\.manifest|-[0-9a-f]{8}\.(pages|key_part)-\d+)|hint|usage/[0-9a-f]{32}\.json|pending/\d{17}"
    )
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    assert names and all(documented.fullmatch(name) for name in names)


def test_a_clustering_record_has_the_replaced_file_groups_and_the_new_ones(tmp_path):
    table = trees.create(tmp_path / "t", SCHEMA, partition_by=["city"], ordering="ts")
    table.bulk_insert(rows(range(40), 1, 1.5))
    table.bulk_insert(rows(range(40, 60), 1, -2.5))
    replaced = {(row["partition"], row["file_id"]) for row in table.files().to_pylist()}
    segments = set(table.files()["segment"].to_pylist())
    table.cluster(["fare", "ts"], curve="hilbert")
    header, sections = record(tmp_path / "t", 3)
    summary = header["action"], header["operation"], header["counts"]
    assert summary == ("replacecommit", "cluster", {})
    assert_on_page(*header)
    assert {
        (partition, name) for partition, names in header["replaced"].items() for name in names
    } == replaced
    slices, outputs = [], []
    for unit in header["clustering_plan"]:
        slices += [
            (input_slice["partitionPath"], input_slice["fileId"]) for input_slice in unit["slices"]
        ]
        outputs += unit["outputs"]
    assert set(slices) == replaced
    assert outputs == [file["file_id"] for file in sections["files"]]
    assert {row["segment"] for row in sections["removed"]} == segments
    assert all(file["inserts"] == file["rows"] for file in sections["files"])
    assert {name for part in sections["key_parts"] for name in part["groups"]} == set(outputs)
    path = tmp_path / "t" / ".hoodie" / f"{header['instant']}.replacecommit"
    instant = json.loads(path.read_text())
    assert instant["partitionToReplaceFileIds"] == header["replaced"]
    assert instant["operationType"] == "CLUSTER"
