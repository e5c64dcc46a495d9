"""Predicates: tests of columns, combined with And and Or.

There is no Not. :func:`negate` pushes a negation into the leaves, following SQL's three-valued
logic. For example, NOT (a < 5) becomes a >= 5, and a row with a null in ``a`` matches neither.
Expressions that the caller cannot translate become :class:`Unknown`, which proves nothing.

:func:`matches` is the reference implementation. A row matches if SQL's WHERE keeps it, so null
means no match. Values are ordered as in ``indexes.values``: NaN is above everything and equals
itself, as in Spark. Every index must agree with :func:`matches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import functions, paths, tokenizers, values
from indexes.like import column_test, parse_like, quote_like
from indexes.tokenizers import Tokenizer
from indexes.values import members

OPS = frozenset(
    ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null", "<=>")
) | frozenset(("starts with", "like", "not like", "match", "not match"))
"""All operators of a leaf."""

_NOT = "not "
_NEGATED = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "is null": "is not null",
    "is not null": "is null",
    "like": "not like",
    "not like": "like",
    "match": "not match",
    "not match": "match",
}
KERNELS: dict[str, Any] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
"""Arrow's comparison kernels by SQL operator."""

T = TypeVar("T")
Join = Callable[[Sequence[T]], T]
Test = Callable[[Any], Any]
"""A function from values (Array or ChunkedArray) [n] to bool[n], null where SQL's result is
unknown.
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    r"""A test ``column op value``. The column may be a path into a struct (``indexes.paths``).

    ``op`` is in :data:`OPS`. ``value`` is a literal (see ``values.place``), a tuple of literals for
    in and not in, and None for the null tests. For other operators None is SQL's null and matches
    no row, except for ``<=>``, the null-safe equality. ``like`` supports ``%``, ``_`` and the
    escape ``\``.

    ``match`` is true for text that contains all tokens of a query. Its ``value`` is the query,
    tokenized by "word", or a tuple of the query and the specification of a tokenizer
    (``indexes.tokenizers``). A query without tokens matches nothing. Raises ValueError for an
    unknown ``op``, or for in without a tuple.

    >>> Leaf("city", "in", ("Oslo", "Rome")).columns
    ('city',)
    """

    column: str
    op: str
    value: object = None

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise ValueError(
                f"unknown operator {self.op!r} on column {self.column!r}; use one of:"
                f" {', '.join(sorted(OPS))}"
            )
        if self.op in ("in", "not in") and not isinstance(self.value, tuple):
            raise ValueError(
                f"{self.column!r} {self.op}: the value must be a tuple of literals, not"
                f" {self.value!r}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """All tested columns."""
        return (self.column,)


@dataclass(frozen=True, slots=True)
class Call(Leaf):
    """A call of a predicate function, or its negation: ``function(columns…, arguments…)``.

    ``op`` is the name of the function (``indexes.functions``), with the prefix "not " if negated.
    ``value`` is the tuple of arguments. A None among them matches no row, negated or not.
    ``column`` is the first column and ``others`` are the remaining columns. A row with a null in
    any of the columns matches neither the function nor its negation. Use :func:`call` to create a
    Call.

    >>> near = call("within_km", ["lat", "lon"], [59.9, 10.7, 5.0])
    >>> near.function, near.columns, near.is_negated, negate(near).op
    ('within_km', ('lat', 'lon'), False, 'not within_km')
    """

    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.op in OPS or not isinstance(self.value, tuple):
            raise ValueError(f"{self.op!r} is not a function with a tuple of arguments")

    @property
    def columns(self) -> tuple[str, ...]:
        """All tested columns, in call order."""
        return (self.column, *self.others)

    @property
    def function(self) -> str:
        """Name of the function."""
        return self.op.removeprefix(_NOT)

    @property
    def is_negated(self) -> bool:
        """True if the call matches rows for which the function is false."""
        return self.op.startswith(_NOT)


def call(function: str, columns: Sequence[str], arguments: Sequence[object] = ()) -> Call:
    """Return a call of ``function`` on ``columns`` with ``arguments``.

    >>> call("within_km", ["lat", "lon"], [59.9, 10.7, 5.0]).value
    (59.9, 10.7, 5.0)
    """
    return Call(columns[0], function, tuple(arguments), tuple(columns[1:]))


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of ``children``. Without children it is true.

    >>> simplify(And((Leaf("fare", "<", 5), And(()))))
    Leaf(column='fare', op='<', value=5)
    """

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of ``children``. Without children it is false.

    >>> simplify(Or((Leaf("fare", "<", 5), Or(()))))
    Leaf(column='fare', op='<', value=5)
    """

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """An expression that only the query engine can evaluate. ``text`` is for explanations.

    >>> negate(Unknown("rand() < 0.5"))
    Unknown(text='NOT (rand() < 0.5)')
    """

    text: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns that the expression is known to test."""
        return ()

    def negated(self) -> Unknown:
        """Return the negated expression."""
        return Unknown(f"NOT ({self.text})")

    def bound(self, schema: pa.Schema) -> Test:
        """Return the test for rows of ``schema``. Raises ValueError here. Subclasses may override
        it.
        """
        raise ValueError(
            f"cannot evaluate {self.text!r}; evaluate it in the query engine that created it"
        )


