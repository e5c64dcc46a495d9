"""Key parts of ``record/1`` that have 32 bits of each hash beside those of its shard, and those
that other versions left.
"""

from __future__ import annotations

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


def made(hashes: KeyHashes, groups: int) -> bytes:
    return INDEX.build(pa.nulls(len(hashes)), hashes, np.arange(len(hashes)) % groups, groups)


def pairs(key_part: bytes, hashes: KeyHashes) -> list[tuple[int, int]]:
    found = INDEX.locate(key_part, pa.nulls(len(hashes)), hashes)
    return sorted(zip(found.key.tolist(), found.group.tolist(), strict=True))


def of_version_2(hashes: KeyHashes, groups: int, bits: int) -> bytes:
    """Return the key part that version 2 had of ``made(hashes, groups)``."""
    order = hashes.order()
    hi, number = hashes.hi[order].astype("<u8"), (order % groups).astype(np.uint8)
    starts = np.searchsorted(
        hi >> np.uint64(64 - bits), np.arange((1 << bits) + 1, dtype=np.uint64)
    ).astype("<u8")
    digest, checks = mmh3.mmh3_x64_128_digest, []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        seed = int.from_bytes(digest(hi[first:last].tobytes(), 0)[:4], "little")
        checks.append(digest(number[first:last].tobytes(), seed)[:8])
    head = struct.pack("<8sQQI", b"MDTREC\0\2", len(hi), groups, bits)
    fan_out = starts.tobytes() + b"".join(checks)
    crc = zlib.crc32(fan_out, zlib.crc32(head))
    return head + struct.pack("<I", crc) + fan_out + hi.tobytes() + number.tobytes()


@pytest.mark.parametrize(
    ("count", "bits", "width"),
    [(NARROW - 1, 4, 8), (NARROW, 8, 4), (262_144, 8, 4), (600_000, 9, 4)],
)
def test_every_key_is_found_and_no_other(count: int, bits: int, width: int) -> None:
    hashes, absent = random_hashes(count), random_hashes(50_000, seed=2)
    key_part = made(hashes, 9)
    assert len(key_part) == 32 + 8 * ((1 << bits) + 1) + (8 << bits) + count * (width + 1)
    some = np.random.default_rng(3).permutation(count)[:5000]
    for asked in (np.arange(count), some, some[:7], some[:1]):
        expected = [(n, key % 9) for n, key in enumerate(asked.tolist())]
        assert pairs(key_part, hashes.take(asked)) == expected
    assert pairs(key_part, absent) == []
    others = random_hashes(5 * count, seed=4)
    many = KeyHashes(np.append(hashes.hi, others.hi), np.append(hashes.lo, others.lo))
    found = pairs(key_part, many)
    assert found[:count] == [(n, n % 9) for n in range(count)]
    assert len(found) - count <= 9, "some 0.8 of 3 M keys have 41 bits of one of 600,000"


def test_a_part_of_many_keys_is_as_the_format_page_says() -> None:
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
    assert whole == sorted(word >> 24 for word in hi)
    assert sorted(zip(whole, number, strict=True)) == sorted(
        (word >> 24, i % 300) for i, word in enumerate(hi)
    )
    digest = mmh3.mmh3_x64_128_digest
    for s in range(2**b):
        first, last = starts[s], starts[s + 1]
        seed = int.from_bytes(digest(key_part[end + 4 * first : end + 4 * last], 0)[:4], "little")
        check = digest(key_part[end + 4 * n + 2 * first : end + 4 * n + 2 * last], seed)[:8]
        assert check == key_part[32 + 8 * (2**b + 1) + 8 * s :][:8]


def test_the_known_bits_decide() -> None:
    hashes = random_hashes(NARROW)
    key_part = made(hashes, 1)
    last_known, first_unknown = np.uint64(1 << (63 - 39)), np.uint64(1 << (63 - 40))
    for asked, is_found in ((hashes.hi ^ first_unknown, True), (hashes.hi ^ last_known, False)):
        for some in (slice(None), slice(500), slice(1)):
            found = pairs(key_part, KeyHashes(asked[some], hashes.lo[some]))
            assert found == ([(n, 0) for n in range(len(asked[some]))] if is_found else [])


