"""FORMAT.md, sections 3, 5 and 7: hashes of keys, key parts and tombstones, computed from the page
alone. Two other kinds of key parts are in test_format_doc.py.
"""

import hashlib
import re
import struct
import zlib
from datetime import datetime

import numpy as np
import pyarrow as pa
from key_hash_reference import multilinear, path_hash
from test_format_doc import (
    PAGE,
    columns_of,
    numbers_of,
    private,
    record,
    secret_of,
    table_of,
    unframed,
    unpacked,
)

import mdt
from indexes.key_hash import MultilinearHash
from indexes.key_testing import hashed
from indexes.keys.bucket import BucketKeyIndex
from indexes.keys.simple import SimpleKeyIndex

SECRET = bytes(range(32))
EXAMPLE = PAGE.partition("Example, secret")[2].partition("The hash of a partition's path")[0]


def words_of(text):
    return [int(word, 16) for word in re.findall("`([0-9a-f]{16})`", text)]


def row(name):
    [line] = re.findall(rf"\| {name} \|(.*)\|\n", EXAMPLE)
    return words_of(line)


def test_the_numbers_of_the_example_on_the_page_follow_from_its_steps():
    derived = hashlib.shake_256(b"mdt multilinear/1" + SECRET).digest(1120)[:-32]
    rows = [numbers_of(derived, 32 * i, 8, 4) for i in range(3)]
    assert [row(rf"`c\[{i}\]`") for i in range(3)] == rows
    assert "`315f6469`" in EXAMPLE and struct.unpack("<I", b"id_1")[0] == 0x315F6469
    sums = [(a + 4 * b + 0x315F6469 * c) % 2**64 for a, b, c in zip(*rows, strict=True)]
    assert row("sum") == sums


def test_the_hashes_on_the_page_equal_those_of_the_reference_and_of_mdt():
    words, keys = words_of(EXAMPLE.partition("So `hi`")[2]), ["id_1", "x" * 129]
    assert words == [word for key in keys for word in multilinear(SECRET, key.encode())]
    hashes = MultilinearHash(SECRET).hash(pa.array(keys))
    assert words == [hashes.hi[0], hashes.lo[0], hashes.hi[1], hashes.lo[1]]


def build_key_part(index, keys, magic):
    """Return a key part without its crc, which is checked."""
    key_part = index.build(*hashed(keys), np.array([4, 1, 4]), 6)
    assert key_part[:8] == magic
    assert zlib.crc32(key_part[:-4]) == struct.unpack("<I", key_part[-4:])[0]
    return key_part[:-4]


def test_a_simple_key_part_has_the_numbers_of_the_groups_with_keys():
    key_part = build_key_part(SimpleKeyIndex(), ["a", "b", "c"], b"MDTSIM\0\1")
    assert struct.unpack("<QII", key_part[8:]) == (6, 1, 4)


def bucket_of(values, buckets):
    h = 1
    for value in values:
        s = 0
        units = value.encode("utf-16-be")
        for at in range(0, len(units), 2):
            s = 31 * s + int.from_bytes(units[at : at + 2])
        h = (31 * h + s) % 2**32
    return (h & 0x7FFFFFFF) % buckets


def test_a_bucket_key_part_has_the_buckets_of_each_group():
    keys = ["id:a,day:x", "id:b\U0001f600,day:y", "plain"]
    key_part = build_key_part(BucketKeyIndex("9", "id,day"), keys, b"MDTBUC\0\1")
    groups, buckets, p = struct.unpack_from("<QII", key_part, 8)
    words = struct.unpack(f"<{2 * p}I", key_part[24:])
    assert (groups, buckets) == (6, 9)
    values = (["a", "x"], ["b\U0001f600", "y"], ["plain"])
    expected = zip((bucket_of(value, 9) for value in values), (4, 1, 4), strict=True)
    assert list(zip(words[:p], words[p:], strict=True)) == sorted(set(expected))


def tombstone_hash(secret, key, path):
    hash_of_key, hash_of_path = multilinear(secret, key.encode()), path_hash(secret, path)
    return hash_of_key[0] ^ hash_of_path[0], hash_of_key[1] ^ hash_of_path[1]


def test_tombstones_in_records_and_checkpoints_follow_section_3(tmp_path):
    rows = {"id": ["a", "b", "c"], "city": ["x", "x", "y"], "ts": [5, 6, 7]}
    table = mdt.create(
        tmp_path,
        pa.table(rows).schema,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        options={"mdt.delete.keeps.ordering": True},
    )
    table.upsert(rows)
    table.delete({"id": ["a", "c"], "city": ["x", "y"]})
    table.metadata.compact()
    secret, tombstones = secret_of(tmp_path), record(tmp_path, 2)[1]["tombstones"]
    expected = [
        (*tombstone_hash(secret, key, f"city={city}"), (1 << 63) + ts)
        for key, city, ts in (("a", "x", 5), ("c", "y", 7))
    ]
    assert [(row["hi"], row["lo"], row["ordering"]) for row in tombstones] == sorted(expected)
    manifest = private(tmp_path, f"checkpoints/{2:020}.manifest")
    header, sections = unpacked(unframed(manifest, b"COLS"))
    stored = columns_of(tmp_path, header, table_of(sections["pages"]))[0]["tombstones"]
    assert [{name: row[name] for name in tombstones[0]} for row in stored] == tombstones
    instant = datetime.strptime(table.history()["instant"][2].as_py() + "000Z", "%Y%m%d%H%M%S%f%z")
    assert {row["deleted_us"] for row in stored} == {round(instant.timestamp() * 1e6)}
