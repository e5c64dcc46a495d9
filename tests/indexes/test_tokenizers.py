"""What tokens are, against models in plain Python, and how tokenizers are named and found."""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes import tokenizers
from indexes.characters import (
    CODE_POINTS,
    fold_table,
    folded,
    pattern,
    strings,
    variants,
    word_ranges,
    word_table,
)
from indexes.tokenizers import Ngram, Tokenizer, Tokenizers, Word, find

ALPHABET = (
    "aAbB sSſßẞİiıIΣσςkKK"
    " éÉe\u0301\u200d\ufe0f❤️西安大唐不夜城ａＡ1٣²_-'.\U0001f600\U00010400\U00010428\U0010ffff\0\n"
)
TEXTS = st.none() | st.text(alphabet=ALPHABET, max_size=12) | st.text(max_size=8)


def fold(text: str) -> str:
    return "".join(chr(fold_table()[ord(c)]) for c in text)


def words(text: str) -> list[str]:
    return re.findall(
        f"[{''.join(f'{chr(low)}-{chr(high)}' for low, high in word_ranges())}]+", fold(text)
    )


def ngrams(text: str, n: int) -> list[str]:
    return [fold(text)[at : at + n] for at in range(len(text) - n + 1)]


def by_row(tokenizer: Tokenizer, values: Any) -> list[list[str]]:
    terms, row = tokenizer.tokens(values)
    assert np.all(np.diff(row) >= 0), "rows ascend"
    found: list[list[str]] = [[] for _ in values]
    for term, at in zip(terms.to_pylist(), row.tolist(), strict=True):
        found[at].append(term)
    return found


def test_word_characters_are_letters_marks_and_numbers_for_ever() -> None:
    """Both the oldest and this Python's Unicode agree with the table wherever they agree with each
    other.
    """
    table, old = word_table(), unicodedata.ucd_3_2_0
    for code in range(CODE_POINTS):
        kinds = {old.category(chr(code))[0], unicodedata.category(chr(code))[0]}
        if len(kinds) == 1 and old.category(chr(code)) != "Cn" and not 0xFE00 <= code < 0xFE10:
            assert table[code] == (kinds <= {"L", "M", "N"}), hex(code)
    assert crc32(np.packbits(table).tobytes()) == 0xF9D2CDEB, (
        "a change here orphans every text index: new version"
    )


def test_folding_is_simple_case_folding_for_ever() -> None:
    table = fold_table()
    for code in range(CODE_POINTS):
        full = chr(code).casefold()
        if len(full) == 1 and unicodedata.ucd_3_2_0.category(chr(code)) != "Cn":
            assert chr(table[code]) == full, hex(code)
    assert np.array_equal(table[table], table), "folding twice changes nothing"
    assert np.array_equal(word_table()[table], word_table()), "folding makes no words"
    assert crc32(table.astype("<u4").tobytes()) == 0xAE64B835, (
        "a change here orphans every text index: new version"
    )
    assert fold("ΣςİẞſKÅ") == "σσißskå"


def test_variants_are_what_folds_to_a_letter() -> None:
    assert [chr(code) for code in variants(ord("s"))] == ["S", "ſ", "s"]
    assert variants(ord("S")) == [] and variants(0x897F) == [0x897F]
    assert pattern("Sé") == pattern("ſÉ") != pattern("se")


@given(
    st.lists(TEXTS, max_size=8),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string()]),
)
@settings(max_examples=150)
def test_words_and_ngrams_are_those_of_the_model(
    rows: list[str | None], cut: int, type: Any
) -> None:
    values = pa.array(rows, type)[cut:]
    rows = rows[cut:]
    assert by_row(Word(), values) == [words(text or "") for text in rows]
    for n in (1, 2, 3, 5):
        assert by_row(Ngram(str(n)), values) == [ngrams(text or "", n) for text in rows], n


@given(st.lists(st.text(max_size=40), min_size=1, max_size=6))
def test_ngrams_too_long_for_one_number_are_compacted(rows: list[str]) -> None:
    values = pa.array([*rows, "".join(map(chr, range(0x4E00, 0x5E00)))])
    assert by_row(Ngram("9"), values)[:-1] == [ngrams(text, 9) for text in rows]


@given(st.lists(TEXTS, max_size=8), TEXTS, st.sampled_from(["word", "ngram(1)", "ngram(2)"]))
@settings(max_examples=150)
def test_a_row_holds_all_if_every_wanted_token_is_among_its_tokens(
    rows: Any, query: str | None, spec: str
) -> None:
    tokenizer = find(spec)
    wanted = tokenizer.query(query or "")
    model = [
        None if text is None else bool(wanted) and {*wanted} <= {*tokenizer.query(text)}
        for text in rows
    ]
    assert tokenizer.holds_all(pa.array(rows, pa.string()), wanted).to_pylist() == model


