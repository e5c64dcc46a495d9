"""A merge in tasks of another engine leaves the same rows, counts and errors as the merge in
process.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from pooled import PooledTable, copies
from reader import bag, hudi_table
from worlds import make, ours, recovered, rows

import mdt
from mdt.engines import merge_on_engine
from mdt.engines.spilled import SpillingEngine
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.stores.storage import LocalStorage, Storage
from mdt.table.merging import Runner, Whole

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("sub", pa.int32()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("must", pa.int32(), nullable=False),
    ]
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
Said = tuple[str, str | None, Any]
"""A clause: kind, condition, and what it sets; None deletes."""
MATCHED: list[Said] = [
    ("matched", "source.x > target.x", {"x": "source.x + target.x", "must": "source.must"}),
    ("matched", "source.ts >= target.ts and target.must < 5", {"ts": "source.ts", "x": 1.5}),
    ("matched", "source.x is null", {"ts": "target.ts - 3"}),
    ("matched", "target.must % 3 = 0", None),
    ("matched", "source.must = 7", None),
]
OTHERS: list[Said] = [
    ("not_matched_by_source", "target.must = 2", None),
    ("not_matched_by_source", "target.x > 0.3 and target.ts < 6", {"x": "target.x + 1", "must": 3}),
    ("not_matched_by_source", "target.ts = 4", {"ts": "target.ts - 2"}),
]
NEW: list[Said] = [
    ("not_matched", "source.x > 0.5", "*"),
    (
        "not_matched",
        "source.must < 4",
        {"id": "source.id", "sub": "source.sub", "ts": "source.ts", "must": 1},
    ),
]

NEW_ALL: Said = ("not_matched", None, "*")


def drawn(draw: random.Random, numbers: list[int], scope: str = "table") -> pa.Table:
    """Return one row for each number, some with nulls.

    Under table scope the rows of a third of the keys have no city, since a key does not move there;
    under partition scope rows of all keys.
    """
    made = [
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
    return pa.Table.from_pylist(made, schema=SCHEMA)


def _city(draw: random.Random, n: int, scope: str) -> str | None:
    city = ["ä b", "y"][n % 2 if draw.random() < 0.9 else draw.randrange(2)]
    has_none = draw.random() < 0.2 if scope == "partition" else n // 2 % 3 == 0
    return None if has_none else city


def unique(table: pa.Table, kind: dict[str, Any]) -> pa.Table:
    """Return one row for each key."""
    by = dict.fromkeys(
        [*kind["key"], *(kind["partition_by"] if kind["scope"] == "partition" else [])]
    )
    return pa.Table.from_pylist(
        list({tuple(r[n] for n in by): r for r in table.to_pylist()}.values()), schema=SCHEMA
    )


class ScratchTable(mdt.Table):
    """A table into which rows are merged that lie in scratch files."""

    def _to_merge(
        self, source: Any, *, looks: bool = False
    ) -> tuple[pa.Table, Runner | None, Whole | None]:
        engine = SpillingEngine(1, "", 2, name="scratch")
        given = partial(
            merge_on_engine.merge,
            engine,
            self.metadata,
            self.options,
            engine.spread(source),
            source.schema,
        )
        return source.schema.empty_table(), given, None


def on(folder: Path) -> LocalStorage:
    return LocalStorage(folder, durable=False)


def said(merge: Any, clauses: list[Said]) -> Any:
    for kind, condition, given in clauses:
        when = getattr(merge, f"when_{kind}")(condition)
        merge = (
            when.insert(given)
            if kind == "not_matched"
            else when.delete()
            if given is None
            else when.update(given)
        )
    return merge


def outcome(table: mdt.Table, source: pa.Table, by: Any, clauses: list[Said]) -> Any:
    """Return the counts of a merge, or its error as far as both ways say it."""
    try:
        done = said(table.merge(source, by), clauses).execute()
    except Invalid as error:
        return error.message.split(":")[0].lstrip("0123456789 ")
    assert done.engine == {PooledTable: "processes", ScratchTable: "scratch"}.get(
        type(table), "arrow"
    )
    assert done.total_ms >= done.match_ms > 0 and bool(done.files_written) == bool(done.instant)
    return {name: getattr(done, name) for name in COUNTS}


def pair(
    folder: Path, kind: dict[str, Any], there: type[mdt.Table] = PooledTable, **options: Any
) -> tuple[mdt.Table, mdt.Table]:
    """Return two tables of one kind: one is merged into by an engine, one in process."""
    given = {
        "mdt.durable": False,
        "mdt.max.file.bytes": 2048,
        "mdt.small.file.bytes": 1024,
        "mdt.services.auto": False,
    }
    for name in ("there", "here"):
        mdt.create(on(folder / name), SCHEMA, ordering="ts", **kind, options={**given, **options})
    return there(on(folder / "there")), mdt.open(on(folder / "here"))


def filled(both: tuple[mdt.Table, mdt.Table], kind: dict[str, Any], draw: random.Random) -> None:
    """Fill both tables in process, so that they have the same files: base and log files, dead
    rows.
    """
    drawn_here = partial(drawn, draw, scope=kind["scope"])
    first, second = drawn_here(list(range(0, 240, 2))), drawn_here(draw.sample(range(260), 60))
    gone = unique(drawn_here(draw.sample(range(240), 20)), kind)
    for table in both:
        plain = mdt.open(table.storage)
        plain.upsert(unique(first, kind))
        plain.upsert(unique(second, kind))
        plain.delete(gone)


def assert_same(both: tuple[mdt.Table, mdt.Table]) -> None:
    there, here = (mdt.open(table.storage) for table in both)
    found = there.scan().to_arrow()
    assert bag(found) == bag(here.scan().to_arrow()) == bag(hudi_table(there.path, found.schema))
    assert there.check().ok, there.check()


@pytest.mark.parametrize(
    ("engine", "steps"),
    [
        (ScratchTable, 3),
        pytest.param(ScratchTable, 20, marks=pytest.mark.nightly),
        pytest.param(PooledTable, 20, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda k: f"{k['table_type']}-{k['key_index']}-{k['scope']}"
)
def test_random_merges_end_as_in_process(
    tmp_path: Path, kind: dict[str, Any], engine: type[mdt.Table], steps: int
) -> None:
    draw, both = random.Random(f"{kind} {steps}"), pair(tmp_path, kind, engine)
    filled(both, kind, draw)
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
        by = draw.choice(
            [
                None,
                identity,
                " and ".join(f"source.{n} = target.{n}" for n in identity) + " and target.must < 8",
            ]
        )
        told = [outcome(table, source, by, clauses) for table in both]
        # of several reasons a part may meet another one first
        refused = [isinstance(one, str) for one in told]
        assert told[0] == told[1] or all(refused), (step, by, clauses)
        count("merges in tasks that end as in process", int(isinstance(told[0], dict)))
        assert_same(both)


def test_null_keys_match_nothing_and_a_source_without_rows_does_nothing(tmp_path: Path) -> None:
    kind = KINDS[0]
    both, draw = pair(tmp_path, kind), random.Random(7)
    filled(both, kind, draw)
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    source = unique(drawn(draw, list(range(40)), kind["scope"]), kind).to_pylist()
    source += [{**row, name: None} for row in source[:2] for name in ("id", "sub")]
    clauses: list[Said] = [("matched", None, {"x": "source.x"})]
    for some in (source, []):
        given = pa.Table.from_pylist(some, schema=nullable)
        told = [outcome(table, given, None, clauses) for table in both]
        assert told[0] == told[1] and bool(told[0]["updated"]) == bool(some)
        assert_same(both)
    insert = [NEW_ALL]
    assert {
        outcome(table, pa.Table.from_pylist(source, schema=nullable), None, insert)
        for table in both
    } == {"the data does not fit the table"}


@pytest.mark.parametrize("kind", KINDS[:2], ids=["partition", "table"])
def test_deletes_leave_tombstones_where_the_table_keeps_them(
    tmp_path: Path, kind: dict[str, Any]
) -> None:
    both, draw = pair(tmp_path, kind, **{"mdt.delete.keeps.ordering": True}), random.Random(3)
    filled(both, kind, draw)
    source = unique(drawn(draw, list(range(120)), kind["scope"]), kind)
    told = [outcome(table, source, None, [("matched", "target.must > 3", None)]) for table in both]
    assert told[0] == told[1] and told[0]["deleted"] > 5
    buried = []
    for table in both:  # hashes have a seed of each table
        plain = mdt.open(table.storage)
        record = plain.metadata.record(plain.snapshot().seq)
        assert record is not None
        buried.append(sorted(record.table("tombstones")["ordering"].to_pylist()))
    assert buried[0] == buried[1] and len(buried[0]) == told[0]["deleted"]
    again = [outcome(table, source, None, [NEW_ALL]) for table in both]
    assert again[0] == again[1] and again[0]["late"] > 0 and again[0]["inserted"] > 0
    assert_same(both)


def test_errors_name_the_rows(start: Path) -> None:
    table = PooledTable(on(start))
    twice = pa.concat_tables([rows([0, 1, 30], 3, 3.0), rows([1, 30], 3, 4.0)])
    with pytest.raises(
        Invalid, match=r"1 rows of the table match several rows of the source: \['k1'\]"
    ):
        table.merge(twice).when_matched().update("*").execute()
    with pytest.raises(Invalid, match=r"1 new rows repeat a key: \['k30'\]"):
        table.merge(twice).when_not_matched().insert().execute()
    with pytest.raises(Invalid, match=r"1 rows to insert have keys that exist already: \['k0'\]"):
        elsewhere = table.merge(rows([0], 3, 3.0), "source.id = target.id and target.fare > 7")
        elsewhere.when_not_matched().insert().execute()
    assert seen(on(start)) == BEFORE and not list(table.storage.list(".hoodie/.mdt/pending"))


def test_what_cannot_be_said_part_by_part_is_refused(start: Path) -> None:
    table, source = PooledTable(on(start)), rows([0], 3, 3.0)
    with pytest.raises(Unsupported, match="matched by the record key"):
        table.merge(source, "fare")
    with pytest.raises(Unsupported, match="'id' gets another one"):
        table.merge(source).when_not_matched().insert(
            {"id": "source.id || 'x'", "city": "'x'", "ts": 1}
        )
    with pytest.raises(Invalid, match="no column 'far'"):
        table.merge(source).when_matched().update({"far": "1"})


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A table on disk with the rows of BEFORE, in base and log files."""
    table = make(on(tmp_path / "start"), "MERGE_ON_READ", "record")
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 2.0))
    return tmp_path / "start"


