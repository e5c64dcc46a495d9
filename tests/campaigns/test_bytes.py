"""Damaged bytes: no flipped bit, truncation or lying length gives a wrong snapshot, a foreign
exception or a bomb.
"""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader import Bag, bag

import mdt
from indexes.base import KeyHashes
from indexes.key_hash import hash_keys
from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi import log_file
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.files.file_group import LOG
from mdt.metadata.key_indexes import find as key_index
from mdt.metadata.log import codec, commit_log
from mdt.metadata.log.checkpoint_columns import BuiltColumns
from mdt.metadata.snapshot.checkpoint import checkpoint_of, differing
from mdt.metadata.snapshot.checkpoints import MANIFEST
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
KEY_INDEXES = ("bloom", "record")


def _rows(*numbers: int, ts: int = 1) -> pa.Table:
    ids = [f"k{n}" for n in numbers]
    return pa.table([ids, [ts] * len(ids), [float(n) for n in numbers]], schema=SCHEMA)


def _table(key_index: str = "record", *, commits: int = 3) -> mdt.Table:
    """Return a table of a base file, a log file with updates, and one with deletes."""
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="ts", key_index=key_index)
    table.upsert(_rows(*range(6)))
    if commits > 1:
        table.upsert(_rows(1, 2, ts=2))
    if commits > 2:
        table.delete(pa.table({"id": ["k3", "k4"]}))
    return table


def _read(storage: MemoryStorage) -> Bag:
    return bag(mdt.open(storage).scan().to_arrow())


