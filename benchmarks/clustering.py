"""``python -m benchmarks clustering``: what it costs to put rows in order, and what queries then
read.

A table of `trips` is clustered by three columns: sorted, along the z-order, and along Hilbert's
curve, each from the same load.  Beside it pyarrow reads, sorts and writes the same rows, with
Hudi's five meta columns and without, and deltalake orders its own by its z-order. Of each layout:
the share of the rows that range queries on two of the columns must read, which are those of the row
groups that the bounds in the Parquet footers leave, so that nobody counts for himself.  Last,
compaction after an upsert of a tenth of the rows, beside pyarrow reading and writing the same rows.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import cpu_seconds
from benchmarks.peers import Peer, open_peer
from benchmarks.trips import FILES, Trips, WrongAnswer
from mdt.hudi.avro_schema import META_FIELDS

BY = ("fare", "distance", "age")
QUERIED = BY[:2]
QUERIES = 200
WIDTH = 0.1
"""Of all rows, those that the range of one column holds: a query on both matches about a hundredth.
"""
UPDATED = 0.1
"""Of the rows that are upserted before compaction."""
Figure = dict[str, Any]


def run(rows: int, seed: int, emit: Callable[[str], object]) -> None:
    """Measure each layout in a process of its own; ``emit`` takes lines of JSON.  Raises
    WrongAnswer.
    """
    context = multiprocessing.get_context("spawn")
    for measure in (
        _unordered,
        _by_pyarrow,
        _sorted,
        _zordered,
        _along_hilbert,
        _by_deltalake,
        _compacted,
    ):
        with tempfile.TemporaryDirectory() as folder, context.Pool(1) as pool:
            for figure in pool.apply(measure, (folder, rows, seed)):
                emit(json.dumps(figure))


def _unordered(folder: str, rows: int, seed: int) -> list[Figure]:
    _, trips = _loaded("mdt", folder, rows, seed)
    return [{"what": "as loaded", **_read(_files(folder), trips)}]


def _by_pyarrow(folder: str, rows: int, seed: int) -> list[Figure]:
    """Read, sort and write the rows of our files: what any clustering has to do at least."""
    _, trips = _loaded("mdt", folder, rows, seed)
    found, ours = [], _files(folder)
    for what, left_out in (("meta columns too", ()), ("data columns", META_FIELDS)):
        columns = [name for name in pq.read_schema(ours[0]).names if name not in left_out]
        for by in (BY, QUERIED):
            with tempfile.TemporaryDirectory() as out:
                cost = _cost(lambda: _sorted_by_pyarrow(ours, Path(out), columns, by))  # noqa: B023 - it is called here
                found.append(
                    {
                        "what": f"sort, pyarrow, {what}, {len(by)} columns",
                        **cost,
                        **_read(_files(out), trips),
                    }
                )
    return found


def _sorted_by_pyarrow(
    files: Sequence[Path], out: Path, columns: Sequence[str], by: Sequence[str]
) -> None:
    table = pa.concat_tables([pq.read_table(file, columns=list(columns)) for file in files])
    table = table.sort_by([(name, "ascending") for name in by])
    size = -(-len(table) // FILES)
    for number, start in enumerate(range(0, len(table), size)):
        pq.write_table(table.slice(start, size), out / f"{number}.parquet", compression="lz4")


def _sorted(folder: str, rows: int, seed: int) -> list[Figure]:
    return _clustered(folder, rows, seed, "sort")


def _zordered(folder: str, rows: int, seed: int) -> list[Figure]:
    return _clustered(folder, rows, seed, "zorder")


def _along_hilbert(folder: str, rows: int, seed: int) -> list[Figure]:
    return _clustered(folder, rows, seed, "hilbert")


def _clustered(folder: str, rows: int, seed: int, curve: str) -> list[Figure]:
    return _ordered("mdt", folder, rows, seed, curve)


def _by_deltalake(folder: str, rows: int, seed: int) -> list[Figure]:
    return _ordered("deltalake", folder, rows, seed, "zorder")


def _ordered(peer: str, folder: str, rows: int, seed: int, curve: str) -> list[Figure]:
    """Cluster the same load by all columns, and by those that queries ask for."""
    loaded, trips = _loaded(peer, f"{folder}/loaded", rows, seed)
    found = []
    for by in (BY, QUERIED):
        path = f"{folder}/by {len(by)}"
        shutil.copytree(loaded.path, path)
        table, old = open_peer(peer, path), set(_files(path))
        table.reopen()
        cost = _cost(lambda: table.cluster(by, curve))  # noqa: B023 - it is called here
        trips.check(table.scan())
        found.append(
            {
                "what": f"{curve}, {peer}, {len(by)} columns",
                **cost,
                **_read(set(_files(path)) - old, trips),
            }
        )
        shutil.rmtree(path)
    return found


def _compacted(folder: str, rows: int, seed: int) -> list[Figure]:
    """Compact log files into all base files; before and after, pyarrow reads and writes as many
    rows of the same columns.
    """
    table, trips = _loaded("mdt", folder, rows, seed)
    old, out = _files(folder), Path(tempfile.mkdtemp())
    table.upsert(
        trips.of(np.random.default_rng(seed).choice(rows, int(rows * UPDATED), replace=False))
    )
    before = _cost(lambda: _rewritten(old, out))
    cost = _cost(table.compact)
    after = _cost(lambda: _rewritten(old, out))
    trips.check(table.scan())
    speed = {"speed by pyarrow's": round((before["cpu"] + after["cpu"]) / 2 / cost["cpu"], 3)}
    return [
        {"what": "rewriting, pyarrow, before", **before},
        {"what": "rewriting, pyarrow, after", **after},
        {
            "what": "compaction, mdt",
            **cost,
            **speed,
            "bytes": _bytes(set(_files(folder)) - set(old)),
        },
    ]


def _rewritten(files: Sequence[Path], out: Path) -> None:
    for number, file in enumerate(files):
        pq.write_table(pq.read_table(file), out / f"{number}.parquet", compression="lz4")
        (out / f"{number}.parquet").unlink()


def _loaded(peer: str, folder: str, rows: int, seed: int) -> tuple[Peer, Trips]:
    """Return a table of one load whose keys are in no order, as the other columns are, and its
    truth.
    """
    Path(folder).mkdir(exist_ok=True)
    trips = Trips(rows, seed, shuffled=True)
    table = open_peer(peer, folder)
    table.load(trips.load())
    pa.array([0])  # imports pandas, where that is installed, in nobody's time
    return table, trips


def _files(folder: str) -> list[Path]:
    return sorted(
        file
        for file in Path(folder).rglob("*.parquet")
        if not {".hoodie", "_delta_log"} & set(file.parts)
    )


def _bytes(files: Sequence[Path] | set[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _cost(call: Callable[[], object]) -> dict[str, float]:
    """Return seconds, wall and CPU, of a call."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    call()
    return {"seconds": round(time.perf_counter() - wall, 3), "cpu": round(cpu_seconds() - cpu, 3)}