@given(
    st.text(alphabet=ALPHABET, max_size=5),
    st.text(alphabet=ALPHABET, max_size=8),
    st.text(alphabet=ALPHABET, max_size=5),
)
def test_what_a_part_implies_is_in_every_text_around_it(before: str, part: str, after: str) -> None:
    for tokenizer in (Word(), Ngram("2"), Ngram("3")):
        implied = tokenizer.implied(part, bool(before), bool(after))
        assert {*implied} <= {*tokenizer.query(before + part + after)}, tokenizer.spec
        assert {*tokenizer.implied(part, True, True)} <= {*implied}
    assert Word().implied("a big red car", True, True) == ["big", "red"]
    assert (
        Word().implied(" red ", True, True) == ["red"] and Word().implied("red", True, False) == []
    )


@given(st.lists(st.text(max_size=9), max_size=6))
def test_code_points_become_the_same_strings_again(rows: list[str]) -> None:
    text = folded(pa.array(rows, pa.string()))
    assert strings(text.codes, text.bounds).to_pylist() == [fold(row) for row in rows]


def test_bytes_that_are_no_text_are_refused() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], "i4")), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(ValueError, match="utf-8"):
        Word().tokens(broken)


def test_chinese_words_are_found_in_a_text_without_spaces() -> None:
    chinese, text = find("chinese"), "西安的大唐不夜城很热闹，Very GOOD！"
    assert by_row(chinese, pa.array([text, None, "", text])) == [
        found := ["西安", "的", "大唐", "不夜城", "很", "热闹", "very", "good"],
        [],
        [],
        found,
    ]
    texts = pa.array([text, "西安", "大唐", None, "我来到北京清华大学", "🙂 ！"])
    for query, rows in [
        ("西安", [0, 1]),
        ("大唐不夜城", [0]),
        ("大唐", [0, 2]),
        ("大学", [4]),
        ("清华大学", [4]),
        ("good", [0]),
        ("！", []),
        ("", []),
    ]:
        hits = chinese.holds_all(texts, chinese.query(query)).to_pylist()
        assert [at for at, hit in enumerate(hits) if hit] == rows, query
    assert chinese.version.startswith("1 jieba "), "an index that another jieba built is not used"


def test_chinese_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(ValueError, match=r"pyspark-mdt\[chinese\]"):
        Tokenizers().find("chinese")


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("word", "word"),
        (" word ", "word"),
        ("word()", "word"),
        ("ngram", "ngram(3)"),
        ("ngram( 2 )", "ngram(2)"),
        ("chinese", "chinese"),
    ],
)
def test_a_spec_names_a_tokenizer(spec: str, canonical: str) -> None:
    assert find(spec).spec == canonical
    assert find(canonical).spec == canonical


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "words",
        "ngram(0)",
        "ngram(17)",
        "ngram(x)",
        "ngram(-1)",
        "ngram(２)",
        "ngram(1,2)",
        "word(1)",
        "ngram(3",
        "ngram 3",
        "os.path",
        "Word",
        "../word",
        "indexes.tokenizers",
    ],
)
def test_another_spec_is_refused_and_imports_nothing(spec: str) -> None:
    tokenizers._SHARED.installed  # noqa: B018 - packages are looked at once
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"tokenizer|ngram"):
        find(spec)
    assert set(sys.modules) == before


class Halves(Tokenizer):
    """An own tokenizer: what stands around a sign, as it is written."""

    def __init__(self, sign: str = "|") -> None:
        self.sign = sign

    @property
    def spec(self) -> str:
        return f"halves({self.sign})"

    def tokens(self, values: pa.Array) -> tuple[pa.Array, Any]:
        rows = [
            (half, at)
            for at, text in enumerate(values.to_pylist())
            for half in (text or "").split(self.sign)
            if text
        ]
        return pa.array([half for half, _ in rows], pa.string()), np.array(
            [at for _, at in rows], np.int64
        )


@dataclass
class Point:
    name: str
    value: str
    offered: Any

    def load(self) -> Any:
        if isinstance(self.offered, Exception):
            raise self.offered
        return self.offered


def test_installed_packages_offer_tokenizers_and_broken_ones_cost_only_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        Point("halves", "own:Halves", Halves),
        Point("word", "own:Word", Halves),
        Point("broken", "own:Gone", ImportError("gone")),
        Point("strange", "own:Strange", dict),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: points if group == "mdt.tokenizers" else []
    )
    own = Tokenizers()
    assert isinstance(own.find("word"), Word)
    halves = own.find("halves(/)")
    assert halves.query("b/a/B") == ["B", "a", "b"]
    assert halves.holds_all(pa.array(["a/b", None, "ab", "b/a/c"]), ["a", "b"]).to_pylist() == [
        True,
        None,
        False,
        True,
    ]
    with pytest.raises(
        ValueError, match="known are chinese, halves, ngram, word.*gone.*no class"
    ) as refused:
        own.find("broken")
    assert "the name is taken" in str(refused.value)
