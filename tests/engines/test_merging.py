"""A merge in the tasks of another engine gives the same rows, counts and errors as a merge in
process.
"""

import random
from functools import partial

import pyarrow as pa
import pytest
from counting import count
from merges import merged
from pooled import PooledTable, ThreadTable
from reader import agreed
from spilled import SpilledTable
from texts import columns
from worlds import MOR, rows
from worlds import filled as filled_world

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.stores.storage import LocalStorage

SCHEMA = columns(
    "id string not null, sub int32, city string, ts int64, x float64, must int32 not null"
)
COUNTS = ("inserted", "updated", "deleted", "late", "source_rows", "files_scanned", "files_skipped")
KINDS = [
    {
        "table_type": "MERGE_ON_READ",
        "key_index": "bloom",
        "scope": "partition",
        "partition_by": ["city"],
        "key": ["id", "sub"],
    },
    {
        "table_type": "MERGE_ON_READ",
        "key_index": "record",
        "scope": "table",
        "partition_by": ["city"],
        "key": ["id"],
    },
    {
        "table_type": "COPY_ON_WRITE",
        "key_index": "record",
        "scope": "table",
        "partition_by": ["city", "sub"],
        "key": ["id"],
    },
    {
        "table_type": "COPY_ON_WRITE",
        "key_index": "bucket(buckets='3')",
        "scope": "partition",
        "partition_by": [],
        "key": ["sub", "id"],
    },
]
MATCHED = [
    ("matched", "source.x > target.x", {"x": "source.x + target.x", "must": "source.must"}),
    ("matched", "source.ts >= target.ts and target.must < 5", {"ts": "source.ts", "x": 1.5}),
    ("matched", "source.x is null", {"ts": "target.ts - 3"}),
    ("matched", "target.must % 3 = 0", None),
    ("matched", "source.must = 7", None),
]
OTHERS = [
    ("not_matched_by_source", "target.must = 2", None),
    ("not_matched_by_source", "target.x > 0.3 and target.ts < 6", {"x": "target.x + 1", "must": 3}),
    ("not_matched_by_source", "target.ts = 4", {"ts": "target.ts - 2"}),
]
NEW = [
    ("not_matched", "source.x > 0.5", "*"),
    (
        "not_matched",
        "source.must < 4",
        {"id": "source.id", "sub": "source.sub", "ts": "source.ts", "must": 1},
    ),
]


def drawn(draw, numbers, scope="table"):
    """Return one row for each number, some with nulls.

    Under table scope a third of the keys have no city, since a key cannot move there. Under
    partition scope rows of any key may have none.
    """
    rows = [
        {
            "id": f"k{n // 2}",
            "sub": n % 2,
            "city": _city(draw, n, scope),
            "ts": draw.randrange(9),
            "x": draw.choice([None, draw.random()]),
            "must": draw.randrange(10),
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _city(draw, n, scope):
    city = ["ä b", "y"][n % 2 if draw.random() < 0.9 else draw.randrange(2)]
    has_none = draw.random() < 0.2 if scope == "partition" else n // 2 % 3 == 0
    return None if has_none else city


def unique(table, kind):
    """Return one row for each key."""
    by = dict.fromkeys(
        [*kind["key"], *(kind["partition_by"] if kind["scope"] == "partition" else [])]
    )
    return pa.Table.from_pylist(
        list({tuple(r[n] for n in by): r for r in table.to_pylist()}.values()), schema=SCHEMA
    )


def on(folder):
    return LocalStorage(folder, durable=False)


def outcome(table, source, by, clauses):
    """Return the counts of a merge, or the part of its error message that both engines share."""
    try:
        result = merged(table, source, *clauses, on=by)
    except Invalid as error:
        return error.message.split(":")[0].lstrip("0123456789 ")
    assert result.engine == ("processes" if isinstance(table, PooledTable) else "arrow")
    assert result.total_ms >= result.match_ms > 0 and bool(result.files_written) == bool(
        result.instant
    )
    return {name: getattr(result, name) for name in COUNTS}


def pair(folder, kind, engine_table):
    """Return two equal tables. Merges into the first run on an engine, merges into the second in
    process.
    """
    options = {
        "mdt.durable": False,
        "mdt.max.file.bytes": 2048,
        "mdt.small.file.bytes": 1024,
        "mdt.services.auto": False,
    }
    for name in ("there", "here"):
        mdt.create(on(folder / name), SCHEMA, ordering="ts", **kind, options=options)
    return engine_table(on(folder / "there")), mdt.open(on(folder / "here"))


def filled(tables, kind, draw):
    """Fill both tables in process, so that they have the same files: base files, log files and
    deleted rows.
    """
    drawn_here = partial(drawn, draw, scope=kind["scope"])
    first, second = drawn_here(list(range(0, 240, 2))), drawn_here(draw.sample(range(260), 60))
    deleted = unique(drawn_here(draw.sample(range(240), 20)), kind)
    for table in tables:
        plain = mdt.open(table.storage)
        plain.upsert(unique(first, kind))
        plain.upsert(unique(second, kind))
        plain.delete(deleted)


@pytest.mark.parametrize(
    "engine, steps",
    [
        (SpilledTable, 3),
        pytest.param(SpilledTable, 20, marks=pytest.mark.nightly),
        pytest.param(PooledTable, 20, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda k: f"{k['table_type']}-{k['key_index']}-{k['scope']}"
)
def test_random_merges_in_tasks_equal_merges_in_process(tmp_path, kind, engine, steps):
    draw, tables = random.Random(f"{kind} {steps}"), pair(tmp_path, kind, engine)
    filled(tables, kind, draw)
    for step in range(steps):
        source = drawn(draw, [draw.randrange(300) for _ in range(80)], kind["scope"])
        if step:
            source = unique(source, kind)
        clauses = draw.sample(MATCHED, draw.randrange(4)) + draw.sample(NEW, 1)
        clauses += draw.sample(OTHERS, draw.randrange(3))
        if kind["scope"] == "table":
            clauses += [
                ("matched", None, "*"),
                ("not_matched_by_source", "target.must = 5", {"city": "'y'"}),
            ]
        identity = list(kind["key"])
        equal = " and ".join(f"source.{n} = target.{n}" for n in identity)
        by = draw.choice([None, identity, f"{equal} and target.must < 8"])
        outcomes = [outcome(table, source, by, clauses) for table in tables]
        # if a merge has several errors, parts may raise different ones first
        refused = [isinstance(outcome_of_table, str) for outcome_of_table in outcomes]
        assert outcomes[0] == outcomes[1] or all(refused), (step, by, clauses)
        count("merges in tasks that end as in process", int(isinstance(outcomes[0], dict)))
        agreed(tables[0], expected=tables[1].scan().to_arrow())


def test_merges_that_cannot_run_part_by_part_are_refused():
    table, source = ThreadTable(filled_world(MOR, "record")), rows([0], 3, 3.0)
    with pytest.raises(Unsupported, match="matched by the record key"):
        table.merge(source, "fare")
    new = {"id": "source.id || 'x'", "city": "'x'", "ts": 1}
    with pytest.raises(Unsupported, match="'id' gets another value"):
        table.merge(source).when_not_matched().insert(new)