BEFORE = {
    "k0": (2, 2.0),
    "k1": (2, 2.0),
    "k2": (2, 2.0),
    "k3": (1, 1.0),
    "k4": (1, 1.0),
    "k5": (1, 1.0),
}
AFTER = {
    "k1": (2, 11.0),
    "k2": (2, 2.0),
    "k3": (0, 10.0),
    "k4": (1, 1.0),
    "k5": (1, 1.0),
    "k8": (3, 9.0),
}
CLAUSES: list[Said] = [
    ("matched", "source.id = 'k0'", None),
    ("matched", "target.ts = 1", {"fare": "target.fare + source.fare", "ts": 0}),
    ("matched", None, {"fare": "target.fare + source.fare"}),
    ("not_matched", "source.id = 'k8'", "*"),
]


def seen(storage: Storage) -> object:
    return ours(storage)


def merge_all_kinds(storage: Storage) -> mdt.WriteResult:
    done: mdt.WriteResult = said(
        PooledTable(storage).merge(rows([0, 1, 3, 8, 9], 3, 9.0)), CLAUSES
    ).execute()
    return done


def test_after_a_crash_of_the_driver_at_any_change_readers_see_all_or_nothing(start: Path) -> None:
    for _ in recovered(
        copies(start), merge_all_kinds, (BEFORE, AFTER), "crash points of a merge in processes"
    ):
        pass
    merge_all_kinds(on(start))
    assert seen(on(start)) == AFTER


