"""The conformance suite is worth something only if it kills wrong indexes: these are wrong, each in
one way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

from indexes import values as order
from indexes.base import BoolArray, SkippingIndex, Summary, whole
from indexes.column_stats import (
    BOUND_BYTES_MAX,
    ColumnStats,
    Stats,
    pack,
    prune,
    summarize,
    to_batch,
    unpack,
)
from indexes.predicate import Leaf
from indexes.testing import SkippingIndexConformance, first_failure
from indexes.text import Alternatives, TextIndex
from indexes.tokenizers import Word

Change = Callable[[pa.Array, Stats], Stats]
"""From a segment's values and right statistics to wrong ones."""


class WrongSummary(ColumnStats):
    """Column statistics with a mistake in what is kept."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def summarize(self, values: pa.Array) -> bytes:
        return pack(self.change(values, summarize(values)))


class WrongPrune(ColumnStats):
    """Column statistics with a mistake in how a leaf is read."""

    def __init__(self, change: Callable[[Leaf], Leaf]) -> None:
        self.change = change

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        return super().prune(summaries, self.change(leaf), type)


class WrongOrder(ColumnStats):
    """Column statistics with a mistake in the keys of literals or values."""

    def __init__(self, change: Callable[[Stats, pa.DataType], Stats]) -> None:
        self.change = change

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        return prune(
            to_batch([self.change(unpack(whole(one), type), type) for one in summaries]), leaf, type
        )


class WrongBytes(ColumnStats):
    """Lets struct's own error out of damaged bytes."""

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        for summary in summaries:
            whole(summary)[43]
        return super().prune(summaries, leaf, type)


class WrongRows(ColumnStats):
    """Calls the first row the only one that may match."""

    finds_rows = True

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        return [BitMap([0]) for _ in summaries]


class Forgetful(ColumnStats):
    """Summarizes the same column differently each time."""

    calls = 0

    def summarize(self, values: pa.Array) -> bytes:
        self.calls += 1
        return pack(replace(summarize(values), size=self.calls))


class NoOnUnknownOperator(ColumnStats):
    """Says NO where it does not know an operator."""

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        verdict = super().prune(summaries, leaf, type)
        return verdict & (leaf.op not in ("like", "not like", "<=>"))


def cut_max_down(values: pa.Array, stats: Stats) -> Stats:
    high = pc.max(order.encode(values)).as_py()
    return (
        stats
        if high is None or len(high) <= BOUND_BYTES_MAX
        else replace(stats, max=high[:BOUND_BYTES_MAX])
    )


def cut_min_up(values: pa.Array, stats: Stats) -> Stats:
    low = pc.min(order.encode(values)).as_py()
    if low is None or len(low) <= BOUND_BYTES_MAX:
        return stats
    raised = order.truncate_up(low, BOUND_BYTES_MAX, utf8=False)
    return replace(stats, min=raised, max=None, max_exact=False)


def max_without_nan(values: pa.Array, stats: Stats) -> Stats:
    if not stats.nans or stats.nans + stats.nulls == stats.values:
        return stats
    return replace(
        summarize(values.filter(pc.invert(pc.is_nan(values)))),
        nulls=stats.nulls,
        values=stats.values,
    )


def all_nan_is_all_null(values: pa.Array, stats: Stats) -> Stats:
    if not stats.nans or stats.nans + stats.nulls < stats.values:
        return stats
    return Stats(None, None, False, False, stats.values, 0, stats.values, stats.size)


def signed_zeros(values: pa.Array, stats: Stats) -> Stats:
    """Keep the sign of zero: -0.0 becomes the largest negative number's neighbour."""
    zero = order.compare_key(0.0, pa.float64()).data
    minus = (int.from_bytes(zero, "big") - 1).to_bytes(8, "big")
    floats = pa.types.is_floating(values.type) and not stats.nans and stats.max == zero
    negative = floats and all(math.copysign(1, v) < 0 for v in values.to_pylist() if v == 0)
    return replace(stats, max=minus, min=min(stats.min or b"", minus)) if negative else stats


