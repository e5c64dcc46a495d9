"""Loads straight from Parquet files leave what the same rows leave that came in one table, and are made only of row groups with keys of their own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reader import bag
from worlds import OPTIONS, assert_clean, ours, recovered, theirs
from worlds import SCHEMA as WORLD

import mdt
from mdt.engines import plain_files, spilling, straight
from mdt.engines import write as writes
from mdt.engines.plain_files import PlainFiles
from mdt.errors import Conflict, Corrupt, Invalid
from mdt.progress import Progress
from mdt.stores.storage import LocalStorage, MemoryStorage, Storage

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64(), nullable=False), pa.field("day", pa.date32(), nullable=False),
     ("half", pa.float64()), ("ts", pa.int64()), ("note", pa.string())]
)  # fmt: skip
COUNTS = ("inserted", "updated", "deleted", "late")
SMALL = {"mdt.durable": False, "mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}


def rows_of(draw: random.Random, numbers: Sequence[int]) -> pa.Table:
    """Return one row for each number, by whose size all keys are ordered alike; equal numbers have equal keys."""
    count = len(numbers)
    columns = [
        [f"é{number:05}" for number in numbers], list(numbers), [date(2000, 1, 1) + timedelta(number) for number in numbers],
        [number + 0.5 for number in numbers], [draw.randrange(4) for _ in range(count)], [f"{draw.random()} {at}" for at in range(count)],
    ]  # fmt: skip
    return pa.table(columns, schema=SCHEMA)


def stored(folder: Path, parts: Sequence[pa.Table], **how: Any) -> PlainFiles:
    """Return files with these parts, each in row groups of 50 rows."""
    folder.mkdir(exist_ok=True)
    for at, part in enumerate(parts):
        pq.write_table(part, folder / f"{at:03}.parquet", **{"row_group_size": 50, **how})
    found = [(str(file), file.stat().st_size) for file in sorted(folder.glob("*.parquet"))]
    files = PlainFiles.of(found, parts[0].schema.names, parts[0].schema)
    assert files is not None
    return files


def written(table: mdt.Table, files: PlainFiles, name: str, progress: Progress | None = None) -> mdt.WriteResult:
    """Write the rows of files as a driver does whose machine is all that there is."""
    engine, rows, options = spilling.of_files(files, table.options, progress)
    operation = writes.write(engine, table.metadata, options, rows, files.schema, name)
    return mdt.WriteResult.of(table._commit_rows(operation))


def ordered(draw: random.Random) -> list[pa.Table]:
    parts = [rows_of(draw, range(at * 300, at * 300 + 300)) for at in range(4)]
    return [parts[2], parts[0], parts[3], parts[1]]


def overlapping(draw: random.Random) -> list[pa.Table]:
    """Rows of 40 keys repeat, in the next file or in the next row group."""
    parts = [rows_of(draw, [*range(at * 300, at * 300 + 320), *range(at * 300 + 300, at * 300 + 320)]) for at in range(4)]  # fmt: skip
    return [parts[3], parts[1], parts[0], parts[2]]


def shuffled(draw: random.Random) -> list[pa.Table]:
    return [rows_of(draw, [draw.randrange(900) for _ in range(300)]) for _ in range(4)]


ARRANGED: dict[str, tuple[Callable[[random.Random], list[pa.Table]], bool]] = {
    "ordered": (ordered, True),
    "overlapping": (overlapping, True),
    "shuffled": (shuffled, False),
}


@pytest.fixture
def tasks_of(monkeypatch: pytest.MonkeyPatch) -> list[straight.Share]:
    """The shares that were written straight."""
    found: list[straight.Share] = []
    write = straight.write

    def seen(work: straight.StraightLoad, share: straight.Share, attempt: int) -> bytes:
        found.append(share)
        return write(work, share, attempt)

    monkeypatch.setattr(straight, "write", seen)
    return found


def pair(key: Sequence[str], ordering: str | None, **options: Any) -> list[mdt.Table]:
    return [
        mdt.create(MemoryStorage(), SCHEMA, key=list(key), ordering=ordering, options={**SMALL, **options})
        for _ in range(2)
    ]


@pytest.mark.parametrize("name", ["upsert", "insert_overwrite_table", "insert_unchecked"])
@pytest.mark.parametrize("key", [["id"], ["n"], ["day", "id"]], ids=str)
@pytest.mark.parametrize("arranged", ARRANGED)
def test_a_load_from_files_leaves_the_rows_and_counts_of_one_in_memory(
    tmp_path: Path, arranged: str, key: list[str], name: str, tasks_of: list[straight.Share]
) -> None:
    make, is_straight = ARRANGED[arranged]
    draw = random.Random(f"{arranged}{key}{name}")
    files = stored(tmp_path / "given", make(draw))
    there, here = pair(key, draw.choice(["ts", None]), **{"mdt.keys.repeat": name == "insert_unchecked"})
    done = written(there, files, name)
    known = (
        here.insert(files.table(), check=False) if name == "insert_unchecked" else getattr(here, name)(files.table())
    )
    assert [getattr(done, one) for one in COUNTS] == [getattr(known, one) for one in COUNTS]
    assert bag(there.scan().to_arrow()) == bag(here.scan().to_arrow())
    assert_clean(there.storage)
    assert (len(tasks_of) > 3) == is_straight
    if (
        name != "insert_unchecked" and is_straight
    ):  # files are as by a load whose rows were dealt: none has keys of two of them
        assert len(there.files()) == len(tasks_of)
        ranges = sorted((low, high) for low, high in (share.bounds for share in tasks_of if share.bounds))
        assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_a_checked_insert_of_keys_that_occur_twice_is_refused_wherever_they_stand(tmp_path: Path) -> None:
    draw = random.Random(4)
    for number, at in enumerate((0, 299, 300, 1199)):
        parts = ordered(draw)
        parts[number] = pa.concat_tables([parts[number], rows_of(draw, [at])])
        files = stored(tmp_path / str(number), parts)
        for name in ("bulk_insert", "insert"):
            table, _ = pair(["id"], "ts")
            with pytest.raises(Invalid, match=f"{name} takes new keys only; 1 rows repeat a key.*é{at:05}"):
                written(table, files, name)
            assert table.scan().count() == 0 and not len(table.files())
            assert_clean(table.storage)


@pytest.mark.parametrize(
    ("key", "how", "partition_by"),
    [
        (["id"], {"write_statistics": False}, []),
        (["id"], {"write_statistics": ["ts"]}, []),
        (["id"], {"row_group_size": 1 << 20}, []),
        (["id"], {}, ["note"]),
    ],
)
def test_what_would_make_files_of_other_sizes_or_places_is_dealt(
    tmp_path: Path, key: list[str], how: dict[str, Any], partition_by: list[str], tasks_of: list[straight.Share]
) -> None:
    draw = random.Random(5)
    rows = rows_of(draw, range(1000)).set_column(5, "note", [["a", "b"] * 500])
    files = stored(tmp_path / "given", [rows], **how)
    table = mdt.create(MemoryStorage(), SCHEMA, key=key, partition_by=partition_by, options=SMALL)
    assert written(table, files, "upsert").inserted == 1000
    assert bag(table.scan().to_arrow()) == bag(rows) and not tasks_of


def test_rows_that_may_meet_others_are_looked_up(tmp_path: Path, tasks_of: list[straight.Share]) -> None:
    draw = random.Random(6)
    there, here = pair(["id"], "ts")
    first = rows_of(draw, range(100, 500, 3))
    for table in (there, here):
        table.upsert(first)
    files = stored(tmp_path / "given", ordered(draw))
    done, known = written(there, files, "upsert"), here.upsert(files.table())
    assert [getattr(done, one) for one in COUNTS] == [getattr(known, one) for one in COUNTS] and done.updated
    assert bag(there.scan().to_arrow()) == bag(here.scan().to_arrow()) and not tasks_of


def test_bounds_that_are_not_those_of_the_rows_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a key of two files would live twice."""
    draw = random.Random(7)
    parts = ordered(draw)
    parts[0] = pa.concat_tables([parts[0], rows_of(draw, [7])])
    files = stored(tmp_path / "given", parts)
    bounds = plain_files._bounds

    def lying(told: pq.Statistics | None) -> tuple[Any, Any] | None:
        found = bounds(told)
        return ("é00600", "é00600") if found == ("é00007", "é00007") else found

    monkeypatch.setattr(plain_files, "_bounds", lying)
    table, _ = pair(["id"], "ts")
    with pytest.raises(Corrupt, match="column 'id' has values beyond the bounds"):
        written(table, files, "upsert")
    assert table.scan().count() == 0
    assert_clean(table.storage)


