"""The examples of the papers that this project follows, on real tables: bitmap and inverted indexes
find single rows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mdt
from mdt.stores.storage import MemoryStorage

PEOPLE = pa.schema(
    [("id", pa.string()), ("age", pa.int32()), ("city", pa.string()), ("text", pa.string())]
)
AGES = (21, 1, 1, 35, 64, 2, 21_000, 1)


def people() -> pa.Table:
    n = len(AGES)
    texts = [
        "西安的大唐不夜城很热闹",
        "我在西安读书",
        "北京欢迎你",
        "大唐不夜城在哪里",
        None,
        "",
        "西安",
        "Xi'an by night",
    ]
    return pa.table(
        [[f"p{i}" for i in range(n)], list(AGES), [f"c{i % 3}" for i in range(n)], texts],
        schema=PEOPLE,
    )


@pytest.fixture
def table(tmp_path: Path) -> mdt.Table:
    table = mdt.create(tmp_path / "people", PEOPLE, ["id"])
    table.insert(people())
    table.create_index(
        ["bitmap(age)", "text(text, tokenizer='chinese')", "text(text, tokenizer='ngram(2)')"]
    )
    return table


def test_age_21_is_read_to_row_0_only(table: mdt.Table) -> None:
    scan = table.scan("age = 21")
    assert [(s.file, list(s.positions or ())) for s in scan.plan.segments] == [(0, [0])]
    assert scan.explain().rows_read == 1 and scan.to_arrow()["id"].to_pylist() == ["p0"]


def test_age_20_skips_the_file_although_it_lies_between_minimum_and_maximum(
    table: mdt.Table,
) -> None:
    told = table.scan("age = 20").explain()
    assert (told.files_read, told.rows_read) == (0, 0)
    pruned = {note.index: note.pruned for note in told.indexes}
    assert pruned["column_stats"] == 0 and pruned["bitmap/1(age)"] == 1
    assert table.scan("age = 20").to_arrow().num_rows == 0


def test_age_above_1_goes_through_bit_slices() -> None:
    table = mdt.create(MemoryStorage(), PEOPLE, ["id"], indexes=["bitmap(age)"])
    n = 5_000
    ages = [(i * 7919) % n for i in range(n)]
    table.insert(pa.table([[f"p{i}" for i in range(n)], ages, ["x"] * n, ["y"] * n], schema=PEOPLE))
    for where, expected in (
        ("age > 1", n - 2),
        ("age >= 4998", 2),
        ("age between 10 and 19", 10),
        ("age < 0", 0),
        ("age != 7", n - 1),
    ):
        scan = table.scan(where)
        assert sum(len(s.positions or ()) for s in scan.plan.segments) == expected, where
        assert scan.count() == expected


@pytest.mark.parametrize(
    "term, ids", [("西安", ["p0", "p1", "p6"]), ("大唐不夜城", ["p0", "p3"]), ("西安 大唐", ["p0"])]
)
def test_chinese_terms_are_found_by_the_inverted_index(
    table: mdt.Table, term: str, ids: list[str]
) -> None:
    scan = table.scan(f"match(text, '{term}', 'chinese')")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ids
    told = scan.explain()
    assert told.rows_read == len(ids), "the index knows the rows"
    assert next(note for note in told.indexes if "chinese" in note.index).used


def test_a_part_of_a_text_is_found_by_its_pairs_of_characters(table: mdt.Table) -> None:
    scan = table.scan("text like '%不夜城%'")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ["p0", "p3"]
    assert scan.explain().rows_read == 2
    assert table.scan("text like '%上海%'").explain().files_read == 0