def first_and_last(values: pa.Array, stats: Stats) -> Stats:
    """Believe that the column is sorted."""
    keys = order.encode(values.filter(values.is_valid())).to_pylist()
    if not keys or max(map(len, keys)) > BOUND_BYTES_MAX:
        return stats
    return replace(stats, min=min(keys[0], keys[-1]), max=max(keys[-1], keys[0]))


def no_nulls(values: pa.Array, stats: Stats) -> Stats:
    return replace(stats, nulls=0)


def any_null_is_all_null(values: pa.Array, stats: Stats) -> Stats:
    return (
        Stats(None, None, False, False, stats.values, 0, stats.values, 0) if stats.nulls else stats
    )


def forget_last_row(values: pa.Array, stats: Stats) -> Stats:
    return summarize(values[:-1])


def unknown_is_empty(values: pa.Array, stats: Stats) -> Stats:
    """Read "no upper bound" as "no values"."""
    if stats.max is not None:
        return stats
    return Stats(None, None, False, False, stats.values, 0, stats.values, stats.size)


def swap(**ops: str) -> Callable[[Leaf], Leaf]:
    names = {"le": "<=", "lt": "<", "ge": ">=", "gt": ">", "ne": "!=", "eq": "=", "like": "like"}
    wrong = {names[right]: names[mutated] for right, mutated in ops.items()}
    return lambda leaf: replace(leaf, op=wrong.get(leaf.op, leaf.op))


def null_safe_as_equal(leaf: Leaf) -> Leaf:
    """Read a null-safe test of null as an ordinary one."""
    return Leaf(leaf.column, "=", None) if leaf.op == "<=>" and leaf.value is None else leaf


def floor_literals(leaf: Leaf) -> Leaf:
    """Read < 1.5 as < 1."""
    fraction = isinstance(leaf.value, float) and math.isfinite(leaf.value)
    return (
        replace(leaf, value=math.floor(leaf.value))
        if fraction and isinstance(leaf.value, float)
        else leaf
    )


def like_without_wildcards(leaf: Leaf) -> Leaf:
    return replace(leaf, op="=") if leaf.op == "like" else leaf


def in_takes_the_first(leaf: Leaf) -> Leaf:
    return (
        replace(leaf, value=leaf.value[:1])
        if leaf.op == "in" and isinstance(leaf.value, tuple)
        else leaf
    )


def truncated_bounds_are_equal(stats: Stats, type: pa.DataType) -> Stats:
    """Call truncated bounds equal: what makes != and not in go wrong on long strings."""
    text = (
        order.kind_of(type) == "string"
        and stats.min is not None
        and len(stats.min) == BOUND_BYTES_MAX
    )
    return replace(stats, max=stats.min) if text else stats


def unsigned_numbers(stats: Stats, type: pa.DataType) -> Stats:
    """Forget the sign flip of integers: negative ones come out above."""
    if order.kind_of(type) != "int" or stats.min is None or stats.max is None:
        return stats
    low, high = (bytes([bound[0] ^ 128]) + bound[1:] for bound in (stats.min, stats.max))
    return replace(stats, min=min(low, high), max=max(low, high))


class WrongText(TextIndex):
    """An inverted index with a mistake in what it looks for; of plain strings only, to be quick."""

    def __init__(
        self, tokenizer: str, change: Callable[[Leaf, Alternatives | None], Alternatives | None]
    ) -> None:
        super().__init__(tokenizer)
        self.change = change

    def supports(self, type: pa.DataType) -> bool:
        return type == pa.string()

    def _alternatives(self, leaf: Leaf) -> Alternatives | None:
        return self.change(leaf, super()._alternatives(leaf))


class WrongTextSummary(WrongText):
    """An inverted index with a mistake in what it keeps."""

    def __init__(self, tokenizer: str, change: Callable[[pa.Array], pa.Array]) -> None:
        super().__init__(tokenizer, lambda _, wanted: wanted)
        self.forget = change

    def summarize(self, values: pa.Array) -> bytes:
        return super().summarize(self.forget(values))


class NextRows(TextIndex):
    """Counts rows from one."""

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        return [
            None if rows is None else BitMap(row + 1 for row in rows)
            for rows in super().rows(summaries, leaf, type)
        ]


