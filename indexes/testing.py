"""Conformance suite for skipping indexes.

Subclass it, set ``index``, and run pytest::

    class TestMine(SkippingIndexConformance):
        index = MyIndex()

Use :class:`SeveralColumnsConformance` for an index on several columns, and ``indexes.key_testing``
for a key index. The suite generates columns of every type that the index supports, with typical
edge cases: NaN, infinities, minus zero, nulls, strings with long common prefixes, U+10FFFF, runs of
0xff. It compares every verdict with ``predicate.matches`` on the same rows. The hypothesis
strategies are public, and other suites may use them.

hypothesis is a development dependency. Only the conformance suites import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar, TypeGuard, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, is_hypothesis_test, settings
from hypothesis import strategies as st

from indexes import values as order
from indexes.base import InMemory, SkippingIndex
from indexes.predicate import OPS, And, Call, Leaf, Or, Predicate, matches, negate

T = TypeVar("T")

ALL_TYPES: tuple[Any, ...] = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(9, 2),
    pa.decimal128(38, 0),
    pa.decimal256(50, 3),
    pa.date32(),
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "Europe/Berlin"),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(3),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.int64()),
)
"""Examples of all types with an order."""

_PREFIX = "p" * 63
_TEXTS = (
    "",
    "\x00",
    "a",
    "a%b_\\",
    "a\nb",
    "ab",
    "b",
    "é",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U0001f600",
    "\U0010ffff",
    _PREFIX + "a",
    _PREFIX + "aa",
    _PREFIX + "ab",
    _PREFIX + "é",
    _PREFIX + "\x7f\x7f",
    "\U0010ffff" * 16,
    "\U0010ffff" * 17,
    "q" + "\U0010ffff" * 20,
)
_BYTES = (
    b"",
    b"\x00",
    b"a",
    b"a\x00",
    b"ab",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 64,
    b"\xff" * 65,
    b"a" + b"\xff" * 70,
    b"b" * 64,
    b"b" * 65,
)
_FLOATS = (-math.inf, -1.5, -1.0, -0.0, 0.0, 5e-324, 0.5, 1.0, 1.5, 3e38, math.inf, math.nan)
_OTHER_NUMBERS = (
    1.0,
    Decimal("1.00"),
    0.1,
    Decimal("0.1"),
    Decimal("-1.25"),
    1.5,
    10**30,
    -(10**30),
    2**53 + 1,
    -math.inf,
    math.nan,
    1e300,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def scalar_types() -> st.SearchStrategy[Any]:
    """Return a strategy for types with an order (:data:`ALL_TYPES`).

    >>> len(ALL_TYPES), scalar_types().validate()
    (26, None)
    """
    return st.sampled_from(ALL_TYPES)


def pool(type: pa.DataType) -> tuple[Any, ...]:
    """Return edge-case values of ``type``, in a form that ``pa.array(values, type)`` accepts.

    >>> pool(pa.int8())
    (-128, -127, -7, -1, 0, 1, 2, 7, 126, 127)
    """
    type = order.plain_type(type)
    kind = order.kind_of(type)
    if kind == "bool":
        return (False, True)
    if kind == "int":
        low, high = order.int_range(type)
        return tuple(
            sorted({low, low + 1, *(v for v in (-7, -1, 0, 1, 2, 7) if v >= low), high - 1, high})
        )
    if kind == "float":
        return tuple(v for v in _FLOATS if pa.types.is_float64(type) or v != 5e-324)
    if kind == "decimal":
        largest = 10**type.precision - 1
        numbers = (-largest, -largest + 1, -101, -100, -1, 0, 1, 99, 100, largest)
        return tuple(
            Decimal((int(n < 0), Decimal(abs(n)).as_tuple().digits, -type.scale)) for n in numbers
        )
    if kind == "date":
        return tuple(
            date(1970, 1, 1) + timedelta(days=n) for n in (-700_000, -1, 0, 1, 20_000, 2_000_000)
        )
    if kind == "timestamp":
        unit = {"s": 1_000_000, "ms": 1_000, "us": 1}[type.unit]
        moments = [
            _EPOCH + timedelta(microseconds=n * unit)
            for n in (-86_400, -1, 0, 1, 2, 86_400, 1_700_000_000)
        ]
        return tuple(m if type.tz else m.replace(tzinfo=None) for m in moments)
    if kind == "string":
        return _TEXTS
    if not pa.types.is_fixed_size_binary(type):
        return _BYTES
    return (b"\0\0\0", b"aaa", b"aab", b"ab\xff", b"\xff\xff\xff")


def scalars(type: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for values of ``type``, mostly from :func:`pool`, so that values repeat.

    >>> from hypothesis import find
    >>> find(scalars(pa.bool_()), lambda value: value)
    True
    """
    value_type = order.plain_type(type)
    cases = st.sampled_from(pool(type))
    kind = order.kind_of(value_type)
    if kind == "int":
        return cases | st.integers(*order.int_range(value_type))
    if kind == "float":
        return cases | st.floats(width=value_type.bit_width)
    if kind == "string":
        return cases | st.text(max_size=5) | st.tuples(cases, st.text(max_size=3)).map("".join)
    if kind == "binary" and not pa.types.is_fixed_size_binary(value_type):
        return cases | st.binary(max_size=5) | st.tuples(cases, st.binary(max_size=3)).map(b"".join)
    return cases


