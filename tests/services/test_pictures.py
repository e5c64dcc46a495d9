"""A table at a glance: what the text says, and what is drawn."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.errors import Expired, Invalid
from mdt.services.reports import file_map
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, a float64, b timestamp[us], city string")
OPTIONS = {"mdt.max.file.bytes": 40_000, "mdt.small.file.bytes": 0, "mdt.services.auto": False}
SVG = "{http://www.w3.org/2000/svg}"


def rows(count, first=0):
    random = np.random.default_rng(first)
    columns = [
        np.arange(first, first + count),
        random.random(count),
        random.integers(0, 10**9, count),
        ["x"] * count,
    ]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def filled(**more):
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], table_type="MERGE_ON_READ", options={**OPTIONS, **more}
    )
    for first in range(0, 6_000, 1_000):
        table.bulk_insert(rows(1_000, first))
    return table


def rectangles(picture):
    return [
        one for one in ElementTree.fromstring(picture).iter(f"{SVG}rect") if one.get("stroke-width")
    ]


def texts(picture):
    return [str(one.text) for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_the_text_counts_commits_groups_logs_dead_rows_and_indexes():
    table = filled()
    table.create_index("bitmap(city)")
    table.upsert(rows(100, 50))
    table.tag("good")
    shown = str(table.show(commits=4)).splitlines()
    found = table.show().summary
    assert (found.rows, found.dead, found.log_files) == (6_000, 100, 1)
    assert found.files == found.groups + 1 == len(table.files())
    assert sum(found.group_sizes.values()) == found.groups
    assert found.bytes == sum(table.files()["size"].to_pylist()) > found.log_bytes > 0
    marks = {line.split()[0]: line.split()[1] for line in shown if "■" in line}
    assert marks["upsert"] == "··■·" and marks["tag"] == "···■"
    assert f"readable: states 0 to {found.seq}; tags: good (commit {found.seq - 1})" in shown
    assert "indexes: bitmap(city) 100%" in shown
    assert len(table.show(commits=4).summary.commits) == 4
    assert repr(table.show()) == f"<mdt picture of {table.definition.name}, commit {found.seq}>"


def test_what_is_due_is_told_until_it_is_done():
    table = filled(**{"mdt.compact.log.files": 2, "mdt.clean.retain.commits": 1})
    assert table.show().summary.due == ()
    for first in range(16):
        table.upsert(rows(10, first))
    table.create_index("bitmap(city)", mode="async")
    logs, states, index = table.show().summary.due
    assert logs == "compaction of 1 file groups with 2 or more log files"
    assert states.startswith("cleaning of ") and index == "build of bitmap(city)"
    table.compact()
    table.clean()
    table.build_indexes()
    assert table.show().summary.due == ()


def test_files_are_drawn_before_and_after_the_newest_clustering():
    table = filled()
    assert len(rectangles(table.show(["a", "b"]).svg())) == len(table.files())
    before = len(table.files())
    table.cluster(["a", "b"], curve="hilbert")
    picture = table.show(["a", "b"])
    assert picture.layout is not None
    old, new = picture.layout.states
    assert (len(old.is_log), len(new.is_log)) == (before, len(table.files()))
    assert np.mean((new.high - new.low)[0] * (new.high - new.low)[1]) < 0.5 * np.mean(
        (old.high - old.low)[0] * (old.high - old.low)[1]
    )
    for state in (old, new):
        assert (state.low <= state.high).all() and state.low.min() >= 0 and state.high.max() <= 1
    assert len(rectangles(picture.svg())) == before + len(table.files())
    assert len(rectangles(table.show(["a", "b"], before=1).svg())) == 1 * len(
        table.snapshot(1)
    ) + len(table.files())


def test_by_default_files_are_drawn_over_the_columns_in_which_they_overlap_least():
    table = filled()
    found = table.show().layout
    assert found is not None and found.columns[0] == "id"
    table.cluster(["a", "b"], curve="zorder")
    found = table.show().layout
    assert found is not None and set(found.columns) == {"a", "b"}


def test_of_very_many_files_some_are_drawn_and_that_is_told(
    monkeypatch,
):
    monkeypatch.setattr(file_map, "FILES_DRAWN_MAX", 3)
    table = filled()
    found = table.show(["id", "a"])
    assert found.layout is not None and len(found.layout.states[0].is_log) <= 3
    assert any("of them shown" in text for text in texts(found.svg()))


def test_names_and_values_are_text_in_every_picture():
    table = mdt.create(MemoryStorage(), columns("k string, v string"), ["k"])
    table.upsert([{"k": "<script>", "v": '"&x"'}])
    table.tag("<i>")
    for picture in (table.show().svg(), table.show()._repr_html_()):
        assert "<script>" not in picture and "<i>" not in picture
    assert {"<script>", '"&x"', "<i>"} < set(texts(table.show().svg()))


def test_an_empty_table_and_one_of_a_single_column_have_a_timeline_only():
    empty = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    single = mdt.create(MemoryStorage(), columns("id int64"), ["id"])
    single.upsert([{"id": 1}])
    for table in (empty, single):
        picture = table.show()
        assert picture.layout is None and not rectangles(picture.svg())
        assert "due: nothing" in str(picture)


def test_columns_that_are_older_than_some_files_and_nulls_are_drawn_as_unknown():
    table = filled()
    table.alter(add={"c": "int64"})
    assert table.show(["a", "c"]).layout is not None
    table.upsert([{"id": 1, "a": None, "b": None, "city": None, "c": None}])
    found = table.show(["a", "c"], before=1).layout
    assert found is not None and len(found.states) == 2


def test_columns_that_cannot_be_drawn_and_states_that_cannot_be_read_are_refused():
    table = filled()
    for names in (["a"], ["a", "a"], ["a", "none"], ["a", "b", "id"]):
        with pytest.raises(Invalid, match="two columns"):
            table.show(names)
    with pytest.raises(Invalid):
        table.show(before=99)
    table.clean(retain_commits=1)
    with pytest.raises(Expired):
        table.show(before=1)
    assert any("no longer readable" in text for text in texts(table.show().svg()))
    assert (
        mdt.open(table.storage, as_of=table.snapshot().seq).show().summary.seq
        == table.snapshot().seq
    )
