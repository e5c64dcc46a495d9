"""The hashes that decide which keys are the same."""

from __future__ import annotations

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

from indexes import bloom
from indexes.base import KeyHashes
from indexes.key_hash import KEY_BYTES_MAX, MultilinearHash, MurmurHash

SECRET = bytes(range(32))
HASH = MultilinearHash(SECRET)
LENGTHS = [
    0,
    1,
    3,
    4,
    5,
    8,
    31,
    32,
    33,
    KEY_BYTES_MAX - 1,
    KEY_BYTES_MAX,
    KEY_BYTES_MAX + 1,
    300,
    5_000,
]


def pairs(hashes: KeyHashes) -> list[tuple[int, int]]:
    return list(zip(hashes.hi.tolist(), hashes.lo.tolist(), strict=True))


def expected(keys: list[str]) -> list[tuple[int, int]]:
    return [multilinear(SECRET, key.encode()) for key in keys]


def numbered(count: int, text: str = "key{:09d}") -> pa.Array:
    return pa.array([text.format(n) for n in range(count)])


@pytest.mark.parametrize("count", [1, 2, 100, 2_048, 2_049, 20_000])
def test_any_number_of_keys_hashes_as_the_reference_says(count: int) -> None:
    rng = random.Random(count)
    keys = ["".join(rng.choices("aé€𝄞\0 9", k=rng.choice([0, 1, 7, 12, 40]))) for _ in range(count)]
    assert pairs(HASH.hash(pa.array(keys, pa.string()))) == expected(keys)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 3_000])
def test_keys_of_any_length_hash_as_the_reference_says(length: int, count: int) -> None:
    keys = [
        f"{n:05}"[:length].ljust(length, "é" if length % 2 == 0 else "z")[:length]
        for n in range(count)
    ]
    assert pairs(HASH.hash(pa.array(keys, pa.string())))[:50] == expected(keys[:50])


def test_long_keys_among_short_ones_hash_as_the_reference_says() -> None:
    keys = ["x" * length for length in (*LENGTHS, *reversed(LENGTHS))]
    assert pairs(HASH.hash(pa.array(keys))) == expected(keys)


@given(st.lists(st.text(), max_size=20), st.binary(min_size=32, max_size=32))
def test_any_text_and_secret_hash_as_the_reference_says(keys: list[str], secret: bytes) -> None:
    texts = [key for key in keys if not any(0xD800 <= ord(letter) < 0xE000 for letter in key)]
    found = pairs(MultilinearHash(secret).hash(pa.array(texts, pa.string())))
    assert found == [multilinear(secret, key.encode()) for key in texts]


@pytest.mark.parametrize("count", [10, 30_000])
def test_slices_chunks_and_other_strings_hash_as_whole_arrays_do(count: int) -> None:
    keys = numbered(count)
    whole = pairs(HASH.hash(keys))
    assert pairs(HASH.hash(keys.slice(3, count - 5))) == whole[3:-2]
    assert pairs(HASH.hash(pa.chunked_array([keys[:4], keys[4:]]))) == whole
    for type in (pa.large_string(), pa.string_view()):
        assert pairs(HASH.hash(keys.cast(type))) == whole


def test_zeros_at_the_end_of_a_key_count() -> None:
    keys = ["a" + "\0" * count for count in range(200)]
    assert len(set(pairs(HASH.hash(pa.array(keys))))) == 200


@pytest.mark.parametrize("keys", [pa.array(["a", None]), pa.array([1, 2]), pa.array([b"a"])])
def test_nulls_and_other_types_are_refused(keys: pa.Array) -> None:
    with pytest.raises(ValueError, match="null|expected strings"):
        HASH.hash(keys)


def test_no_keys_have_no_hashes() -> None:
    assert len(HASH.hash(pa.array([], pa.string()))) == 0


def test_keys_that_murmur_cannot_tell_apart_differ() -> None:
    keys = pa.array((A, B))
    assert len({mmh3.hash128(key, 12345) for key in (A, B)}) == 1
    assert len(set(pairs(MurmurHash(7).hash(keys)))) == 1
    assert len(set(pairs(HASH.hash(keys)))) == 2


def test_another_secret_makes_other_hashes() -> None:
    keys = numbered(1_000)
    assert not set(pairs(HASH.hash(keys))) & set(pairs(MultilinearHash(bytes(32)).hash(keys)))


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33)])
def test_a_secret_of_another_length_is_refused_without_being_shown(secret: bytes) -> None:
    with pytest.raises(ValueError, match="has 32 bytes, not"):
        MultilinearHash(secret)


def test_the_secret_is_not_shown_and_survives_pickling() -> None:
    assert repr(HASH) == "MultilinearHash(<secret>)"
    copy = pickle.loads(pickle.dumps(HASH))
    assert copy == HASH and pairs(copy.hash(numbered(3))) == pairs(HASH.hash(numbered(3)))


STRUCTURED = {
    "running numbers": "{}",
    "fixed width": "key{:012d}",
    "uuids": "{:08x}-0000-4000-8000-000000000000",
    "long": "https://example.com/" + "path/" * 25 + "{}",
    "one word differs": "{:04x}" + "0" * 60,
}


@pytest.mark.parametrize("text", STRUCTURED.values(), ids=STRUCTURED)
@pytest.mark.parametrize("shift", [0, 24, 32, 40])
def test_any_24_bits_of_structured_keys_collide_as_often_as_random_ones(
    text: str, shift: int
) -> None:
    """Of n keys n^2 / 2^25 pairs are expected to agree in 24 bits; with 20,000 keys that is 12, by
    Poisson below 40 but once in 10^10.
    """
    hashes = HASH.hash(numbered(20_000, text))
    for words in (hashes.hi, hashes.lo):
        bits = (words >> np.uint64(shift)) & np.uint64((1 << 24) - 1)
        assert 20_000 - len(np.unique(bits)) < 40


def test_of_many_secrets_few_make_two_keys_agree_in_eight_bits() -> None:
    """The theorem: over the secrets, two keys agree in eight given bits with probability 1 / 256:
    16 of 4,096 secrets, by chance 2 to 40.
    """
    for pair in (
        ("a", "b"),
        ("a", "a\0"),
        ("", "\0"),
        (A, B),
        ("x" * 128, "x" * 129),
        ("12", "13"),
    ):
        keys = pa.array(pair)
        words = [
            MultilinearHash(random.Random(n).randbytes(32)).hash(keys).hi for n in range(4_096)
        ]
        assert 2 <= sum(int(a) >> 56 == int(b) >> 56 for a, b in words) <= 40


@pytest.mark.parametrize("text", STRUCTURED.values(), ids=STRUCTURED)
def test_bloom_filters_of_structured_keys_are_as_exact_as_designed(text: str) -> None:
    hashes = HASH.hash(numbered(60_000, text))
    built = bloom.build(KeyHashes(hashes.hi[:20_000], hashes.lo[:20_000]), fpp=0.01)
    absent = KeyHashes(hashes.hi[20_000:], hashes.lo[20_000:])
    assert bloom.probe(built, absent).mean() < 0.015


@pytest.mark.parametrize("text", STRUCTURED.values(), ids=STRUCTURED)
def test_shards_of_structured_keys_are_even(text: str) -> None:
    hashes = HASH.hash(numbered(64_000, text))
    for words in (hashes.hi, hashes.lo):
        counts = np.bincount((words >> np.uint64(58)).astype(np.int64), minlength=64)
        assert counts.min() > 800 and counts.max() < 1_200
