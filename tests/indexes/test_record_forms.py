"""Key parts of ``record/1``: their layout, the bytes that a look-up reads and verifies, the narrow
form with 32 bits of each hash besides those of its shard, and key parts of older versions.
"""

import struct
import zlib

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_hashes import random_hashes

from indexes.base import KeyHashes
from indexes.keys import record
from indexes.keys.record import RecordKeyIndex

INDEX = RecordKeyIndex()
NARROW = record._NARROW_ENTRIES


def build_key_part(hashes, groups=9):
    return INDEX.build(pa.nulls(len(hashes)), hashes, np.arange(len(hashes)) % groups, groups)


def pairs(key_part, hashes):
    found = INDEX.locate(key_part, pa.nulls(len(hashes)), hashes)
    return sorted(zip(found.key.tolist(), found.group.tolist(), strict=True))


def expected_pairs(keys, groups=9):
    """Return the result of looking up ``keys`` in ``build_key_part(hashes, groups)``."""
    return [(at, key % groups) for at, key in enumerate(keys)]


def spread(words):
    words = np.array(words, np.uint64)
    return KeyHashes(words, np.zeros(len(words), np.uint64))


def key_part_of_version(version, hashes, groups, bits):
    """Return the key part of version 1 or 2 with the same entries as ``build_key_part``."""
    order = hashes.order()
    kind = np.dtype("<u4") if version == 1 else np.dtype("u1")
    hi, number = hashes.hi[order].astype("<u8"), (order % groups).astype(kind)
    shards = np.arange((1 << bits) + 1, dtype=np.uint64)
    starts = np.searchsorted(hi >> np.uint64(64 - bits), shards).astype("<u8")
    digest, checks = mmh3.mmh3_x64_128_digest, []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        seed = int.from_bytes(digest(hi[first:last].tobytes(), 0)[:4], "little")
        checks.append(digest(number[first:last].tobytes(), seed)[:8])
    head = struct.pack("<8sQQI", b"MDTREC\0" + bytes([version]), len(hi), groups, bits)
    fan_out = starts.tobytes() + b"".join(checks)
    crc = zlib.crc32(fan_out, zlib.crc32(head))
    return head + struct.pack("<I", crc) + fan_out + hi.tobytes() + number.tobytes()


@pytest.mark.parametrize(
    ("count", "groups", "bits", "width"),
    [
        (100, 1, 0, 9),
        (100, 256, 0, 9),
        (100, 257, 0, 10),
        (100, 65_536, 0, 10),
        (100, 65_537, 0, 12),
        (100, 2**32, 0, 12),
        (NARROW - 1, 9, 4, 9),
        (NARROW, 9, 8, 5),
        (262_144, 9, 8, 5),
        (600_000, 9, 9, 5),
    ],
)
def test_exactly_the_stored_keys_are_found_and_take_as_few_bytes_as_needed(
    count, groups, bits, width
):
    hashes = random_hashes(count)
    group = np.arange(count) % groups
    group[7] = groups - 1
    key_part = INDEX.build(pa.nulls(count), hashes, group, groups)
    assert len(key_part) == 32 + 8 * ((1 << bits) + 1) + (8 << bits) + count * width
    random_rows = np.random.default_rng(3).permutation(count)[:5000]
    for rows in (np.arange(count), random_rows, random_rows[:7], random_rows[:1]):
        assert pairs(key_part, hashes.take(rows)) == list(enumerate(group[rows].tolist()))
    assert pairs(key_part, random_hashes(50_000, seed=2)) == []
    other_hashes = random_hashes(5 * count, seed=4)
    all_hashes = KeyHashes(
        np.append(hashes.hi, other_hashes.hi), np.append(hashes.lo, other_hashes.lo)
    )
    found = pairs(key_part, all_hashes)
    assert found[:count] == list(enumerate(group.tolist()))
    assert len(found) - count <= 9, "on average 0.8 of 3 M keys share 41 bits with one of 600,000"


def test_a_part_of_many_keys_has_the_documented_format():
    n = NARROW + 10
    hashes = random_hashes(n)
    hi = hashes.hi.tolist()
    key_part = build_key_part(hashes, 300)
    magic, count, groups, b, k, crc = struct.unpack_from("<8sQQHHI", key_part)
    assert (magic, count, groups, b, k) == (b"MDTREC\0\3", n, 300, 8, 40)
    end = 32 + 8 * (2**b + 1) + 8 * 2**b
    assert crc == zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28]))
    starts = struct.unpack_from(f"<{2**b + 1}Q", key_part, 32)
    stored_bits = struct.unpack_from(f"<{n}I", key_part, end)
    number = struct.unpack_from(f"<{n}H", key_part, end + 4 * n)
    assert len(key_part) == end + 6 * n
    whole = [s << 32 | word for s in range(2**b) for word in stored_bits[starts[s] : starts[s + 1]]]
    assert whole == sorted(whole)
    expected = sorted((word >> 24, i % 300) for i, word in enumerate(hi))
    assert sorted(zip(whole, number, strict=True)) == expected
    digest = mmh3.mmh3_x64_128_digest
    for s in range(2**b):
        first, last = starts[s], starts[s + 1]
        seed = int.from_bytes(digest(key_part[end + 4 * first : end + 4 * last], 0)[:4], "little")
        check = digest(key_part[end + 4 * n + 2 * first : end + 4 * n + 2 * last], seed)[:8]
        assert check == key_part[32 + 8 * (2**b + 1) + 8 * s :][:8]


