"""All indexes together, on tables with history: in thousands of random cases, a plan never omits a
matching row.

A case is a table, a state of its indexes and a random predicate. The expected rows come from the
rows of each segment, read once. The plan must include every segment, row group and position with a
live match. Some cases are read through the table, too. The summaries of some tables are damaged,
missing or of unknown indexes.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from reader import bag

import mdt
from indexes import paths as column_paths
from indexes.predicate import And, Leaf, Or, matches, negate
from indexes.testing import leaves_for
from mdt.hudi.avro_schema import with_meta
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment_rows import read_columns
from mdt.plan.planner import plan
from mdt.stores.storage import MemoryStorage
from mdt.write import summarize

CASES = int(os.environ.get("MDT_SOUNDNESS_CASES", "10000"))
CASES_NIGHTLY = 1_000_000
READ_EVERY = 100
SMALL_ROWS = 25
_WORDS = ("alpha", "beta", "Gamma", "ÉTÉ", "straße", "x", "42", "")
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("money", pa.decimal128(12, 2)),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("note", pa.string()),
        ("raw", pa.binary()),
        ("place", pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])),
    ]
)
COLUMNS = [*(name for name in SCHEMA.names if name != "place"), "place.city", "place.geo.lat"]
SPECS = [
    *(f"bitmap({name})" for name in COLUMNS),
    "bloom(id)",
    "bloom(large)",
    "bloom(name)",
    "bloom(place.city)",
    "text(note)",
    "text(name, tokenizer='ngram(3)')",
    "text(note, tokenizer='ngram(2)')",
    "column_stats(place.geo.lat)",
]

_MAKE = {
    "small": lambda d, i: d.randrange(-3, 12),
    "large": lambda d, i: d.choice((i, 1 << 40, -(1 << 62), d.randrange(1000))),
    "real": lambda d, i: d.choice(
        (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, float(i), d.random())
    ),
    "single": lambda d, i: d.choice((math.nan, 0.5, -0.0, float(i % 7))),
    "money": lambda d, i: Decimal(d.randrange(-500, 500)) / 4,
    "flag": lambda d, i: d.random() < 0.9,
    "day": lambda d, i: date(1970, 1, 1) + timedelta(days=d.choice((-1, 0, i, 20_000))),
    "at": lambda d, i: _EPOCH + timedelta(microseconds=d.choice((0, i, 10**9 * d.randrange(3)))),
    "name": lambda d, i: d.choice(
        ("", "a", "p" * 70 + str(d.randrange(3)), f"name {i}", "\U0010ffff", "50%_\\")
    ),
    "note": lambda d, i: " ".join(d.choice(_WORDS) for _ in range(d.randrange(5))),
    "raw": lambda d, i: d.choice((b"", b"\xff" * 65, bytes([i % 256]), b"ab")),
    "place": lambda d, i: d.choice(
        (None, {"city": None, "geo": None}, {"city": f"c{i % 5}", "geo": {"lat": float(i % 9)}})
    ),
}


def rows(draw, ids):
    """Return rows with every kind of value that is difficult for indexes. One in eight values is null."""
    values = []
    for i in ids:
        row = {"id": f"k{i:04}"}
        for name, make in _MAKE.items():
            row[name] = None if draw.random() < 0.125 else make(draw, i)
        values.append(row)
    return pa.Table.from_pylist(values, schema=SCHEMA)


@dataclass(frozen=True)
class World:
    """A table, its snapshot, and the rows of its files. ``files`` are the numbers of the files, ``starts``
    the first positions of their rows in ``rows``, and ``live`` marks live rows. The rows of all files
    are tested at once.
    """

    table: mdt.Table
    snapshot: Snapshot
    files: tuple[int, ...]
    starts: tuple[int, ...]
    rows: pa.Table
    live: np.ndarray[Any, Any]
    values: dict[str, list[Any]]

    @classmethod
    def of(cls, table):
        snapshot, schema = table.snapshot(), with_meta(SCHEMA)
        files = np.flatnonzero(snapshot.has_rows).tolist()
        read = partial(read_columns, table.storage, table.definition)
        parts = [read(snapshot.segment(i), schema) for i in files]
        starts = [0, *np.cumsum([len(part) for part in parts]).tolist()]
        rows = pa.concat_tables(parts).select(SCHEMA.names).combine_chunks()
        live = np.ones(len(rows), np.bool_)
        for i, start in zip(files, starts, strict=False):
            live[[start + position for position in snapshot.vector(i) or ()]] = False
        values = {}
        for name in COLUMNS:
            values[name] = column_paths.column_at(rows, name).drop_null().to_pylist()
        return cls(table, snapshot, tuple(files), tuple(starts), rows, live, values)


@cache
def _storage(seed):
    """Return a table with base files, log files, deleted rows, and files that some indexes do not cover.

    In half of the tables all segments are so small that they share shards, in the others only some.
    """
    with pytest.MonkeyPatch.context() as patched:
        if seed // 2 % 2:
            patched.setattr(summarize, "SHARD_SEGMENT_ROWS_MAX", SMALL_ROWS)
        return _create_table(seed)


def _create_table(seed):
    draw = random.Random(seed)
    early, late = SPECS[::2], SPECS[1::2]
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        table_type=("MERGE_ON_READ", "COPY_ON_WRITE")[seed % 2],
        key_index="record",
        indexes=early,
        options={
            "mdt.max.file.bytes": 20_000,
            "mdt.row.group.rows": 16,
            "mdt.metadata.compact.records": draw.choice((3, 32)),
        },
    )
    table.insert(rows(draw, range(60)))
    table.upsert(rows(draw, range(30, 110)))
    table.create_index(late, mode="async" if seed % 3 == 0 else "sync")
    table.delete(rows(draw, range(0, 110, 7)).select(["id"]))
    table.upsert(rows(draw, range(0, 130, 5)))
    if seed % 3 == 0:
        table.build_indexes(draw.sample(late, len(late) // 2))
    return table.storage


def _leaf(draw, world):
    name = draw.choice(COLUMNS)
    type = column_paths.type_at(SCHEMA, name)
    samples = draw.sample(world.values[name], k=min(2, len(world.values[name])))
    if draw.random() < 0.2 and name != "place.city":
        makers = {"id": lambda d, i: f"k{i:04}", "place.geo.lat": lambda d, i: 4.0} | _MAKE
        samples = [makers[name](draw, draw.randrange(200))]
    leaves = leaves_for(name, type, samples)
    if pa.types.is_string(type) and draw.random() < 0.4:
        words = draw.sample(_WORDS, 2)
        tests = [("match", draw.choice(words)), ("match", " ".join(words))]
        tests += [("match", (draw.choice(words), "ngram(2)")), ("like", f"%{draw.choice(words)}%")]
        tests += [("like", f"{draw.choice(words)}%"), ("not like", f"%{draw.choice(words)}")]
        leaves = [Leaf(name, op, value) for op, value in tests]
    return draw.choice(leaves)


def _predicate(draw, world, depth=2):
    if depth and draw.random() < 0.6:
        kind = draw.choice((And, Or))
        predicate = kind(
            tuple(_predicate(draw, world, depth - 1) for _ in range(draw.randrange(1, 4)))
        )
        return negate(predicate) if draw.random() < 0.2 else predicate
    return _leaf(draw, world)


def _omitted_match(world, predicate, query_plan):
    """Return a description of a match that the plan omits, or None."""
    planned = {scan.file: scan for scan in query_plan.segments}
    matching = np.flatnonzero(matches(predicate, world.rows).to_numpy() & world.live)
    edges = np.searchsorted(matching, world.starts).tolist()
    for at, i in enumerate(world.files):
        hits = matching[edges[at] : edges[at + 1]] - world.starts[at]
        if not len(hits):
            continue
        scan = planned.get(i)
        if scan is None:
            return f"segment {i} is left out, but its row {hits[0]} matches"
        if scan.positions is not None and (lost := set(hits.tolist()) - set(scan.positions)):
            return f"rows {sorted(lost)} of segment {i} are left out"
        if scan.row_groups is not None:
            ends = np.cumsum(world.snapshot.segment(i).row_groups)
            row_groups = set(np.searchsorted(ends, hits, side="right").tolist())
            if not row_groups <= set(scan.row_groups):
                return (
                    f"row groups {sorted(row_groups - set(scan.row_groups))} of segment {i} are"
                    " left out"
                )
    return None


def _run(world, draw, cases, description):
    """Check ``cases`` predicates. Return the number of planned segments and of all segments."""
    planned = 0
    for number in range(cases):
        predicate = _predicate(draw, world)
        query_plan = plan(world.table.metadata, world.snapshot, predicate)
        planned += len(query_plan.segments)
        assert (lost := _omitted_match(world, predicate, query_plan)) is None, (
            f"{predicate}: {lost}; {query_plan.notes}"
        )
        if number % READ_EVERY == 0:
            scan = world.table.scan()
            scan.predicate = predicate
            live_rows = world.rows.filter(pa.array(world.live))
            expected = live_rows.filter(matches(predicate, live_rows)).drop_columns("place")
            assert bag(scan.to_arrow().drop_columns("place")) == bag(expected), predicate
            count("random cases of all indexes together, read through the table")
    count(description, cases)
    return planned, cases * len(world.files)


@pytest.fixture(autouse=True)
def in_objects(monkeypatch):
    """Store small summaries in objects, as is done for large files."""
    monkeypatch.setattr(summarize, "INLINE_INDEX_BYTES_MAX", 64)


SEEDS = range(8)
DESCRIPTION = "random cases of all indexes together: no match is left out"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_with_all_indexes_omits_no_match(seed):
    world = World.of(mdt.open(_storage(seed)))
    planned, total = _run(
        world, random.Random(random.randrange(1 << 30)), CASES // (2 * len(SEEDS)), DESCRIPTION
    )
    assert planned < 0.9 * total, "the indexes must prune something"


@pytest.mark.nightly
@pytest.mark.timeout(8 * 3600)
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_plan_with_all_indexes_omits_no_match_in_a_million_cases(seed, tmp_path):
    storage = _storage(seed)
    for info in storage.list(""):
        path = tmp_path / info.path
        path.parent.mkdir(parents=True, exist_ok=True)
        # files on disk, which the other tests here do not use
        path.write_bytes(storage.read(info.path))
    _run(
        World.of(mdt.open(tmp_path)),
        random.Random(random.randrange(1 << 30)),
        CASES_NIGHTLY // 40,
        DESCRIPTION,
    )


def _damaged(storage, draw):
    """Return a copy in which every object of summaries has flipped bits."""
    copy = storage.copy()
    for info in storage.list(".hoodie/.mdt/attachments"):
        data = bytearray(MemoryStorage.read(storage, info.path))
        for _ in range(max(4, len(data) // 50)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        copy.replace(info.path, bytes(data))
    return copy


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("state", ["damaged", "unknown", "missing", "stale"])
def test_damaged_unknown_missing_and_stale_summaries_omit_no_match_and_are_explained(seed, state):
    draw = random.Random(random.randrange(1 << 30))
    storage = _storage(seed)
    table = mdt.open(_damaged(storage, draw) if state == "damaged" else storage.copy())
    if state == "missing":
        table.rebuild_index(mode="async")
    elif state == "stale":
        table.create_index("bitmap(id)")
        table.upsert(rows(draw, range(0, 200, 3)))
    # a commit may have another base, with other file numbers
    changed = state in ("missing", "stale")
    world = World.of(table if changed else mdt.open(storage))
    if not changed:
        world = replace(world, table=table, snapshot=table.snapshot())
    if state == "unknown":
        table.metadata._newest = None
        renamed = tuple(spec.replace("/1(", "/999(") for spec in world.snapshot.definition.indexes)
        world = replace(world, snapshot=_with_indexes(world.snapshot, renamed))
    cases = CASES // (8 * len(SEEDS))
    _run(world, draw, cases, f"random cases of all indexes together: {state} summaries")
    assert REASONS[state] in _bitmap_reasons(world)


REASONS = {
    "damaged": "damaged",
    "unknown": "not_installed",
    "missing": "not_covered",
    "stale": "used",
}


def _bitmap_reasons(world):
    """Return the reasons why plans for a value of each column use a bitmap or not."""
    reasons = set()
    for name, values in world.values.items():
        query_plan = plan(world.table.metadata, world.snapshot, Leaf(name, "=", values[0]))
        tested = [note for note in query_plan.notes if f"({name})" in note.index]
        reasons |= {note.reason for note in tested if note.index.startswith("bitmap/")}
    return reasons


def _with_indexes(snapshot, indexes):
    return replace(snapshot, definition=replace(snapshot.definition, indexes=indexes))
