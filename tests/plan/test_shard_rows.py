"""Positions that are worked out for shards, then cut, are those of their files."""

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
    """Some files of some shards; those between them have left, or are not asked."""
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
    return ShardRows(*(np.array(one, np.int64) for one in (shards, files, start, first, rows)))


def in_shard(asked, file, positions):
    return BitMap(int(asked.first[file]) + p for p in positions)


@given(shard_rows(), st.data())
def test_every_file_gets_its_own_positions_back(asked, data):
    wanted, answers = {}, []
    for start, end in pairwise(asked.start.tolist()):
        if data.draw(st.booleans()):
            answers.append(None)
            continue
        # rows of files that nobody asks about, then those of the files
        answer = BitMap(data.draw(st.sets(st.integers(0, 60))))
        for n in range(start, end):
            rows = int(asked.rows[n])
            own = BitMap(data.draw(st.sets(st.integers(0, rows - 1))))
            answer -= in_shard(asked, n, range(rows))
            answer |= in_shard(asked, n, own)
            wanted[int(asked.files[n])] = own
        answers.append(answer)
    assert dict(asked.of_files(answers)) == {file: rows for file, rows in wanted.items() if rows}
    alive = [file not in wanted or bool(wanted[file]) for file in asked.files.tolist()]
    assert asked.alive(answers).tolist() == alive


@given(shard_rows(), st.data())
def test_what_matters_in_a_shard_are_the_rows_of_its_files_as_far_as_they_are_not_known(
    asked, data
):
    of_file = dict(zip(asked.files.tolist(), asked.rows.tolist(), strict=True))
    known = {
        file: BitMap(data.draw(st.sets(st.integers(0, rows - 1))))
        for file, rows in of_file.items()
        if data.draw(st.booleans())
    }
    within = asked.within(known)
    for rows, (start, end) in zip(within, pairwise(asked.start.tolist()), strict=True):
        files = asked.files[start:end].tolist()
        if rows is None:
            assert len(files) == 1 and files[0] not in known
            continue
        expected = BitMap()
        for n, file in enumerate(files, start):
            expected |= in_shard(asked, n, known.get(file, range(of_file[file])))
        assert rows == expected


def test_whoever_knows_something_first_answers_and_the_others_are_asked_about_the_rest():
    told = []

    def knows_odd_ones(left):
        told.append(left)
        return [BitMap([at]) if at % 2 else None for at in left]

    def knows_all(left):
        told.append(left)
        return [BitMap() for _ in left]

    found = first_answers(3, [knows_odd_ones, knows_all, knows_odd_ones])
    assert found == [BitMap(), BitMap([1]), BitMap()]
    assert told == [[0, 1, 2], [0, 2]]


def rows(numbers, step=1):
    found = [
        {"id": f"k{i}", "city": f"c{i % 4}", "n": i * step % 7, "m": i * step % 5} for i in numbers
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


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


def test_indexes_that_were_built_one_after_the_other_answer_together(table, monkeypatch):
    table.create_index("bitmap(m)")
    plain, summaries = BitmapIndex.rows_within, []

    def seen(self, found, *rest):
        summaries.extend(found)
        return plain(self, found, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(BitmapIndex, "rows_within", seen)
        expected = {f"k{i}" for i in range(120) if i % 7 == 3 and i % 5 == 2}
        assert keys(table, "n = 3 and m = 2") == expected
    assert len(summaries) == 2, "both were made of the same files in one order"
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
def test_a_checkpoint_that_says_impossible_positions_is_corrupt(value, table, monkeypatch):
    plain = metadata.to_checkpoint

    def forged(*given):
        columns = plain(*given)
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
