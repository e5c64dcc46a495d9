"""The key indexes obey the law, find damage, and the suite that says so notices when they do
not.
"""

import dataclasses
import zlib

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_hashes import random_hashes

from indexes.base import Candidates, KeyHashes
from indexes.key_hash import hash_keys
from indexes.key_testing import KeyIndexConformance, first_failure, hashed, keys
from indexes.keys import bloom, record
from indexes.keys.bloom import BloomKeyIndex
from indexes.keys.bucket import BucketKeyIndex, java_hashes
from indexes.keys.kept_elsewhere import MemoryKeyIndex
from indexes.keys.record import RecordKeyIndex
from indexes.keys.simple import SimpleKeyIndex


class TestBloom(KeyIndexConformance):
    index = BloomKeyIndex()


class TestBloomByAList(KeyIndexConformance):
    index = BloomKeyIndex(ranges="list", caching="false")


class TestBloomOnThreads(KeyIndexConformance):
    """Without ranges; every look-up in passes of a few keys."""

    index = BloomKeyIndex(ranges="none", threads="2", pairs="999")


@pytest.mark.parametrize(
    "wrong", [{"ranges": "x"}, {"caching": "1"}, {"threads": 0}, {"pairs": "0"}]
)
def test_impossible_ways_to_look_up_are_refused(wrong):
    with pytest.raises(ValueError, match="cannot be"):
        BloomKeyIndex(**wrong)


def test_every_way_to_look_up_gives_the_same_but_for_false_positives():
    rng = np.random.default_rng(3)
    texts = pa.array([f"k{n:06d}" for n in rng.integers(0, 400_000, 9_000)])
    part = BloomKeyIndex().build(texts, hash_keys(texts, 7), rng.integers(0, 40, 9_000), 40)
    asked = pa.array([f"k{n:06d}" for n in rng.integers(0, 400_000, 9_000)])
    ways = [{}, {"ranges": "list"}, {"threads": "3"}, {"pairs": "100"}, {"caching": "false"}]
    found = [BloomKeyIndex(**way).locate(part, asked, hash_keys(asked, 7)) for way in ways]
    sets = [set(zip(one.key.tolist(), one.group.tolist(), strict=True)) for one in found]
    assert all(one == sets[0] for one in sets) and sets[0]
    every = BloomKeyIndex(ranges="none").locate(part, asked, hash_keys(asked, 7))
    assert set(zip(every.key.tolist(), every.group.tolist(), strict=True)) >= sets[0]


def test_a_key_part_that_was_opened_is_not_verified_again_but_another_one_is():
    texts = pa.array(["a", "b"])
    index, part = (
        BloomKeyIndex(),
        BloomKeyIndex().build(texts, hash_keys(texts, 7), np.array([0, 1]), 2),
    )
    whole = bytes(part) + bytes(part)
    for piece in (memoryview(whole)[: len(part)], memoryview(whole)[len(part) :]):
        assert index.locate(piece, texts, hash_keys(texts, 7)).group.tolist() == [0, 1]
    assert len(index._kept._found) == 2
    index.locate(memoryview(whole)[: len(part)], texts, hash_keys(texts, 7))
    assert len(index._kept._found) == 2
    writable = bytearray(part)
    index.locate(memoryview(writable), texts, hash_keys(texts, 7))
    writable[50] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        index.locate(memoryview(writable), texts, hash_keys(texts, 7))


class TestRecord(KeyIndexConformance):
    index = RecordKeyIndex()
    false_share_max = 0.0


class TestMemory(KeyIndexConformance):
    index = MemoryKeyIndex()
    false_share_max = 0.0


class TestSimple(KeyIndexConformance):
    index = SimpleKeyIndex()
    false_share_max = 1.0


class TestBucket(KeyIndexConformance):
    index = BucketKeyIndex(buckets=1009)
    false_share_max = 1.0


class TestBucketsAsFewAsGroups(KeyIndexConformance):
    index = BucketKeyIndex(buckets="3", fields="id")
    false_share_max = 1.0


def java_hash(text):
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = (31 * total + int.from_bytes(units[at : at + 2])) % 2**32
    return total