def _read(files: Sequence[Path] | set[Path], trips: Trips) -> Figure:
    """Return the share of the rows that range queries read in the mean: on both columns, and on the
    second alone; files and bytes.
    """
    bounds, rows = _bounds(files)
    if int(rows.sum()) != trips.rows:
        raise WrongAnswer(f"files of {rows.sum()} rows instead of {trips.rows}")
    values = np.stack([np.sort(column) for column in _columns(files)])
    start = (
        np.random.default_rng(trips.seed).random((QUERIES, len(QUERIED))) * (1 - WIDTH) * trips.rows
    ).astype(np.int64)
    columns = np.arange(len(QUERIED))
    low, high = values[columns, start], values[columns, start + int(WIDTH * trips.rows)]
    # Shape: queries, groups, columns.
    meets = (bounds[None, :, :, 0] <= high[:, None]) & (bounds[None, :, :, 1] >= low[:, None])
    shares = [
        float((left * rows).sum(axis=1).mean()) / trips.rows
        for left in (meets.all(axis=2), meets[:, :, 1])
    ]
    return {
        "read by both": round(shares[0], 4),
        "read by the second": round(shares[1], 4),
        "files": len(files),
        "row groups": len(rows),
        "bytes": _bytes(files),
    }


def _columns(files: Sequence[Path] | set[Path]) -> list[np.ndarray[Any, Any]]:
    table = pa.concat_tables([pq.read_table(file, columns=list(QUERIED)) for file in files])
    return [pc.fill_null(column, 0).to_numpy() for column in table.columns]


def _bounds(files: Sequence[Path] | set[Path]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return minima and maxima of all row groups, [groups, columns, 2], and their rows."""
    bounds, rows = [], []
    for file in files:
        footer = pq.read_metadata(file)
        at = [footer.schema.to_arrow_schema().names.index(name) for name in QUERIED]
        for group in map(footer.row_group, range(footer.num_row_groups)):
            found = [group.column(i).statistics for i in at]
            bounds.append([[one.min, one.max] for one in found])
            rows.append(group.num_rows)
    return np.array(bounds), np.array(rows)
