"""Tokens compared with models in plain Python, and the names of tokenizers."""

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
from indexes.characters import CODE_POINTS, fold_table, pattern, variants, word_ranges, word_table
from indexes.tokenizers import Ngram, Tokenizer, Tokenizers, Word, find

ALPHABET = (
    "aAbB sSſßẞİiıIΣσςkKK"
    " éÉe\u0301\u200d\ufe0f❤️西安大唐不夜城ａＡ1٣²_-'.\U0001f600\U00010400\U00010428\U0010ffff\0\n"
)
OLD = unicodedata.ucd_3_2_0
TEXTS = st.none() | st.text(alphabet=ALPHABET, max_size=12) | st.text(max_size=8)


def fold(text):
    return "".join(chr(fold_table()[ord(c)]) for c in text)


def words(text):
    letters = "".join(f"{chr(low)}-{chr(high)}" for low, high in word_ranges())
    return re.findall(f"[{letters}]+", fold(text))


def ngrams(text, n):
    return [fold(text)[at : at + n] for at in range(len(text) - n + 1)]


def tokens_by_row(tokenizer, values):
    terms, row = tokenizer.tokens(values)
    assert np.all(np.diff(row) >= 0), "rows ascend"
    tokens = [[] for _ in values]
    for term, at in zip(terms.to_pylist(), row.tolist(), strict=True):
        tokens[at].append(term)
    return tokens


FOR_EVER = "a change here orphans every text index: new version"


def test_word_characters_are_letters_marks_and_numbers_in_every_unicode_version():
    """The table agrees with both the oldest Unicode version of Python and the current one wherever
    these agree with each other.
    """
    table = word_table()
    for code in range(CODE_POINTS):
        old, new = OLD.category(chr(code)), unicodedata.category(chr(code))
        if old[0] == new[0] and old != "Cn" and not 0xFE00 <= code < 0xFE10:
            assert table[code] == (old[0] in "LMN"), hex(code)
    assert crc32(np.packbits(table).tobytes()) == 0xF9D2CDEB, FOR_EVER


def test_folding_is_simple_case_folding_in_every_unicode_version():
    table = fold_table()
    for code in range(CODE_POINTS):
        full = chr(code).casefold()
        if len(full) == 1 and OLD.category(chr(code)) != "Cn":
            assert chr(table[code]) == full, hex(code)
    assert np.array_equal(table[table], table), "folding twice changes nothing"
    assert np.array_equal(word_table()[table], word_table()), (
        "folding does not change which characters are in words"
    )
    assert crc32(table.astype("<u4").tobytes()) == 0xAE64B835, FOR_EVER
    assert fold("ΣςİẞſKÅ") == "σσißskå"


def test_variants_of_a_letter_are_the_characters_that_fold_to_it():
    assert [chr(code) for code in variants(ord("s"))] == ["S", "ſ", "s"]
    assert variants(ord("S")) == [] and variants(0x897F) == [0x897F]
    assert pattern("Sé") == pattern("ſÉ") != pattern("se")


@given(
    st.lists(TEXTS, max_size=8),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string()]),
)
@settings(max_examples=150)
def test_words_and_ngrams_equal_those_of_the_model(rows, cut, type):
    values = pa.array(rows, type)[cut:]
    texts = [text or "" for text in rows[cut:]]
    assert tokens_by_row(Word(), values) == list(map(words, texts))
    for n in (1, 2, 3, 5):
        assert tokens_by_row(Ngram(str(n)), values) == [ngrams(text, n) for text in texts], n


@given(st.lists(st.text(max_size=40), min_size=1, max_size=6))
def test_ngrams_too_long_for_one_integer_equal_those_of_the_model(rows):
    values = pa.array([*rows, "".join(map(chr, range(0x4E00, 0x5E00)))])
    assert tokens_by_row(Ngram("9"), values)[:-1] == [ngrams(text, 9) for text in rows]


@given(st.lists(TEXTS, max_size=8), TEXTS, st.sampled_from(["word", "ngram(1)", "ngram(2)"]))
@settings(max_examples=150)
def test_holds_all_is_true_for_rows_with_all_tokens_of_a_query(rows, query, spec):
    tokenizer = find(spec)
    query_tokens = tokenizer.query(query or "")
    results = tokenizer.holds_all(pa.array(rows, "string"), query_tokens).to_pylist()
    for text, holds in zip(rows, results, strict=True):
        if text is None:
            assert holds is None
        else:
            assert holds == (bool(query_tokens) and {*query_tokens} <= {*tokenizer.query(text)})


