"""Partitioning of input rows: rows with equal keys get the same part, and parts of key columns are
ranges of the table's key hash.
"""

import numpy as np
import pyarrow as pa
import pytest

import mdt
from indexes.key_hash import MultilinearHash, MurmurHash
from mdt.engines import tasks
from mdt.engines.parting import by_part, part_of
from mdt.hudi.record_keys import record_keys
from mdt.metadata.files import key_map
from mdt.write.rules import Upserting

HASHES = [MurmurHash(11), MultilinearHash(bytes(32))]
KEYS = pa.table({"id": [f"k{n}" for n in range(3000)], "n": pa.array(np.arange(3000) % 1000)})


@pytest.mark.parametrize("key_hash", HASHES)
@pytest.mark.parametrize("names", [["id"], ["n"], ["id", "n"]])
def test_parts_of_key_columns_are_ranges_of_their_hashes(names, key_hash):
    part = part_of(KEYS, names, 7, key_hash)
    hashes = key_hash.hash(record_keys(KEYS, names)).hi
    order = np.argsort(hashes)
    assert (np.diff(part[order]) >= 0).all() and set(part.tolist()) == set(range(7))
    assert np.bincount(part).min() > 3000 / 7 / 2


@pytest.mark.parametrize("key_hash", [None, *HASHES])
def test_rows_with_equal_values_get_the_same_part(key_hash):
    table = pa.table({"n": KEYS["n"], "f": KEYS["n"].cast(pa.float64())})
    for name in ("n", "f"):
        parts = part_of(table, [name], 5, key_hash)
        assert len(set(zip(table[name].to_pylist(), parts.tolist(), strict=True))) == 1000
    zeros = pa.table({"f": [0.0, -0.0]})
    assert len(set(part_of(zeros, ["f"], 97, key_hash).tolist())) == 1


def test_a_task_verifies_only_its_own_hash_range_of_a_key_map(tmp_path):
    table = mdt.create(tmp_path, KEYS.schema, ["id"], key_index="record")
    table.upsert(pa.table({"id": [f"k{n}" for n in range(30_000)], "n": np.arange(30_000)}))
    keys = pa.table({"id": [f"k{n}" for n in range(0, 30_000, 3)], "n": np.arange(10_000)})
    rows = dict(by_part(keys, part_of(keys, ["id"], 8, table.definition.key_hash)))
    opened = mdt.open(tmp_path)
    source = tasks.source_of(opened.metadata, opened.snapshot(), opened.options, is_in_process=True)
    tagged = pa.Table.from_batches(tasks.tag(Upserting(), source, iter(rows[2].to_batches())))
    assert tagged["__mdt_kind"].to_pylist().count(tasks.UPDATE) == len(rows[2])
    [segment] = [
        opened.snapshot().segment(number) for number in opened.snapshot().live_numbers.tolist()
    ]
    shards = opened.metadata.objects.key_map(segment.key_map).shards
    assert shards is not None and len(shards.check) > 8
    assert shards.verified.mean() <= 1 / 4, "an eighth of the hashes and the shards at its two ends"
    assert key_map.shard_bits(30_000) == shards.bits
