"""Rows of a table by position, where one column has more bytes than Arrow takes rows of at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import arrays
from indexes.arrays import taken, taken_by_chunk

PARTS = st.lists(st.lists(st.none() | st.text(max_size=3), max_size=5), min_size=1, max_size=4)


def drawn(
    parts: list[list[str | None]], data: st.DataObject
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return a table of texts, a chunk for each of ``parts``, and some of its rows, -1 among
    them.
    """
    texts = pa.chunked_array([pa.array(part, pa.string()) for part in parts])
    lists = pa.chunked_array(
        [pa.array([[t] for t in part], pa.list_(pa.string())) for part in parts]
    )
    table = pa.table({"s": texts, "l": lists})
    return table, np.array(data.draw(st.lists(st.integers(-1, len(table) - 1))), np.int64)


def by_arrow(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    return table.take(pa.array([None if row < 0 else row for row in rows.tolist()], pa.int64()))


@given(PARTS, st.data())
def test_rows_taken_by_chunk_are_those_that_arrow_takes(
    parts: list[list[str | None]], data: st.DataObject
) -> None:
    table, rows = drawn(parts, data)
    expected = by_arrow(table, rows)
    assert taken(table, rows).equals(expected) and taken_by_chunk(table, rows).equals(expected)


@given(PARTS, st.integers(1, 4), st.data())
def test_more_rows_than_one_chunk_can_have_come_in_several(
    parts: list[list[str | None]], most: int, data: st.DataObject
) -> None:
    table, rows = drawn(parts, data)
    at_once = arrays._taken_by_chunk

    def limited(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
        if len(rows) > most:
            raise pa.ArrowInvalid("offset overflow")
        return at_once(table, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_taken_by_chunk", limited)
        assert taken_by_chunk(table, rows).equals(by_arrow(table, rows))
        patch.setattr(
            arrays,
            "_taken_by_chunk",
            lambda table, rows: limited(table, np.zeros(most + 1, np.int64)),
        )
        if len(rows):
            with pytest.raises(pa.ArrowInvalid, match="overflow"):
                taken_by_chunk(table, rows)
