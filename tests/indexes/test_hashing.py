"""Hashes equal those of mmh3, whatever the shape of the keys, the array and the path that computes
them.
"""

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import key_hash
from indexes.key_hash import SEED_MAX, hash_keys

PATH_ROWS = key_hash._NUMPY_ROWS_MIN
ALPHABET = "abcdefghij0123456789-é漢😀\0"


def words(hashes):
    return [(int(hi) << 64) | int(lo) for hi, lo in zip(hashes.hi, hashes.lo, strict=True)]


def expected(keys, seed):
    return [mmh3.hash128(key.encode(), seed) for key in keys]


def random_keys(count, length_max, seed=3):
    rng = np.random.default_rng(seed)
    return [
        "".join(rng.choice(list(ALPHABET), size)) for size in rng.integers(0, length_max + 1, count)
    ]


@pytest.mark.parametrize("rows", [0, 1, PATH_ROWS - 1, PATH_ROWS, key_hash._PIECE_ROWS + 1])
@pytest.mark.parametrize("length_max", [20, 120])
def test_hashes_equal_mmh3_on_both_paths(rows, length_max):
    keys = random_keys(rows, length_max)
    assert words(hash_keys(pa.array(keys, pa.string()), 99)) == expected(keys, 99)


@pytest.mark.parametrize("length", [*range(18), 31, 32, 33, 95, 96])
def test_keys_of_equal_length_hash_as_in_mmh3(length):
    keys = [(f"{n:08d}" * 13)[:length] for n in range(PATH_ROWS)]
    assert words(hash_keys(pa.array(keys), 0)) == expected(keys, 0)


@given(st.lists(st.text(max_size=40), max_size=20), st.integers(0, SEED_MAX))
def test_any_text_and_seed_hash_as_in_mmh3_on_the_vector_path(keys, seed):
    padded = keys + ["filler"] * PATH_ROWS
    found = words(hash_keys(pa.array(padded), seed).take(np.arange(len(keys))))
    assert found == words(hash_keys(pa.array(keys, pa.string()), seed)) == expected(keys, seed)


@pytest.mark.parametrize("rows", [50, PATH_ROWS + 50])
def test_slices_chunks_and_string_types_change_nothing(rows):
    keys = random_keys(rows, 30)
    array = pa.array(keys)
    chunked = pa.chunked_array([array.slice(0, 7), array.slice(7, 0), array.slice(7)])
    for same in (
        array.cast(pa.large_string()),
        chunked,
        array.cast(pa.string_view()),
        array.cast(pa.binary()),
    ):
        assert words(hash_keys(same, 5)) == expected(keys, 5)
    assert words(hash_keys(array.slice(3, rows - 10), 5)) == expected(keys[3 : rows - 7], 5)
    assert words(hash_keys(pa.chunked_array([], pa.string()), 5)) == []


@pytest.mark.parametrize("rows", [1, PATH_ROWS])
def test_null_keys_and_other_types_are_refused(rows):
    with pytest.raises(ValueError, match="1 of"):
        hash_keys(pa.array(["a"] * rows + [None]), 0)
    with pytest.raises(ValueError, match="cast the column to string"):
        hash_keys(pa.array([1] * rows), 0)


@pytest.mark.parametrize("seed", [-1, SEED_MAX + 1])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        hash_keys(pa.array(["a"]), seed)