def _flips(data: bytes, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield (byte, ``data`` with one bit of it flipped) for every ``step``-th bit."""
    for bit in range(0, 8 * len(data), step):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(damaged)


def _with(storage: MemoryStorage, path: str, data: bytes) -> MemoryStorage:
    damaged = storage.copy()
    damaged.replace(path, data)
    return damaged


# Commit records


@pytest.mark.parametrize("seq", [0, 3])
def test_every_flipped_bit_of_a_commit_record_is_refused(seq: int) -> None:
    data = _table().storage.read(paths.commit(seq))
    for at, damaged in _flips(data):
        with pytest.raises((Corrupt, Unsupported)) as caught:
            commit_log.decode(damaged, seq=seq, path="record")
        assert "record" in str(caught.value), at
        count("flipped bits of commit records, all refused")


def test_every_truncation_and_extension_of_a_commit_record_is_refused() -> None:
    data = _table().storage.read(paths.commit(2))
    for length in range(len(data)):
        with pytest.raises(Corrupt, match="record"):
            commit_log.decode(data[:length], seq=2, path="record")
        count("truncations of commit records, all refused")
    for tail in (b"\0", data, bytes(8)):
        with pytest.raises(Corrupt):
            commit_log.decode(data + tail, seq=2, path="record")


def test_a_commit_record_under_another_number_is_refused() -> None:
    storage = _table().storage
    assert isinstance(storage, MemoryStorage)
    with pytest.raises(Corrupt, match="wrong number"):
        mdt.open(_with(storage, paths.commit(2), storage.read(paths.commit(1))))


def test_a_table_with_a_damaged_record_is_not_opened_and_check_names_the_byte() -> None:
    table = _table()
    storage = table.storage
    assert isinstance(storage, MemoryStorage)
    data = storage.read(paths.commit(2))
    for _, damaged in _flips(data, step=997):
        with pytest.raises((Corrupt, Unsupported)):
            mdt.open(_with(storage, paths.commit(2), damaged))
    storage.replace(paths.commit(2), data[:100] + b"?" + data[101:])
    problems = table.check().problems
    assert [(p.path, p.offset) for p in problems if p.path == paths.commit(2)] == [
        (paths.commit(2), 12)
    ]


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_well_framed_record_with_senseless_content_is_corrupt(data: st.DataObject) -> None:
    good = commit_log.decode(_RECORD, seq=2, path="record")
    text = st.text(max_size=3) | st.integers() | st.none() | st.lists(st.integers(), max_size=2)
    header = {**good.header, "seq": 2} | data.draw(
        st.dictionaries(st.sampled_from(["seq", "txn", "x"]), text, max_size=2)
    )
    for name in data.draw(
        st.lists(st.sampled_from(["txn", "instant", "action", "seq"]), max_size=2)
    ):
        header.pop(name, None)
    sections = {name: codec.encode_ipc(table).to_pybytes() for name, table in good.tables.items()}
    for name in data.draw(st.lists(st.sampled_from(sorted(sections)), min_size=1, max_size=3)):
        sections[name] = (
            data.draw(st.binary(max_size=40)) + sections[name][data.draw(st.integers(0, 200)) :]
        )
    framed = codec.frame(commit_log.KIND, 1, codec.pack(header, sections))
    try:
        commit_log.decode(framed, seq=2, path="record")
    except Corrupt:
        count("well-framed records with senseless content, refused")


_RECORD = _table().storage.read(paths.commit(2))


# Compacted metadata and the hint


def _compacted() -> tuple[MemoryStorage, Bag]:
    table = _table()
    table.metadata.compact()
    storage = table.storage
    assert isinstance(storage, MemoryStorage)
    return storage, _read(storage)


def _assert_folded_as(table: mdt.Table, expected: BuiltColumns) -> None:
    """Read everything that the metadata say of a table and compare it; key parts may be cut in
    another way.
    """
    assert not differing(
        expected,
        checkpoint_of(table.snapshot()),
        [name for name in expected.everything() if name != "key_parts"],
    )


def test_damaged_compacted_metadata_give_the_same_rows_from_the_log() -> None:
    storage, expected = _compacted()
    checkpoints = [info.path for info in storage.list(paths.checkpoints_dir())]
    columns = checkpoint_of(mdt.open(storage).snapshot())
    assert len(checkpoints) == 2
    for path in checkpoints:
        data = storage.read(path)
        variants = [damaged for _, damaged in _flips(data, step=max(1, len(data) // 4))]
        variants += [data[: len(data) * n // 4] for n in range(4)]
        assert path in [
            p.path for p in mdt.open(_with(storage, path, variants[0])).check().problems
        ]
        for damaged in variants:
            copy = _with(storage, path, damaged)
            with pytest.raises(Corrupt):
                mdt.open(copy).metadata.check_checkpoint()
            opened = mdt.open(copy)
            assert bag(opened.scan().to_arrow()) == expected
            _assert_folded_as(opened, columns)
            opened.snapshot().check()
            count("damaged objects of compacted metadata, all replaced by the log")
        gone = storage.copy()
        gone.delete(path)
        assert _read(gone) == expected


def test_every_flipped_bit_of_a_base_manifest_is_refused() -> None:
    storage, _ = _compacted()
    path = paths.checkpoint_manifest(3)
    for _, damaged in _flips(storage.read(path)):
        with pytest.raises(Corrupt):
            codec.unframe(damaged, MANIFEST, path=path, version_max=1)
        count("flipped bits of base manifests, all refused")


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
def test_a_senseless_hint_changes_no_rows(hint: bytes) -> None:
    storage, expected = _compacted()
    damaged = _with(storage, paths.hint(), hint)
    assert _read(damaged) == expected
    assert not mdt.open(damaged).check().ok
    mdt.open(damaged).upsert(_rows(99))
    assert mdt.open(damaged).scan().count() == sum(expected.values()) + 1


def test_every_flipped_bit_of_the_hint_changes_no_rows() -> None:
    storage, expected = _compacted()
    for _, damaged in _flips(storage.read(paths.hint())):
        assert _read(_with(storage, paths.hint(), damaged)) == expected
        count("flipped bits of hints, none of which changed a row")


# Key maps


def _key_map_objects(table: mdt.Table) -> list[ObjectRange]:
    snapshot = table.snapshot()
    return [
        stored
        for i in snapshot.live_numbers.tolist()
        if (stored := snapshot.segment(i).key_map) is not None
    ]


def test_every_flipped_bit_of_a_key_map_is_found_when_it_is_read() -> None:
    table = _table(commits=1)
    storage = table.storage
    assert isinstance(storage, MemoryStorage)
    (stored,) = _key_map_objects(table)
    data = storage.read(stored.path)
    for _, damaged in _flips(data[: stored.length]):
        storage.replace(stored.path, damaged)
        with pytest.raises(Corrupt) as caught:
            ObjectReader(storage).key_map(stored).whole()
        assert (caught.value.path, caught.value.offset) == (stored.path, stored.offset)
        count("flipped bits of key maps, all found")
    for length in range(stored.length):
        storage.replace(stored.path, data[:length])
        with pytest.raises(Corrupt):
            ObjectReader(storage).key_map(stored).whole()
        count("truncations of key maps, all found")


def test_a_damaged_key_map_stops_writers_but_no_reader_and_check_names_it() -> None:
    table = _table(commits=1)
    storage, expected = table.storage, bag(table.scan().to_arrow())
    assert isinstance(storage, MemoryStorage)
    (stored,) = _key_map_objects(table)
    data = bytearray(storage.read(stored.path))
    data[stored.offset + 30] ^= 4
    damaged = mdt.open(_with(storage, stored.path, bytes(data)))
    assert bag(damaged.scan().to_arrow()) == expected
    assert damaged.scan("id = 'k1'").count() == 1
    with pytest.raises(Corrupt, match="key map is damaged"):
        damaged.upsert(_rows(1, ts=5))
    assert damaged.snapshot().seq == 1
    assert (stored.path, stored.offset) in {(p.path, p.offset) for p in damaged.check().problems}


def test_a_key_map_that_lies_about_its_length_is_refused_before_anything_is_allocated() -> None:
    for n in (1, 2**31, 2**60, 2**63, 2**64 - 1):
        for bits in (0, 16, 17, 2**32 - 1):
            for magic, flags in (
                (b"MKM2", 1),
                (b"MKM4", 1 | 8 << 8 | 4 << 16),
                (b"MKM4", 0),
                (b"MKM3", 2**32 - 1),
            ):
                data = magic + struct.pack("<IQI", flags, n, bits) + bytes(28)
                with pytest.raises(Corrupt, match="wrong length"):
                    _bounded(lambda data=data: key_map.decode(data, path="keys", offset=0))


# Parts of the key index


@pytest.mark.parametrize("name", KEY_INDEXES)
def test_a_damaged_key_part_proposes_every_key_or_is_refused(name: str) -> None:
    index = key_index(name)
    keys = pa.array([f"k{n}" for n in range(8)])
    hashes = hash_keys(keys, 7)
    key_part = index.build(keys, hashes, pa.array([0, 1] * 4).to_numpy(), 2)
    true = _pairs(index, key_part, keys, hashes)
    variants = (
        [damaged for _, damaged in _flips(key_part)]
        + [key_part[:n] for n in range(len(key_part))]
        + [key_part + b"\0", b""]
    )
    for damaged in variants:
        try:
            found = _pairs(index, damaged, keys, hashes)
        except ValueError:
            found = true
        assert true <= found, "a damaged key part has lost a key"
        count(f"damaged key parts of the {name} index, no key lost")


def _pairs(index: Any, key_part: bytes, keys: Any, hashes: KeyHashes) -> set[tuple[int, int]]:
    found = index.locate(key_part, keys, hashes)
    return set(zip(found.key.tolist(), found.group.tolist(), strict=True))


@pytest.mark.parametrize("name", KEY_INDEXES)
def test_updates_find_their_rows_whatever_happened_to_the_key_part(name: str) -> None:
    table = _table(name, commits=1)
    snapshot = table.snapshot()
    (key_part,) = snapshot.key_parts
    assert key_part.payload is not None
    for damaged in (
        b"",
        key_part.payload[:-1],
        bytes(len(key_part.payload)),
        key_part.payload[:40] + b"?" + key_part.payload[41:],
    ):
        copy = _moved_out(table, damaged)
        result = copy.upsert(_rows(1, 2, 77, ts=9))
        assert (result.updated, result.inserted) == (2, 1)
        assert copy.scan().count() == 7
        assert copy.metadata.compact().seq == 2
        assert copy.delete(pa.table({"id": ["k1", "k77"]})).deleted == 2
        assert mdt.open(copy.storage).upsert(_rows(0, 2, ts=10)).updated == 2


def _moved_out(table: mdt.Table, payload: bytes | None) -> mdt.Table:
    """Return a copy of ``table`` whose only key part is an object of its own, with the bytes
    ``payload`` (None: no object).
    """
    storage = table.storage
    assert isinstance(storage, MemoryStorage)
    storage = storage.copy()
    record = commit_log.read(storage, 1)
    assert record is not None
    key_parts = record.table("key_parts").to_pylist()
    path = paths.attachment(record.instant, "7-1-1")
    stored = {
        "path": path,
        "offset": 0,
        "length": len(payload or b"?"),
        "crc": zlib.crc32(payload or b""),
    }
    moved = pa.Table.from_pylist(
        [key_parts[0] | stored | {"payload": None}], schema=commit_log.KEY_PARTS
    )
    storage.replace(
        paths.commit(1),
        commit_log.encode(
            commit_log.CommitRecord(1, record.header, {**record.tables, "key_parts": moved})
        ),
    )
    if payload is not None:
        storage.replace(path, payload)
    return mdt.open(storage)


@pytest.mark.parametrize("name", KEY_INDEXES)
def test_updates_find_their_rows_when_the_key_part_is_gone(name: str) -> None:
    copy = _moved_out(_table(name, commits=1), None)
    assert copy.upsert(_rows(1, 2, 77, ts=9)).updated == 2
    assert copy.metadata.compact().seq == 2
    assert copy.upsert(_rows(1, 77, ts=10)).updated == 2
    problems = copy.check().problems
    assert [p.path for p in problems if "key_part" in p.path] == []


# Log files


def test_check_reports_every_flipped_bit_in_the_structure_of_a_log_file() -> None:
    table = _table()
    storage = table.storage
    for file in table.files().to_pylist():
        if file["kind"] != LOG:
            continue
        data = storage.read(file["name"])
        parquet = range(file["block_offset"], file["block_offset"] + file["block_length"])
        for at, damaged in _flips(data, step=37):
            if at not in parquet:
                storage.replace(file["name"], damaged)
                assert file["name"] in [p.path for p in table.check().problems], (
                    f"{file['name']}: byte {at}"
                )
                count("flipped bits in the structure of log files, all reported by check")
        storage.replace(file["name"], data)
    assert table.check().ok


@pytest.mark.parametrize("number", [0, 1])
def test_every_flipped_bit_of_a_parquet_file_is_reported_by_check(number: int) -> None:
    table = _table()
    storage, name, expected = (
        table.storage,
        table.files()["name"][number].as_py(),
        bag(table.scan().to_arrow()),
    )
    data = storage.read(name)
    for at, damaged in _flips(data, step=211):
        storage.replace(name, damaged)
        assert name in [p.path for p in table.check().problems], f"{name}: byte {at}"
        count("flipped bits of Parquet files, all reported by check")
    storage.replace(name, data)
    assert table.check().ok
    assert bag(table.scan().to_arrow()) == expected


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_damaged_parquet_file_raises_corrupt_or_is_read_but_nothing_else_happens(
    data: st.DataObject,
) -> None:
    name = _READ_ONLY.files()["name"][0].as_py()
    good = _READ_ONLY.storage.read(name)
    at = data.draw(st.integers(0, len(good) - 1))
    junk = data.draw(st.binary(min_size=1, max_size=20))
    storage = _READ_ONLY.storage
    assert isinstance(storage, MemoryStorage)
    damaged = mdt.open(
        _with(storage, name, (good[:at] + junk + good[at + len(junk) :])[: len(good)])
    )
    try:
        damaged.scan().to_arrow()
        damaged.scan("v > 2 and id like 'k%'").count()
        damaged.upsert(_rows(1, 2, ts=8))
        damaged.compact()
    except Corrupt as error:
        assert error.path == name
    damaged.check()
    count("Parquet files with junk in them, read or refused as Corrupt")


_READ_ONLY = _table()


def test_truncated_and_missing_data_files_are_corrupt_and_check_names_them() -> None:
    table = _table()
    storage = table.storage
    assert isinstance(storage, MemoryStorage)
    for name in [f["name"] for f in table.files().to_pylist() if f["rows"]]:
        data = storage.read(name)
        for length in (0, 1, len(data) // 2, len(data) - 1):
            copy = mdt.open(_with(storage, name, data[:length]))
            with pytest.raises(Corrupt):
                copy.scan().to_arrow()
            assert name in [p.path for p in copy.check().problems]
        gone = storage.copy()
        gone.delete(name)
        with pytest.raises(Missing):
            mdt.open(gone).scan().to_arrow()


# Bombs


def _bounded(call: Any, bytes_max: int = 4 << 20) -> Any:
    """Return what ``call`` returns; fails if Python or Arrow allocate more than ``bytes_max`` on
    the way.
    """
    pool = pa.default_memory_pool()
    before = pool.max_memory() or 0
    tracemalloc.start()
    try:
        return call()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < bytes_max, f"Python allocated {peak} bytes"
        grown = (pool.max_memory() or 0) - before
        assert grown < bytes_max, f"Arrow allocated {grown} bytes"


@pytest.mark.parametrize("length", [2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_that_lies_allocates_nothing(length: int) -> None:
    framed = bytearray(_RECORD)
    framed[16:24] = struct.pack("<Q", length)
    with pytest.raises(Corrupt):
        _bounded(lambda: commit_log.decode(bytes(framed), seq=2, path="record"))
    bomb = b"MDTLZ4\0\0" + struct.pack("<Q", length) + bytes(64)
    with pytest.raises(Corrupt):
        _bounded(
            lambda: codec.decode_ipc(bomb, None, path="section"),
            1 << 33 if length <= 2**32 else 4 << 20,
        )
    if length < 2**63:
        block = b"#HUDI#" + struct.pack(">q", length) + bytes(64)
        with pytest.raises(Corrupt):
            _bounded(lambda: log_file.parse(block, path="log"))
    for index in KEY_INDEXES:
        magic = {"bloom": b"MDTBLO\x00\x01", "record": b"MDTREC\x00\x03"}[index]
        key_part = magic + struct.pack("<4Q", length, 1, length, 0) + bytes(64)
        keys = pa.array(["a"])
        with pytest.raises(ValueError):
            _bounded(
                lambda index=index, key_part=key_part, keys=keys: _pairs(
                    key_index(index), key_part, keys, hash_keys(keys, 1)
                )
            )


def test_a_header_that_claims_to_be_long_allocates_nothing() -> None:
    for length in (2**24 + 1, 2**31, 2**32 - 1):
        payload = struct.pack("<II", length, 0) + json.dumps({}).encode()
        with pytest.raises(Corrupt, match="length is impossible"):
            _bounded(lambda payload=payload: codec.unpack(payload, path="record"))
