"""The inverted index finds rows by token and reads single blocks."""

import struct
from bisect import bisect
from contextlib import suppress
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from recording import Recording

from indexes import text
from indexes.base import InMemory
from indexes.blocks import Blocks
from indexes.predicate import Leaf, matches
from indexes.testing import SkippingIndexConformance, leaves_for, violations
from indexes.text import TERM_LENGTH_MAX, TEXTS_MAX, TOKENS_MAX, TextIndex
from indexes.tokenizers import Word, find

STRING = pa.string()


class TestWords(SkippingIndexConformance):
    index = TextIndex()


class TestPairs(SkippingIndexConformance):
    index = TextIndex("ngram(2)")

    def _types(self):
        return [pa.large_string()]


class TestTriples(SkippingIndexConformance):
    index = TextIndex("ngram(3)")

    def _types(self):
        return [pa.dictionary(pa.int32(), STRING)]


NOTES = [
    "Fast red car",
    "red-hot CARS",
    None,
    "",
    "a café, late",
    "Straße in İstanbul",
    "西安的大唐不夜城很热闹",
    "fast fast fast",
    "re d",
]
TEXTS = st.text("ab AB_%\\.éE\u0301ßẞİıiΣσς1٣西安\U0001f600\U00010400\ufe0f\0", max_size=9)


def rows(index, values, leaf):
    (bitmap,) = index.rows([InMemory(index.summarize(pa.array(values, STRING)))], leaf, STRING)
    return None if bitmap is None else list(bitmap)


def hits(values, leaf):
    return np.flatnonzero(matches(leaf, pa.table({"s": pa.array(values, STRING)}))).tolist()


@given(
    st.lists(st.lists(st.none() | TEXTS, max_size=9), min_size=1, max_size=3),
    st.lists(TEXTS, min_size=1, max_size=3),
    st.sampled_from(["word", "ngram(1)", "ngram(2)", "ngram(3)"]),
    st.sampled_from([STRING, pa.large_string(), pa.dictionary(pa.int32(), STRING)]),
)
@settings(max_examples=40)
def test_no_matching_row_is_omitted(segments, drawn, spec, type):
    columns = [pa.array(segment, STRING).cast(type) for segment in segments]
    leaves = leaves_for("s", type, [*drawn, *filter(None, segments[0])][:3])
    for tokenizer in ("ngram(1)", "ngram(3)", "ngram(4)"):
        leaves.append(Leaf("s", "match", (drawn[0], tokenizer)))
    assert not violations(TextIndex(spec), columns, leaves, type)


@given(
    st.lists(st.none() | TEXTS, max_size=9),
    TEXTS,
    st.sampled_from(["word", "ngram(1)", "ngram(2)"]),
)
@settings(max_examples=150)
def test_a_match_with_the_tokenizer_of_the_index_is_exact(values, query, spec):
    leaf = Leaf("s", "match", (query, spec))
    assert rows(TextIndex(spec), values, leaf) == hits(values, leaf)