@given(
    st.text(alphabet=ALPHABET, max_size=5),
    st.text(alphabet=ALPHABET, max_size=8),
    st.text(alphabet=ALPHABET, max_size=5),
)
def test_tokens_implied_by_a_part_are_in_every_text_that_contains_it(before, part, after):
    for tokenizer in (Word(), Ngram("2"), Ngram("3")):
        implied = tokenizer.implied(part, bool(before), bool(after))
        assert {*implied} <= {*tokenizer.query(before + part + after)}, tokenizer.spec
        assert {*tokenizer.implied(part, True, True)} <= {*implied}


def test_words_at_an_open_end_are_not_implied():
    assert Word().implied("a big red car", True, True) == ["big", "red"]
    assert Word().implied(" red ", True, True) == ["red"]
    assert Word().implied("red", True, False) == []


def test_invalid_utf8_is_refused():
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], "i4")), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(ValueError, match="utf-8"):
        Word().tokens(broken)


def test_chinese_words_are_found_in_text_without_spaces():
    chinese, text = find("chinese"), "西安的大唐不夜城很热闹，Very GOOD！"
    expected = ["西安", "的", "大唐", "不夜城", "很", "热闹", "very", "good"]
    assert tokens_by_row(chinese, pa.array([text, None, "", text])) == [expected, [], [], expected]
    texts = pa.array([text, "西安", "大唐", None, "我来到北京清华大学", "🙂 ！"])
    for query, rows in (
        ("西安", [0, 1]),
        ("大唐不夜城", [0]),
        ("大唐", [0, 2]),
        ("大学", [4]),
        ("清华大学", [4]),
        ("good", [0]),
        ("！", []),
        ("", []),
    ):
        held = chinese.holds_all(texts, chinese.query(query)).fill_null(False)
        assert np.flatnonzero(held).tolist() == rows, query
    assert chinese.version.startswith("1 jieba "), "an index that another jieba built is not used"


def test_the_chinese_tokenizer_without_its_package_names_the_package_to_install(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(ValueError, match=r"pyspark-mdt\[chinese\]"):
        Tokenizers().find("chinese")


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        (" word ", "word"),
        ("word()", "word"),
        ("ngram", "ngram(3)"),
        ("ngram( 2 )", "ngram(2)"),
        ("chinese", "chinese"),
    ],
)
def test_a_spec_selects_a_tokenizer(spec, canonical):
    assert find(spec).spec == find(canonical).spec == canonical


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
def test_an_unknown_spec_is_refused_and_imports_nothing(spec):
    tokenizers._SHARED.installed  # noqa: B018 - packages are loaded only once
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"tokenizer|ngram"):
        find(spec)
    assert set(sys.modules) == before


class Halves(Tokenizer):
    """A tokenizer of a user: the parts of the text between separators."""

    def __init__(self, sign="|"):
        self.sign = sign

    @property
    def spec(self):
        return f"halves({self.sign})"

    def tokens(self, values):
        halves = [text.split(self.sign) if text else [] for text in values.to_pylist()]
        rows = np.repeat(np.arange(len(halves)), list(map(len, halves)))
        return pa.array([half for parts in halves for half in parts], "string"), rows


@dataclass
class Point:
    name: str
    value: str
    offered: Any

    def load(self):
        if isinstance(self.offered, Exception):
            raise self.offered
        return self.offered


def test_tokenizers_of_installed_packages_are_found_and_faulty_packages_affect_only_themselves(
    monkeypatch,
):
    points = [
        Point("halves", "own:Halves", Halves),
        Point("word", "own:Word", Halves),
        Point("broken", "own:Gone", ImportError("gone")),
        Point("strange", "own:Strange", dict),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: points if group == "mdt.tokenizers" else []
    )
    user_tokenizers = Tokenizers()
    assert isinstance(user_tokenizers.find("word"), Word)
    halves = user_tokenizers.find("halves(/)")
    assert halves.query("b/a/B") == ["B", "a", "b"]
    held = halves.holds_all(pa.array(["a/b", None, "ab", "b/a/c"]), ["a", "b"])
    assert held.to_pylist() == [True, None, False, True]
    known = "known: chinese, halves, ngram, word.*gone.*not a subclass"
    with pytest.raises(ValueError, match=known) as refused:
        user_tokenizers.find("broken")
    assert "the name is already used" in str(refused.value)