class Everywhere(Word):
    """Takes the ends of a part for the ends of words."""

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        return self.query(part)


def open_ends_are_words() -> TextIndex:
    index = TextIndex()
    index.tokenizer = Everywhere()
    return index


def first_alternative(leaf: Leaf, wanted: Alternatives | None) -> Alternatives | None:
    return wanted and wanted[:1]


def nothing_to_look_for_is_nothing(leaf: Leaf, wanted: Alternatives | None) -> Alternatives | None:
    return [] if wanted is None and leaf.op in ("=", "in", "like") else wanted


def not_match_as_match(leaf: Leaf, wanted: Alternatives | None) -> Alternatives | None:
    return (
        TextIndex()._alternatives(replace(leaf, op="match")) if leaf.op == "not match" else wanted
    )


def unfolded(leaf: Leaf, wanted: Alternatives | None) -> Alternatives | None:
    return wanted and [[token.upper() for token in tokens] for tokens in wanted]


def other_tokenizer_is_mine(leaf: Leaf, wanted: Alternatives | None) -> Alternatives | None:
    """Look for the n-grams of another length."""
    return [[leaf.value[0]]] if leaf.op == "match" and isinstance(leaf.value, tuple) else wanted


MUTANTS: dict[str, SkippingIndex] = {
    **{
        change.__name__: WrongSummary(change)
        for change in (
            cut_max_down,
            cut_min_up,
            max_without_nan,
            all_nan_is_all_null,
            signed_zeros,
            first_and_last,
            no_nulls,
            any_null_is_all_null,
            forget_last_row,
            unknown_is_empty,
        )
    },
    **{
        name: WrongPrune(change)
        for name, change in {
            "le_as_lt": swap(le="lt"),
            "ge_as_gt": swap(ge="gt"),
            "lt_as_gt": swap(lt="gt"),
            "ne_as_eq": swap(ne="eq"),
            "null_safe_as_equal": null_safe_as_equal,
            "floor_literals": floor_literals,
            "like_as_equal": like_without_wildcards,
            "in_takes_the_first": in_takes_the_first,
        }.items()
    },
    "truncated_bounds_are_equal": WrongOrder(truncated_bounds_are_equal),
    "unsigned_numbers": WrongOrder(unsigned_numbers),
    "unknown_operator_is_no": NoOnUnknownOperator(),
    "first_row_only": WrongRows(),
    **{
        f"text_{change.__name__}": WrongText(tokenizer, change)
        for tokenizer, change in (
            ("word", first_alternative),
            ("ngram(3)", nothing_to_look_for_is_nothing),
            ("word", not_match_as_match),
            ("ngram(1)", unfolded),
            ("ngram(3)", other_tokenizer_is_mine),
        )
    },
    "text_forgets_last_row": WrongTextSummary("ngram(1)", lambda values: values[:-1]),
    "text_skips_nulls": WrongTextSummary("word", lambda values: values.drop_null()),
    "text_keeps_32_letters": WrongTextSummary(
        "word", lambda values: pc.utf8_slice_codeunits(values, 0, 32)
    ),
    "text_next_rows": NextRows(),
    "text_open_ends_are_words": open_ends_are_words(),
    "not_deterministic": Forgetful(),
}
"""Wrong indexes by name of the mistake."""


KNOWN = {"not_deterministic": "test_equal_columns_have_equal_summaries"}
"""Mistakes that only one test can find, and which one."""


@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_kills_this_mutant(name: str) -> None:
    class Suite(SkippingIndexConformance):
        index = MUTANTS[name]

    assert first_failure(Suite, known=KNOWN.get(name)) is not None


def test_the_suite_kills_an_index_that_lets_other_exceptions_out() -> None:
    class Suite(SkippingIndexConformance):
        index = WrongBytes()

    with pytest.raises(IndexError):
        Suite().survives(b"", Leaf("c", "=", 1), pa.int64())


def test_the_suite_kills_an_index_that_answers_in_another_shape() -> None:
    class Shapeless(ColumnStats):
        def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
            return np.ones(1, dtype=np.bool_)

    class Suite(SkippingIndexConformance):
        index = Shapeless()

    assert first_failure(Suite) is not None