@pytest.mark.parametrize(
    ("spec", "op", "value", "expected"),
    [
        ("word", "match", "FAST", [0, 7]),
        ("word", "match", "red fast", [0]),
        ("word", "match", "car", [0]),
        ("word", "match", "istanbul", [5]),
        ("word", "match", "STRAẞE", [5]),
        ("word", "match", "none", []),
        ("word", "match", "?!", []),
        ("word", "=", "red-hot CARS", [1]),
        ("word", "=", "re d", [8]),
        ("word", "in", ("re d", None, "a café, late"), [4, 8]),
        ("word", "in", (None,), []),
        ("word", "<=>", "Fast red car", [0]),
        ("word", "like", "%fast red %", [0, 1]),
        ("word", "like", "fast%", None),
        ("word", "like", "fast_red", None),
        ("word", "starts with", "RED-h", [0, 1]),
        ("word", "=", "", None),
        ("word", "in", ("re d", ""), None),
        ("word", "!=", "re d", None),
        ("word", "match", ("ast", "ngram(3)"), None),
        ("word", "match", (" red ", "ngram(5)"), [0, 1]),
        ("word", "is null", None, None),
        ("word", "match", None, None),
        ("word", "not match", "red", None),
        ("ngram(3)", "like", "%ast%", [0, 7]),
        ("ngram(3)", "like", "%as%", None),
        ("ngram(3)", "starts with", "Straß", [5]),
        ("ngram(3)", "=", "re d", [8]),
        ("ngram(3)", "like", "%red%car%", [0, 1]),
        ("ngram(3)", "match", ("CAR", "ngram(3)"), [0, 1]),
        ("ngram(3)", "match", "cars red", [1]),
        ("ngram(3)", "match", ("late", "ngram(4)"), [4]),
        ("ngram(3)", "match", ("la", "ngram(2)"), None),
        ("ngram(3)", "match", ("la", "ngram(3)"), []),
        ("ngram(2)", "match", ("西安", "chinese"), [6]),
        ("chinese", "match", ("西安", "chinese"), [6]),
        ("chinese", "match", ("大唐不夜城", "chinese"), [6]),
        ("chinese", "match", "西安", None),
        ("chinese", "=", "西安的大唐不夜城很热闹", [6]),
        ("chinese", "like", "%西安%", None),
        ("ngram(2)", "like", "%\\_\\%%", []),
    ],
)
def test_an_index_finds_the_expected_rows_or_cannot_test_the_leaf(spec, op, value, expected):
    leaf, index = Leaf("s", op, value), TextIndex(spec)
    found_rows = rows(index, NOTES, leaf)
    assert found_rows == expected
    assert index.can_test(leaf, STRING) == (expected is not None)
    assert found_rows is None or {*hits(NOTES, leaf)} <= {*found_rows}


def test_tokens_of_long_queries_and_lists_are_limited():
    long_text = " ".join(f"w{n}" for n in range(100))
    index = TextIndex()
    (tokens,) = index._alternatives(Leaf("s", "=", long_text)) or []
    assert len(tokens) == TOKENS_MAX and tokens[0] == "w0" and tokens[-1] == "w99"
    assert rows(index, [long_text, "w0 w99", None], Leaf("s", "=", long_text)) == [0]
    assert index.can_test(Leaf("s", "in", tuple(map(str, range(TEXTS_MAX)))), STRING)
    assert not index.can_test(Leaf("s", "in", tuple(map(str, range(TEXTS_MAX + 1)))), STRING)


def test_terms_with_the_same_long_prefix_share_their_rows():
    stem = "é" * TERM_LENGTH_MAX
    values = [stem + "a", stem + "b", stem[:-1], "x " + stem]
    assert rows(TextIndex(), values, Leaf("s", "match", stem + "b")) == [0, 1, 3]
    assert rows(TextIndex(), values, Leaf("s", "match", stem[:-1])) == [2]


def test_other_types_are_not_supported_and_not_pruned():
    index = TextIndex()
    assert not index.supports(pa.int64()) and not index.supports(pa.binary())
    assert not index.can_test(Leaf("s", "=", 1), pa.int64())
    assert index.rows([InMemory(b"")], Leaf("s", "match", "x"), pa.int64()) == [None]
    with pytest.raises(ValueError, match="unknown tokenizer 'klingon'"):
        TextIndex("klingon")


def test_summaries_of_another_tokenizer_version_are_not_used(monkeypatch):
    index, leaf = TextIndex(), Leaf("s", "match", "zzz")
    summaries = [
        InMemory(index_of_summary.summarize(pa.array(NOTES)))
        for index_of_summary in (index, TextIndex("ngram(3)"))
    ]
    assert index.rows(summaries, leaf, STRING) == [BitMap(), None]
    monkeypatch.setattr(Word, "version", "2")
    assert index.rows(summaries, leaf, STRING) == [None, None]
    assert index.prune(summaries, leaf, STRING).tolist() == [True, True]


def zipf_notes(size=20_000):
    """Return notes of words with frequencies that differ by four orders of magnitude. One word is
    in every row.
    """
    ranks = np.minimum(np.random.default_rng(5).zipf(1.3, (size, 4)), 20_000)
    notes = ["all w{} w{} v{} u{}".format(*row) for row in ranks.tolist()]
    return pa.array([note if i % 7 else None for i, note in enumerate(notes)])


