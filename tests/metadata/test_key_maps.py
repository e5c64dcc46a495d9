"""Key maps: a look-up verifies the shards of its keys, and no other; what is damaged is found before it is believed."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from indexes.base import KeyHashes
from indexes.hashing import hash_keys
from mdt.errors import Corrupt
from mdt.metadata import key_map
from mdt.metadata.key_map import KeyMap, orderable, ordering_words


def hashes_of(numbers: range) -> KeyHashes:
    return hash_keys(pa.array([f"k{i}" for i in numbers]), 7)


def stored(rows: int, *, ordering: bool = True) -> tuple[KeyMap, bytearray]:
    made = key_map.build(hashes_of(range(rows)), np.arange(rows, dtype=np.uint64) if ordering else None)
    made.check()
    return made, bytearray(key_map.encode(made))


@pytest.mark.parametrize("rows", [1, 1023, 1024, 5000, 70_000])
@pytest.mark.parametrize("ordering", [True, False])
def test_a_stored_map_finds_what_it_was_built_of(rows: int, ordering: bool) -> None:
    made, data = stored(rows, ordering=ordering)
    for wanted in (
        range(rows),
        range(0, rows + 50, max(1, rows // 20)),
        range(rows, rows + 30),
        range(rows // 2, rows // 2 + 1),
    ):
        read = key_map.decode(data, path="p", offset=0)
        asked = hashes_of(wanted)
        entry = read.find(asked)
        assert np.array_equal(entry, made.find(asked))
        hit = entry >= 0
        assert read.position[entry[hit]].tolist() == [i for i in wanted if i < rows]
    assert key_map.encode(read.whole()) == bytes(data)


def test_few_keys_verify_only_their_shards() -> None:
    _, data = stored(70_000)
    read = key_map.decode(data, path="p", offset=0)
    assert read.shards is not None
    assert len(read.shards.check) == 128
    asked = hashes_of(range(3))
    read.find(asked)
    assert set(np.flatnonzero(read.shards.verified).tolist()) == set(read.shards.of(asked.hi).tolist())


def test_a_damaged_shard_is_corrupt_for_its_keys_and_for_no_other() -> None:
    made, data = stored(20_000)
    begin = len(data) - 28 * 20_000
    bits = key_map.decode(data, path="p", offset=0).shards
    assert bits is not None
    shard = bits.of(made.hashes.hi)
    victim = 777
    for offset in (
        begin + 8 * victim,
        begin + 8 * (20_000 + victim),
        begin + 8 * (40_000 + victim),
        begin + 24 * 20_000 + 4 * victim,
    ):
        damaged = bytearray(data)
        damaged[offset] ^= 16
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
            key_map.decode(damaged, path="p", offset=3).whole()


def test_every_flipped_bit_before_the_shards_is_found_at_once() -> None:
    _, data = stored(3000)
    begin = len(data) - 28 * 3000
    for bit in range(8 * begin):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(Corrupt):
            key_map.decode(damaged, path="p", offset=0)


def test_decimals_order_by_their_digits_where_these_fit_a_word() -> None:
    values = [
        Decimal(text)
        for text in ("-999999999999999.999", "-2", "-0.001", "0", "0.001", "9.5", "10", "999999999999999.999")
    ]
    column = pa.chunked_array([pa.array(values[:3], pa.decimal128(18, 3)), pa.array(values[3:], pa.decimal128(18, 3))])
    words = ordering_words(column)
    assert bool((words[1:] > words[:-1]).all())
    assert ordering_words(column.slice(2, 3)).tolist() == words[2:5].tolist()
    assert len(ordering_words(column.slice(0, 0))) == 0
    assert orderable(pa.decimal128(18, 0)) and not orderable(pa.decimal128(19, 0))