def test_only_the_stored_bits_of_a_hash_are_compared():
    hashes = random_hashes(NARROW)
    key_part = build_key_part(hashes, 1)
    for bit, is_found in ((40, True), (39, False)):
        flipped = hashes.hi ^ np.uint64(1 << (63 - bit))
        for rows in (slice(None), slice(500), slice(1)):
            found = pairs(key_part, KeyHashes(flipped[rows], hashes.lo[rows]))
            assert found == (expected_pairs(range(len(flipped[rows])), 1) if is_found else [])


@pytest.mark.parametrize(
    ("version", "count", "bits"), [(1, 900, 0), (2, 600_000, 9)], ids=["version 1", "version 2"]
)
def test_parts_of_older_versions_can_be_read_and_merged_into_new_ones(version, count, bits):
    hashes = random_hashes(count)
    older = key_part_of_version(version, hashes, 9, bits)
    for rows in (np.arange(count), np.arange(0, count, 1000), np.array([5])):
        assert pairs(older, hashes.take(rows)) == expected_pairs(rows.tolist())
    assert pairs(older, KeyHashes(hashes.hi[:500] ^ np.uint64(1), hashes.lo[:500])) == []
    assert INDEX.merge([older], [np.arange(9)], 9) == build_key_part(hashes)


def test_parts_of_all_forms_are_merged_without_losing_keys_or_more_bits_than_necessary():
    parts = [random_hashes(600_000, 1), random_hashes(900, 2), random_hashes(NARROW, 3)]
    key_parts = [
        key_part_of_version(2, parts[0], 9, 9),
        build_key_part(parts[1]),
        build_key_part(parts[2]),
    ]
    for chosen, known_bits in (
        ([0], 41),
        ([1], 64),
        ([2], 40),
        ([0, 1], 41),
        ([1, 2], 40),
        ([0, 1, 2], 40),
    ):
        renumbered = [np.arange(9) + 9 * n for n in range(len(chosen))]
        merged = INDEX.merge([key_parts[n] for n in chosen], renumbered, 9 * len(chosen))
        assert record._open(merged).form.known_bits == known_bits
        for part_number, n in enumerate(chosen):
            expected = [
                (at, group + 9 * part_number) for at, group in expected_pairs(range(len(parts[n])))
            ]
            assert pairs(merged, parts[n]) == expected
    filtered = INDEX.merge([key_parts[2]], [np.where(np.arange(9) == 4, 0, -1)], 1)
    form = record._open(filtered).form
    assert len(filtered) < 9 * NARROW and (form.width, form.known_bits) == (8, 40)
    assert pairs(filtered, parts[2]) == [(key, 0) for key in range(4, NARROW, 9)]


def test_a_key_part_can_be_read_at_any_alignment():
    hashes = random_hashes(3000)
    for shift in range(1, 8):
        view = memoryview(b"\0" * shift + build_key_part(hashes))[shift:]
        assert pairs(view, hashes) == expected_pairs(range(3000))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4)), max_size=200))
def test_each_group_of_hashes_with_the_same_known_bits_is_found_once(rows):
    """rows: Upper bits, unknown bits and group of each of few keys among many."""
    all_words = np.append(
        np.array([(upper << 62) | unknown for upper, unknown, _ in rows], np.uint64),
        random_hashes(NARROW).hi,
    )
    groups = np.append(np.array([group for _, _, group in rows], int), np.full(NARROW, 5))
    key_part = INDEX.build(pa.nulls(len(all_words)), spread(all_words), groups, 6)
    for upper in {upper for upper, _, _ in rows}:
        expected = sorted({group for u, _, group in rows if u == upper})
        for words in ([upper << 62], [upper << 62, 7 << 60, (upper << 62) | 3]):
            found = [
                pair for pair in pairs(key_part, spread(words)) if pair[0] == 0 and pair[1] < 5
            ]
            assert found == [(0, group) for group in expected]
    by_group = [spread(all_words[groups == group]) for group in range(6)]
    assert (
        INDEX.build_of_groups([pa.nulls(len(hashes)) for hashes in by_group], by_group) == key_part
    )