def beside(start: Path, merge: Any, other: Callable[[mdt.Table], object]) -> Any:
    """Carry out a merge; when its files are written, somebody else commits.  Return what the merge
    says.
    """
    waiting = [other]

    def commit(*_: int) -> None:
        if waiting:
            waiting.pop()(mdt.open(on(start)))

    done = merge.execute(progress=commit)
    assert not waiting and mdt.open(on(start)).check().ok
    return done


ADDED: list[Said] = [("matched", None, {"fare": "target.fare + source.fare"})]


@pytest.mark.parametrize(
    ("clauses", "other", "attempts"),
    [
        (ADDED, lambda t: t.upsert(rows([0], 5, 50.0)), 2),  # a row that it has changed
        (
            ADDED,
            lambda t: t.upsert(rows([21], 5, 50.0)),
            2,
        ),  # a key that it has found absent, and not inserted
        ([NEW_ALL], lambda t: t.upsert(rows([21], 5, 50.0)), 2),  # one that it inserts
        (
            ADDED,
            lambda t: t.upsert(rows([23], 5, 50.0)),
            1,
        ),  # another key, in a file group that it has not read
        (
            [("matched", "source.fare > target.fare + 10", None), ("not_matched", None, "*")],
            lambda t: t.delete(rows([0], 0, 0.0)),
            2,
        ),
        (ADDED, lambda t: t.compact(), 2),
        (ADDED, lambda t: t.create_index("bitmap(fare)"), 1),
    ],
)
def test_a_merge_begins_again_after_writers_of_what_it_has_read(
    start: Path, clauses: list[Said], other: Callable[[mdt.Table], object], attempts: int
) -> None:
    after = mdt.open(on(shutil.copytree(start, start.with_name("after"))))
    done = beside(start, said(PooledTable(on(start)).merge(rows([0, 21], 3, 3.0)), clauses), other)
    assert done.attempts == attempts
    other(after)
    said(after.merge(rows([0, 21], 3, 3.0)), clauses).execute()
    assert seen(on(start)) == seen(after.storage)


def test_a_merge_is_refused_after_an_alter(start: Path) -> None:
    table = PooledTable(on(start))
    merge = said(table.merge(rows([0, 21], 3, 3.0)), ADDED)
    with pytest.raises(Conflict, match="altered"):
        beside(start, merge, lambda t: t.alter(rename={"fare": "price"}, beyond_hudi=True))
    assert not list(table.storage.list(".hoodie/.mdt/pending"))
