"""Ordering fields of text: by code points, also where the first eight bytes are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pooled import PooledTable
from reader import bag, hudi_table

import mdt
from mdt.errors import Invalid
from mdt.metadata.files.key_map import ordering_words
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.string()), ("v", pa.int64())])


def rows(*given: tuple[str, str, int]) -> pa.Table:
    return pa.table(list(map(list, zip(*given, strict=True))), schema=SCHEMA)


def held(table: mdt.Table) -> dict[str, Any]:
    return {row["id"]: (row["at"], row["v"]) for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.parametrize(
    ("kind", "table_type"),
    [(mdt.Table, "MERGE_ON_READ"), (mdt.Table, "COPY_ON_WRITE"), (PooledTable, "MERGE_ON_READ")],
)
def test_the_later_text_wins_whatever_its_first_bytes_are(
    tmp_path: Path, kind: type[mdt.Table], table_type: str
) -> None:
    table = kind(mdt.create(tmp_path, SCHEMA, ["id"], ordering="at", table_type=table_type).storage)
    table.upsert(
        rows(
            ("a", "2026-11-22T10:00", 1),
            ("b", "2026-11-22T10:00", 1),
            ("c", "\uffff", 1),
            ("d", "12345678", 1),
        )
    )
    done = table.upsert(
        rows(
            ("a", "2026-11-22T09:59", 2),
            ("b", "2026-11-22T10:01", 2),
            ("c", "\U0001f600", 2),
            ("d", "12345678", 2),
        )
    )
    assert (done.updated, done.late) == (3, 1)
    expected = {
        "a": ("2026-11-22T10:00", 1),
        "b": ("2026-11-22T10:01", 2),
        "c": ("\U0001f600", 2),
        "d": ("12345678", 2),
    }
    assert held(table) == expected
    assert bag(hudi_table(tmp_path, SCHEMA)) == bag(table.scan().to_arrow())
    table.upsert(
        rows(
            ("d", "12345678\0", 3),
            ("d", "12345678", 4),
            ("a", "2026-11-22T09", 5),
            ("a", "2026-11-22T08", 6),
        )
    )
    assert held(table) == expected | {"d": ("12345678\0", 3)}
    table.upsert(
        {"id": ["a", "b"], "v": [7, 7], "at": ["2026-11-22T10:00:00", "2026-11-22T10:00"]},
        partial=True,
    )
    assert held(table)["a"] == ("2026-11-22T10:00:00", 7) and held(table)["b"] == expected["b"]
    merge = table.merge(rows(("b", "2026-11-22T", 8))).when_matched().update("*")
    assert merge.execute().updated == 1 and held(table)["b"] == ("2026-11-22T", 8)
    assert bag(hudi_table(tmp_path, SCHEMA)) == bag(table.scan().to_arrow()) and table.check().ok


def test_words_of_text_rise_with_it_as_far_as_they_go() -> None:
    texts = sorted(
        ["", "a", "a\0", "b" * 7, "b" * 8, "b" * 9, "\x7f", "é", "\ud7ff", "\uffff", "\U0001f600"]
    )
    words = ordering_words(pa.array(texts))
    assert bool(np.all(words[1:] >= words[:-1])) and len(np.unique(words)) == len(texts) - 2


@pytest.mark.parametrize("option", ["mdt.keys.repeat", "mdt.delete.keeps.ordering"])
def test_text_is_refused_where_words_alone_decide(option: str) -> None:
    with pytest.raises(Invalid, match="is text"):
        mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="at", options={option: True})
