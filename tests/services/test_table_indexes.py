"""Skipping indexes of a table: an index class of another package, missing and inexact indexes, and
the notes of explain.
"""

import numpy as np
import pyarrow as pa
import pytest
from example_index import LengthIndex
from texts import columns

import mdt
from indexes.predicate import Leaf, forms, matches
from mdt.plan import table_index
from mdt.stores.memory import MemoryStorage

SCHEMA = columns("id int64, note string")


@pytest.fixture
def table():
    """Four files. The notes of file n have n + 1 characters, and the same order in every file."""
    t = mdt.create(
        MemoryStorage(), SCHEMA, key=["id"], indexes=["length(note)"], table_type="COPY_ON_WRITE"
    )
    for n in range(4):
        notes = ["a" * (n + 1), "z" * (n + 1)]
        t.bulk_insert(pa.table({"id": [2 * n, 2 * n + 1], "note": notes}, schema=SCHEMA))
    return t


def _note(t, where):
    return next(n for n in t.scan(where=where).explain().indexes if n.index.startswith("length"))


def test_an_index_of_another_package_prunes_files_and_is_explained(table):
    scan = table.scan(where="note = 'zzz'")
    assert scan.to_arrow()["id"].to_pylist() == [5]
    note = _note(table, "note = 'zzz'")
    # Column statistics keep the files with notes that begin like the literal. Only the length
    # distinguishes them.
    assert (note.used, note.covered, note.reason) == (True, 4, "used")
    assert scan.explain().files_read == 1


def test_the_stored_name_of_an_index_contains_its_version(table):
    assert table.definition.indexes == ("length/1(note)",)


def test_an_unknown_index_is_refused_at_creation():
    with pytest.raises(mdt.Invalid, match="no_such_index"):
        mdt.create(MemoryStorage(), SCHEMA, key=["id"], indexes=["no_such_index(note)"])


@pytest.mark.parametrize(
    "where, ids, files",
    [
        ("note like 'mmm%'", [], 2),
        ("note like 'mmm'", [], 1),
        ("startswith(note, 'mmm')", [], 2),
        ("note like 'm\\mm%'", [], 2),
        ("note like 'mmm_'", [], 4),
        ("note like 'zzz%'", [5, 7], 2),
        ("not note like 'zzz%'", [0, 1, 2, 3, 4, 6], 4),
    ],
)
def test_an_index_that_supports_only_prefixes_and_equality_is_used_for_like(
    table, where, ids, files
):
    """Statistics cannot prune these filters, because m lies between the bounds of every file."""
    scan = table.scan(where=where)
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ids
    assert scan.explain().files_read == files


def test_an_index_that_supports_only_like_is_used_for_prefixes(table, monkeypatch):
    leaves = []

    def prune(self, summaries, leaf, type):
        leaves.append(leaf)
        return np.full(len(summaries), leaf.op != "like")

    monkeypatch.setattr(LengthIndex, "prune", prune)
    assert table.scan("startswith(note, 'm%')").explain().files_read == 0
    assert leaves[-1] == Leaf("note", "like", "m\\%%")


def test_all_forms_of_a_condition_match_the_same_rows():
    rows = pa.table(
        {"note": ["", "a", "ab", "abc", "a%", "a_c", "%", "_", "\\", "a\\b", None, "aB", "é", "ée"]}
    )
    patterns = [
        "",
        "a",
        "a%",
        "a\\%",
        "a\\%%",
        "a\\_c",
        "%",
        "\\\\%",
        "a\\\\b",
        "é%",
        "é",
        "_",
        "a%%",
        "a_",
        "%a",
    ]
    leaves = [Leaf("note", op, text) for op in ("like", "starts with") for text in patterns]
    count_with_forms = 0
    for leaf in leaves:
        expected = matches(leaf, rows).to_pylist()
        assert leaf in forms(leaf)
        for form in forms(leaf):
            assert matches(form, rows).to_pylist() == expected, (leaf, form)
        count_with_forms += len(forms(leaf)) > 1
    assert count_with_forms > 20


NOTES = ["a_b", "axb", "a", "a%", "ab", "abc", "b", "", None, "a\\", "%", "zz"]
LIKES = [
    "a%",
    "a",
    "a\\_b",
    "a\\_%",
    "a\\%%",
    "",
    "\\%",
    "ab%",
    "a\\\\",
    "zzz%",
    "%a",
    "a_b",
    "a_b%",
]


def _conditions_losing_rows(table):
    """Return the conditions for which a plan with indexes loses rows."""
    rows = table.scan().to_arrow()
    conditions = [
        Leaf("note", op, text) for op in ("like", "starts with", "not like") for text in LIKES
    ]
    losing = []
    for leaf in conditions:
        expected = sorted(rows.filter(matches(leaf, rows))["id"].to_pylist())
        if (
            sorted(table.scan([(leaf.column, leaf.op, leaf.value)]).to_arrow()["id"].to_pylist())
            != expected
        ):
            losing.append(leaf)
    return losing


def _wrong_forms(op, value):
    """Return a wrong ``forms`` that adds an unequal form to every LIKE ending in %."""
    return lambda leaf: (
        (Leaf(leaf.column, op, value(str(leaf.value))), leaf)
        if str(leaf.value).endswith("%")
        else (leaf,)
    )


FORMS_THAT_LOSE_ROWS = {
    "a prefix is taken for the whole": _wrong_forms(
        "=", lambda pattern: pattern[:-1].replace("\\", "")
    ),
    "escapes stay in the prefix": _wrong_forms("starts with", lambda pattern: pattern[:-1]),
    "the wildcard stays in the prefix": _wrong_forms("starts with", lambda pattern: pattern),
    "a wildcard inside is taken for text": _wrong_forms(
        "starts with", lambda pattern: pattern[:-1].replace("\\", "")
    ),
}


@pytest.mark.parametrize(
    "indexes",
    [["bitmap(note)"], ["text(note, tokenizer='ngram(2)')"], ["length(note)"], ["bloom(note)"]],
)
def test_forms_of_a_condition_lose_no_rows_and_wrong_forms_are_detected(indexes, monkeypatch):
    table = mdt.create(
        MemoryStorage(), SCHEMA, key=["id"], indexes=indexes, options={"mdt.small.file.bytes": 0}
    )
    for start in range(0, len(NOTES), 3):
        table.upsert(
            pa.table(
                {"id": range(start, start + 3), "note": NOTES[start : start + 3]}, schema=SCHEMA
            )
        )
    assert _conditions_losing_rows(table) == []
    if indexes == ["bitmap(note)"]:
        for name, losing_forms in FORMS_THAT_LOSE_ROWS.items():
            monkeypatch.setattr(table_index, "forms", losing_forms)
            assert _conditions_losing_rows(table), name
