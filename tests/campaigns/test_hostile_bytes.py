"""Parsers other than that of commit records, with random bytes and with valid bytes that were changed
and given valid checksums.

Each parser returns a value or raises an mdt error (ValueError in the package ``indexes``, as its
contract says). Nightly runs try more examples: ``pytest -m nightly
tests/campaigns/test_hostile_bytes.py --hypothesis-seed=N`` replays a run.
"""

import json
import struct
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import worlds
from counting import count
from foreign_tables import (
    COMMIT_TIME_DELETE,
    ForeignTable,
    avro_rows,
    deletes,
    parquet,
    parquet_rows,
    wrapped,
    wrapped_list,
)
from foreign_tables import (
    block as hudi_block,
)
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from random_tables import examples

from indexes import positions
from indexes.base import KeyHashes
from indexes.bitmap import BitmapIndex
from indexes.column_bloom import ColumnBloom
from indexes.column_stats import ColumnStats
from indexes.key_hash import hash_keys
from indexes.predicate import Leaf
from indexes.table_stats import TableStats
from indexes.text import TextIndex
from mdt.commit import claims
from mdt.errors import MdtError
from mdt.hudi import commit_metadata, file_names, log_file, properties
from mdt.hudi.delete_records import decode_delete_block
from mdt.hudi.v6 import Version6
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.key_map import build
from mdt.metadata.key_indexes import find as key_index
from mdt.metadata.log import codec, commit_log
from mdt.metadata.log import trusted_names as names
from mdt.metadata.statistics import usage
from mdt.metadata.statistics.index_summaries import Parsed
from mdt.parquet import page_map


