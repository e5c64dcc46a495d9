"""Examples of the papers that this project follows, on tables of mdt: bitmap and inverted indexes
find single rows.
"""

import pyarrow as pa
import pytest

import mdt
from mdt.stores.storage import MemoryStorage

AGES = [21, 1, 1, 35, 64, 2, 21_000, 1]
TEXTS = [
    "西安的大唐不夜城很热闹",
    "我在西安读书",
    "北京欢迎你",
    "大唐不夜城在哪里",
    None,
    "",
    "西安",
    "Xi'an by night",
]
INDEXES = ["bitmap(age)", "text(text, tokenizer='chinese')", "text(text, tokenizer='ngram(2)')"]


@pytest.mark.parametrize(
    ("where", "index", "ids"),
    [
        ("age = 21", "bitmap/1(age)", ["p0"]),
        ("age = 20", "bitmap/1(age)", []),  # between minimum and maximum
        ("match(text, '西安', 'chinese')", "chinese", ["p0", "p1", "p6"]),
        ("match(text, '大唐不夜城', 'chinese')", "chinese", ["p0", "p3"]),
        ("match(text, '西安 大唐', 'chinese')", "chinese", ["p0"]),
        ("text like '%不夜城%'", "ngram", ["p0", "p3"]),
        ("text like '%上海%'", "ngram", []),
    ],
)
def test_an_index_finds_exactly_the_matching_rows(where, index, ids):
    people = pa.table({"id": [f"p{i}" for i in range(len(AGES))], "age": AGES, "text": TEXTS})
    table = mdt.create(MemoryStorage(), people.schema, ["id"])
    table.insert(people)
    table.create_index(INDEXES)
    scan = table.scan(where)
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ids
    explanation = scan.explain()
    assert (explanation.files_read, explanation.rows_read) == (bool(ids), len(ids))
    notes = {note.index: note for note in explanation.indexes}
    assert notes["column_stats"].pruned == 0
    assert next(note for name, note in notes.items() if index in name).pruned == (not ids)


def test_comparisons_on_a_bitmap_index_of_bit_slices_give_the_exact_positions():
    n = 5_000
    people = pa.table({"id": [f"p{i}" for i in range(n)], "age": [i * 7919 % n for i in range(n)]})
    table = mdt.create(MemoryStorage(), people.schema, ["id"], indexes=["bitmap(age)"])
    table.insert(people)
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
