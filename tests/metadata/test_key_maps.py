"""Key maps. A look-up verifies the checksums of only the shards with its keys, and detects damage
before it returns a result.
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


def build_and_encode(rows, *, ordering=True):
    built = key_map.build(
        hashes_of(range(rows)), np.arange(rows, dtype=np.uint64) if ordering else None
    )
    built.check()
    return built, bytearray(key_map.encode(built))


@pytest.mark.parametrize("rows", [1, 1023, 1024, 5000, 70_000])
@pytest.mark.parametrize("ordering", [True, False])
def test_a_stored_map_finds_the_keys_it_was_built_from(rows, ordering):
    built, data = build_and_encode(rows, ordering=ordering)
    sample = range(0, rows + 50, max(1, rows // 20))
    for numbers in (range(rows), sample, range(rows, rows + 30), range(rows // 2, rows // 2 + 1)):
        read = key_map.decode(data, path="p", offset=0)
        hashes = hashes_of(numbers)
        entry = read.find(hashes)
        assert np.array_equal(entry, built.find(hashes))
        assert read.position[entry[entry >= 0]].tolist() == [i for i in numbers if i < rows]
    assert key_map.encode(read.verify_all()) == bytes(data)


@pytest.mark.parametrize(
    "words",
    [[0], [2**64 - 1, 0], [7, 7, 7], [2**63, 2**63 + 255], [2**63, 2**63 + 256], [5, 5 + 2**40]],
)
def test_ordering_values_and_positions_take_as_few_bytes_as_their_range_needs(words):
    built = key_map.build(hashes_of(range(len(words))), np.array(words, np.uint64))
    data = key_map.encode(built)
    read = key_map.decode(data, path="p", offset=0)
    assert read.ordering is not None
    assert np.asarray(read.ordering).tolist() == np.asarray(built.ordering).tolist()
    width = max(1, -(-(max(words) - min(words)).bit_length() // 8))
    assert len(data) == 32 + 16 + len(words) * (10 + width + 1)


def shards_of(read):
    assert read.shards is not None
    return read.shards


def test_look_ups_verify_only_the_shards_of_their_keys():
    built, data = build_and_encode(70_000)
    read = key_map.decode(data, path="p", offset=0)
    shards, hashes = shards_of(read), hashes_of(range(3))
    assert len(shards.check) == 128
    read.find(hashes)
    assert set(np.flatnonzero(shards.verified).tolist()) == set(shards.shard_of(hashes.hi).tolist())
    read = key_map.decode(data, path="p", offset=0)
    shards = shards_of(read)
    first, last = int(shards.start[3]), int(shards.start[6])
    hashes = built.hashes.take(np.random.default_rng(3).permutation(np.arange(first, last)))
    assert (built.hashes.hi[read.find(hashes)] == hashes.hi).all()
    assert np.flatnonzero(shards.verified).tolist() == [3, 4, 5], "many keys in a range of hashes"
    ends = [first, last - 1]
    beyond = KeyHashes(built.hashes.hi[ends] + np.uint64(1), built.hashes.lo[ends])
    assert read.find(beyond).tolist() == [-1, -1]


@pytest.mark.parametrize("rows", [7, 5000])
def test_all_entries_with_equal_hashes_are_found(rows):
    numbers = [*range(rows), *[0, rows - 1, rows - 1] * 3]
    built = key_map.build(hashes_of(numbers), None)
    hashes, keys = hashes_of(range(rows)), np.arange(rows)
    for read in (built, key_map.decode(key_map.encode(built), path="p", offset=0)):
        key, entry = read.with_equal(keys, read.find(hashes))
        found = {n: sorted(read.position[entry[key == n]].tolist()) for n in keys.tolist()}
        assert found == {n: [i for i, m in enumerate(numbers) if m == n] for n in keys.tolist()}
    none = np.empty(0, np.int64)
    assert [len(part) for part in built.with_equal(none, none)] == [0, 0]


def test_equal_entries_in_the_next_shard_are_not_returned():
    built, data = build_and_encode(20_000)
    read = key_map.decode(data, path="p", offset=0)
    entry = int(shards_of(read).start[4])
    begin = len(data) - 14 * 20_000
    last = built.hashes.take(np.array([entry - 1]))
    data[begin + 8 * entry : begin + 8 * entry + 8] = last.hi.tobytes()
    lo = begin + 8 * 20_000 + 2 * entry
    data[lo : lo + 2] = data[lo - 2 : lo]
    read = key_map.decode(data, path="p", offset=0)
    assert read.hi[entry] == read.hi[entry - 1] and read.lo[entry] == read.lo[entry - 1]
    _, entries = read.with_equal(np.zeros(1, np.int64), read.find(last))
    assert entries.tolist() == [entry - 1]


def test_a_hash_greater_than_the_last_one_of_its_shard_is_not_looked_up_in_the_next():
    built, data = build_and_encode(20_000)
    shards = shards_of(key_map.decode(data, path="p", offset=0))
    # the first entry of its shard, which a look-up of the entry before it does not verify
    entry = int(shards.start[4])
    begin = len(data) - 14 * 20_000
    forged = KeyHashes(
        np.array([built.hashes.hi[entry - 1] + np.uint64(1)]), built.hashes.lo[[entry]]
    )
    data[begin + 8 * entry : begin + 8 * entry + 8] = forged.hi.tobytes()
    assert shards.shard_of(forged.hi)[0] == 3
    for copies in (1, 40):
        hashes = KeyHashes(np.repeat(forged.hi, copies), np.repeat(forged.lo, copies))
        assert set(key_map.decode(data, path="p", offset=0).find(hashes).tolist()) == {-1}
    with_last_key = KeyHashes(
        np.append(forged.hi, built.hashes.hi[-1]), np.append(forged.lo, built.hashes.lo[-1])
    )
    assert key_map.decode(data, path="p", offset=0).find(with_last_key).tolist() == [-1, 19_999]


def test_a_damaged_shard_is_corrupt_only_for_look_ups_of_its_keys():
    built, data = build_and_encode(20_000)
    begin = len(data) - 14 * 20_000
    shard = shards_of(key_map.decode(data, path="p", offset=0)).shard_of(built.hashes.hi)
    victim = 777
    for width, bytes_before in ((8, 0), (2, 8), (2, 10), (2, 12)):
        damaged = bytearray(data)
        damaged[begin + bytes_before * 20_000 + width * victim] ^= 16
        for entry in (0, victim, 19_999):
            read = key_map.decode(damaged, path="p", offset=3)
            hashes = built.hashes.take(np.array([entry]))
            if shard[entry] == shard[victim]:
                with pytest.raises(Corrupt, match="a key map is damaged") as caught:
                    read.find(hashes)
                assert (caught.value.path, caught.value.offset) == ("p", 3)
            else:
                assert read.find(hashes).tolist() == [entry]
        with pytest.raises(Corrupt):
            key_map.decode(damaged, path="p", offset=3).verify_all()


def test_every_flipped_bit_before_the_shards_is_detected_when_the_map_is_opened():
    _, data = build_and_encode(3000)
    begin = len(data) - 14 * 3000
    for bit in range(8 * begin):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(Corrupt):
            key_map.decode(damaged, path="p", offset=0)


def test_decimals_that_fit_64_bits_are_ordered_by_their_unscaled_value():
    text = "-999999999999999.999 -2 -0.001 0 0.001 9.5 10 999999999999999.999"
    values = [Decimal(number) for number in text.split()]
    column = pa.chunked_array([values[:3], values[3:]], pa.decimal128(18, 3))
    words = ordering_words(column)
    assert bool((words[1:] > words[:-1]).all())
    assert ordering_words(column.slice(2, 3)).tolist() == words[2:5].tolist()
    assert len(ordering_words(column.slice(0, 0))) == 0
    assert orderable(pa.decimal128(18, 0)) and not orderable(pa.decimal128(19, 0))
