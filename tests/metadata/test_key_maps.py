"""Key maps: a look-up verifies the shards of its keys, and no other; what is damaged is found
before it is believed.
"""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from indexes.base import KeyHashes
from indexes.key_hash import hash_keys
from mdt.errors import Corrupt
from mdt.metadata.files import key_map
from mdt.metadata.files.key_map import orderable, ordering_words


def hashes_of(numbers):
    return hash_keys(pa.array([f"k{i}" for i in numbers]), 7)


def stored(rows, *, ordering=True):
    made = key_map.build(
        hashes_of(range(rows)), np.arange(rows, dtype=np.uint64) if ordering else None
    )
    made.check()
    return made, bytearray(key_map.encode(made))


@pytest.mark.parametrize("rows", [1, 1023, 1024, 5000, 70_000])
@pytest.mark.parametrize("ordering", [True, False])
def test_a_stored_map_finds_what_it_was_built_of(rows, ordering):
    made, data = stored(rows, ordering=ordering)
    some = range(0, rows + 50, max(1, rows // 20))
    for wanted in (range(rows), some, range(rows, rows + 30), range(rows // 2, rows // 2 + 1)):
        read = key_map.decode(data, path="p", offset=0)
        asked = hashes_of(wanted)
        entry = read.find(asked)
        assert np.array_equal(entry, made.find(asked))
        assert read.position[entry[entry >= 0]].tolist() == [i for i in wanted if i < rows]
    assert key_map.encode(read.verify_all()) == bytes(data)


@pytest.mark.parametrize(
    "words",
    [[0], [2**64 - 1, 0], [7, 7, 7], [2**63, 2**63 + 255], [2**63, 2**63 + 256], [5, 5 + 2**40]],
)
def test_ordering_values_and_positions_have_as_few_bytes_as_they_need(words):
    made = key_map.build(hashes_of(range(len(words))), np.array(words, np.uint64))
    data = key_map.encode(made)
    read = key_map.decode(data, path="p", offset=0)
    assert read.ordering is not None
    assert np.asarray(read.ordering).tolist() == np.asarray(made.ordering).tolist()
    width = max(1, -(-(max(words) - min(words)).bit_length() // 8))
    assert len(data) == 32 + 16 + len(words) * (10 + width + 1)


def shards_of(read):
    assert read.shards is not None
    return read.shards


def test_keys_verify_only_their_shards():
    made, data = stored(70_000)
    read = key_map.decode(data, path="p", offset=0)
    shards, asked = shards_of(read), hashes_of(range(3))
    assert len(shards.check) == 128
    read.find(asked)
    assert set(np.flatnonzero(shards.verified).tolist()) == set(shards.shard_of(asked.hi).tolist())
    read = key_map.decode(data, path="p", offset=0)
    shards = shards_of(read)
    first, last = int(shards.start[3]), int(shards.start[6])
    asked = made.hashes.take(np.random.default_rng(3).permutation(np.arange(first, last)))
    assert (made.hashes.hi[read.find(asked)] == asked.hi).all()
    assert np.flatnonzero(shards.verified).tolist() == [3, 4, 5], "many of a range of hashes"
    ends = [first, last - 1]
    beyond = KeyHashes(made.hashes.hi[ends] + np.uint64(1), made.hashes.lo[ends])
    assert read.find(beyond).tolist() == [-1, -1]


@pytest.mark.parametrize("rows", [7, 5000])
def test_all_entries_with_equal_hashes_are_found(rows):
    numbers = [*range(rows), *[0, rows - 1, rows - 1] * 3]
    made = key_map.build(hashes_of(numbers), None)
    asked, keys = hashes_of(range(rows)), np.arange(rows)
    for read in (made, key_map.decode(key_map.encode(made), path="p", offset=0)):
        key, entry = read.with_equal(keys, read.find(asked))
        found = {n: sorted(read.position[entry[key == n]].tolist()) for n in keys.tolist()}
        assert found == {n: [i for i, m in enumerate(numbers) if m == n] for n in keys.tolist()}
    none = np.empty(0, np.int64)
    assert [len(part) for part in made.with_equal(none, none)] == [0, 0]


def test_equal_entries_are_not_looked_for_in_the_next_shard():
    made, data = stored(20_000)
    read = key_map.decode(data, path="p", offset=0)
    entry = int(shards_of(read).start[4])
    begin = len(data) - 14 * 20_000
    last = made.hashes.take(np.array([entry - 1]))
    data[begin + 8 * entry : begin + 8 * entry + 8] = last.hi.tobytes()
    lo = begin + 8 * 20_000 + 2 * entry
    data[lo : lo + 2] = data[lo - 2 : lo]
    read = key_map.decode(data, path="p", offset=0)
    assert read.hi[entry] == read.hi[entry - 1] and read.lo[entry] == read.lo[entry - 1]
    _, entries = read.with_equal(np.zeros(1, np.int64), read.find(last))
    assert entries.tolist() == [entry - 1]


def test_a_hash_behind_the_last_one_of_a_shard_is_not_looked_for_in_the_next():
    made, data = stored(20_000)
    shards = shards_of(key_map.decode(data, path="p", offset=0))
    # the first of its shard, which is not verified when one before it is asked
    entry = int(shards.start[4])
    begin = len(data) - 14 * 20_000
    forged = KeyHashes(
        np.array([made.hashes.hi[entry - 1] + np.uint64(1)]), made.hashes.lo[[entry]]
    )
    data[begin + 8 * entry : begin + 8 * entry + 8] = forged.hi.tobytes()
    assert shards.shard_of(forged.hi)[0] == 3
    for many in (1, 40):
        asked = KeyHashes(np.repeat(forged.hi, many), np.repeat(forged.lo, many))
        assert set(key_map.decode(data, path="p", offset=0).find(asked).tolist()) == {-1}
    far = KeyHashes(
        np.append(forged.hi, made.hashes.hi[-1]), np.append(forged.lo, made.hashes.lo[-1])
    )
    assert key_map.decode(data, path="p", offset=0).find(far).tolist() == [-1, 19_999]


def test_a_damaged_shard_is_corrupt_for_its_keys_and_for_no_other():
    made, data = stored(20_000)
    begin = len(data) - 14 * 20_000
    shard = shards_of(key_map.decode(data, path="p", offset=0)).shard_of(made.hashes.hi)
    victim = 777
    for width, before in ((8, 0), (2, 8), (2, 10), (2, 12)):
        damaged = bytearray(data)
        damaged[begin + before * 20_000 + width * victim] ^= 16
        for entry in (0, victim, 19_999):
            read = key_map.decode(damaged, path="p", offset=3)
            asked = made.hashes.take(np.array([entry]))
            if shard[entry] == shard[victim]:
                with pytest.raises(Corrupt, match="a key map is damaged") as caught:
                    read.find(asked)
                assert (caught.value.path, caught.value.offset) == ("p", 3)
            else:
                assert read.find(asked).tolist() == [entry]
        with pytest.raises(Corrupt):
            key_map.decode(damaged, path="p", offset=3).verify_all()


def test_every_flipped_bit_before_the_shards_is_found_at_once():
    _, data = stored(3000)
    begin = len(data) - 14 * 3000
    for bit in range(8 * begin):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(Corrupt):
            key_map.decode(damaged, path="p", offset=0)


def test_decimals_order_by_their_digits_where_these_fit_a_word():
    text = "-999999999999999.999 -2 -0.001 0 0.001 9.5 10 999999999999999.999"
    values = [Decimal(one) for one in text.split()]
    column = pa.chunked_array([values[:3], values[3:]], pa.decimal128(18, 3))
    words = ordering_words(column)
    assert bool((words[1:] > words[:-1]).all())
    assert ordering_words(column.slice(2, 3)).tolist() == words[2:5].tolist()
    assert len(ordering_words(column.slice(0, 0))) == 0
    assert orderable(pa.decimal128(18, 0)) and not orderable(pa.decimal128(19, 0))
