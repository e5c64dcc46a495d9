"""The key indexes follow their contract and detect damage. The conformance suite detects indexes
that do not.
"""

import dataclasses
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.base import Candidates
from indexes.column_bloom import ColumnBloom
from indexes.key_testing import KeyIndexConformance, first_failure, hashed, keys
from indexes.keys import bloom, record
from indexes.keys.bloom import BloomKeyIndex
from indexes.keys.bucket import BucketKeyIndex, java_hashes
from indexes.keys.external import MemoryKeyIndex
from indexes.keys.record import RecordKeyIndex
from indexes.keys.simple import SimpleKeyIndex


class TestBloom(KeyIndexConformance):
    index = BloomKeyIndex()


class TestBloomByAList(KeyIndexConformance):
    index = BloomKeyIndex(ranges="list", caching="false")


class TestBloomOnThreads(KeyIndexConformance):
    """Without ranges, and with look-ups in passes of a few keys."""

    index = BloomKeyIndex(ranges="none", threads="2", pairs="999")


@pytest.mark.parametrize(
    ("index", "wrong", "why"),
    [
        (BloomKeyIndex, {"ranges": "x"}, "invalid ranges="),
        (BloomKeyIndex, {"caching": "1"}, "invalid caching='1'; use true or false"),
        (BloomKeyIndex, {"threads": 0}, "invalid threads=0; use a whole number at least 1"),
        (BloomKeyIndex, {"threads": "two"}, "invalid threads='two'"),
        (BloomKeyIndex, {"pairs": "0"}, "invalid pairs='0'"),
        (BloomKeyIndex, {"fpp": 0}, "invalid fpp=0; use a number between 0 and 1"),
        (BloomKeyIndex, {"fpp": 1}, "invalid fpp=1"),
        (BloomKeyIndex, {"fpp": "2"}, "invalid fpp='2'"),
        (BloomKeyIndex, {"fpp": "nan"}, "invalid fpp='nan'"),
        (BloomKeyIndex, {"fpp": "many"}, "invalid fpp='many'; use a number between 0 and 1"),
        (ColumnBloom, {"fpp": "many"}, "invalid fpp='many'; use a number between 0 and 1"),
        (BucketKeyIndex, {"buckets": "0"}, "buckets='0'"),
        (BucketKeyIndex, {"buckets": "x"}, "buckets='x'; use a whole number from 1 to 16,777,216"),
        (BucketKeyIndex, {"buckets": 2**25}, "buckets=33554432"),
        (BucketKeyIndex, {"fields": "a,,b"}, "invalid fields='a,,b'"),
    ],
)
def test_invalid_options_are_refused(index, wrong, why):
    with pytest.raises(ValueError, match=why):
        index(**wrong)


def test_an_opened_key_part_is_not_verified_again():
    keys, index = hashed(["a", "b"]), BloomKeyIndex()
    part = bytearray(index.build(*keys, np.array([0, 1]), 2))
    opened, uncached = (
        BloomKeyIndex(caching=caching).opened(part) for caching in ("true", "false")
    )
    part[-1] ^= 1
    assert index.locate(opened, *keys).group.tolist() == [0, 1]
    for damaged in (uncached, part):
        with pytest.raises(ValueError, match="damaged"):
            index.locate(damaged, *keys)


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
def test_hashes_equal_those_of_java(texts, skipped):
    found = java_hashes(pa.array(texts, "string").slice(skipped))
    assert found.tolist() == [java_hash(text) for text in texts[skipped:]]


def test_digits_and_words_in_bucket_rules_match_as_in_java():
    index = BucketKeyIndex(4, partitions=r"\d,8;\w,16")
    assert [index.buckets_of(path) for path in ("3", "c", "\u0663", "\u00e4", "")] == [
        8,
        16,
        4,
        4,
        4,
    ]


def java_sum(texts):
    """Return the hash of a list of texts as Java computes it."""
    total = 1
    for text in texts:
        total = (31 * total + java_hash(text)) % 2**32
    return total & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("fields", "keys", "values"),
    [
        ("", ["uuid-1", "7"], [["uuid-1"], ["7"]]),
        ("id,day", ["id:a b,day:2020", "id:,day:x"], [["a b", "2020"], ["", "x"]]),
        ("day", ["id:a b,day:2020", "id:,day:x"], [["2020"], ["x"]]),
        ("id", ["id:a b,day:2020", "id:,day:x"], [["a b"], [""]]),
    ],
)
def test_buckets_equal_those_of_hudi(fields, keys, values):
    found = BucketKeyIndex(1000, fields).buckets(pa.array(keys), np.array(["", ""], object))
    assert found.tolist() == [java_sum(texts) % 1000 for texts in values]