def test_a_file_that_is_another_one_or_cannot_be_read_commits_nothing(tmp_path: Path) -> None:
    draw = random.Random(8)
    for damage, kind in ((b"", Corrupt), (bytes(900), Conflict)):
        files = stored(tmp_path / "given", ordered(draw), compression="none")
        table, _ = pair(["id"], "ts")
        engine, rows, options = spilling.of_files(files, table.options, None)
        operation = writes.write(engine, table.metadata, options, rows, files.schema, "upsert")
        victim = tmp_path / "given" / "002.parquet"
        state = victim.stat()
        victim.write_bytes(damage + victim.read_bytes()[len(damage) :])
        if kind is Corrupt:
            victim.unlink()
        assert kind is Corrupt or victim.stat().st_mtime_ns != state.st_mtime_ns
        with pytest.raises(kind):
            table._commit_rows(operation)
        assert table.scan().count() == 0
        assert_clean(table.storage)


def test_a_task_that_fails_after_its_file_was_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = stored(tmp_path / "given", ordered(random.Random(9)))
    table = mdt.create(LocalStorage(tmp_path / "t", durable=False), SCHEMA, key=["id"], options=SMALL)
    write = straight.write

    def fails(work: straight.StraightLoad, share: straight.Share, attempt: int) -> bytes:
        write(work, share, attempt)
        raise Corrupt("a block is damaged", path="p", offset=3)

    with monkeypatch.context() as patch:
        patch.setattr(straight, "write", fails)
        with pytest.raises(Corrupt):
            written(table, files, "bulk_insert")
    assert table.scan().count() == 0 and not list((tmp_path / "t").glob("*.parquet"))
    assert written(table, files, "bulk_insert").inserted == 1200
    assert_clean(table.storage)


