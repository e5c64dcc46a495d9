"""Rows of a table by position, if a column has more bytes than Arrow can take at once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import arrays
from indexes.arrays import take_rows, take_rows_by_chunk

PARTS = st.lists(st.lists(st.none() | st.text(max_size=3), max_size=5), min_size=1, max_size=4)


@given(PARTS, st.integers(1, 4), st.data())
def test_rows_taken_in_several_chunks_equal_those_that_arrow_takes_at_once(parts, most, data):
    """The strings have a chunk per part of ``parts``, and the lists have one. Row -1 is null."""
    texts = pa.chunked_array([pa.array(part, "string") for part in parts])
    table = pa.table({"s": texts, "l": pa.array([[text] for text in texts.to_pylist()])})
    rows = np.array(data.draw(st.lists(st.integers(-1, len(table) - 1))), np.int64)
    expected = table.take(pa.array(rows, mask=rows < 0))
    assert take_rows(table, rows).equals(expected) and take_rows_by_chunk(table, rows).equals(
        expected
    )
    at_once = arrays._take_rows_by_chunk

    def take_limited(table, rows):
        if len(rows) > most:
            raise pa.ArrowInvalid("offset overflow")
        return at_once(table, rows)

    def take_nothing(table, rows):
        raise pa.ArrowInvalid("offset overflow")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_take_rows_by_chunk", take_limited)
        assert take_rows_by_chunk(table, rows).equals(expected)
        patch.setattr(arrays, "_take_rows_by_chunk", take_nothing)
        if len(rows):
            with pytest.raises(pa.ArrowInvalid, match="overflow"):
                take_rows_by_chunk(table, rows)