HASHES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40),
    st.integers(2**64 - 40, 2**64 - 1),
    st.integers(2**63 - 20, 2**63 + 20),
)
"""Evenly spread like the hashes of keys, and close to each other."""


@settings(max_examples=150)
@given(
    st.lists(st.tuples(HASHES, st.integers(0, 4)), max_size=80),
    st.lists(HASHES, min_size=2, max_size=60),
    st.sampled_from([1, 4, 2048]),
    st.sampled_from([1, 4, 64]),
    st.booleans(),
)
def test_a_look_up_finds_every_group_for_any_distribution_of_hashes(
    entries, requests, per_shard, near, is_opened
):
    numbers = np.array([group for _, group in entries], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_SHARD_ENTRIES", per_shard)
        patch.setattr(record, "_NEAR", near)
        words = spread([word for word, _ in entries])
        key_part = INDEX.build(pa.nulls(len(words)), words, numbers, 5)
        found = pairs(INDEX.opened(key_part) if is_opened else key_part, spread(requests))
    expected = {
        (key, group)
        for key, requested in enumerate(requests)
        for word, group in entries
        if word == requested
    }
    assert found == sorted(expected)


def shard_of_hash(key_part, hashes):
    """Return the start and end of the only shard that a look-up of one hash needs."""
    key_part_reader = record._open(key_part)
    shard = int(hashes.hi[0]) >> (64 - key_part_reader.form.bits)
    return (int(at) for at in key_part_reader.starts[shard : shard + 2])


def test_a_look_up_detects_every_flipped_bit_that_it_depends_on():
    hashes = random_hashes(6000)
    key_part, looked_up = build_key_part(hashes), hashes.take(np.array([77]))
    start, end = shard_of_hash(key_part, looked_up)
    hashes_at, groups_at = len(key_part) - 9 * 6000, len(key_part) - 6000
    for byte in (
        *range(hashes_at),
        *range(hashes_at + 8 * start, hashes_at + 8 * end, 97),
        *range(groups_at + start, groups_at + end, 13),
    ):
        damaged = bytearray(key_part)
        damaged[byte] ^= 1 << byte % 8
        with pytest.raises(ValueError, match="record key part"):
            pairs(bytes(damaged), looked_up)


def test_a_look_up_does_not_depend_on_hashes_or_groups_of_other_shards():
    hashes = random_hashes(20_000)
    key_part = build_key_part(hashes)
    hashes_at, groups_at = len(key_part) - 9 * 20_000, len(key_part) - 20_000
    for row in range(0, 20_000, 1999):
        start, end = shard_of_hash(key_part, hashes.take(np.array([row])))
        damaged = bytearray(key_part)
        damaged[hashes_at : hashes_at + 8 * start] = b"\xff" * (8 * start)
        damaged[hashes_at + 8 * end : groups_at + start] = bytes(
            groups_at + start - hashes_at - 8 * end
        )
        for times in (1, 2):
            assert pairs(bytes(damaged), hashes.take(np.array([row] * times))) == expected_pairs(
                [row] * times
            )
        with pytest.raises(ValueError, match="shard"):
            INDEX.merge([bytes(damaged)], [np.arange(9)], 9)


def test_an_opened_key_part_verifies_each_shard_once_and_detects_later_damage_in_others():
    hashes = random_hashes(60_000)
    key_part = build_key_part(hashes)
    damaged = bytearray(key_part)
    opened = INDEX.opened(memoryview(damaged))
    ordered = hashes.take(hashes.order())
    expected = pairs(key_part, ordered)
    first_hashes = ordered.take(np.arange(20_000))
    assert pairs(opened, first_hashes) == expected[:20_000]
    assert 0 < opened.verified.sum() < len(opened.verified)
    damaged[-1] ^= 1
    assert pairs(opened, first_hashes) == expected[:20_000]
    for _ in range(2):
        with pytest.raises(ValueError, match=f"shard {len(opened.verified) - 1} is damaged"):
            pairs(opened, ordered)
    damaged[-1] ^= 1
    for _ in range(2):
        assert pairs(opened, ordered) == expected
    assert opened.verified.all()


@pytest.mark.parametrize("known", [0, 39, 41, 64, 65, 2**16 - 1])
def test_a_part_with_an_impossible_number_of_known_bits_is_refused(known):
    key_part = bytearray(build_key_part(random_hashes(NARROW), 1))
    key_part[26:28] = struct.pack("<H", known)
    end = 32 + 8 * 257 + 8 * 256
    key_part[28:32] = struct.pack("<I", zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28])))
    with pytest.raises(ValueError, match="bits of hashes"):
        pairs(bytes(key_part), random_hashes(1))
