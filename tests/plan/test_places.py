"""Places: positions that are worked out for runs of segments, then cut, are those of the segments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

import mdt
from indexes.base import SkippingIndex
from indexes.bitmap import BitmapIndex
from indexes.registry import parse_spec
from mdt.metadata.attachments import AttachmentWriter
from mdt.metadata.file_group import Joint
from mdt.plan.places import Layout, Places
from mdt.stores.storage import MemoryStorage
from mdt.write import summarize
from mdt.write.summarize import Indexed, placed_all

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("m", pa.int64())])


@dataclass(frozen=True)
class World:
    """Segments of ``rows`` rows, and for each index the runs of segments that it has summarized together."""

    rows: list[int]
    runs: list[list[list[int]]]

    def layouts(self) -> list[Layout]:
        found = []
        for runs in self.runs:
            layout = Layout.nothing(len(self.rows))
            for number, run in enumerate(runs):
                first = 0
                for segment in run:
                    layout.number[segment] = number
                    layout.first[segment] = first if len(run) > 1 else -1
                    first += self.rows[segment]
            found.append(layout)
        return found


@st.composite
def worlds(draw: st.DrawFn) -> World:
    rows = draw(st.lists(st.integers(1, 9), min_size=1, max_size=9))
    common = draw(_runs(len(rows)))
    count = draw(st.integers(1, 3))
    return World(rows, [common if draw(st.booleans()) else draw(_runs(len(rows))) for _ in range(count)])


@st.composite
def _runs(draw: st.DrawFn, segments: int) -> list[list[int]]:
    order = draw(st.permutations(range(segments)))
    covered = order[: draw(st.integers(0, segments))]
    cuts = sorted(draw(st.sets(st.integers(0, len(covered)))) | {0, len(covered)})
    return [list(covered[a:b]) for a, b in pairwise(cuts) if b > a]


@given(worlds(), st.data())
def test_every_segment_is_in_one_place_and_gets_its_own_positions_back(world: World, data: st.DataObject) -> None:
    alone = np.array(data.draw(st.lists(st.booleans(), min_size=len(world.rows), max_size=len(world.rows))))
    places = Places.of(world.layouts(), np.array(world.rows, np.int64), alone)
    members = [places.segments(place).tolist() for place in range(len(places))]
    assert sorted(segment for mine in members for segment in mine) == list(range(len(world.rows)))
    wanted = {s: BitMap(data.draw(st.sets(st.integers(0, rows - 1)))) for s, rows in enumerate(world.rows)}
    answers: list[BitMap | None] = []
    for place, mine in enumerate(members):
        if data.draw(st.booleans()):
            for segment in mine:
                del wanted[segment]
            answers.append(None)
        else:
            assert places.is_shared[place] or len(mine) == 1
            answers.append(BitMap(p + int(places.first[s]) for s in mine for p in wanted[s]))
    assert places.spread(answers) == wanted
    assert places.alive(answers).tolist() == [s not in wanted or bool(wanted[s]) for s in range(len(world.rows))]


@given(worlds())
def test_a_shared_place_numbers_rows_as_every_index_that_covers_it_does(world: World) -> None:
    layouts = world.layouts()
    places = Places.of(layouts, np.array(world.rows, np.int64), np.zeros(len(world.rows), np.bool_))
    shared = [place for place in range(len(places)) if places.is_shared[place]]
    for place in shared:
        mine = places.segments(place)
        for layout in layouts:
            assert len(set(layout.number[mine].tolist())) == 1, "one summary, or none, speaks of all of them"
            if layout.number[mine[0]] >= 0:
                assert layout.first[mine].tolist() == places.first[mine].tolist()
    for layout in layouts:
        of_places = places.layout(layout)
        assert (of_places.first[shared] == -1).all()
        for place in set(range(len(places))) - set(shared):
            segment = int(places.segments(place)[0])
            assert (of_places.number[place], of_places.first[place]) == (layout.number[segment], layout.first[segment])


@given(worlds())
def test_what_matters_in_a_shared_place_are_the_rows_of_its_segments(world: World) -> None:
    places = Places.of(world.layouts(), np.array(world.rows, np.int64), np.zeros(len(world.rows), np.bool_))
    for place, rows in enumerate(places.within({})):
        mine = places.segments(place).tolist()
        if places.is_shared[place]:
            assert rows == BitMap(p for s in mine for p in range(places.first[s], places.first[s] + world.rows[s]))
        else:
            assert rows is None


def test_segments_that_are_summarized_alike_by_all_indexes_are_one_place() -> None:
    world = World([4, 5, 6], [[[0, 1, 2]], [[0, 1, 2]], []])
    places = Places.of(world.layouts(), np.array(world.rows, np.int64), np.zeros(3, np.bool_))
    assert len(places) == 1 and places.is_shared.tolist() == [True] and places.first.tolist() == [0, 4, 9]


def made() -> mdt.Table:
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], table_type="MERGE_ON_READ", key_index="record",
        indexes=["bitmap(n)"],
    )  # fmt: skip
    table.insert(rows(range(120)))
    return table


def rows(numbers: range, step: int = 1) -> pa.Table:
    found = [{"id": f"k{i}", "city": f"c{i % 4}", "n": i * step % 7, "m": i * step % 5} for i in numbers]
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


def test_indexes_that_were_built_one_after_the_other_answer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    table.create_index("bitmap(m)")
    expected = sorted(f"k{i}" for i in range(120) if i % 7 == 3 and i % 5 == 2)
    assert asked(table, "n = 3 and m = 2", monkeypatch) == (expected, 2), (
        "both were made of the same files in one order"
    )
    table.drop_index("bitmap(m)")
    table.upsert(rows(range(0, 120, 4), 3))
    table.compact()
    table.create_index("bitmap(m)")
    now = {f"k{i}": i * (3 if i % 4 == 0 else 1) for i in range(120)}
    for where, expected in {
        "n = 3 and m = 2": sorted(k for k, v in now.items() if v % 7 == 3 and v % 5 == 2),
        "n = 3 or m = 2": sorted(k for k, v in now.items() if v % 7 == 3 or v % 5 == 2),
        "n in (1, 2) and (m = 2 or n = 1)": sorted(k for k, v in now.items() if v % 7 == 1 or v % 7 == v % 5 == 2),
    }.items():
        assert asked(table, where, monkeypatch)[0] == expected, where
    assert table.check().ok


class Picky(SkippingIndex):
    """Refuses more than ten rows."""

    name = "picky/1"
    finds_rows = True
    supports = prune = None  # type: ignore[assignment]

    def summarize(self, values: pa.Array) -> bytes:
        if len(values) > 10:
            raise ValueError("too many")
        return bytes(1000)


Picky.__abstractmethods__ = frozenset()


def test_an_index_that_fails_on_several_segments_is_asked_for_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarize, "index_of", lambda text: (parse_spec(text), Picky()))
    parts = [(n, Indexed({}, {"picky/1(n)": pa.array(range(size))}, size)) for n, size in enumerate((6, 8, 12))]
    found = dict(placed_all(AttachmentWriter("x"), parts, threads=2))
    assert [len(found[n]) for n in range(3)] == [1, 1, 0]
    assert not any(isinstance(data, Joint) for mine in found.values() for _, data in mine)


def test_a_joint_summary_has_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarize, "JOINT_SUMMARY_BYTES_MAX", 30 * 8 * 2)
    table = made()
    snapshot = table.snapshot()
    refs = snapshot.index_summaries("bitmap/1(n)", snapshot.live_numbers)
    assert [ref.first if isinstance(ref, Joint) else -1 for ref in refs] == [0, 30, 0, 30]
    assert len(table.scan("n = 3").to_arrow()) == len([i for i in range(120) if i % 7 == 3])