def columns(type: pa.DataType, max_size: int = 12) -> st.SearchStrategy[Any]:
    """Return a strategy for arrays of ``type`` with nulls and up to ``max_size`` rows.

    >>> from hypothesis import find
    >>> find(columns(pa.bool_()), lambda column: column.null_count).to_pylist()
    [None]
    """
    rows = st.lists(st.none() | scalars(type), max_size=max_size)
    return rows.map(lambda values: column_of(values, type))


def column_of(values: Sequence[Any], type: pa.DataType) -> Any:
    """Return an array of ``type``, dictionary-encoded for a dictionary type.

    >>> column_of(["a", "b", "a"], pa.dictionary(pa.int8(), pa.string())).to_pylist()
    ['a', 'b', 'a']
    """
    if pa.types.is_dictionary(type):
        encoded = pa.array(values, type.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(type.index_type), encoded.dictionary
        )
    return pa.array(values, type)


def literals(type: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for literals that can be compared with ``type``.

    They include values outside of the type, such as 1.5 or 10**30 for integers.

    >>> from hypothesis import find
    >>> find(literals(pa.int8()), lambda value: value == 1.5)
    1.5
    """
    foreign = foreign_literals(type)
    if foreign:
        return scalars(type) | st.sampled_from(foreign)
    return scalars(type)


def foreign_literals(type: pa.DataType) -> tuple[Any, ...]:
    """Return literals between or beyond the values of ``type``.

    >>> 10**30 in foreign_literals(pa.int8())
    True
    """
    type = order.plain_type(type)
    kind = order.kind_of(type)
    if kind in ("int", "float", "decimal"):
        return _OTHER_NUMBERS
    if kind in ("date", "timestamp"):
        return (
            "1970-01-01",
            "1970-01-01T00:00:00.500001Z",
            datetime(1970, 1, 1, 12),
            date(1970, 1, 2),
        )
    if pa.types.is_fixed_size_binary(type):
        return (b"aa", b"\xff\xff")
    return ()


def leaves_for(column: str, type: pa.DataType, drawn: Iterable[Any]) -> list[Leaf]:
    """Return leaves with every operator of ``type`` and each of the ``drawn`` literals, and the
    null tests.

    >>> [leaf.op for leaf in leaves_for("flag", pa.bool_(), [True])][:6]
    ['is null', 'is not null', '<=>', '=', '=', '!=']
    """
    kind = order.kind_of(type)
    drawn = list(drawn)
    tests = [
        Leaf(column, "is null"),
        Leaf(column, "is not null"),
        Leaf(column, "<=>"),
        Leaf(column, "="),
    ]
    tests += [
        Leaf(column, op, value)
        for value in drawn
        for op in ("=", "!=", "<", "<=", ">", ">=", "<=>")
    ]
    sets = [
        (),
        tuple(drawn),
        (*drawn[:1], None),
        *((value,) for value in drawn),
        tuple(drawn[1::2]),
    ]
    tests += [Leaf(column, op, values) for values in sets for op in ("in", "not in")]
    if kind in ("string", "binary"):
        tests += [Leaf(column, "starts with", value[:cut]) for value in drawn for cut in (0, 1, 64)]
    if kind == "string":
        quoted = ["".join("\\" + c if c in "%_\\" else c for c in value) for value in drawn]
        shapes = ("{}", "{}%", "%{}", "%{}%", "{}_", "_{}%", "{}%b")
        tests += [
            Leaf(column, op, s.format(text))
            for text in quoted
            for s in shapes
            for op in ("like", "not like")
        ]
        tests += [
            Leaf(column, op, value) for value in (None, *drawn) for op in ("match", "not match")
        ]
        tests += [Leaf(column, "match", (value, "ngram(2)")) for value in drawn]
    return tests


@st.composite
def predicates(draw: st.DrawFn, schema: pa.Schema, table: pa.Table, depth: int = 2) -> Predicate:
    """Draw a predicate on the columns of ``schema`` that have an order.

    Half of the literals are values of ``table``.

    >>> from hypothesis import find
    >>> table = pa.table({"flag": [True, None]})
    >>> find(predicates(table.schema, table), lambda predicate: isinstance(predicate, And))
    And(children=())
    """
    if depth and draw(st.booleans()):
        kind = draw(st.sampled_from((And, Or)))
        children = tuple(draw(st.lists(predicates(schema, table, depth - 1), max_size=3)))
        tree: Predicate = And(children) if kind is And else Or(children)
        if draw(st.booleans()):
            return negate(tree)
        return tree
    field = draw(st.sampled_from([field for field in schema if order.supports(field.type)]))
    present = [value for value in table.column(field.name).to_pylist() if value is not None]
    source = st.sampled_from(present) | literals(field.type) if present else literals(field.type)
    drawn = draw(st.lists(source, min_size=1, max_size=3))
    return draw(st.sampled_from(leaves_for(field.name, field.type, drawn)))


class _CachingSummary(InMemory):
    """A summary that caches parsed data between tests, like the summaries of a table."""

    def keep(self, make: Callable[[], T]) -> T:
        """Call ``make`` the first time, and return its result every time."""
        if "made" not in vars(self):
            vars(self)["made"] = make()
        cached: T = vars(self)["made"]
        return cached


def violations(
    index: SkippingIndex, segments: Sequence[Any], tests: Sequence[Leaf], type: pa.DataType
) -> list[str]:
    """Return the errors of the index on ``segments`` (arrays of ``type``) for each leaf, as
    sentences.

    >>> from indexes.column_stats import ColumnStats
    >>> segments = [pa.array([1, 3]), pa.array([5, 9])]
    >>> violations(ColumnStats(), segments, [Leaf("n", "<", 4)], pa.int64())
    []
    """
    return list(_violations(index, segments, tests, type))


def _violations(
    index: SkippingIndex, segments: Sequence[Any], tests: Sequence[Leaf], type: pa.DataType
) -> Iterator[str]:
    """Yield the items of :func:`violations`, so that callers may stop at the first."""
    summaries = [_CachingSummary(index.summarize(segment)) for segment in segments]
    whole = pa.chunked_array(segments, type)
    columns = whole.flatten() if index.several_columns else [whole]
    fields = [field.name for field in type] if index.several_columns else []
    bounds = np.cumsum([0, *map(len, segments)])
    for leaf in tests:
        table = pa.table(columns, names=fields or [leaf.column])
        hits = np.flatnonzero(matches(leaf, table).to_numpy())
        edges = np.searchsorted(hits, bounds)
        verdict = index.prune(summaries, leaf, type)
        if verdict.dtype != np.bool_ or verdict.shape != (len(segments),):
            yield (
                f"prune returned {verdict.dtype}{list(verdict.shape)}, not bool[{len(segments)}]"
            )
            continue
        for at in np.flatnonzero(~verdict & (np.diff(edges) > 0)).tolist():
            row = hits[edges[at]] - bounds[at]
            yield f"{leaf}: NO for {segments[at].to_pylist()}, but row {row} matches"
        positions = index.rows(summaries, leaf, type)
        if len(positions) != len(segments):
            yield f"rows returned {len(positions)} results for {len(segments)} segments"
            continue
        for at, rows in enumerate(positions):
            if rows is None:
                continue
            matching = (hits[edges[at] : edges[at + 1]] - bounds[at]).tolist()
            if matching and not set(matching) <= set(rows):
                yield f"{leaf}: rows {list(rows)} of {segments[at].to_pylist()} omit a match"
            if not index.finds_rows:
                yield f"{leaf}: rows are returned, but finds_rows is False"


def corner_segments(type: pa.DataType) -> list[Any]:
    """Return small segments of ``type``.

    They are empty, all null, each value of the pool alone and with a null, pairs of neighbors, and
    the whole pool.

    >>> [segment.to_pylist() for segment in corner_segments(pa.bool_())][:4]
    [[], [None], [None, None, None], [False, True]]
    """
    values = pool(type)
    pairs = [[low, high] for low, high in pairwise(values)]
    lists = [
        [],
        [None],
        [None, None, None],
        list(values),
        [*values, None],
        [values[1], *values, values[1]],
    ]
    lists += [[value] for value in values] + [[None, value, value] for value in values] + pairs
    return [column_of(rows, type) for rows in lists]


def many_values(type: pa.DataType) -> tuple[list[Any], list[Any]]:
    """Return two segments of 1,200 rows with about 700 distinct values and 10 % nulls, and
    edge-case literals.

    >>> segments, drawn = many_values(pa.int64())
    >>> [len(segment) for segment in segments], drawn[:3]
    ([1200, 1200], [-1, 0, 766])
    """
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 1_000, 2_400) * 3
    if pa.types.is_string(type):
        texts = pa.array([f"name {number:05d}"[: 7 + number % 5] for number in numbers.tolist()])
        column, drawn = texts, texts.take(pa.array([0, 600, 1500])).to_pylist()
    else:
        wide = pa.decimal128(21, 2) if pa.types.is_decimal(type) else pa.int64()
        column = pa.array(numbers).cast(wide).cast(type)
        drawn = pa.array([-1, 0, 766, 768, 1500, 3000]).cast(wide).cast(type).to_pylist()
    whole = pc.if_else(pa.array(np.arange(2_400) % 10 != 3), column, pa.scalar(None, type))
    distinct = sorted({value for value in whole[:1_200].to_pylist() if value is not None})
    return [whole[:1_200], whole[1_200:]], [
        *drawn,
        *distinct[255:258],
        *distinct[511:513],
        distinct[0],
        distinct[-1],
    ]


def generated(
    examples: int, **arguments: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a test with this number of random ``examples`` of its arguments."""
    limits = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda test: given(**arguments)(limits(test))


class _Conformance:
    """Tests of both suites."""

    index: ClassVar[SkippingIndex]

    def test_the_name_ends_in_a_version(self) -> None:
        """The persisted name is ``name/<version>``."""
        stem, _, version = self.index.name.rpartition("/")
        assert stem and version.isdigit()

    def survives(self, damaged: bytes, leaf: Leaf, type: pa.DataType) -> None:
        """Test the index on damaged bytes. Only ValueError is allowed."""
        for answer in (self.index.prune, self.index.rows):
            with suppress(ValueError):
                answer([InMemory(damaged)], leaf, type)


class SkippingIndexConformance(_Conformance):
    """Tests for every skipping index. Set ``index`` in a subclass whose name starts with Test.

    >>> from indexes.column_stats import ColumnStats
    >>> class TestColumnStats(SkippingIndexConformance):
    ...     index = ColumnStats()
    >>> TestColumnStats().test_no_summaries_give_no_verdicts()
    """

    def test_a_no_is_a_proof_on_every_corner_value(self) -> None:
        """Tests each corner value alone, in pairs and together, with every operator and corner
        value.
        """
        for type in self._types():
            drawn = (*pool(type), *foreign_literals(type))
            self._check_proofs(corner_segments(type), drawn, type)

    @generated(60, data=st.data())
    def test_a_no_is_a_proof_on_generated_columns(self, data: st.DataObject) -> None:
        """Tests random segments. Half of the literals are values of the segments."""
        type = data.draw(st.sampled_from(self._types()))
        segments = data.draw(st.lists(columns(type), min_size=1, max_size=3))
        present = pa.chunked_array(segments, type).drop_null().to_pylist()
        source = st.sampled_from(present) | literals(type) if present else literals(type)
        self._check_proofs(segments, data.draw(st.lists(source, min_size=1, max_size=4)), type)

    def test_many_distinct_values_lose_no_row(self) -> None:
        """Tests segments of hundreds of values with nulls, which span several blocks."""
        for type in (
            pa.int64(),
            pa.float64(),
            pa.string(),
            pa.decimal128(9, 2),
            pa.timestamp("us"),
        ):
            if self.index.supports(type):
                self._check_proofs(*many_values(type), type)

    @generated(30, data=st.data())
    def test_equal_columns_have_equal_summaries(self, data: st.DataObject) -> None:
        """A summary depends only on the values."""
        column = data.draw(st.sampled_from(self._types()).flatmap(columns))
        copy = column_of(column.to_pylist(), column.type)
        assert (
            self.index.summarize(column)
            == self.index.summarize(column)
            == self.index.summarize(copy)
        )

    @generated(60, data=st.data())
    def test_damaged_bytes_raise_value_error_or_give_a_verdict(self, data: st.DataObject) -> None:
        """Foreign, truncated, extended and flipped bytes raise no other exception."""
        column = data.draw(st.sampled_from(self._types()).flatmap(columns))
        good = self.index.summarize(column)
        test = data.draw(
            st.sampled_from(leaves_for("c", column.type, [data.draw(scalars(column.type))]))
        )
        cut = data.draw(st.integers(0, len(good)))
        at = data.draw(st.integers(0, max(len(good) * 8 - 1, 0)))
        flipped = (int.from_bytes(good, "big") ^ (1 << at)).to_bytes(len(good) + 1, "big")[
            -len(good) :
        ]
        for damaged in (
            data.draw(st.binary(max_size=80)),
            good[:cut],
            good + b"\0",
            good[:cut] + b"\xff" * 9,
            flipped,
        ):
            self.survives(damaged, test, column.type)

    def test_no_summaries_give_no_verdicts(self) -> None:
        """prune([]) is bool[0]."""
        for type in self._types():
            assert self.index.prune([], Leaf("c", "is null"), type).shape == (0,)

    def test_every_operator_gets_a_verdict(self) -> None:
        """An unknown operator gets MAYBE, not an error."""
        for type in self._types():
            drawn = leaves_for("c", type, pool(type)[:2])
            summary = InMemory(self.index.summarize(column_of(pool(type), type)))
            for leaf in drawn:
                assert leaf.op in OPS and len(self.index.prune([summary, summary], leaf, type)) == 2

    def _check_proofs(self, segments: Sequence[Any], literals: Iterable[Any], type: Any) -> None:
        tests = leaves_for("c", type, literals)
        wrong = next(_violations(self.index, segments, tests, type), "")
        assert not wrong, f"{type}: {wrong[:200]}"

    def _types(self) -> list[Any]:
        types = [type for type in ALL_TYPES if self.index.supports(type)]
        assert types, "the index supports none of the types that have an order"
        return types


class SeveralColumnsConformance(_Conformance):
    """Tests for an index on several columns, or on predicate functions.

        class TestGrid(SeveralColumnsConformance):
            index = GridIndex()
            columns = {"lat": pa.float64(), "lon": pa.float64()}
            values = {"lat": st.floats(-90, 90), "lon": st.floats(-180, 180)}

            def asked(self, seen):
                anywhere = st.tuples(st.floats(-90, 90), st.floats(-180, 180))
                places = st.sampled_from(seen) if seen else anywhere
                near = lambda at, km: call("within_km", ("lat", "lon"), (*at, km))
                return st.builds(near, places, st.floats(0, 500))

    ``columns`` maps names to types. ``values`` maps names to strategies for plausible values. The
    suite adds edge cases of the types.
    """

    columns: ClassVar[Mapping[str, Any]]
    values: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {}

    def asked(self, seen: Sequence[tuple[Any, ...]]) -> st.SearchStrategy[Leaf]:
        """Return a strategy for tests of the columns. Half of their literals should be near rows in
        ``seen``.

        ``seen`` holds the rows of the tested segments as tuples, with nulls. The suite adds
        negations and tests of single columns.
        """
        raise NotImplementedError

    @generated(150, data=st.data())
    def test_a_no_is_a_proof(self, data: st.DataObject) -> None:
        """Tests random segments. Every verdict is compared with the reference."""
        segments = data.draw(st.lists(self._segments(), min_size=1, max_size=3))
        tests = data.draw(st.lists(self.asked(_row_tuples(segments)), min_size=1, max_size=4))
        leaves = [
            leaf
            for leaf in (*tests, *map(negate, tests), *self._simple(data))
            if self._is_testable(leaf)
        ]
        wrong = next(_violations(self.index, segments, leaves, self._type()), "")
        assert not wrong, wrong

    @generated(40, data=st.data())
    def test_a_summary_depends_on_the_values_only(self, data: st.DataObject) -> None:
        """Equal rows have equal bytes, also if they are a slice of a longer column."""
        rows = data.draw(self._segments())
        longer = pa.concat_arrays([rows, rows, rows])
        sliced = pa.StructArray.from_arrays(
            [c.slice(len(rows), len(rows)) for c in longer.flatten()], list(self.columns)
        )
        assert self.index.summarize(rows) == self.index.summarize(sliced)

    @generated(80, data=st.data())
    def test_damaged_bytes_raise_value_error_or_give_a_verdict(self, data: st.DataObject) -> None:
        """Foreign, truncated, extended and overwritten bytes raise no other exception."""
        good, leaf = self.index.summarize(data.draw(self._segments())), data.draw(self.asked([]))
        cut, junk = data.draw(st.integers(0, len(good))), data.draw(st.binary(max_size=9))
        for damaged in (
            junk,
            good[:cut],
            good + b"\0",
            good[:cut] + junk + good[cut + len(junk) :],
        ):
            self.survives(damaged, leaf, self._type())

    @generated(20, data=st.data())
    def test_every_test_gets_a_verdict_for_each_summary(self, data: st.DataObject) -> None:
        """Zero summaries get zero verdicts. An unknown test gets MAYBE, not an error."""
        leaf, rows = data.draw(self.asked([])), data.draw(self._segments())
        summary = InMemory(self.index.summarize(rows))
        for test in (leaf, negate(leaf), *self._simple(data)):
            if isinstance(test, Leaf):
                assert self.index.prune([], test, self._type()).shape == (0,)
                assert len(self.index.prune([summary] * 2, test, self._type())) == 2

    def test_the_columns_are_supported(self) -> None:
        """The struct of the columns is a supported type."""
        assert self.index.several_columns and self.index.supports(self._type())

    def _type(self) -> pa.DataType:
        return pa.struct(list(self.columns.items()))

    def _is_testable(self, leaf: Predicate) -> TypeGuard[Leaf]:
        """Return True if a table would pass ``leaf`` to the index."""
        is_supported = not isinstance(leaf, Call) or leaf.function in self.index.functions
        return isinstance(leaf, Leaf) and is_supported and self.index.can_test(leaf, self._type())

    def _segments(self) -> st.SearchStrategy[Any]:
        names = list(self.columns)
        each = [self.values.get(name, scalars(type)) for name, type in self.columns.items()]
        odd = [st.none() | scalars(type) for type in self.columns.values()]
        rows = st.lists(st.one_of(st.tuples(*each), st.tuples(*each), st.tuples(*odd)), max_size=12)

        def build(drawn: list[tuple[Any, ...]]) -> Any:
            parts = [
                column_of([row[at] for row in drawn], type)
                for at, type in enumerate(self.columns.values())
            ]
            return pa.StructArray.from_arrays(parts, names)

        return rows.map(build)

    def _simple(self, data: st.DataObject) -> list[Leaf]:
        """Return tests of a single column."""
        name = data.draw(st.sampled_from(list(self.columns)))
        return leaves_for(name, self.columns[name], [data.draw(scalars(self.columns[name]))])


def _row_tuples(segments: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of struct segments."""
    return [tuple(row.values()) for segment in segments for row in segment.to_pylist()]


def first_failure(suite: type[Any], *, known: str | None = None) -> str | None:
    """Return the name of the first failing test of a conformance suite, or None. For mutation
    tests.

    ``known``: A test that is expected to fail. It runs first, to save time.

    >>> from indexes.column_stats import ColumnStats
    >>> class Unversioned(ColumnStats):
    ...     name = "unversioned"
    >>> class TestUnversioned(SkippingIndexConformance):
    ...     index = Unversioned()
    >>> first_failure(TestUnversioned, known="test_the_name_ends_in_a_version")
    'test_the_name_ends_in_a_version'
    """
    instance = suite()
    names = [name for name in dir(suite) if name.startswith("test_")]
    # Tests without hypothesis run first: they stop at the first wrong answer and do not shrink it.
    for name in sorted(
        names, key=lambda name: (name != known, is_hypothesis_test(getattr(suite, name)), name)
    ):
        try:
            getattr(instance, name)()
        except Exception:  # noqa: BLE001 - a mutant may fail in any way
            return name
    return None
