"""The hashes that identify keys equal those of reference implementations, for every shape of keys
and arrays and on every code path.
"""

import pickle
import random

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_hash_reference import multilinear
from old_tables import A, B

from indexes import bloom, key_hash
from indexes.base import KeyHashes
from indexes.key_hash import KEY_BYTES_MAX, SEED_MAX, MultilinearHash, MurmurHash, hash_keys

SECRET = bytes(range(32))
HASH = MultilinearHash(SECRET)
MANY_ROWS = 2_000


def pairs(hashes):
    return list(zip(hashes.hi.tolist(), hashes.lo.tolist(), strict=True))


def by_murmur(key, seed=99):
    return divmod(mmh3.hash128(key.encode(), seed), 2**64)


KINDS = pytest.mark.parametrize(
    ("hashed", "reference"),
    [
        (lambda keys: hash_keys(keys, 99), by_murmur),
        (HASH.hash, lambda key: multilinear(SECRET, key.encode())),
    ],
    ids=["murmur", "multilinear"],
)


def numbered(count, text="key{:09d}"):
    return pa.array([text.format(n) for n in range(count)])


@KINDS
@pytest.mark.parametrize("lengths", [[0, 1, 7, 12, 40], range(121)], ids=["short", "long"])
@pytest.mark.parametrize(
    "count", [0, 1, 2, MANY_ROWS - 1, MANY_ROWS, 2_049, 20_000, key_hash._PIECE_ROWS + 1]
)
def test_any_number_of_keys_hashes_as_in_the_reference(hashed, reference, count, lengths):
    rng = random.Random(count)
    keys = ["".join(rng.choices("aé€𝄞\0 9-", k=rng.choice(lengths))) for _ in range(count)]
    hashes = hashed(pa.array(keys, "string"))
    sampled_rows = range(count) if count < 5_000 else rng.sample(range(count), 3_000)
    assert len(hashes) == count
    assert pairs(hashes.take(np.array(sampled_rows, int))) == [
        reference(keys[n]) for n in sampled_rows
    ]


LENGTHS = [*range(18), 31, 32, 33, 95, 96, *range(KEY_BYTES_MAX - 1, KEY_BYTES_MAX + 2), 300, 5_000]


@KINDS
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 3_000])
def test_keys_of_any_length_hash_as_in_the_reference(hashed, reference, length, count):
    fill = "é" if length % 2 == 0 else "z"
    keys = [f"{n:05}"[:length].ljust(length, fill) for n in range(count)]
    assert pairs(hashed(pa.array(keys, "string")))[:50] == list(map(reference, keys[:50]))


@KINDS
def test_long_keys_among_short_ones_and_trailing_zeros_hash_as_in_the_reference(hashed, reference):
    keys = ["x" * length for length in (*LENGTHS, *reversed(LENGTHS))]
    keys += ["a" + "\0" * count for count in range(200)]
    assert pairs(hashed(pa.array(keys))) == list(map(reference, keys))


@given(
    st.lists(st.text(max_size=40), max_size=20),
    st.integers(0, SEED_MAX),
    st.binary(min_size=32, max_size=32),
)
def test_any_text_seed_and_secret_hash_as_in_the_references(keys, seed, secret):
    expected = [by_murmur(key, seed) for key in keys]
    for more in (0, MANY_ROWS):
        padded = pa.array(keys + ["filler"] * more, "string")
        assert pairs(hash_keys(padded, seed))[: len(keys)] == expected
    hashes = pairs(MultilinearHash(secret).hash(pa.array(keys, "string")))
    assert hashes == [multilinear(secret, key.encode()) for key in keys]


@KINDS
@pytest.mark.parametrize("count", [10, MANY_ROWS + 50, 30_000])
def test_slices_chunks_and_other_string_types_hash_like_the_whole_array(hashed, reference, count):
    keys = numbered(count)
    whole = pairs(hashed(keys))
    assert pairs(hashed(keys.slice(3, count - 5))) == whole[3:-2]
    assert pairs(hashed(pa.chunked_array([keys[:4], keys[4:4], keys[4:]]))) == whole
    assert pairs(hashed(pa.chunked_array([], "string"))) == []
    for type in (pa.large_string(), pa.string_view()):
        assert pairs(hashed(keys.cast(type))) == whole


def test_bytes_and_text_have_the_same_murmur_hash():
    for keys in (numbered(5), numbered(MANY_ROWS)):
        assert pairs(hash_keys(keys.cast("binary"), 5)) == pairs(hash_keys(keys, 5))


@pytest.mark.parametrize(
    ("hashed", "keys", "why"),
    [
        (HASH.hash, ["a", None], "null|expected strings"),
        (HASH.hash, [1, 2], "null|expected strings"),
        (HASH.hash, [b"a"], "null|expected strings"),
        (lambda keys: hash_keys(keys, 0), ["a", None], "1 of"),
        (lambda keys: hash_keys(keys, 0), ["a"] * MANY_ROWS + [None], "1 of"),
        (lambda keys: hash_keys(keys, 0), [1], "cast the column to string"),
        (lambda keys: hash_keys(keys, 0), [1] * MANY_ROWS, "cast the column to string"),
        (lambda keys: hash_keys(keys, -1), ["a"], "seed"),
        (lambda keys: hash_keys(keys, SEED_MAX + 1), ["a"], "seed"),
    ],
)
def test_nulls_other_types_and_seeds_out_of_range_are_refused(hashed, keys, why):
    with pytest.raises(ValueError, match=why):
        hashed(pa.array(keys))


def test_keys_with_the_same_murmur_hash_have_different_multilinear_hashes():
    keys = pa.array((A, B))
    assert len(set(pairs(MurmurHash(7).hash(keys)))) == 1
    assert len(set(pairs(HASH.hash(keys)))) == 2


def test_another_secret_gives_other_hashes():
    keys = numbered(1_000)
    assert not set(pairs(HASH.hash(keys))) & set(pairs(MultilinearHash(bytes(32)).hash(keys)))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_of_another_length_is_refused_without_being_shown(length):
    with pytest.raises(ValueError, match="must have 32 bytes, got"):
        MultilinearHash(bytes(length))


def test_the_secret_is_not_shown_and_survives_pickling():
    assert repr(HASH) == "MultilinearHash(<secret>)"
    copy = pickle.loads(pickle.dumps(HASH))
    assert copy == HASH and pairs(copy.hash(numbered(3))) == pairs(HASH.hash(numbered(3)))


TEXTS = {
    "running numbers": "{}",
    "fixed width": "key{:012d}",
    "uuids": "{:08x}-0000-4000-8000-000000000000",
    "long": "https://example.com/" + "path/" * 25 + "{}",
    "one word differs": "{:04x}" + "0" * 60,
}
STRUCTURED = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)


@STRUCTURED
def test_bloom_filters_and_shards_of_structured_keys_are_as_good_as_those_of_random_keys(text):
    hashes = HASH.hash(numbered(64_000, text))
    built = bloom.build(KeyHashes(hashes.hi[:20_000], hashes.lo[:20_000]), fpp=0.01)
    absent = KeyHashes(hashes.hi[20_000:], hashes.lo[20_000:])
    assert bloom.probe(built, absent).mean() < 0.015
    for words in (hashes.hi, hashes.lo):
        counts = np.bincount((words >> np.uint64(58)).astype(np.int64), minlength=64)
        assert counts.min() > 800 and counts.max() < 1_200
