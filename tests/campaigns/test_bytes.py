"""Damaged bytes: no flipped bit, truncation or wrong length leads to a wrong snapshot, a foreign
exception or a large allocation.
"""

import json
import struct
import tracemalloc
import zlib
from functools import partial

import pyarrow as pa
import pytest
from counting import count
from reader import bag
from texts import columns

import mdt
from indexes.key_hash import hash_keys
from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi import log_file
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.files.file_group import LOG
from mdt.metadata.key_indexes import find as key_index
from mdt.metadata.log import codec, commit_log
from mdt.metadata.snapshot.checkpoint import checkpoint_of, differing_columns
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, ts int64, v float64")
KEY_INDEXES = {"bloom": b"MDTBLO\x00\x01", "record": b"MDTREC\x00\x03"}
"""Key indexes, and the first bytes of their key parts."""


def _rows(*numbers, ts=1):
    ids = [f"k{n}" for n in numbers]
    return pa.table([ids, [ts] * len(ids), [float(n) for n in numbers]], schema=SCHEMA)


def _table(key_index="record", *, commits=3):
    """Return a table with a base file, a log file with updates, and a log file with deletes."""
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="ts", key_index=key_index)
    table.upsert(_rows(*range(6)))
    if commits > 1:
        table.upsert(_rows(1, 2, ts=2))
    if commits > 2:
        table.delete(pa.table({"id": ["k3", "k4"]}))
    return table


def _read(storage):
    return bag(mdt.open(storage).scan().to_arrow())


def _flips(data, step=1):
    """Yield (byte, ``data`` with one bit of it flipped) for every ``step``-th bit."""
    for bit in range(0, 8 * len(data), step):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(damaged)


def _with(storage, path, data):
    damaged = storage.copy()
    damaged.replace(path, data)
    return damaged


def _problems(table):
    return [problem.path for problem in table.check().problems]


# Commit records

_RECORD = _table().storage.read(paths.commit(2))


@pytest.mark.parametrize("seq", [0, 3])
def test_every_flipped_bit_of_a_commit_record_is_refused(seq):
    data = _table().storage.read(paths.commit(seq))
    for at, damaged in _flips(data):
        with pytest.raises((Corrupt, Unsupported)) as error:
            commit_log.decode(damaged, seq=seq, path="record")
        assert "record" in str(error.value), at
        count("flipped bits of commit records, all refused")


def test_every_truncation_and_extension_of_a_commit_record_is_refused():
    cut = [_RECORD[:length] for length in range(len(_RECORD))]
    for damaged in [*cut, *(_RECORD + tail for tail in (b"\0", _RECORD, bytes(8)))]:
        with pytest.raises(Corrupt, match="record"):
            commit_log.decode(damaged, seq=2, path="record")
    count("truncations of commit records, all refused", len(cut))


def test_a_table_with_a_damaged_record_cannot_be_opened_and_check_names_the_offset():
    table = _table()
    storage, path = table.storage, paths.commit(2)
    data = storage.read(path)
    for _, damaged in _flips(data, step=997):
        with pytest.raises((Corrupt, Unsupported)):
            mdt.open(_with(storage, path, damaged))
    with pytest.raises(Corrupt, match="wrong number"):
        mdt.open(_with(storage, path, storage.read(paths.commit(1))))
    storage.replace(path, data[:100] + b"?" + data[101:])
    assert [p.offset for p in table.check().problems if p.path == path] == [12]


# Compacted metadata and the hint


def _compacted():
    table = _table()
    table.metadata.compact()
    return table.storage, _read(table.storage)