@given(
    texts=st.lists(keys() | st.text(st.characters(codec="utf-8"), max_size=20), max_size=20),
    skipped=st.integers(0, 3),
)
def test_hashes_are_those_of_java(texts, skipped):
    found = java_hashes(pa.array(texts, pa.string()).slice(skipped))
    assert found.tolist() == [java_hash(text) for text in texts[skipped:]]


def test_digits_and_words_in_rules_of_buckets_are_those_of_java():
    index = BucketKeyIndex(4, partitions=r"\d,8;\w,16")
    assert [index.buckets_of(path) for path in ("3", "c", "\u0663", "\u00e4", "")] == [
        8,
        16,
        4,
        4,
        4,
    ]


def test_buckets_are_those_of_hudi():
    assert BucketKeyIndex(256).buckets(
        pa.array(["uuid-1", "7"]), np.array(["", ""], object)
    ).tolist() == [((31 + java_hash(text)) & 0x7FFFFFFF) % 256 for text in ("uuid-1", "7")]
    composite = pa.array(["id:a b,day:2020-01-01", "id:,day:x"])
    for fields in (("id", "day"), ("day",), ("id",)):
        expected = []
        for values in ({"id": "a b", "day": "2020-01-01"}, {"id": "", "day": "x"}):
            total = 1
            for name in fields:
                total = (31 * total + java_hash(values[name])) % 2**32
            expected.append((total & 0x7FFFFFFF) % 1000)
        assert (
            BucketKeyIndex(1000, ",".join(fields))
            .buckets(composite, np.full(len(composite), "", object))
            .tolist()
            == expected
        )


@pytest.mark.parametrize(
    "wrong", [{"buckets": "0"}, {"buckets": "x"}, {"buckets": 2**25}, {"fields": "a,,b"}]
)
def test_impossible_buckets_are_refused(wrong):
    with pytest.raises(ValueError, match="invalid literal|buckets="):
        BucketKeyIndex(**wrong)


class ForgetsAWholeGroup(SimpleKeyIndex):
    def locate(self, key_part, keys, hashes):
        found = super().locate(key_part, keys, hashes)
        return Candidates(found.key, found.group, found.whole[1:])


class IsWholeAndInAPair(SimpleKeyIndex):
    def locate(self, key_part, keys, hashes):
        whole = super().locate(key_part, keys, hashes).whole
        return Candidates(np.zeros(len(whole), np.int64), whole, whole)


class LosesTheLastKey(RecordKeyIndex):
    def build(self, keys, hashes, group, groups):
        return super().build(keys[:-1], hashes.take(np.arange(len(keys) - 1)), group[:-1], groups)


class LosesTheLastGroup(RecordKeyIndex):
    def build_of_groups(self, keys, hashes):
        return super().build_of_groups([*keys[:-1], keys[0]], [*hashes[:-1], hashes[0]])


class OneGroupPerKey(RecordKeyIndex):
    def locate(self, key_part, keys, hashes):
        found = super().locate(key_part, keys, hashes)
        _, first = np.unique(found.key, return_index=True)
        return Candidates(found.key[first], found.group[first])


class RepeatsPairs(RecordKeyIndex):
    def locate(self, key_part, keys, hashes):
        found = super().locate(key_part, keys, hashes)
        return Candidates(np.repeat(found.key, 2), np.repeat(found.group, 2))


class ForgetsToForget(RecordKeyIndex):
    def merge(self, key_parts, groups, total):
        return super().merge(key_parts, [np.maximum(new, 0) for new in groups], total)


class KeepsOldNumbers(RecordKeyIndex):
    def merge(self, key_parts, groups, total):
        return super().merge(
            key_parts, [np.minimum(np.arange(len(new)), total - 1) for new in groups], total
        )


class MergesAllButTheFirst(BloomKeyIndex):
    def merge(self, key_parts, groups, total):
        return super().merge(key_parts[1:], groups[1:], total)


class SwapsKeyAndGroup(BloomKeyIndex):
    def locate(self, key_part, keys, hashes):
        found = super().locate(key_part, keys, hashes)
        return Candidates(found.group, found.key)


class AnswersEverything(RecordKeyIndex):
    def locate(self, key_part, keys, hashes):
        groups = record._open(key_part).group_count
        key = np.repeat(np.arange(len(keys)), groups)
        return Candidates(key, np.tile(np.arange(groups), len(keys)))


