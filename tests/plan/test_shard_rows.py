"""Positions that are worked out for shards, then cut, are those of their files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

import mdt
from indexes.bitmap import BitmapIndex
from mdt.errors import Corrupt
from mdt.metadata import metadata
from mdt.metadata.log.checkpoint_columns import Column
from mdt.plan.shard_rows import ShardRows, cut, first_answers
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("m", pa.int64())]
)


@st.composite
def shard_rows(draw: st.DrawFn) -> ShardRows:
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


@given(shard_rows(), st.data())
def test_every_file_gets_its_own_positions_back(asked: ShardRows, data: st.DataObject) -> None:
    of_file = dict(zip(asked.files.tolist(), asked.rows.tolist(), strict=True))
    wanted = {
        file: BitMap(data.draw(st.sets(st.integers(0, rows - 1)))) for file, rows in of_file.items()
    }
    answers: list[BitMap | None] = []
    for at in range(len(asked)):
        mine = range(asked.start[at], asked.start[at + 1])
        if data.draw(st.booleans()):
            answers.append(None)
            for n in mine:
                del wanted[int(asked.files[n])]
        else:
            # rows of files that nobody asks about
            other = BitMap(data.draw(st.sets(st.integers(0, 60))))
            for n in mine:
                other -= BitMap(range(asked.first[n], asked.first[n] + asked.rows[n]))
            own = BitMap(int(asked.first[n]) + p for n in mine for p in wanted[int(asked.files[n])])
            answers.append(own | other)
    assert dict(asked.of_files(answers)) == {file: rows for file, rows in wanted.items() if rows}
    assert asked.alive(answers).tolist() == [
        file not in wanted or bool(wanted[file]) for file in asked.files.tolist()
    ]


@given(shard_rows(), st.data())
def test_what_matters_in_a_shard_are_the_rows_of_its_files_as_far_as_they_are_not_known(
    asked: ShardRows, data: st.DataObject
) -> None:
    of_file = dict(zip(asked.files.tolist(), asked.rows.tolist(), strict=True))
    known = {
        file: BitMap(data.draw(st.sets(st.integers(0, rows - 1))))
        for file, rows in of_file.items()
        if data.draw(st.booleans())
    }
    for at, rows in enumerate(asked.within(known)):
        mine = range(asked.start[at], asked.start[at + 1])
        if rows is None:
            assert len(mine) == 1 and int(asked.files[mine[0]]) not in known
            continue
        expected = BitMap()
        for n in mine:
            file = int(asked.files[n])
            expected |= BitMap(
                int(asked.first[n]) + p for p in known.get(file, range(of_file[file]))
            )
        assert rows == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_an_answer_is_cut_into_the_positions_of_files(
    counts: list[int], data: st.DataObject
) -> None:
    hits = BitMap(data.draw(st.sets(st.integers(0, sum(counts) + 5), min_size=1)))
    mine = sorted(data.draw(st.sets(st.integers(0, len(counts) - 1), min_size=1)))
    first = np.array([sum(counts[:at]) for at in mine], np.int64)
    found = list(cut(hits, first, np.array([counts[at] for at in mine], np.int64)))
    for at, begin, positions in zip(mine, first.tolist(), found, strict=True):
        assert positions == BitMap(p - begin for p in hits if begin <= p < begin + counts[at])


def test_whoever_knows_something_first_answers_and_the_others_are_asked_about_the_rest() -> None:
    told: list[list[int]] = []

    def one(left: list[int]) -> list[BitMap | None]:
        told.append(left)
        return [BitMap([at]) if at % 2 else None for at in left]

    def other(left: list[int]) -> list[BitMap | None]:
        told.append(left)
        return [BitMap() for _ in left]

    assert first_answers(3, [one, other, one]) == [BitMap(), BitMap([1]), BitMap()]
    assert told == [[0, 1, 2], [0, 2]]


def made() -> mdt.Table:
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        key_index="record",
        indexes=["bitmap(n)"],
    )
    table.insert(rows(range(120)))
    return table


def rows(numbers: range, step: int = 1) -> pa.Table:
    found = [
        {"id": f"k{i}", "city": f"c{i % 4}", "n": i * step % 7, "m": i * step % 5} for i in numbers
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def asked(table: mdt.Table, where: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """Return the keys that match, and about how many summaries bitmaps were asked."""
    count: list[int] = []
    plain = BitmapIndex.rows_within

    def counted(self: BitmapIndex, found: list[object], *rest: object) -> object:
        count.append(len(found))
        return plain(self, found, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(BitmapIndex, "rows_within", counted)
        keys = table.scan(where).to_arrow()["id"].to_pylist()
    return sorted(keys), sum(count)


def test_indexes_that_were_built_one_after_the_other_answer_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = made()
    table.create_index("bitmap(m)")
    expected = sorted(f"k{i}" for i in range(120) if i % 7 == 3 and i % 5 == 2)
    assert asked(table, "n = 3 and m = 2", monkeypatch) == (expected, 2), (
        "both were made of the same files in one order"
    )
    assert len(table.snapshot().shards) == 1
    table.drop_index("bitmap(m)")
    table.upsert(rows(range(0, 120, 4), 3))
    table.compact()
    table.create_index("bitmap(m)")
    now = {f"k{i}": i * (3 if i % 4 == 0 else 1) for i in range(120)}
    for where, expected in {
        "n = 3 and m = 2": sorted(k for k, v in now.items() if v % 7 == 3 and v % 5 == 2),
        "n = 3 or m = 2": sorted(k for k, v in now.items() if v % 7 == 3 or v % 5 == 2),
        "n in (1, 2) and (m = 2 or n = 1)": sorted(
            k for k, v in now.items() if v % 7 == 1 or v % 7 == v % 5 == 2
        ),
    }.items():
        assert asked(table, where, monkeypatch)[0] == expected, where
    assert table.check().ok


@pytest.mark.parametrize("value", [-1, 2**20 + 1, 2**32, 2**63 - 1, 0])
def test_a_checkpoint_that_says_impossible_positions_is_corrupt(
    value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made()
    plain = metadata.to_checkpoint

    def forged(*given: Any) -> dict[str, Column]:
        columns = plain(*given)
        first = columns["files/first_row"].table.column(0).to_pylist()
        columns["files/first_row"] = Column(
            pa.table({"first_row": pa.array([*first[:-1], value], pa.int64())})
        )
        return columns

    with monkeypatch.context() as patched:
        patched.setattr(metadata, "to_checkpoint", forged)
        table.metadata.compact()
    other = mdt.open(table.metadata.storage)
    assert other.snapshot().checkpoint.rows == 4
    with pytest.raises(Corrupt, match="impossible positions"):
        other.scan("n = 3").to_arrow()