def test_damaged_checkpoints_are_ignored_and_rows_are_read_from_the_log():
    storage, expected = _compacted()
    checkpoints = [info.path for info in storage.list(paths.CHECKPOINTS_DIR)]
    columns = checkpoint_of(mdt.open(storage).snapshot())
    names = [
        name for name in columns.everything() if name != "key_parts"
    ]  # partitioned differently
    assert len(checkpoints) == 2
    for path in checkpoints:
        data = storage.read(path)
        variants = [damaged for _, damaged in _flips(data, step=max(1, len(data) // 4))]
        variants += [data[: len(data) * n // 4] for n in range(4)]
        assert path in _problems(mdt.open(_with(storage, path, variants[0])))
        for damaged in variants:
            copy = _with(storage, path, damaged)
            with pytest.raises(Corrupt):
                mdt.open(copy).metadata.check_checkpoint()
            reader = mdt.open(copy)
            assert bag(reader.scan().to_arrow()) == expected
            assert not differing_columns(columns, checkpoint_of(reader.snapshot()), names)
            reader.snapshot().check()
            count("damaged objects of compacted metadata, all replaced by the log")
        without_object = storage.copy()
        without_object.delete(path)
        assert _read(without_object) == expected


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b'{"seq": null}',
        b'{"seq": -5}',
        b'{"seq": 1e999}',
        b'{"seq": "3"}',
        b'{"seq": 2}',
        b'{"seq": 3.0}',
        b'{"seq": true}',
        b'{"seq": 99999999999999999999999}',
        b"9" * 5000,
        b"[" * 99999,
    ],
    ids=lambda hint: repr(hint[:24]),
)
def test_an_invalid_hint_changes_no_rows(hint):
    storage, expected = _compacted()
    damaged = _with(storage, paths.HINT, hint)
    assert _read(damaged) == expected
    assert not mdt.open(damaged).check().ok
    mdt.open(damaged).upsert(_rows(99))
    assert mdt.open(damaged).scan().count() == sum(expected.values()) + 1


def test_every_flipped_bit_of_the_hint_changes_no_rows():
    storage, expected = _compacted()
    for _, damaged in _flips(storage.read(paths.HINT)):
        assert _read(_with(storage, paths.HINT, damaged)) == expected
        count("flipped bits of hints, none of which changed a row")


# Key maps


def _key_map_of(table):
    snapshot = table.snapshot()
    segments = map(snapshot.segment, snapshot.live_numbers.tolist())
    [stored] = [segment.key_map for segment in segments if segment.key_map is not None]
    return stored


def test_every_flipped_bit_and_truncation_of_a_key_map_is_detected_on_read():
    table = _table(commits=1)
    stored = _key_map_of(table)
    data = table.storage.read(stored.path)
    flipped = [damaged for _, damaged in _flips(data[: stored.length])]
    cut = [data[:length] for length in range(stored.length)]
    for damaged in flipped + cut:
        table.storage.replace(stored.path, damaged)
        with pytest.raises(Corrupt) as error:
            ObjectReader(table.storage).key_map(stored).verify_all()
        assert (error.value.path, error.value.offset) == (stored.path, stored.offset)
    count("flipped bits of key maps, all found", len(flipped))
    count("truncations of key maps, all found", len(cut))


def test_a_damaged_key_map_stops_writers_but_not_readers_and_check_names_it():
    table = _table(commits=1)
    stored, expected = _key_map_of(table), bag(table.scan().to_arrow())
    data = bytearray(table.storage.read(stored.path))
    data[stored.offset + 30] ^= 4
    damaged = mdt.open(_with(table.storage, stored.path, bytes(data)))
    assert bag(damaged.scan().to_arrow()) == expected
    assert damaged.scan("id = 'k1'").count() == 1
    with pytest.raises(Corrupt, match="key map is damaged"):
        damaged.upsert(_rows(1, ts=5))
    assert damaged.snapshot().seq == 1
    assert (stored.path, stored.offset) in {(p.path, p.offset) for p in damaged.check().problems}


# Parts of the key index


def _pairs(index, key_part, keys, hashes):
    located = index.locate(key_part, keys, hashes)
    return set(zip(located.key.tolist(), located.group.tolist(), strict=True))


@pytest.mark.parametrize("name", KEY_INDEXES)
def test_a_damaged_key_part_locates_every_key_or_raises(name):
    index = key_index(name)
    keys = pa.array([f"k{n}" for n in range(8)])
    hashes = hash_keys(keys, 7)
    key_part = index.build(keys, hashes, pa.array([0, 1] * 4).to_numpy(), 2)
    true = _pairs(index, key_part, keys, hashes)
    variants = [damaged for _, damaged in _flips(key_part)]
    variants += [key_part[:n] for n in range(len(key_part))] + [key_part + b"\0", b""]
    for damaged in variants:
        try:
            assert true <= _pairs(index, damaged, keys, hashes), "a key is missing"
        except ValueError:
            pass
        count(f"damaged key parts of the {name} index, no key lost")


@pytest.mark.parametrize("name", KEY_INDEXES)
def test_updates_locate_their_rows_despite_any_damage_to_the_key_part(name):
    table = _table(name, commits=1)
    (key_part,) = table.snapshot().key_parts
    intact = key_part.payload
    for damaged in (b"", intact[:-1], bytes(len(intact)), intact[:40] + b"?" + intact[41:], None):
        copy = _with_external_key_part(table, damaged)
        result = copy.upsert(_rows(1, 2, 77, ts=9))
        assert (result.updated, result.inserted) == (2, 1)
        assert copy.scan().count() == 7
        assert copy.metadata.compact().seq == 2
        if damaged is None:
            assert not [path for path in _problems(copy) if "key_part" in path]
        assert copy.delete(pa.table({"id": ["k1", "k77"]})).deleted == 2
        assert mdt.open(copy.storage).upsert(_rows(0, 2, ts=10)).updated == 2


def _with_external_key_part(table, payload):
    """Return a copy of ``table`` whose only key part is a separate object with the bytes ``payload``.
    None leaves the object out.
    """
    storage = table.storage.copy()
    record = commit_log.read(storage, 1)
    [part] = record.table("key_parts").to_pylist()
    path, crc = paths.attachment(record.instant, "7-1-1"), zlib.crc32(payload or b"")
    stored = {"path": path, "offset": 0, "length": len(payload or b"?"), "crc": crc}
    moved = pa.Table.from_pylist([part | stored | {"payload": None}], schema=commit_log.KEY_PARTS)
    tables = {**record.tables, "key_parts": moved}
    changed = commit_log.CommitRecord(1, record.header, tables)
    storage.replace(paths.commit(1), commit_log.encode(changed))
    if payload is not None:
        storage.replace(path, payload)
    return mdt.open(storage)


# Data files. tests/campaigns/test_flips.py reads and rewrites damaged files in every way


def test_check_reports_every_flipped_bit_of_data_files():
    """In log files, the bits that Parquet's checksums do not cover."""
    table = _table()
    storage, expected = table.storage, bag(table.scan().to_arrow())
    kinds = "flipped bits of Parquet files", "flipped bits in the structure of log files"
    for number, file in enumerate(table.files().to_pylist()):
        name, data, is_log = file["name"], storage.read(file["name"]), file["kind"] == LOG
        parquet = range(file["block_offset"], file["block_offset"] + file["block_length"])
        damages = [(kinds[0], damage) for damage in _flips(data, step=211) if number < 2]
        damages += [(kinds[1], damage) for damage in _flips(data, step=37) if is_log]
        for kind, (at, damaged) in damages:
            if kind == kinds[1] and at in parquet:
                continue
            storage.replace(name, damaged)
            assert name in _problems(table), f"{name}: byte {at}"
            count(f"{kind}, all reported by check")
        storage.replace(name, data)
    assert table.check().ok
    assert bag(table.scan().to_arrow()) == expected


def test_truncated_and_missing_data_files_are_corrupt_and_check_names_them():
    table = _table()
    storage = table.storage
    for name in [f["name"] for f in table.files().to_pylist() if f["rows"]]:
        data = storage.read(name)
        for length in (0, 1, len(data) // 2, len(data) - 1):
            copy = mdt.open(_with(storage, name, data[:length]))
            with pytest.raises(Corrupt):
                copy.scan().to_arrow()
            assert name in _problems(copy)
        without_file = storage.copy()
        without_file.delete(name)
        with pytest.raises(Missing):
            mdt.open(without_file).scan().to_arrow()


# Large allocations


def _assert_refused(error, call, match=None, bytes_max=4 << 20):
    """Assert that a call raises before Python or Arrow allocate ``bytes_max``."""
    pool = pa.default_memory_pool()
    before = pool.max_memory() or 0
    tracemalloc.start()
    try:
        with pytest.raises(error, match=match):
            call()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    arrow_bytes = (pool.max_memory() or 0) - before
    assert max(peak, arrow_bytes) < bytes_max, f"Python allocated {peak} bytes, Arrow {arrow_bytes}"


@pytest.mark.parametrize("length", [2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_wrong_length_is_refused_without_allocating_it(length):
    length_bytes, keys = struct.pack("<Q", length), pa.array(["a"])
    framed = _RECORD[:16] + length_bytes + _RECORD[24:]
    _assert_refused(Corrupt, lambda: commit_log.decode(framed, seq=2, path="record"))
    bomb, most = b"MDTLZ4\0\0" + length_bytes + bytes(64), 1 << 33 if length <= 2**32 else 4 << 20
    _assert_refused(Corrupt, lambda: codec.decode_ipc(bomb, None, path="section"), bytes_max=most)
    if length < 2**63:
        block = b"#HUDI#" + struct.pack(">q", length) + bytes(64)
        _assert_refused(Corrupt, lambda: log_file.parse(block, path="log"))
    for name, magic in KEY_INDEXES.items():
        part = magic + struct.pack("<4Q", length, 1, length, 0) + bytes(64)
        find = partial(_pairs, key_index(name), part, keys, hash_keys(keys, 1))
        _assert_refused(ValueError, find)


def test_a_key_map_or_header_with_a_wrong_length_is_refused_without_allocating_it():
    every_flags = (1 | 8 << 8 | 4 << 16, 0, 2**32 - 1)
    for n in (1, 2**31, 2**60, 2**63, 2**64 - 1):
        for bits in (0, 16, 17, 2**32 - 1):
            for flags in every_flags:
                data = b"MKM4" + struct.pack("<IQI", flags, n, bits) + bytes(28)
                decode = partial(key_map.decode, data, path="keys", offset=0)
                _assert_refused(Corrupt, decode, "wrong length")
    for length in (2**24 + 1, 2**31, 2**32 - 1):
        payload = struct.pack("<II", length, 0) + json.dumps({}).encode()
        unpack = partial(codec.unpack, payload, path="record")
        _assert_refused(Corrupt, unpack, "length is impossible")
