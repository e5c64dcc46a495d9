"""Mutants of skipping indexes, each with one mistake. The conformance suite must detect every one
of them.
"""

import math
from copy import copy
from dataclasses import replace
from itertools import count
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

from indexes import bit_slices, bitmap, bloom, column_bloom, column_stats, key_ranges
from indexes import values as order
from indexes.base import whole
from indexes.bitmap import BitmapIndex
from indexes.column_bloom import ColumnBloom
from indexes.column_stats import BOUND_BYTES_MAX, ColumnStats, Stats, summarize
from indexes.dictionary import BLOCK_KEYS, Dictionary
from indexes.key_hash import hash_keys
from indexes.key_ranges import KeyRanges
from indexes.predicate import Leaf
from indexes.testing import SkippingIndexConformance, first_failure
from indexes.text import TextIndex
from indexes.tokenizers import Word


def wrong(index, place, name, change, **attributes):
    """Return an index that uses ``change(real)`` instead of ``place.name`` in its calls."""
    mutant, replacement = copy(index), change(getattr(place, name))

    def patched(method):
        def run(*arguments):
            with patch.object(place, name, replacement):
                return getattr(type(mutant), method)(mutant, *arguments)

        return run

    vars(mutant).update({method: patched(method) for method in ("summarize", "prune", "rows")})
    vars(mutant).update(attributes)
    return mutant


# Column statistics: mistakes in the summary, given the values and the right statistics


def of_summary(change):
    return wrong(
        ColumnStats(),
        column_stats,
        "summarize",
        lambda real: lambda values: change(values, real(values)),
    )


def cut_max_down(values, stats):
    high = pc.max(order.encode(values)).as_py()
    if high is None or len(high) <= BOUND_BYTES_MAX:
        return stats
    return replace(stats, max=high[:BOUND_BYTES_MAX])


def max_without_nan(values, stats):
    if not stats.nans or stats.nans + stats.nulls == stats.values:
        return stats
    numbers = summarize(values.filter(pc.invert(pc.is_nan(values))))
    return replace(numbers, nulls=stats.nulls, values=stats.values)


def all_null(stats):
    return Stats(None, None, False, False, stats.values, 0, stats.values, stats.size)


def all_nan_is_all_null(values, stats):
    return all_null(stats) if stats.nans and stats.nans + stats.nulls == stats.values else stats


def any_null_is_all_null(values, stats):
    return all_null(stats) if stats.nulls else stats


def unknown_is_empty(values, stats):
    """Read "no upper bound" as "no values"."""
    return all_null(stats) if stats.max is None else stats


def signed_zeros(values, stats):
    """Keep the sign of zero: -0.0 becomes the largest negative number's neighbour."""
    zero = order.compare_key(0.0, pa.float64()).data
    minus = (int.from_bytes(zero, "big") - 1).to_bytes(8, "big")
    floats = pa.types.is_floating(values.type) and not stats.nans and stats.max == zero
    negative = floats and all(math.copysign(1, v) < 0 for v in values.to_pylist() if v == 0)
    return replace(stats, max=minus, min=min(stats.min or b"", minus)) if negative else stats


def first_and_last(values, stats):
    """Assume that the column is sorted."""
    keys = order.encode(values.filter(values.is_valid())).to_pylist()
    if not keys or max(map(len, keys)) > BOUND_BYTES_MAX:
        return stats
    return replace(stats, min=min(keys[0], keys[-1]), max=max(keys[-1], keys[0]))


def no_nulls(values, stats):
    return replace(stats, nulls=0)


def forget_last_row(values, stats):
    return summarize(values[:-1])


# Column statistics: mistakes in reading a leaf or keys


def of_leaf(change):
    return wrong(
        ColumnStats(),
        column_stats,
        "prune",
        lambda real: lambda stats, leaf, type: real(stats, change(leaf), type),
    )


def as_another(op, another):
    return of_leaf(lambda leaf: replace(leaf, op=another if leaf.op == op else leaf.op))


def null_safe_as_equal(leaf):
    """Read a null-safe test of null as an ordinary one."""
    return Leaf(leaf.column, "=", None) if leaf.op == "<=>" and leaf.value is None else leaf