class TakesDamageForAbsence(RecordKeyIndex):
    def locate(self, key_part, keys, hashes):
        try:
            return super().locate(key_part, keys, hashes)
        except ValueError:
            return Candidates(np.zeros(0, np.int64), np.zeros(0, np.int64))


class IsRandom(BloomKeyIndex):
    def build(self, keys, hashes, group, groups):
        self._fpp = self._fpp * 0.9
        return super().build(keys, hashes, group, groups)


class AssumesOrderedKeys(BloomKeyIndex):
    def build(self, keys, hashes, group, groups):
        key_part = bloom._open(super().build(keys, hashes, group, groups))
        first = [
            keys[int(np.flatnonzero(group == g)[0])].as_py().encode()[:64]
            for g in key_part.group.tolist()
        ]
        return bloom._encode(dataclasses.replace(key_part, low=first))


class CutsTheLargestKey(BloomKeyIndex):
    def build(self, keys, hashes, group, groups):
        key_part = bloom._open(super().build(keys, hashes, group, groups))
        return bloom._encode(
            dataclasses.replace(key_part, high=[b and b[:8] for b in key_part.high])
        )


MUTANTS = (
    LosesTheLastKey,
    OneGroupPerKey,
    RepeatsPairs,
    ForgetsToForget,
    KeepsOldNumbers,
    MergesAllButTheFirst,
    LosesTheLastGroup,
    SwapsKeyAndGroup,
    AnswersEverything,
    TakesDamageForAbsence,
    IsRandom,
    AssumesOrderedKeys,
    CutsTheLargestKey,
    ForgetsAWholeGroup,
    IsWholeAndInAPair,
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_suite_kills_the_mutant(mutant):
    suite = type("Suite", (KeyIndexConformance,), {"index": mutant()})
    assert first_failure(suite) is not None


def record_key_part(n):
    hashes = random_hashes(n)
    return hashes, RecordKeyIndex().build(pa.nulls(n), hashes, np.arange(n, dtype=np.int64) % 9, 9)


@pytest.mark.parametrize(
    ("groups", "width"), [(1, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4), (2**32, 4)]
)
def test_a_record_key_part_has_group_numbers_in_as_few_bytes_as_they_need(groups, width):
    hashes = random_hashes(100)
    group = np.arange(100, dtype=np.int64) % groups
    group[7] = groups - 1
    key_part = RecordKeyIndex().build(pa.nulls(100), hashes, group, groups)
    assert len(key_part) == 32 + 8 * 2 + 8 + 100 * (8 + width)
    found = RecordKeyIndex().locate(key_part, pa.nulls(100), hashes)
    assert found.group[np.argsort(found.key)].tolist() == group.tolist()


@given(
    groups=st.lists(
        st.lists(st.integers(0, 40) | st.integers(2**64 - 20, 2**64 - 1), max_size=30),
        min_size=1,
        max_size=300,
    ),
    entries=st.integers(1, 60),
)
@settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_a_record_key_part_is_the_same_whether_its_keys_are_brought_together_in_pieces_or_at_once(
    groups, entries
):
    hashes = [KeyHashes(np.array(of, np.uint64), np.zeros(len(of), np.uint64)) for of in groups]
    texts = [pa.nulls(len(of), pa.string()) for of in groups]
    number = np.repeat(np.arange(len(groups)), [len(of) for of in groups])
    whole = KeyHashes(
        *(np.concatenate([getattr(one, word) for one in hashes]) for word in ("hi", "lo"))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_PIECE_ENTRIES", entries)
        found = RecordKeyIndex().build_of_groups(texts, hashes)
    assert found == RecordKeyIndex().build(
        pa.nulls(len(number), pa.string()), whole, number, len(groups)
    )


def test_record_key_parts_of_version_1_are_read_and_merged():
    hashes, key_part = record_key_part(900)
    start, group = (
        len(key_part) - 9 * 900,
        np.frombuffer(key_part[-900:], np.uint8).astype("<u4").tobytes(),
    )
    known = key_part[start : start + 8 * 900]
    seed = int.from_bytes(mmh3.mmh3_x64_128_digest(known, 0)[:4], "little")
    head = b"MDTREC\0\1" + key_part[8:26] + bytes(2)
    fan_out = key_part[32 : start - 8] + mmh3.mmh3_x64_128_digest(group, seed)[:8]
    older = (
        head + zlib.crc32(fan_out, zlib.crc32(head)).to_bytes(4, "little") + fan_out + known + group
    )
    for part in (older, key_part):
        found = RecordKeyIndex().locate(part, pa.nulls(900), hashes)
        assert found.group[np.argsort(found.key)].tolist() == [row % 9 for row in range(900)]
        assert RecordKeyIndex().merge([part], [np.arange(9)], 9) == key_part


def test_a_record_look_up_detects_every_flipped_bit_that_it_depends_on():
    hashes, key_part = record_key_part(6000)
    opened = record._open(key_part)
    one = hashes.take(np.array([77]))
    shard = int(one.hi[0]) >> (64 - opened.form.bits)
    start, end = (int(at) for at in opened.starts[shard : shard + 2])
    hashes_at = len(key_part) - 9 * 6000
    relevant = [*range(hashes_at), *range(hashes_at + 8 * start, hashes_at + 8 * end, 97)]
    relevant += range(len(key_part) - 6000 + start, len(key_part) - 6000 + end, 13)
    for byte in relevant:
        damaged = bytearray(key_part)
        damaged[byte] ^= 1 << byte % 8
        with pytest.raises(ValueError, match="record key part"):
            RecordKeyIndex().locate(bytes(damaged), pa.nulls(1), one)


def test_an_opened_record_key_part_verifies_each_shard_once_and_finds_damage_in_those_it_has_not_seen():
    hashes, key_part = record_key_part(60_000)
    damaged = bytearray(key_part)
    opened = RecordKeyIndex().opened(memoryview(damaged))
    ordered = hashes.take(hashes.order())
    some = ordered.take(np.arange(20_000))
    expected = RecordKeyIndex().locate(key_part, pa.nulls(20_000), some).group.tolist()
    assert RecordKeyIndex().locate(opened, pa.nulls(20_000), some).group.tolist() == expected
    assert 0 < opened.verified.sum() < len(opened.verified)
    damaged[-1] ^= 1
    assert RecordKeyIndex().locate(opened, pa.nulls(20_000), some).group.tolist() == expected
    for _ in range(2):
        with pytest.raises(ValueError, match=f"shard {len(opened.verified) - 1} is damaged"):
            RecordKeyIndex().locate(opened, pa.nulls(60_000), ordered)
    damaged[-1] ^= 1
    every = RecordKeyIndex().locate(key_part, pa.nulls(60_000), ordered)
    for _ in range(2):
        found = RecordKeyIndex().locate(opened, pa.nulls(60_000), ordered)
        assert (found.key.tolist(), found.group.tolist()) == (
            every.key.tolist(),
            every.group.tolist(),
        )
    assert opened.verified.all()


def test_damage_in_another_shard_does_not_disturb_a_record_look_up():
    hashes, key_part = record_key_part(6000)
    first = hashes.take(np.array([np.argmin(hashes.hi)]))
    damaged = key_part[:-1] + bytes([key_part[-1] ^ 1])
    assert RecordKeyIndex().locate(damaged, pa.nulls(1), first).key.tolist() == [0]
    with pytest.raises(ValueError, match="shard"):
        RecordKeyIndex().merge([damaged], [np.arange(9)], 9)


def test_a_record_look_up_reads_no_hash_of_another_shard():
    hashes, key_part = record_key_part(20_000)
    opened = record._open(key_part)
    for row in range(0, 20_000, 1999):
        one = hashes.take(np.array([row]))
        shard = int(one.hi[0]) >> (64 - opened.form.bits)
        start, end = (int(at) for at in opened.starts[shard : shard + 2])
        damaged = bytearray(key_part)
        at = len(key_part) - 9 * 20_000
        damaged[at : at + 8 * start] = b"\xff" * (8 * start)
        damaged[at + 8 * end : at + 8 * 20_000] = b"\0" * (8 * (20_000 - end))
        assert RecordKeyIndex().locate(bytes(damaged), pa.nulls(1), one).group.tolist() == [row % 9]
        twice = hashes.take(np.array([row, row]))
        found = RecordKeyIndex().locate(bytes(damaged), pa.nulls(2), twice)
        assert (found.key.tolist(), found.group.tolist()) == ([0, 1], [row % 9] * 2)


HASHES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40),
    st.integers(2**64 - 40, 2**64 - 1),
    st.integers(2**63 - 20, 2**63 + 20),
)
"""Spread evenly, as those of keys are, and side by side."""


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(HASHES, st.integers(0, 4)), max_size=80),
    st.lists(HASHES, min_size=2, max_size=60),
    st.sampled_from([1, 4, 2048]),
    st.sampled_from([1, 4, 64]),
    st.booleans(),
)
def test_a_record_look_up_finds_every_group_however_hashes_are_spread(
    entries, asked, per_shard, near, opened
):
    words = np.array([hash for hash, _ in entries], np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_SHARD_ENTRIES", per_shard)
        patch.setattr(record, "_NEAR", near)
        numbers = np.array([group for _, group in entries], np.int64)
        key_part = RecordKeyIndex().build(pa.nulls(len(words)), KeyHashes(words, words), numbers, 5)
        wanted = KeyHashes(np.array(asked, np.uint64), np.zeros(len(asked), np.uint64))
        given_part = RecordKeyIndex().opened(memoryview(key_part)) if opened else key_part
        found = RecordKeyIndex().locate(given_part, pa.nulls(len(asked)), wanted)
    expected = {
        (key, group) for key, one in enumerate(asked) for hash, group in entries if hash == one
    }
    assert sorted(zip(found.key.tolist(), found.group.tolist(), strict=True)) == sorted(expected)


def test_a_record_merge_of_parts_is_the_key_part_of_the_whole():
    hashes, key_part = record_key_part(20_000)
    group = np.arange(20_000) % 9
    parts = [
        RecordKeyIndex().build(pa.nulls(5000), hashes.take(np.arange(i, 20_000, 4)), group[i::4], 9)
        for i in range(4)
    ]
    assert RecordKeyIndex().merge(parts, [np.arange(9)] * 4, 9) == key_part


def test_a_record_key_part_works_at_any_alignment():
    hashes, key_part = record_key_part(3000)
    for shift in range(1, 8):
        view = memoryview(b"\0" * shift + key_part)[shift:]
        assert len(RecordKeyIndex().locate(view, pa.nulls(3000), hashes).key) == 3000


def test_a_group_number_beyond_the_header_is_refused():
    for index, module in ((RecordKeyIndex(), record), (BloomKeyIndex(), bloom)):
        keys, hashes = hashed(["a", "b"])
        key_part = bytearray(index.build(keys, hashes, np.array([0, 4]), 5))
        key_part[16] = 4
        if module is bloom:
            key_part[-4:] = zlib.crc32(key_part[:-4]).to_bytes(4, "little")
        else:
            key_part[28:32] = zlib.crc32(
                key_part[32 : len(key_part) - 18], zlib.crc32(key_part[:28])
            ).to_bytes(4, "little")
        with pytest.raises(ValueError, match="group 4 of 4"):
            index.locate(bytes(key_part), keys, hashes)


def test_a_high_bound_that_cannot_be_rounded_up_is_none():
    assert bloom._round_up(b"\xff" * 70) is None
    assert bloom._round_up(b"a" + b"\xff" * 70) == b"b"
    assert bloom._round_up(b"a" * 64) == b"a" * 64
    assert bloom._round_up(b"a" * 65) == b"a" * 63 + b"b"


@pytest.mark.parametrize("index", [RecordKeyIndex(), BloomKeyIndex()])
def test_wrong_numbers_of_groups_are_refused(index):
    key_part = index.build(*hashed(["a"]), np.array([0]), 3)
    with pytest.raises(ValueError, match="3 groups"):
        index.merge([key_part], [np.arange(2)], 3)
    with pytest.raises(ValueError, match="groups"):
        index.build(*hashed(["a"]), np.array([0]), 2**33)


def test_a_false_positive_probability_out_of_range_is_refused():
    for fpp in (0, 1, "2", "many"):
        with pytest.raises(ValueError):
            BloomKeyIndex(fpp)
