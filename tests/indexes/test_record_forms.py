"""Key parts of ``record/1``: how they are laid out, what a look-up reads and verifies, those that
have 32 bits of each hash beside those of its shard, and those that other versions left.
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


def made(hashes, groups=9):
    return INDEX.build(pa.nulls(len(hashes)), hashes, np.arange(len(hashes)) % groups, groups)


def pairs(key_part, hashes):
    found = INDEX.locate(key_part, pa.nulls(len(hashes)), hashes)
    return sorted(zip(found.key.tolist(), found.group.tolist(), strict=True))


def those_of(keys, groups=9):
    """Return what is found where the hashes of ``keys`` are looked up in ``made(hashes, groups)``."""
    return [(at, key % groups) for at, key in enumerate(keys)]


def spread(words):
    words = np.array(words, np.uint64)
    return KeyHashes(words, np.zeros(len(words), np.uint64))


def of_version(version, hashes, groups, bits):
    """Return the key part that version 1 or 2 had of ``made(hashes, groups)``."""
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
def test_every_key_is_found_and_no_other_in_as_few_bytes_as_are_needed(count, groups, bits, width):
    hashes = random_hashes(count)
    group = np.arange(count) % groups
    group[7] = groups - 1
    key_part = INDEX.build(pa.nulls(count), hashes, group, groups)
    assert len(key_part) == 32 + 8 * ((1 << bits) + 1) + (8 << bits) + count * width
    some = np.random.default_rng(3).permutation(count)[:5000]
    for asked in (np.arange(count), some, some[:7], some[:1]):
        assert pairs(key_part, hashes.take(asked)) == list(enumerate(group[asked].tolist()))
    assert pairs(key_part, random_hashes(50_000, seed=2)) == []
    others = random_hashes(5 * count, seed=4)
    many = KeyHashes(np.append(hashes.hi, others.hi), np.append(hashes.lo, others.lo))
    found = pairs(key_part, many)
    assert found[:count] == list(enumerate(group.tolist()))
    assert len(found) - count <= 9, "some 0.8 of 3 M keys have 41 bits of one of 600,000"


def test_a_part_of_many_keys_is_as_the_format_page_says():
    n = NARROW + 10
    hashes = random_hashes(n)
    hi = hashes.hi.tolist()
    key_part = made(hashes, 300)
    magic, count, groups, b, k, crc = struct.unpack_from("<8sQQHHI", key_part)
    assert (magic, count, groups, b, k) == (b"MDTREC\0\3", n, 300, 8, 40)
    end = 32 + 8 * (2**b + 1) + 8 * 2**b
    assert crc == zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28]))
    starts = struct.unpack_from(f"<{2**b + 1}Q", key_part, 32)
    known = struct.unpack_from(f"<{n}I", key_part, end)
    number = struct.unpack_from(f"<{n}H", key_part, end + 4 * n)
    assert len(key_part) == end + 6 * n
    whole = [s << 32 | word for s in range(2**b) for word in known[starts[s] : starts[s + 1]]]
    assert whole == sorted(whole)
    expected = sorted((word >> 24, i % 300) for i, word in enumerate(hi))
    assert sorted(zip(whole, number, strict=True)) == expected
    digest = mmh3.mmh3_x64_128_digest
    for s in range(2**b):
        first, last = starts[s], starts[s + 1]
        seed = int.from_bytes(digest(key_part[end + 4 * first : end + 4 * last], 0)[:4], "little")
        check = digest(key_part[end + 4 * n + 2 * first : end + 4 * n + 2 * last], seed)[:8]
        assert check == key_part[32 + 8 * (2**b + 1) + 8 * s :][:8]


def test_the_known_bits_decide():
    hashes = random_hashes(NARROW)
    key_part = made(hashes, 1)
    for bit, is_found in ((40, True), (39, False)):
        asked = hashes.hi ^ np.uint64(1 << (63 - bit))
        for some in (slice(None), slice(500), slice(1)):
            found = pairs(key_part, KeyHashes(asked[some], hashes.lo[some]))
            assert found == (those_of(range(len(asked[some])), 1) if is_found else [])


@pytest.mark.parametrize(
    ("version", "count", "bits"), [(1, 900, 0), (2, 600_000, 9)], ids=["version 1", "version 2"]
)
def test_parts_of_older_versions_answer_and_are_merged_into_new_ones(version, count, bits):
    hashes = random_hashes(count)
    older = of_version(version, hashes, 9, bits)
    for asked in (np.arange(count), np.arange(0, count, 1000), np.array([5])):
        assert pairs(older, hashes.take(asked)) == those_of(asked.tolist())
    assert pairs(older, KeyHashes(hashes.hi[:500] ^ np.uint64(1), hashes.lo[:500])) == []
    assert INDEX.merge([older], [np.arange(9)], 9) == made(hashes)


def test_parts_of_all_forms_are_merged_and_lose_no_key_and_no_more_bits_than_they_must():
    parts = [random_hashes(600_000, 1), random_hashes(900, 2), random_hashes(NARROW, 3)]
    key_parts = [of_version(2, parts[0], 9, 9), made(parts[1]), made(parts[2])]
    for chosen, known in (
        ([0], 41),
        ([1], 64),
        ([2], 40),
        ([0, 1], 41),
        ([1, 2], 40),
        ([0, 1, 2], 40),
    ):
        renumbered = [np.arange(9) + 9 * n for n in range(len(chosen))]
        merged = INDEX.merge([key_parts[n] for n in chosen], renumbered, 9 * len(chosen))
        assert record._open(merged).form.known_bits == known
        for place, n in enumerate(chosen):
            expected = [(at, group + 9 * place) for at, group in those_of(range(len(parts[n])))]
            assert pairs(merged, parts[n]) == expected
    few = INDEX.merge([key_parts[2]], [np.where(np.arange(9) == 4, 0, -1)], 1)
    form = record._open(few).form
    assert len(few) < 9 * NARROW and (form.width, form.known_bits) == (8, 40)
    assert pairs(few, parts[2]) == [(key, 0) for key in range(4, NARROW, 9)]


def test_a_key_part_works_at_any_alignment():
    hashes = random_hashes(3000)
    for shift in range(1, 8):
        view = memoryview(b"\0" * shift + made(hashes))[shift:]
        assert pairs(view, hashes) == those_of(range(3000))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4)), max_size=200))
def test_hashes_with_the_same_known_bits_give_each_group_once(rows):
    """Upper bits, unknown bits and group of each of few keys among many."""
    every = np.append(
        np.array([(upper << 62) | unknown for upper, unknown, _ in rows], np.uint64),
        random_hashes(NARROW).hi,
    )
    groups = np.append(np.array([group for _, _, group in rows], int), np.full(NARROW, 5))
    key_part = INDEX.build(pa.nulls(len(every)), spread(every), groups, 6)
    for upper in {upper for upper, _, _ in rows}:
        expected = sorted({group for u, _, group in rows if u == upper})
        for asked in ([upper << 62], [upper << 62, 7 << 60, (upper << 62) | 3]):
            found = [
                pair for pair in pairs(key_part, spread(asked)) if pair[0] == 0 and pair[1] < 5
            ]
            assert found == [(0, group) for group in expected]
    by_group = [spread(every[groups == group]) for group in range(6)]
    assert INDEX.build_of_groups([pa.nulls(len(one)) for one in by_group], by_group) == key_part


HASHES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40),
    st.integers(2**64 - 40, 2**64 - 1),
    st.integers(2**63 - 20, 2**63 + 20),
)
"""Spread evenly, as those of keys are, and side by side."""


@settings(max_examples=150)
@given(
    st.lists(st.tuples(HASHES, st.integers(0, 4)), max_size=80),
    st.lists(HASHES, min_size=2, max_size=60),
    st.sampled_from([1, 4, 2048]),
    st.sampled_from([1, 4, 64]),
    st.booleans(),
)
def test_a_look_up_finds_every_group_however_hashes_are_spread(
    entries, asked, per_shard, near, is_opened
):
    numbers = np.array([group for _, group in entries], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_SHARD_ENTRIES", per_shard)
        patch.setattr(record, "_NEAR", near)
        words = spread([word for word, _ in entries])
        key_part = INDEX.build(pa.nulls(len(words)), words, numbers, 5)
        found = pairs(INDEX.opened(key_part) if is_opened else key_part, spread(asked))
    expected = {
        (key, group) for key, one in enumerate(asked) for word, group in entries if word == one
    }
    assert found == sorted(expected)


def shard_of(key_part, one):
    """Return where the only shard that a look-up of one hash needs begins and ends."""
    opened = record._open(key_part)
    shard = int(one.hi[0]) >> (64 - opened.form.bits)
    return (int(at) for at in opened.starts[shard : shard + 2])


def test_a_look_up_detects_every_flipped_bit_that_it_depends_on():
    hashes = random_hashes(6000)
    key_part, one = made(hashes), hashes.take(np.array([77]))
    start, end = shard_of(key_part, one)
    hashes_at, groups_at = len(key_part) - 9 * 6000, len(key_part) - 6000
    for byte in (
        *range(hashes_at),
        *range(hashes_at + 8 * start, hashes_at + 8 * end, 97),
        *range(groups_at + start, groups_at + end, 13),
    ):
        damaged = bytearray(key_part)
        damaged[byte] ^= 1 << byte % 8
        with pytest.raises(ValueError, match="record key part"):
            pairs(bytes(damaged), one)


def test_a_look_up_reads_no_hash_and_no_group_of_another_shard():
    hashes = random_hashes(20_000)
    key_part = made(hashes)
    hashes_at, groups_at = len(key_part) - 9 * 20_000, len(key_part) - 20_000
    for row in range(0, 20_000, 1999):
        start, end = shard_of(key_part, hashes.take(np.array([row])))
        damaged = bytearray(key_part)
        damaged[hashes_at : hashes_at + 8 * start] = b"\xff" * (8 * start)
        damaged[hashes_at + 8 * end : groups_at + start] = bytes(
            groups_at + start - hashes_at - 8 * end
        )
        for times in (1, 2):
            assert pairs(bytes(damaged), hashes.take(np.array([row] * times))) == those_of(
                [row] * times
            )
        with pytest.raises(ValueError, match="shard"):
            INDEX.merge([bytes(damaged)], [np.arange(9)], 9)


def test_an_opened_key_part_verifies_each_shard_once_and_finds_damage_in_those_it_has_not_seen():
    hashes = random_hashes(60_000)
    key_part = made(hashes)
    damaged = bytearray(key_part)
    opened = INDEX.opened(memoryview(damaged))
    ordered = hashes.take(hashes.order())
    expected = pairs(key_part, ordered)
    some = ordered.take(np.arange(20_000))
    assert pairs(opened, some) == expected[:20_000]
    assert 0 < opened.verified.sum() < len(opened.verified)
    damaged[-1] ^= 1
    assert pairs(opened, some) == expected[:20_000]
    for _ in range(2):
        with pytest.raises(ValueError, match=f"shard {len(opened.verified) - 1} is damaged"):
            pairs(opened, ordered)
    damaged[-1] ^= 1
    for _ in range(2):
        assert pairs(opened, ordered) == expected
    assert opened.verified.all()


@pytest.mark.parametrize("known", [0, 39, 41, 64, 65, 2**16 - 1])
def test_a_part_that_says_that_it_knows_more_or_fewer_bits_than_it_can_is_refused(known):
    key_part = bytearray(made(random_hashes(NARROW), 1))
    key_part[26:28] = struct.pack("<H", known)
    end = 32 + 8 * 257 + 8 * 256
    key_part[28:32] = struct.pack("<I", zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28])))
    with pytest.raises(ValueError, match="bits of hashes"):
        pairs(bytes(key_part), random_hashes(1))