def floor_literals(leaf):
    """Read < 1.5 as < 1."""
    fraction = isinstance(leaf.value, float) and math.isfinite(leaf.value)
    return replace(leaf, value=math.floor(leaf.value)) if fraction else leaf


def in_takes_the_first(leaf):
    return replace(leaf, value=leaf.value[:1]) if leaf.op == "in" else leaf


def of_bounds(change):
    return wrong(
        ColumnStats(),
        column_stats,
        "unpack",
        lambda real: lambda summary, type: change(real(summary, type), order.kind_of(type)),
    )


def truncated_bounds_are_equal(stats, kind):
    """Breaks != and not in on long strings."""
    text = kind == "string" and stats.min is not None and len(stats.min) == BOUND_BYTES_MAX
    return replace(stats, max=stats.min) if text else stats


def unsigned_numbers(stats, kind):
    """Omit the sign flip of integers, so that negative ones are larger than positive ones."""
    if kind != "int" or stats.min is None or stats.max is None:
        return stats
    low, high = (bytes([bound[0] ^ 128]) + bound[1:] for bound in (stats.min, stats.max))
    return replace(stats, min=min(low, high), max=max(low, high))


NUMBERS = count()
OF_STATISTICS = {
    **{
        change.__name__: of_summary(change)
        for change in (
            cut_max_down,
            max_without_nan,
            all_nan_is_all_null,
            any_null_is_all_null,
            unknown_is_empty,
            signed_zeros,
            first_and_last,
            no_nulls,
            forget_last_row,
        )
    },
    "not_deterministic": of_summary(lambda _, stats: replace(stats, size=next(NUMBERS))),
    "le_as_lt": as_another("<=", "<"),
    "ne_as_eq": as_another("!=", "="),
    "like_as_equal": as_another("like", "="),
    "null_safe_as_equal": of_leaf(null_safe_as_equal),
    "floor_literals": of_leaf(floor_literals),
    "in_takes_the_first": of_leaf(in_takes_the_first),
    "truncated_bounds_are_equal": of_bounds(truncated_bounds_are_equal),
    "unsigned_numbers": of_bounds(unsigned_numbers),
    "unknown_operator_is_no": wrong(
        ColumnStats(),
        column_stats,
        "prune",
        lambda real: (
            lambda stats, leaf, type: (
                real(stats, leaf, type) & (leaf.op not in ("like", "not like", "<=>"))
            )
        ),
    ),
    "another_shape": wrong(
        ColumnStats(), column_stats, "prune", lambda real: lambda *_: np.ones(1, np.bool_)
    ),
    "first_row_only": wrong(
        ColumnStats(),
        ColumnStats,
        "rows",
        lambda real: lambda self, summaries, *_: [BitMap([0]) for _ in summaries],
        finds_rows=True,
    ),
}


# Bloom filters


def signed_zero_keys(real):
    """-0.0 and 0.0 have different keys."""

    def encode(column):
        if not pa.types.is_float64(column.type):
            return real(column)
        pairs = zip(column.to_pylist(), real(column).to_pylist(), strict=True)
        return pa.array([str(value).encode() if value == 0 else key for value, key in pairs])

    return encode


OF_FILTERS = {
    "bloom_loses_bits": wrong(
        ColumnBloom(), bloom, "build", lambda real: lambda *made: real(*made)[:-4] + bytes(4)
    ),
    "bloom_signed_zeros": wrong(ColumnBloom(), column_bloom.values, "encode", signed_zero_keys),
    "bloom_other_seed_for_literals": wrong(
        ColumnBloom(),
        column_bloom,
        "_literal_hashes",
        lambda real: lambda leaf, _: hash_keys(pa.array([repr(leaf.value).encode()]), 1),
    ),
}


# Inverted indexes, only of plain strings to be quick


def of_text(tokenizer, name, change):
    """change: Function of the method's first argument and its result, to the changed result."""
    return wrong(
        TextIndex(tokenizer),
        TextIndex,
        name,
        lambda real: lambda self, *arguments: change(arguments[0], real(self, *arguments)),
        supports=lambda type: type == pa.string(),
    )


def of_texts(tokenizer, change):
    return wrong(
        TextIndex(tokenizer),
        TextIndex,
        "summarize",
        lambda real: lambda self, values: real(self, change(values)),
        supports=lambda type: type == pa.string(),
    )