def test_parts_of_all_forms_are_merged_and_lose_no_key_and_no_more_bits_than_they_must() -> None:
    parts = [random_hashes(600_000, 1), random_hashes(900, 2), random_hashes(NARROW, 3)]
    key_parts = [of_version_2(parts[0], 9, 9), made(parts[1], 9), made(parts[2], 9)]
    for chosen in ([0], [1], [2], [0, 1], [1, 2], [0, 1, 2]):
        renumbered = [np.arange(9) + 9 * n for n in range(len(chosen))]
        merged = INDEX.merge([key_parts[n] for n in chosen], renumbered, 9 * len(chosen))
        known = record._open(merged).form.known
        assert (
            known
            == {(0,): 41, (1,): 64, (2,): 40, (0, 1): 41, (1, 2): 40, (0, 1, 2): 40}[tuple(chosen)]
        )
        for place, n in enumerate(chosen):
            assert pairs(merged, parts[n]) == [
                (key, key % 9 + 9 * place) for key in range(len(parts[n]))
            ]
    assert INDEX.merge([key_parts[0]], [np.arange(9)], 9) == made(parts[0], 9)
    few = INDEX.merge([key_parts[2]], [np.where(np.arange(9) == 4, 0, -1)], 1)
    assert len(few) < 9 * NARROW
    assert record._open(few).form.width == 8 and record._open(few).form.known == 40
    assert pairs(few, parts[2]) == [(key, 0) for key in range(4, NARROW, 9)]


def test_a_part_of_version_2_answers_as_before() -> None:
    hashes = random_hashes(600_000)
    older = of_version_2(hashes, 9, 9)
    for asked in (np.arange(600_000), np.arange(0, 600_000, 1000), np.array([5])):
        assert pairs(older, hashes.take(asked)) == [
            (n, key % 9) for n, key in enumerate(asked.tolist())
        ]
    one_bit = KeyHashes(hashes.hi[:500] ^ np.uint64(1), hashes.lo[:500])
    assert pairs(older, one_bit) == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4)), max_size=200),
    st.integers(1, 40),
)
@settings(deadline=None)
def test_hashes_with_the_same_known_bits_give_each_group_once(
    rows: list[tuple[int, int, int]], piece: int
) -> None:
    """Upper bits, unknown bits and group of each of few keys among many."""
    hi = np.array([(upper << 62) | unknown for upper, unknown, _ in rows], np.uint64)
    group = np.array([group for _, _, group in rows], np.int64)
    fill = random_hashes(NARROW).hi
    every, groups = np.concatenate([hi, fill]), np.concatenate([group, np.full(NARROW, 5)])
    whole = KeyHashes(every, np.zeros(len(every), np.uint64))
    key_part = INDEX.build(pa.nulls(len(every)), whole, groups, 6)
    expected = {upper: sorted({g for u, _, g in rows if u == upper}) for upper, _, _ in rows}
    for upper, groups_of in expected.items():
        for asked in ([upper << 62], [upper << 62, 7 << 60, (upper << 62) | 3]):
            asked_hashes = KeyHashes(np.array(asked, np.uint64), np.zeros(len(asked), np.uint64))
            found = [pair for pair in pairs(key_part, asked_hashes) if pair[0] == 0 and pair[1] < 5]
            assert found == [(0, g) for g in groups_of]
    by_group = [
        KeyHashes(every[groups == g], np.zeros(int((groups == g).sum()), np.uint64))
        for g in range(6)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_PIECE_ENTRIES", piece * 1000)
        assert INDEX.build_of_groups([pa.nulls(len(one)) for one in by_group], by_group) == key_part


@pytest.mark.parametrize("known", [0, 39, 41, 64, 65, 2**16 - 1])
def test_a_part_that_says_that_it_knows_more_or_fewer_bits_than_it_can_is_refused(
    known: int,
) -> None:
    key_part = bytearray(made(random_hashes(NARROW), 1))
    key_part[26:28] = struct.pack("<H", known)
    end = 32 + 8 * 257 + 8 * 256
    key_part[28:32] = struct.pack("<I", zlib.crc32(key_part[32:end], zlib.crc32(key_part[:28])))
    with pytest.raises(ValueError, match="bits of hashes"):
        pairs(bytes(key_part), random_hashes(1))