Predicate = Leaf | And | Or | Unknown


def negate(predicate: Predicate) -> Predicate:
    """Return a predicate that matches the rows for which ``predicate`` is false.

    Rows for which it is unknown match neither.

    >>> negate(Or((Leaf("fare", "<", 5), Leaf("fare", "=", 7))))
    And(children=(Leaf(column='fare', op='>=', value=5), Leaf(column='fare', op='!=', value=7)))
    """
    match predicate:
        case And(children):
            return Or(tuple(negate(child) for child in children))
        case Or(children):
            return And(tuple(negate(child) for child in children))
        case Unknown():
            return predicate.negated()
        case Call():
            if predicate.is_negated:
                return replace(predicate, op=predicate.function)
            return replace(predicate, op=_NOT + predicate.op)
        case Leaf(column, "<=>", value):
            null = Leaf(column, "is null")
            if value is None:
                return Leaf(column, "is not null")
            return Or((Leaf(column, "!=", value), null))
        case Leaf(column, "starts with", value):
            return _not_starting(column, value)
    return Leaf(predicate.column, _NEGATED[predicate.op], predicate.value)


def forms(leaf: Leaf) -> tuple[Leaf, ...]:
    """Return the equivalent forms of ``leaf``, the most specific first. The leaf itself is
    included.

    For example, LIKE 'abc' equals = 'abc', and LIKE 'x%' equals starts with 'x'. An index needs to
    support only one of the forms.

    >>> [(form.op, form.value) for form in forms(Leaf("city", "like", "Os%"))]
    [('starts with', 'Os'), ('like', 'Os%')]
    """
    if not isinstance(leaf.value, str) or leaf.op not in ("like", "starts with"):
        return (leaf,)
    if leaf.op == "starts with":
        return (leaf, Leaf(leaf.column, "like", quote_like(leaf.value) + "%"))
    match parse_like(leaf.value):
        case []:
            return (Leaf(leaf.column, "=", ""), leaf)
        case [str(text)] if text:
            return (Leaf(leaf.column, "=", text), leaf)
        case [str(text), None] if text:
            return (Leaf(leaf.column, "starts with", text), leaf)
    return (leaf,)