def with_changed_candidates(index, change):
    """Return a class that changes the candidates of ``index``."""

    def locate(self, *args):
        return Candidates(*change(index.locate(self, *args)))

    return type(change.__name__, (index,), {"locate": locate})


def forgets_a_whole_group(found):
    return found.key, found.group, found.whole[1:]


def is_whole_and_in_a_pair(found):
    return np.zeros(len(found.whole), np.int64), found.whole, found.whole


def one_group_per_key(found):
    _, first = np.unique(found.key, return_index=True)
    return found.key[first], found.group[first]


def repeats_pairs(found):
    return np.repeat(found.key, 2), np.repeat(found.group, 2)


def swaps_key_and_group(found):
    return found.group, found.key


def with_changed_merge(index, change):
    """Return a class that merges changed key parts or changed group numbers."""

    def merge(self, key_parts, groups, total):
        return index.merge(self, *change(key_parts, groups, total), total)

    return type(change.__name__, (index,), {"merge": merge})


def forgets_to_forget(key_parts, groups, total):
    return key_parts, [np.maximum(new, 0) for new in groups]


def keeps_old_numbers(key_parts, groups, total):
    return key_parts, [np.minimum(np.arange(len(new)), total - 1) for new in groups]


def merges_all_but_the_first(key_parts, groups, total):
    return key_parts[1:], groups[1:]


class LosesTheLastKey(RecordKeyIndex):
    def build(self, keys, hashes, group, groups):
        return super().build(keys[:-1], hashes.take(np.arange(len(keys) - 1)), group[:-1], groups)


class LosesTheLastGroup(RecordKeyIndex):
    def build_of_groups(self, keys, hashes):
        return super().build_of_groups([*keys[:-1], keys[0]], [*hashes[:-1], hashes[0]])


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
        high = [b and b[:8] for b in key_part.high]
        return bloom._encode(dataclasses.replace(key_part, high=high))


MUTANTS = (
    with_changed_candidates(SimpleKeyIndex, forgets_a_whole_group),
    with_changed_candidates(SimpleKeyIndex, is_whole_and_in_a_pair),
    with_changed_candidates(RecordKeyIndex, one_group_per_key),
    with_changed_candidates(RecordKeyIndex, repeats_pairs),
    with_changed_candidates(BloomKeyIndex, swaps_key_and_group),
    with_changed_merge(RecordKeyIndex, forgets_to_forget),
    with_changed_merge(RecordKeyIndex, keeps_old_numbers),
    with_changed_merge(BloomKeyIndex, merges_all_but_the_first),
    LosesTheLastKey,
    LosesTheLastGroup,
    AnswersEverything,
    TakesDamageForAbsence,
    IsRandom,
    AssumesOrderedKeys,
    CutsTheLargestKey,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_conformance_suite_detects_every_mutant(mutant):
    suite = type("Suite", (KeyIndexConformance,), {"index": mutant()})
    assert first_failure(suite) is not None


@pytest.mark.parametrize("index", [RecordKeyIndex(), BloomKeyIndex()])
def test_wrong_numbers_of_groups_are_refused(index):
    key_part = index.build(*hashed(["a"]), np.array([0]), 3)
    with pytest.raises(ValueError, match="3 groups"):
        index.merge([key_part], [np.arange(2)], 3)
    with pytest.raises(ValueError, match="groups"):
        index.build(*hashed(["a"]), np.array([0]), 2**33)


@pytest.mark.parametrize("index", [RecordKeyIndex(), BloomKeyIndex()])
def test_a_group_number_beyond_the_header_is_refused(index):
    keys, hashes = hashed(["a", "b"])
    key_part = bytearray(index.build(keys, hashes, np.array([0, 4]), 5))
    key_part[16] = 4
    if isinstance(index, BloomKeyIndex):
        key_part[-4:] = zlib.crc32(key_part[:-4]).to_bytes(4, "little")
    else:
        crc = zlib.crc32(key_part[32 : len(key_part) - 18], zlib.crc32(key_part[:28]))
        key_part[28:32] = crc.to_bytes(4, "little")
    with pytest.raises(ValueError, match="group 4 is not below 4"):
        index.locate(bytes(key_part), keys, hashes)
