"""Names in a text, separated by commas: those that hold commas stand in backquotes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import mdt
from mdt.arguments import listed, listing
from mdt.option import COLUMN


def test_names_with_commas_are_listed_in_backquotes(tmp_path: Path) -> None:
    schema = pa.schema({"last, first": pa.string(), "`q`": pa.int64(), "v": pa.int64()})
    options = {"mdt.column.stats.columns": "`last, first`, v"}
    table = mdt.create(tmp_path / "t", schema, key=["last, first", "`q`"], options=options)
    assert table.options.column_stats_columns == ("last, first", "v")
    assert mdt.open(table.path).options.column_stats_columns == ("last, first", "v")


def test_the_ordering_field_may_stand_in_backquotes() -> None:
    for text, column in (("ts", "ts"), ("`ts, ms `", "ts, ms "), ("ts, ms", "ts, ms"), (" ", None)):
        assert COLUMN.parse(text) == column


@given(st.lists(st.text(st.sampled_from("a,` ;"), min_size=1), max_size=4))
def test_a_list_of_names_comes_back_from_its_text(given_names: list[str]) -> None:
    assert listed(listing(given_names)) == given_names