def columns(predicate: Predicate) -> frozenset[str]:
    """Return the paths of all tested columns.

    >>> sorted(columns(And((Leaf("a", "=", 1), Or((Leaf("b.c", "<", 2), Leaf("a", "is null")))))))
    ['a', 'b.c']
    """
    if isinstance(predicate, Leaf | Unknown):
        return frozenset(predicate.columns)
    return frozenset().union(*map(columns, predicate.children))


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the leaves from left to right, including function calls.

    >>> [leaf.column for leaf in leaves(And((Leaf("a", "=", 1), Or((Leaf("b", "<", 2),)))))]
    ['a', 'b']
    """
    if isinstance(predicate, Leaf):
        yield predicate
    elif not isinstance(predicate, Unknown):
        for child in predicate.children:
            yield from leaves(child)


def evaluate(
    predicate: Predicate, test: Callable[[Leaf | Unknown], T], both: Join[T], either: Join[T]
) -> T:
    """Fold a predicate: apply ``test`` to its leaves and join the results.

    ``both`` joins the children of And, and ``either`` those of Or. For an empty list ``both`` must
    return true and ``either`` false.

    >>> known = And((Leaf("a", "=", 1), Or((Leaf("b", "=", 2), Leaf("c", "=", 3)))))
    >>> evaluate(known, lambda leaf: leaf.column != "b", all, any)
    True
    """
    if isinstance(predicate, Leaf | Unknown):
        return test(predicate)
    values = [evaluate(child, test, both, either) for child in predicate.children]
    if isinstance(predicate, And):
        return both(values)
    return either(values)


def simplify(predicate: Predicate) -> Predicate:
    """Return an equivalent predicate with nested And and Or flattened.

    Constants are folded, and an And or Or with a single child is replaced by the child.

    >>> simplify(And((And((Leaf("a", "=", 1), Leaf("b", "=", 2))), And(()))))
    And(children=(Leaf(column='a', op='=', value=1), Leaf(column='b', op='=', value=2)))
    """
    if isinstance(predicate, (Leaf, Unknown)):
        return predicate
    kind, absorbing = (And, Or) if isinstance(predicate, And) else (Or, And)
    children: list[Predicate] = []
    for child in map(simplify, predicate.children):
        if isinstance(child, absorbing) and not child.children:
            return child
        if isinstance(child, kind):
            children.extend(child.children)
        else:
            children.append(child)
    if len(children) == 1:
        return children[0]
    return kind(tuple(children))


def check(predicate: Predicate, schema: pa.Schema) -> None:
    """Raise ValueError if a leaf cannot be tested on columns of ``schema``.

    The message names the column, its type and the value.
    >>> check(Leaf("fare", ">", "five"), pa.schema({"fare": pa.float64()}))
    Traceback (most recent call last):
        ...
    ValueError: fare > 'five': column 'fare' has type double; a literal of Python type str ...
    """
    for leaf in leaves(predicate):
        _bind(leaf, schema)


def bind(predicate: Predicate, schema: pa.Schema) -> Callable[[Any], Any]:
    """Return :func:`matches` prepared for batches of one schema.

    Raises ValueError like :func:`check`, and for Unknown.

    >>> test = bind(Leaf("fare", ">", 5), pa.schema({"fare": pa.float64()}))
    >>> test(pa.record_batch({"fare": [4.0, 9.5]})).to_pylist()
    [False, True]
    """
    test = _bind(predicate, schema)

    def run(table: Any) -> Any:
        mask = test(table)
        if mask.null_count:
            mask = mask.fill_null(False)
        chunked = isinstance(mask, pa.ChunkedArray)
        if isinstance(table, pa.Table) and not chunked:
            return pa.chunked_array([mask])
        return mask

    return run


def matches(predicate: Predicate, table: pa.Table | pa.RecordBatch) -> Any:
    """Return a mask of the matching rows -> bool[n] without nulls.

    It is a ChunkedArray for a table and a BooleanArray for a batch. Raises ValueError like
    :func:`check`, and for Unknown. O(rows × leaves), vectorized.

    >>> rows = pa.record_batch({"fare": [4.0, 9.5, None]})
    >>> above = Leaf("fare", ">", 5)
    >>> matches(above, rows).to_pylist(), matches(negate(above), rows).to_pylist()
    ([False, True, False], [True, False, False])
    """
    return bind(predicate, table.schema)(table)


def match_query(leaf: Leaf) -> tuple[str, Tokenizer]:
    """Return the query text and the tokenizer of a "match" or "not match" leaf.

    Raises ValueError for a malformed value, an unknown tokenizer, or text that is not valid
    Unicode.

    >>> text, tokenizer = match_query(Leaf("note", "match", ("fast car", "ngram(3)")))
    >>> text, tokenizer.spec
    ('fast car', 'ngram(3)')
    """
    pair = leaf.value if isinstance(leaf.value, tuple) else (leaf.value, "word")
    if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
        raise ValueError(
            "match takes text, or a tuple of text and a tokenizer such as ('fast car', 'ngram(3)')"
        )
    pair[0].encode("utf-8")
    return pair[0], tokenizers.find(pair[1])


def _not_starting(column: str, value: object) -> Predicate:
    """Return NOT (column starts with value). Text uses not like, bytes use a range."""
    if isinstance(value, bytes):
        above = values.successor(value)
        below: Predicate = Leaf(column, "<", value)
        if above is None:
            return below
        return Or((below, Leaf(column, ">=", above)))
    if not isinstance(value, str):
        return Leaf(column, "not like", value)
    return Leaf(column, "not like", quote_like(value) + "%")


def _bind(predicate: Predicate, schema: pa.Schema) -> Callable[[Any], Any]:
    if isinstance(predicate, Unknown):
        return predicate.bound(schema)
    if isinstance(predicate, Leaf):
        bound = _bind_call if isinstance(predicate, Call) else _bind_leaf
        return bound(predicate, schema)  # type: ignore[arg-type]  # Call -> _bind_call
    # Tests of columns cannot fail, so they run first. The others see only the remaining rows.
    children = sorted(predicate.children, key=_can_fail)
    tests = [_bind(child, schema) for child in children]
    certain = sum(not _can_fail(child) for child in children)
    join = _all_of if isinstance(predicate, And) else _any_of
    return join(tests[:certain], tests[certain:])


def _can_fail(predicate: Predicate) -> bool:
    """Return True if the predicate may have no value for a row, as after a division by zero."""
    if isinstance(predicate, Leaf | Unknown):
        return isinstance(predicate, Unknown)
    return any(map(_can_fail, predicate.children))


def _all_of(tests: Sequence[Test], guarded: Sequence[Test]) -> Test:
    """Return a test for all of ``tests``. ``guarded`` tests see only the rows that pass them."""

    def run(table: Any) -> Any:
        # There is no Not above, so unknown and false select the same rows, and the loop may stop.
        mask = tests[0](table) if tests else _constant(table.num_rows, True)
        for test in tests[1:]:
            if not pc.any(mask).as_py():
                return mask
            mask = pc.and_kleene(mask, test(table))
        for test in guarded:
            mask = _where(mask.fill_null(False), table, test)
        return mask

    return run


def _any_of(tests: Sequence[Test], guarded: Sequence[Test]) -> Test:
    """Return a test for any of ``tests``. ``guarded`` tests see only the rows that fail them."""

    def run(table: Any) -> Any:
        if not tests:
            mask = _constant(table.num_rows, False)
        else:
            mask = reduce(pc.or_kleene, (test(table) for test in tests))
        for test in guarded:
            mask = mask.fill_null(False)
            mask = pc.or_(mask, _where(pc.invert(mask), table, test))
        return mask

    return run


def _where(mask: Any, table: Any, test: Test) -> Any:
    """Apply ``test`` to the rows in ``mask``. All other rows get false."""
    if pc.all(mask).as_py():
        return test(table).fill_null(False)
    result = np.asarray(mask).copy()
    result[result] = np.asarray(test(table.filter(mask)).fill_null(False))
    return pa.array(result)


def _bind_call(call: Call, schema: pa.Schema) -> Callable[[Any], Any]:
    """Return the test of a predicate function. Raises ValueError if it is unknown or does
    not fit.
    """
    match functions.find(call.function):
        case functions.Unknown(_, reason):
            raise ValueError(reason)
        case functions.Function() as function:
            pass
    steps = [_steps_to(schema, column) for column in call.columns]
    arguments = function.convert_arguments(cast(tuple[object, ...], call.value))
    types = [values.plain_type(paths.fields(schema, step)[-1].type) for step in steps]
    function.check(types, arguments)
    if None in arguments:
        return lambda table: _constant(table.num_rows, False)

    def test(table: Any) -> Any:
        arrays = [values.plain(paths.follow(table, step)) for step in steps]
        answer = function.evaluate(arrays, arguments)
        if call.is_negated:
            return pc.invert(answer)
        return answer

    return test


def _steps_to(schema: pa.Schema, column: str) -> paths.Steps:
    """Return the steps to ``column``. Raises ValueError if it does not exist or is ambiguous."""
    way = paths.steps(schema, column)
    if way is None:
        count = "more than one" if schema.get_all_field_indices(column) else "no"
        raise ValueError(f"there is {count} column {column!r}; columns: {', '.join(schema.names)}")
    return way


def _bind_leaf(leaf: Leaf, schema: pa.Schema) -> Callable[[Any], Any]:
    way = _steps_to(schema, leaf.column)
    type = paths.fields(schema, way)[-1].type
    try:
        test = _leaf_test(leaf, type)
    except ValueError as error:
        where = (
            f"{leaf.column} {leaf.op} {_shorten(leaf.value)}: column {leaf.column!r} has type"
            f" {type}"
        )
        raise ValueError(f"{where}; {error}") from error
    return lambda table: test(paths.follow(table, way))


def _shorten(value: object) -> str:
    text = repr(value)
    if len(text) <= 100:
        return text
    return text[:97] + "..."


def _leaf_test(leaf: Leaf, type: pa.DataType) -> Test:
    """Return the test for columns of ``type``, including dictionary-encoded columns."""
    if leaf.op == "is null" or (leaf.op == "<=>" and leaf.value is None):
        return lambda column: pc.is_null(_decode(column))
    if leaf.op == "is not null":
        return lambda column: pc.is_valid(_decode(column))
    if pa.types.is_dictionary(type):
        test = _value_test(leaf, type.value_type)
        return lambda column: _per_dictionary(test, column)
    return _value_test(leaf, type)


def _decode(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _per_dictionary(test: Test, column: Any) -> Any:
    """Apply ``test`` to a dictionary-encoded column, once per dictionary entry."""
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array(
            [_per_dictionary(test, chunk) for chunk in column.chunks], pa.bool_()
        )
    return test(column.dictionary).take(column.indices)


def _value_test(leaf: Leaf, type: pa.DataType) -> Test:
    if pa.types.is_fixed_size_binary(type):
        test = _value_test(leaf, pa.binary())
        return lambda column: test(column.cast(pa.binary()))
    kind = values.kind_of(type)
    if kind is None:
        raise ValueError("the type cannot be compared; use is null or is not null")
    if leaf.op in ("in", "not in"):
        return _membership(leaf, kind, type)
    if leaf.value is None:
        return _never
    if leaf.op == "starts with":
        return _starts_with(leaf.value, kind)
    if leaf.op in ("match", "not match"):
        return _match(leaf, kind)
    if leaf.op in ("like", "not like"):
        return column_test(leaf.value, kind, negated=leaf.op == "not like")
    return _comparison(leaf.op.replace("<=>", "="), leaf.value, kind, type)


def _constant(rows: int, verdict: bool) -> Any:
    return pa.array(np.full(rows, verdict))


def _never(column: Any) -> Any:
    return _constant(len(column), False)


def _comparison(op: str, value: object, kind: values.Kind, type: pa.DataType) -> Test:
    place = values.place(value, type)
    if _is_nan(place.value):
        return _compare_with_nan(op)
    if place.tie:
        if op in ("=", "!="):
            if op == "=":
                return _never
            return pc.is_valid
        op = op[0] + ("=" if (place.tie > 0) == (op[0] == "<") else "")
    scalar = pa.scalar(place.value, type)
    if kind == "float" and op[0] == ">":
        # NaN is above the literal, but IEEE comparisons with NaN are false. Invert the complement.
        complement = KERNELS[_NEGATED[op]]
        return lambda column: pc.invert(complement(column, scalar))
    kernel = KERNELS[op]
    return lambda column: kernel(column, scalar)


def _compare_with_nan(op: str) -> Test:
    if op in ("=", ">="):
        return lambda column: pc.is_nan(column)
    if op in ("!=", "<"):
        return lambda column: pc.invert(pc.is_nan(column))
    if op == "<=":
        return pc.is_valid
    return _never


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _membership(leaf: Leaf, kind: values.Kind, type: pa.DataType) -> Test:
    assert isinstance(leaf.value, tuple)
    literals = members(leaf.value, type)
    nan = False
    if kind == "float":
        # Arrow hashes the bits, so add both zeros.
        literals = [
            *literals,
            *(-0.0 for value in literals if value == 0),
            *(0.0 for value in literals if value == 0),
        ]
        nan = any(map(_is_nan, literals))
    value_set = literals if isinstance(literals, pa.Array) else pa.array(literals, type)
    if leaf.op == "in":
        return lambda column: _is_in(column, value_set, nan)
    if None in leaf.value:
        return _never
    return lambda column: pc.and_(pc.invert(_is_in(column, value_set, nan)), pc.is_valid(column))


def _is_in(column: Any, value_set: Any, nan: bool) -> Any:
    is_member = pc.is_in(column, value_set=value_set)
    if nan:
        return pc.or_kleene(is_member, pc.is_nan(column))
    return is_member


def _starts_with(value: object, kind: values.Kind) -> Test:
    if (kind, value.__class__) not in (("string", str), ("binary", bytes)):
        raise ValueError("starts with needs text for a text column and bytes for a binary column")
    prefix = value if isinstance(value, bytes) else str(value).encode("utf-8")
    return lambda column: pc.starts_with(column, pattern=prefix)


def _match(leaf: Leaf, kind: values.Kind) -> Test:
    if kind != "string":
        raise ValueError("match needs a text column")
    text, tokenizer = match_query(leaf)
    tokens = tokenizer.query(text)

    def test(column: Any) -> Any:
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([test(chunk) for chunk in column.chunks], pa.bool_())
        holds = tokenizer.holds_all(column, tokens)
        if leaf.op == "match":
            return holds
        return pc.invert(holds)

    return test


Verdicts = npt.NDArray[np.bool_]


def verdicts(predicate: Predicate, n: int, ask: Callable[[Leaf], Iterable[Verdicts]]) -> Verdicts:
    """Return MAYBE or NO for each of n segments under a whole predicate -> bool[n].

    ``ask`` returns verdicts for a leaf, bool[n] each. All of them are proofs. An empty list means
    that nothing is known.

    >>> both = And((Leaf("a", "=", 1), Or((Leaf("b", "=", 2), Unknown("c")))))
    >>> verdicts(both, 2, lambda leaf: [np.array([leaf.column != "a", True])]).tolist()
    [False, True]
    """

    def both(parts: Sequence[Verdicts]) -> Verdicts:
        if parts:
            return reduce(np.logical_and, parts)
        return np.ones(n, np.bool_)

    def either(parts: Sequence[Verdicts]) -> Verdicts:
        if parts:
            return reduce(np.logical_or, parts)
        return np.zeros(n, np.bool_)

    def test(leaf: Leaf | Unknown) -> Verdicts:
        if isinstance(leaf, Unknown):
            return both([])
        return both([*ask(leaf)])

    return evaluate(predicate, test, both, either)
