"""Text ordering fields are compared by code points, also if their first eight bytes are equal."""

import numpy as np
import pyarrow as pa
import pytest
from pooled import EVERY_KIND
from reader import agreed
from texts import columns, rows_of

import mdt
from mdt.errors import Invalid
from mdt.metadata.files.key_map import ordering_words
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, at string, v int64")


def values_by_id(table):
    return {row["id"]: (row["at"], row["v"]) for row in table.scan().to_arrow().to_pylist()}


@EVERY_KIND
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_the_larger_text_wins_even_if_the_first_eight_bytes_are_equal(tmp_path, kind, table_type):
    table = kind(mdt.create(tmp_path, SCHEMA, ["id"], ordering="at", table_type=table_type).storage)
    table.upsert(
        rows_of(
            SCHEMA, "a 2026-11-22T10:00 1", "b 2026-11-22T10:00 1", "c \uffff 1", "d 12345678 1"
        )
    )
    later = rows_of(
        SCHEMA, "a 2026-11-22T09:59 2", "b 2026-11-22T10:01 2", "c \U0001f600 2", "d 12345678 2"
    )
    result = table.upsert(later)
    assert (result.updated, result.late) == (3, 1)
    expected = {"a": ("2026-11-22T10:00", 1), "b": ("2026-11-22T10:01", 2)}
    expected |= {"c": ("\U0001f600", 2), "d": ("12345678", 2)}
    assert values_by_id(table) == expected
    repeated = ("d 12345678\0 3", "d 12345678 4", "a 2026-11-22T09 5", "a 2026-11-22T08 6")
    table.upsert(rows_of(SCHEMA, *repeated))
    assert values_by_id(table) == expected | {"d": ("12345678\0", 3)}
    part = rows_of(SCHEMA, "a 2026-11-22T10:00:00 7", "b 2026-11-22T10:00 7")
    table.upsert(part, partial=True)
    assert (
        values_by_id(table)["a"] == ("2026-11-22T10:00:00", 7)
        and values_by_id(table)["b"] == expected["b"]
    )
    merge = table.merge(rows_of(SCHEMA, "b 2026-11-22T 8")).when_matched().update("*")
    assert merge.execute().updated == 1 and values_by_id(table)["b"] == ("2026-11-22T", 8)
    agreed(table)


def test_ordering_words_preserve_the_order_of_the_first_bytes_of_text():
    texts = sorted(
        ["", "a", "a\0", "b" * 7, "b" * 8, "b" * 9, "\x7f", "é", "\ud7ff", "\uffff", "\U0001f600"]
    )
    words = ordering_words(pa.array(texts))
    assert bool(np.all(words[1:] >= words[:-1])) and len(np.unique(words)) == len(texts) - 2


@pytest.mark.parametrize("option", ["mdt.keys.repeat", "mdt.delete.keeps.ordering"])
def test_a_text_ordering_field_is_refused_by_options_that_compare_words_only(option):
    with pytest.raises(Invalid, match="text or several: at"):
        mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="at", options={option: True})