def next_rows(_, found):
    """Count rows from one."""
    return [None if rows is None else BitMap(row + 1 for row in rows) for rows in found]


def first_alternative(_, wanted):
    return wanted and wanted[:1]


def not_match_as_match(leaf, wanted):
    if leaf.op == "not match":
        return TextIndex()._alternatives(replace(leaf, op="match"))
    return wanted


def other_tokenizer_is_mine(leaf, wanted):
    """Look for the n-grams of another length."""
    return [[leaf.value[0]]] if leaf.op == "match" and isinstance(leaf.value, tuple) else wanted


OF_TEXTS = {
    **{
        f"text_{change.__name__}": of_text(tokenizer, "_alternatives", change)
        for tokenizer, change in (
            ("word", first_alternative),
            ("word", not_match_as_match),
            ("ngram(3)", other_tokenizer_is_mine),
        )
    },
    "text_next_rows": of_text("word", "rows", next_rows),
    "text_skips_nulls": of_texts("word", lambda values: values.drop_null()),
    "text_keeps_32_letters": of_texts(
        "word", lambda values: pc.utf8_slice_codeunits(values, 0, 32)
    ),
    "text_open_ends_are_words": wrong(
        TextIndex(), Word, "implied", lambda real: lambda self, part, *_: self.query(part)
    ),
}


# Bitmaps


def ranks_within_the_block(real):
    return lambda self, bounds: [rank % BLOCK_KEYS for rank in real(self, bounds)]


def first_range_only(real):
    return lambda slices, ranges, present: real(slices, ranges[:1], present)


def codes_ignore_nulls(real):
    return lambda codes, at, rows: np.concatenate([codes, np.zeros(rows - len(codes), codes.dtype)])


def of_ranges(change):
    return lambda real: lambda leaf, type: change(real(leaf, type))


def open_ends_are_forgotten(found):
    return replace(found, spans=tuple(span for span in found.spans if span[1] != -1))


def like_finds_nothing(found):
    return replace(found, test=found.test and (lambda keys: np.zeros(len(keys), np.bool_)))


OF_BITMAPS = {
    f"bitmap_{name}": wrong(BitmapIndex(), place, attribute, change, form=form)
    for name, place, attribute, change, form in (
        ("ranks_within_the_block", Dictionary, "ranks", ranks_within_the_block, None),
        ("first_range_only", bit_slices, "select", first_range_only, "slices"),
        ("codes_ignore_nulls", bitmap, "_codes_by_row", codes_ignore_nulls, "slices"),
        ("no_key_after", key_ranges, "_next_key", lambda real: lambda key, width: key, None),
        (
            "open_ends_are_forgotten",
            KeyRanges,
            "from_leaf",
            of_ranges(open_ends_are_forgotten),
            None,
        ),
        ("like_finds_nothing", KeyRanges, "from_leaf", of_ranges(like_finds_nothing), None),
    )
}

MUTANTS = OF_STATISTICS | OF_FILTERS | OF_TEXTS | OF_BITMAPS
"""Mutants by the name of their mistake."""

MANY = "test_many_distinct_values_lose_no_row"
KNOWN = {
    "not_deterministic": "test_equal_columns_have_equal_summaries",
    "bitmap_ranks_within_the_block": MANY,
    "bitmap_codes_ignore_nulls": MANY,
}
"""Mistakes that only one test of the suite detects, with its name."""


@pytest.mark.parametrize("name", MUTANTS)
def test_the_conformance_suite_detects_the_mutant(name):
    class Suite(SkippingIndexConformance):
        index = MUTANTS[name]

    failure = first_failure(Suite, known=KNOWN.get(name))
    assert failure is not None and failure == KNOWN.get(name, failure)


def test_the_conformance_suite_raises_exceptions_other_than_value_error():
    class Suite(SkippingIndexConformance):
        index = wrong(
            ColumnStats(),
            ColumnStats,
            "prune",
            lambda real: lambda self, summaries, *_: whole(summaries[0])[43],
        )

    with pytest.raises(IndexError):
        Suite().survives(b"", Leaf("c", "=", 1), pa.int64())