def test_progress_tells_files(tmp_path: Path) -> None:
    files = stored(tmp_path / "given", ordered(random.Random(10)))
    table, _ = pair(["id"], "ts")
    told: list[tuple[int, int]] = []
    written(table, files, "bulk_insert", lambda done, total: told.append((done, total)))
    count = len(table.files())
    assert told == [(number + 1, count) for number in range(count)] and count > 3


def test_after_a_crash_at_any_change_of_storage_readers_see_all_or_nothing(tmp_path: Path) -> None:
    rows = [pa.table([[f"k{2 * at + i}" for i in (0, 1)], ["x", "y"], [1, 1], [1.0, 1.0]], schema=WORLD) for at in range(3)]  # fmt: skip
    files = stored(tmp_path / "given", rows)
    after = {f"k{at}": (1, 1.0) for at in range(6)}

    def start() -> MemoryStorage:
        storage = MemoryStorage()
        mdt.create(storage, WORLD, key=["id"], ordering="ts", options={**OPTIONS, "mdt.max.file.bytes": 1024})
        return storage

    def flow(storage: Storage) -> None:
        assert written(mdt.open(storage), files, "upsert").inserted == 6

    for crashed in recovered(start, flow, ({}, after), "crash points of loads straight from files"):
        if ours(crashed) == {}:
            flow(crashed)
        assert ours(crashed) == after == theirs(crashed)