def test_frequent_and_rare_terms_in_many_blocks_are_found():
    notes, index = zipf_notes(), TextIndex()
    summary = InMemory(index.summarize(notes))
    assert Blocks.open(summary, b"text/1").count > 8
    assert len(summary) < 2.2 * 4 * len(notes)
    terms, row = index.tokenizer.tokens(notes)
    names, row = np.array(terms.to_pylist(), object), np.asarray(row)
    present = sorted({*names})
    terms_to_find = {"all", "w1", "w0", "", "\U0010ffff", "all0", "x"}
    terms_to_find |= set(present[:: len(present) // 150])
    for fence in text._Reader.open(summary)._fences:
        at = bisect(present, fence.decode())
        terms_to_find |= set(present[max(at - 1, 0) : at + 2])
    for term in terms_to_find:
        (bitmap,) = index.rows([summary], Leaf("s", "match", term), STRING)
        assert bitmap == BitMap(np.unique(row[names == term])), term


def test_a_query_reads_only_the_header_and_the_blocks_of_its_terms():
    summary = Recording(TextIndex().summarize(zipf_notes()))
    TextIndex().rows([summary], Leaf("s", "match", "w17"), STRING)
    assert len(summary.reads) <= 3 and summary.bytes_read < min(32_000, len(summary) / 2)
    summary.reads.clear()
    TextIndex().rows([summary], Leaf("s", "match", "?"), STRING)
    assert not summary.reads, "a query without tokens matches no row"


def test_a_damaged_block_affects_only_its_own_terms():
    summary = TextIndex().summarize(zipf_notes())
    damaged = InMemory(summary[:-40] + bytes([summary[-40] ^ 1]) + summary[-39:])
    leaf = Leaf("s", "match", "u1")
    found, expected = TextIndex().rows([damaged, InMemory(summary)], leaf, STRING)
    assert found == expected
    with pytest.raises(ValueError, match="damaged"):
        TextIndex().rows([damaged], Leaf("s", "match", "w999999"), STRING)


def test_invalid_content_with_valid_checksums_raises_value_error_or_is_answered():
    """A faulty writer may leave it. Every length in the header and the blocks is changed, and the
    checksums are valid.
    """
    blocks = Blocks.open(InMemory(TextIndex().summarize(zipf_notes(3_000))), b"text/1")
    blocks_read = [bytes(blocks.read(at)) for at in range(blocks.count)]

    def ask(blocks):
        summary = InMemory(text.pack(blocks, kind=b"text/1"))
        return TextIndex().rows([summary], Leaf("s", "match", "all"), STRING)

    for block, at, length in product((0, 1), range(0, 32, 4), (0, 1, 2**31 - 1, 2**32 - 1)):
        changed = blocks_read[block][:at] + struct.pack("<I", length) + blocks_read[block][at + 4 :]
        with suppress(ValueError):
            ask([*blocks_read[:block], changed, *blocks_read[block + 1 :]])
    for truncated in ([], [b""], [blocks_read[0], b""], [blocks_read[0][:-1], *blocks_read[1:]]):
        with pytest.raises(ValueError):
            ask(truncated)
    with suppress(ValueError):
        assert not ask(blocks_read[:1])[0]


class Repeats(Word):
    """A tokenizer with unused and repeated terms in its dictionary, like a third-party one."""

    def tokens(self, values):
        terms, row = super().tokens(values)
        dictionary = pa.concat_arrays([pa.array(["unused"]), terms.dictionary, terms.dictionary])
        shift = 1 + len(terms.dictionary) * (np.arange(len(terms)) % 2)
        codes = pa.array(terms.indices.to_numpy() + shift)
        return pa.DictionaryArray.from_arrays(codes, dictionary), row


def test_dictionaries_of_tokenizers_may_have_unused_and_repeated_terms():
    plain, foreign = TextIndex(), TextIndex()
    foreign.tokenizer = Repeats()
    assert foreign.summarize(pa.array(NOTES)) == plain.summarize(pa.array(NOTES))


@pytest.mark.parametrize("spec", ["word", "ngram(3)", "chinese"])
def test_a_slice_of_an_array_has_the_same_summary_as_its_copy(spec):
    chunk, index = pa.array(NOTES * 3)[5:14], TextIndex(spec)
    assert index.summarize(chunk) == index.summarize(pa.array(chunk.to_pylist()))
    assert index.tokenizer is find(spec)