@st.composite
def changed(draw, valid):
    """Return valid bytes with a few of them changed, deleted, doubled or added, or random bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        change = draw(st.integers(0, 4))
        if change == 0 and data:
            data[at] = draw(st.sampled_from([0, 1, 127, 128, 254, 255]))
        elif change == 1:
            data[at : at + 4] = draw(
                st.sampled_from(
                    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0", b"\xff\xff\xff\x7f"]
                )
            )
        elif change == 2:
            del data[at : at + draw(st.integers(1, 16))]
        elif change == 3:
            data[at:at] = data[at : at + draw(st.integers(1, 16))]
        else:
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)


# Roaring bitmaps


def as_set(bitmap):
    return set(bitmap.to_array()) if len(bitmap) < 10**6 else set()


BITMAPS = [
    BitMap(),
    BitMap([5]),
    BitMap(range(10, 5000, 3)),
    BitMap(range(70_000)),
    BitMap(range(0, 140_000, 2)),
    BitMap([1, 2, 3, 65_536, 65_537, 200_000]),
    BitMap([*range(100), *range(65_000, 66_000), *range(300_000, 300_900, 2)]),
]


@cache
def _bitmap(number, runs):
    bitmap = BITMAPS[number].copy()
    if runs:
        bitmap.run_optimize()
    return bitmap.serialize()


def roaring(data):
    bytes_ = data.draw(
        changed(_bitmap(data.draw(st.integers(0, len(BITMAPS) - 1)), data.draw(st.booleans())))
    )
    rows = data.draw(st.sampled_from([1, 100, 70_000, 2**32]))
    for parse in (lambda: positions.deserialize(bytes_, rows), lambda: positions.to_bitmap(bytes_)):
        try:
            bitmap = parse()
        except ValueError:
            count("roaring bitmaps that were changed, refused")
            continue
        # An accepted bitmap is safe to use, and consistent in every representation.
        assert BitMap(as_set(bitmap)) == bitmap or len(bitmap) >= 10**6
        assert len(bitmap | BitMap([7])) - (7 not in bitmap) == len(bitmap)
        count("roaring bitmaps that were changed, read")


def test_valid_bitmaps_are_read_and_checked_against_the_number_of_rows():
    for number, bitmap in enumerate(BITMAPS):
        for runs in (False, True):
            assert positions.deserialize(_bitmap(number, runs)) == bitmap
            if bitmap:
                with pytest.raises(ValueError):
                    positions.deserialize(_bitmap(number, runs), bitmap.max())


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IIHHI", 12346, 1, 0, 9999, 16)
        + b"\xff" * 8192,  # a bitset with more values than it claims
        struct.pack("<IBHHHHH", 12347, 1, 0, 1, 1, 65_535, 65_535),  # a run beyond its container
        struct.pack("<IBHHHHHHH", 12347, 1, 0, 9, 2, 0, 10, 5, 10),  # runs that overlap
        struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 7, 3),  # an array in descending order
        struct.pack("<IIHHHHIIHH", 12346, 2, 4, 0, 4, 0, 24, 26, 1, 1),  # a repeated container
    ],
    ids=["bitset", "long run", "overlap", "falling", "twice"],
)
def test_bitmaps_that_would_cause_out_of_bounds_writes_are_refused(data):
    with pytest.raises(ValueError):
        positions.deserialize(data)


# Summaries and key parts


def resealed(data):
    """Return a container of blocks with valid checksums. Other bytes are returned unchanged."""
    if data[:4] != b"MDTP" or len(data) < 20:
        return data
    (n,) = struct.unpack_from("<I", data, 12)
    body = 20 + 8 * n
    if body > len(data):
        return data
    sealed, start = bytearray(data), 0
    for block in range(n):
        (end,) = struct.unpack_from("<I", data, 16 + 8 * block)
        struct.pack_into(
            "<I", sealed, 20 + 8 * block, zlib.crc32(data[body + start : body + max(start, end)])
        )
        start = end
    struct.pack_into("<I", sealed, 16 + 8 * n, zlib.crc32(bytes(sealed[: 16 + 8 * n])))
    return bytes(sealed)


def resealed_stats(data):
    return (
        data
        if len(data) < 44
        else data[:40] + struct.pack("<I", zlib.crc32(data[44:], zlib.crc32(data[:40]))) + data[44:]
    )


NUMBERS = pa.array([1, 5, 5, None, 9, *range(600)])
WORDS = pa.array(["a b", "b c", None, "", *(f"word{n} x" for n in range(400))])
SUMMARIES = [
    (
        BitmapIndex(),
        NUMBERS,
        [Leaf("v", "=", 5), Leaf("v", ">", 3), Leaf("v", "is null", None)],
        resealed,
    ),
    (
        BitmapIndex(),
        WORDS,
        [Leaf("v", "=", "a b"), Leaf("v", "<=", "word2"), Leaf("v", "is null", None)],
        resealed,
    ),
    (TextIndex(), WORDS, [Leaf("v", "match", "word7 x"), Leaf("v", "match", "nothing")], resealed),
    (ColumnBloom(), WORDS, [Leaf("v", "=", "a b")], lambda data: data),
    (ColumnStats(), NUMBERS, [Leaf("v", ">", 3)], lambda data: data),
    (TableStats(), NUMBERS, [Leaf("v", "=", 5)], resealed_stats),
]


@cache
def _summary(number):
    index, column, _, _ = SUMMARIES[number]
    return bytes(index.summarize(column))


def summary(data):
    number = data.draw(st.integers(0, len(SUMMARIES) - 1))
    index, column, leaves, seal = SUMMARIES[number]
    damaged = seal(data.draw(changed(_summary(number))))
    for leaf in leaves:
        for ask in (index.prune, index.rows):
            try:
                ask([Parsed(damaged)], leaf, column.type)
            except ValueError:
                count("summaries that were changed and sealed, refused")
            else:
                count("summaries that were changed and sealed, read")


@cache
def _key_part(name):
    keys = pa.array([f"k{n}" for n in range(40)])
    return bytes(key_index(name).build(keys, hash_keys(keys, 1), np.arange(40) % 3, 3))


def key_part(data):
    name = data.draw(st.sampled_from(["bloom", "record"]))
    damaged = data.draw(changed(_key_part(name)))
    if name == "bloom":
        damaged = damaged[:-4] + struct.pack("<I", zlib.crc32(damaged[:-4]))
    keys = pa.array(["k1", "k77"])
    index = key_index(name)
    for act in (
        lambda: index.locate(damaged, keys, hash_keys(keys, 1)),
        lambda: index.merge([damaged], [np.arange(3)], 3),
    ):
        try:
            act()
        except ValueError:
            count("key parts that were changed, refused")
        else:
            count("key parts that were changed, read")


# Key maps, page maps, JSON, properties, names, log blocks


RECORD = commit_log.read(worlds.filled("MERGE_ON_READ", "record"), 1)
SECTIONS = {name: bytes(codec.encode_ipc(table)) for name, table in RECORD.tables.items()}


@cache
def _plain():
    hashes = hash_keys(pa.array([f"k{n}" for n in range(50)]), 3)
    assert isinstance(hashes, KeyHashes)
    claim = claims.PendingClaim(
        "20240101000000000", "a" * 32, "commit", "upsert", 5, 1, 2, ("p=x", "p=y")
    )
    counts = usage.Counts(
        1,
        2,
        {"bitmap/1(v)": usage.IndexUse(1, 2, 3)},
        {"v": usage.ColumnUse(usage.TestUse(1, 2, 3, 4))},
    )
    path = paths.pending(claim.instant)
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    keys = pa.array(["k1", "k2"])
    shared = {
        "instant": "20240101000000000",
        "avro_schema": "{}",
        "positions": None,
        "base_instant": "20240101000000000",
    }
    block = bytes(log_file.delete_block(keys, "p=x", **shared))
    return {
        "key map": (
            key_map.encode(build(hashes, None)),
            lambda data: key_map.decode(data, path="x", offset=0).find(hashes),
        ),
        "page map": (b"MPM3" + bytes(60), lambda data: page_map.decode(data, path="x", offset=0)),
        "page map 4": (b"MPM4" + bytes(60), lambda data: page_map.decode(data, path="x", offset=0)),
        "claim": (claim.encode(), lambda data: claims.decode(data, path=path)),
        "usage": (counts.encode(), usage.decode),
        "properties": (
            b"hoodie.table.name=x\nhoodie.table.version=6\n\\u0041=\\n",
            properties.decode,
        ),
        "private texts": (b'{"extraMetadata": {"mdt.seq": "7"}}', commit_metadata.decode_extra),
        "ipc": (
            bytes(codec.encode_ipc(table)),
            lambda data: codec.decode_ipc(data, None, path="x"),
        ),
        "lz4": (
            bytes(codec.encode_ipc(table, compression="lz4")),
            lambda data: codec.decode_ipc(data, None, path="x"),
        ),
        "pack": (
            b"".join(map(bytes, codec.pack({"a": 1}, {"x": b"123"}))),
            lambda data: codec.unpack(data, path="x"),
        ),
        "record": (  # well framed, with an invalid header or sections
            b"".join(map(bytes, codec.pack({**RECORD.header, "seq": 1}, SECTIONS))),
            lambda data: commit_log.decode(codec.frame(commit_log.KIND, 1, data), seq=1, path="x"),
        ),
        "names": (
            b".a-0_20240101000000000.log.1_0-7-0",
            lambda data: _parse_names(data.decode("latin-1")),
        ),
        "log file": (block, lambda data: _parse_log(data)),
    }


def _parse_names(text):
    for parse in (
        file_names.parse_base,
        file_names.parse_log,
        lambda name: Version6().instant_at(f".hoodie/{name}"),
        names.writer_of,
        names.is_partition,
    ):
        parse(text)


def _parse_log(data):
    for block in log_file.parse(data, path="x"):
        if block.kind == log_file.DELETE:
            decode_delete_block(block.content)


def plain(data):
    name = data.draw(st.sampled_from(sorted(_plain())))
    valid, parse = _plain()[name]
    damaged = data.draw(changed(valid))
    try:
        parse(damaged)
    except (MdtError, ValueError) as error:
        assert isinstance(error, MdtError) or name == "usage", error
        count(f"changed bytes, refused: {name}")
    else:
        count(f"changed bytes, read: {name}")


# Hudi tables


STORED = {
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": "ts,at",
}
ITEM = {"type": "record", "name": "item", "fields": [{"name": "x", "type": ["null", "double"]}]}
FIELDS = {
    "id": "string",
    "ts": "long",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
    "items": {"type": "array", "items": ITEM},
    "tags": {"type": "map", "values": ["null", "string"]},
}
ROWS = [
    {
        "id": f"k{number}",
        "ts": number,
        "at": None if number % 3 else datetime(2024, 1, 1, tzinfo=UTC),
        "price": Decimal(number),
        "items": [{"x": None}, {"x": 0.5}],
        "tags": {"a": "b", "c": None},
    }
    for number in range(9)
]


@cache
def _foreign():
    """Return valid bytes by kind, each with a function that reads a table with these bytes."""
    table = ForeignTable(FIELDS, STORED)
    rows, schema = table.rows(2, ROWS), table.file_schema()
    text = json.dumps(schema)

    def content(block):
        return bytes(log_file.parse(block, path="x")[0].content)

    def read(*blocks, base=b""):
        table = ForeignTable(FIELDS, STORED)
        table.base(1, ROWS[3:], data=base)
        table.log(2, table.upsert(2, ROWS), *blocks)
        table.read()

    ordering = wrapped_list(wrapped("LongWrapper", 7), wrapped("TimestampMicrosWrapper", 5))
    ends = deletes(2, {"k1": ordering, "k2": COMMIT_TIME_DELETE, "k3": None})
    avro = content(avro_rows(2, rows, schema))
    of_kind = {"SCHEMA": text}
    return {
        "log file": (table.upsert(2, ROWS) + ends, lambda data: read(data)),
        "Avro rows": (avro, lambda data: read(hudi_block(2, data, log_file.AVRO, **of_kind))),
        "Avro schema": (
            text.encode(),
            lambda data: read(hudi_block(2, avro, SCHEMA=data.decode("utf-8", "replace"))),
        ),
        "Parquet rows": (
            content(parquet_rows(2, rows, schema)),
            lambda data: read(hudi_block(2, data, log_file.PARQUET)),
        ),
        "deletes": (content(ends), lambda data: read(hudi_block(2, data, log_file.DELETE))),
        "base file": (parquet(rows, schema), lambda data: read(base=data or b"x")),
    }


def foreign(data):
    name = data.draw(st.sampled_from(sorted(_foreign())))
    valid, read = _foreign()[name]
    damaged = data.draw(changed(valid))
    try:
        read(damaged)
    except MdtError:
        count(f"changed bytes of Hudi, refused: {name}")
    else:
        count(f"changed bytes of Hudi, read: {name}")


def test_valid_bytes_of_hudi_are_read():
    for valid, read in _foreign().values():
        read(valid)


KINDS = [roaring, summary, key_part, plain]


@given(data=st.data())
@examples(50, 10_000)
def test_changed_bytes_of_hudi_give_rows_or_an_mdt_error(data):
    foreign(data)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(150, 10_000)
def test_changed_bytes_give_a_value_or_an_mdt_error(kind, data):
    kind(data)
