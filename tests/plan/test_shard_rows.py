"""Positions computed per shard and then split by file are the positions within each file."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from texts import columns

import mdt
from indexes.bitmap import BitmapIndex
from mdt.errors import Corrupt
from mdt.metadata import metadata
from mdt.metadata.log.checkpoint_columns import Column
from mdt.plan.shard_rows import ShardRows, first_answers
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, n int64, m int64")


@st.composite
def shard_rows(draw):
    """Draw some files of some shards. Files in between are deleted, or are not requested."""
    shards, files, first, rows, start = [], [], [], [], [0]
    number = 0
    for shard in range(draw(st.integers(0, 4))):
        end = 0
        for count in draw(st.lists(st.integers(1, 9), min_size=1, max_size=5)):
            if draw(st.booleans()):
                files.append(number)
                first.append(end)
                rows.append(count)
            end += count
            number += 1
        if len(files) > start[-1]:
            shards.append(shard)
            start.append(len(files))
    return ShardRows(
        *(np.array(numbers, np.int64) for numbers in (shards, files, start, first, rows))
    )


def in_shard(requested_files, file, positions):
    return BitMap(int(requested_files.first[file]) + p for p in positions)


@given(shard_rows(), st.data())
def test_positions_of_a_shard_are_split_into_the_positions_of_each_file(requested_files, data):
    expected, answers = {}, []
    for start, end in pairwise(requested_files.start.tolist()):
        if data.draw(st.booleans()):
            answers.append(None)
            continue
        # rows of files that are not requested, then those of the files
        answer = BitMap(data.draw(st.sets(st.integers(0, 60))))
        for n in range(start, end):
            rows = int(requested_files.rows[n])
            own = BitMap(data.draw(st.sets(st.integers(0, rows - 1))))
            answer -= in_shard(requested_files, n, range(rows))
            answer |= in_shard(requested_files, n, own)
            expected[int(requested_files.files[n])] = own
        answers.append(answer)
    assert dict(requested_files.of_files(answers)) == {
        file: rows for file, rows in expected.items() if rows
    }
    may_match = [
        file not in expected or bool(expected[file]) for file in requested_files.files.tolist()
    ]
    assert requested_files.alive(answers).tolist() == may_match


@given(shard_rows(), st.data())
def test_relevant_rows_of_a_shard_are_its_requested_files_or_their_known_positions(
    requested_files, data
):
    of_file = dict(zip(requested_files.files.tolist(), requested_files.rows.tolist(), strict=True))
    known = {
        file: BitMap(data.draw(st.sets(st.integers(0, rows - 1))))
        for file, rows in of_file.items()
        if data.draw(st.booleans())
    }
    within = requested_files.within(known)
    for rows, (start, end) in zip(within, pairwise(requested_files.start.tolist()), strict=True):
        files = requested_files.files[start:end].tolist()
        if rows is None:
            assert len(files) == 1 and files[0] not in known
            continue
        expected = BitMap()
        for n, file in enumerate(files, start):
            expected |= in_shard(requested_files, n, known.get(file, range(of_file[file])))
        assert rows == expected


def test_each_function_gets_only_the_shards_that_earlier_ones_left_unanswered():
    requests = []

    def answer_odd_shards(shards):
        requests.append(shards)
        return [BitMap([at]) if at % 2 else None for at in shards]

    def answer_all_shards(shards):
        requests.append(shards)
        return [BitMap() for _ in shards]

    answers = first_answers(3, [answer_odd_shards, answer_all_shards, answer_odd_shards])
    assert answers == [BitMap(), BitMap([1]), BitMap()]
    assert requests == [[0, 1, 2], [0, 2]]


def rows(numbers, step=1):
    records = [
        {"id": f"k{i}", "city": f"c{i % 4}", "n": i * step % 7, "m": i * step % 5} for i in numbers
    ]
    return pa.Table.from_pylist(records, schema=SCHEMA)


@pytest.fixture
def table():
    storage, shape = MemoryStorage(), {"table_type": "MERGE_ON_READ", "key_index": "record"}
    table = mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], indexes=["bitmap(n)"], **shape
    )
    table.insert(rows(range(120)))
    return table


def keys(table, where):
    return set(table.scan(where).to_arrow()["id"].to_pylist())


def test_indexes_built_one_after_the_other_are_combined_in_one_filter(table, monkeypatch):
    table.create_index("bitmap(m)")
    plain, summaries = BitmapIndex.rows_within, []

    def record_summaries(self, batch, *rest):
        summaries.extend(batch)
        return plain(self, batch, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(BitmapIndex, "rows_within", record_summaries)
        expected = {f"k{i}" for i in range(120) if i % 7 == 3 and i % 5 == 2}
        assert keys(table, "n = 3 and m = 2") == expected
    assert len(summaries) == 2, "each index has one summary, of the same files in one order"
    assert len(table.snapshot().shards) == 1
    table.drop_index("bitmap(m)")
    table.upsert(rows(range(0, 120, 4), 3))
    table.compact()
    table.create_index("bitmap(m)")
    now = {f"k{i}": i * (3 if i % 4 == 0 else 1) for i in range(120)}
    for where, holds in (
        ("n = 3 and m = 2", lambda n, m: n == 3 and m == 2),
        ("n = 3 or m = 2", lambda n, m: n == 3 or m == 2),
        ("n in (1, 2) and (m = 2 or n = 1)", lambda n, m: n in (1, 2) and (m == 2 or n == 1)),
    ):
        expected = {key for key, value in now.items() if holds(value % 7, value % 5)}
        assert keys(table, where) == expected, where
    assert table.check().ok


@pytest.mark.parametrize("value", [-1, 2**20 + 1, 2**32, 2**63 - 1, 0])
def test_a_checkpoint_with_impossible_positions_is_corrupt(value, table, monkeypatch):
    plain = metadata.to_checkpoint

    def forged(*arguments):
        columns = plain(*arguments)
        first = columns["files/first_row"].table.column(0).to_pylist()
        rows = pa.array([*first[:-1], value], "int64")
        return columns | {"files/first_row": Column(pa.table({"first_row": rows}))}

    with monkeypatch.context() as patched:
        patched.setattr(metadata, "to_checkpoint", forged)
        table.metadata.compact()
    other = mdt.open(table.metadata.storage)
    assert other.snapshot().checkpoint.rows == 4
    with pytest.raises(Corrupt, match="impossible positions"):
        other.scan("n = 3").to_arrow()
