"""SQL expressions over the columns of a row, as an update sets them: ``fare * 1.1``, ``case when …
then … else … end``.

They are read as filters are (:mod:`mdt.filters.sql`), with Spark's grammar and its ANSI mode;
``upper`` and ``lower`` map letter by letter. In the conditions of an expression, and in those of a
merge, values are compared with values: ``a + 1 > b``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from indexes.decimals import as_floating
from indexes.paths import column_at, top_levels
from indexes.predicate import Leaf, Predicate, bind
from mdt.errors import Invalid, Unsupported
from mdt.filters import arithmetic
from mdt.filters.arithmetic import Datum, Mask, Value
from mdt.filters.comparison import COMPARISONS, Compared, compared
from mdt.filters.parameters import Parameters
from mdt.filters.sql import Column, Conditions, Literal, Operand
from mdt.filters.tokens import NotSql, caret
from mdt.limits import WHERE_BYTES_MAX, WHERE_DEPTH_MAX

SUPPORTED = (
    "values are columns, literals, + - * / % ||, CASE WHEN … THEN … ELSE … END, CAST, and the"
    " functions coalesce, nullif, if, concat, lower, upper, trim, length, abs, greatest, least; for"
    " anything else read the rows, change them and upsert them"
)
"""What an expression may be, as a hint."""
_NO_PARAMETERS = (
    "an expression has no parameters: write a literal, or give the column a value of Python"
)
T = TypeVar("T")
_SUMS, _PRODUCTS = ("+", "-", "||"), ("*", "/", "%")
_INT32, _INT64 = 1 << 31, 1 << 63
_CASTS: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}


def parse_expression(
    text: Any, schema: pa.Schema, params: Mapping[str, object] | None = None
) -> Value:
    """Return what SQL text gives for the rows of a table with (at least) the columns of ``schema``
    -> a column.

    Raises Invalid and Unsupported, with the place in the text; the function that is returned raises
    Invalid for rows that have no value, as where one is divided by zero.

    >>> rows = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    >>> parse_expression("case when a > 2 then -a else a * 10 + 1 end", rows.schema)(
    ...     rows
    ... ).to_pylist()
    [11, None, -3]
    >>> parse_expression("coalesce(upper(b), 'none') || '!'", rows.schema)(rows).to_pylist()
    ['X!', 'Y!', 'none!']
    """
    return parse_with_columns(text, schema, params)[0]


def parse_with_columns(
    text: Any, schema: pa.Schema, params: Mapping[str, object] | None = None
) -> tuple[Value, frozenset[str]]:
    """Return what :func:`parse_expression` does, and the columns of ``schema`` that are read for
    it.
    """
    parameters = Parameters(params, hint=_NO_PARAMETERS)
    return _read(
        text,
        schema,
        parameters,
        lambda reader: (_guarded(text, reader.whole()), reader.columns_read()),
    )


def parse_condition(
    text: Any, schema: pa.Schema, params: Mapping[str, object] | None = None
) -> tuple[Predicate, frozenset[str]]:
    """Return the condition that SQL text is, values compared with values included, and the columns
    of ``schema`` that it reads.

    Raises as :func:`parse_expression` does.

    >>> rows = pa.table({"a": [1, 2, None], "b": [0, 2, 4]})
    >>> asked, names = parse_condition("a > b and b + 1 < 9", rows.schema)
    >>> bind(asked, rows.schema)(rows).to_pylist(), sorted(names)
    ([True, False, False], ['a', 'b'])
    """
    return _read(
        text, schema, Parameters(params), lambda reader: (reader.run(), reader.columns_read())
    )


def _read(
    text: Any, schema: pa.Schema, parameters: Parameters, run: Callable[[_Expressions], T]
) -> T:
    if not isinstance(text, str):
        raise Invalid(
            f"an expression is text, not {type(text).__name__}",
            hint="set={'fare': 'fare * 2'}; values={'fare': 2.0} takes values",
        )
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Invalid(
            f"the expression holds half a character, {text[error.start]!a}, at {error.start}"
        ) from None
    if size > WHERE_BYTES_MAX:
        raise Invalid(f"the expression has more than {WHERE_BYTES_MAX} bytes")
    try:
        found = run(_Expressions(text, schema, parameters))
    except NotSql as error:
        raise Invalid(f"the expression is not SQL: {error}{caret(text, error.offset)}") from None
    except RecursionError:
        raise Invalid("the expression nests too deeply") from None
    parameters.require_all_used()
    return found


def _guarded(text: str, value: Value) -> Value:
    def found(table: pa.Table) -> pa.ChunkedArray:
        try:
            return arithmetic.column_of(table, value(table))
        except Invalid as error:
            raise Invalid(f"{text}: {error.message}", hint=error.hint) from error
        except RecursionError:
            raise Invalid("the expression nests too deeply") from None
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise Invalid(
                f"{text} has no value: {error}", hint="case when … then … leaves such rows out"
            ) from error

    return found


@dataclass(frozen=True, slots=True)
class _Computed(Column):
    """A value that is no column and no literal, where a test has a column; it has no name."""

    value: Value


class _Expressions(Conditions):
    """One SQL text on its way to a value, or to a condition."""

    def __init__(self, text: str, schema: pa.Schema, parameters: Parameters) -> None:
        super().__init__(text, schema, parameters)
        self._read_here = set[str]()

    def columns_read(self) -> frozenset[str]:
        """Return the top-level columns that the text has named so far."""
        return top_levels(self._schema, self._read_here)

    def column(self) -> Column:
        found = super().column()
        self._read_here.add(found.name)
        return found

    def whole(self) -> Value:
        """Return the value of the whole text."""
        found = self._sum()
        if self.token.kind != "end":
            self.unexpected()
        return found

    def unsupported(self, what: str, offset: int) -> NoReturn:
        raise Unsupported(f"{what} is not supported{caret(self.text, offset)}", hint=SUPPORTED)

    def ends(self) -> bool:
        return super().ends() or self.is_word("then") or self.is_sign(",")

    def _sum(self) -> Value:
        return self._chain(_SUMS, self._product)

    def _product(self) -> Value:
        return self._chain(_PRODUCTS, self._signed_value)

    def _chain(
        self, signs: tuple[str, ...], part: Callable[[], Value], first: Value | None = None
    ) -> Value:
        found = part() if first is None else first
        rest = []
        while self.token.kind == "sign" and self.token.text in signs:
            rest.append((self.next().text, part()))
        return arithmetic.arithmetic(found, rest) if rest else found

    def _signed_value(self) -> Value:
        if self.is_sign("+"):
            self.next()
            return self._signed_value()
        if self.is_sign("-") and self.after.kind != "number":
            self.next()
            return arithmetic.negative(self._signed_value())
        return self._atom()

    def _atom(self) -> Value:
        token = self.token
        if self.take_sign("("):
            return self._deeper(token.offset)
        if self.is_word("case"):
            self.next()
            return self._case()
        if token.kind == "word" and self.after.text == "(":
            return self._function(self.next().text.lower(), token.offset)
        return self._value(super().operand(False), token.offset)

    def _value(self, found: Predicate | Operand, offset: int) -> Value:
        """Return the value that an operand is."""
        if isinstance(found, _Computed):
            return found.value
        if isinstance(found, Column):
            name = found.name
            return lambda table: column_at(table, name)
        if not isinstance(found, Literal) or found.several:
            self.unsupported("a condition where a value is needed", offset)
        try:
            scalar = _scalar(found.value)
        except (ValueError, OverflowError):
            self.invalid("a number of more digits than a decimal has", offset)
        return lambda table: scalar

    def _deeper(self, offset: int) -> Value:
        self._depth += 1
        if self._depth > WHERE_DEPTH_MAX:
            self.invalid("the expression nests too deeply", offset)
        found = self._sum()
        self.expect_sign(")")
        self._depth -= 1
        return found

    def _condition_here(self) -> Mask:
        before, self._read_here = self._read_here, set()
        asked = self.condition(self.disjunction(False), False)
        names = sorted(self.columns_read())
        self._read_here |= before
        return self._mask(asked, names)

    def _mask(self, asked: Predicate, names: list[str]) -> Mask:
        test = bind(asked, pa.schema([self._schema.field(name) for name in names]))
        if not names:
            return lambda table: test(table)
        return lambda table: test(table.select(names))

    def _case(self) -> Value:
        branches = []
        while self.take_word("when"):
            holds = self._condition_here()
            self.expect_word("then")
            branches.append((holds, self._sum()))
        if not branches:
            self.unsupported("CASE without WHEN", self.token.offset)
        otherwise = self._sum() if self.take_word("else") else None
        self.expect_word("end")
        return arithmetic.chosen(branches, otherwise)

    def _function(self, name: str, offset: int) -> Value:
        self.expect_sign("(")
        if name == "cast":
            return self._cast_value(offset)
        if name == "if":
            holds = self._condition_here()
            self.expect_sign(",")
            yes = self._sum()
            self.expect_sign(",")
            no = self._sum()
            self.expect_sign(")")
            return arithmetic.chosen([(holds, yes)], no)
        made = _FUNCTIONS.get(name)
        if made is None:
            self.unsupported(f"the function {name}", offset)
        arguments = [self._sum()]
        while self.take_sign(","):
            arguments.append(self._sum())
        self.expect_sign(")")
        least, most, function = made
        if not least <= len(arguments) <= most:
            self.invalid(f"{name} does not take {len(arguments)} arguments", offset)
        return function(arguments)

    def _cast_value(self, offset: int) -> Value:
        value = self._sum()
        self.expect_word("as")
        token = self.next()
        target = _CASTS.get(token.text.lower())
        if token.text.lower() == "decimal":
            sizes = self.sizes()
            target = pa.decimal128(*(sizes or [10]), *([0] if len(sizes) < 2 else []))
        if target is None:
            self.unsupported(f"a cast to {token.text}", offset)
        self.expect_sign(")")
        return lambda table: _cast(value(table), target)

    # Tests of values that are no columns

    def operand(self, negated: bool) -> Predicate | Operand:
        """Return what stands on one side of a test here: as in a filter, or a value that is
        computed.
        """
        offset = self.token.offset
        first: Predicate | Operand
        if self._begins_a_value():
            first = _Computed("", offset, self._signed_value())
        else:
            first = super().operand(negated)
        if self.token.kind != "sign" or self.token.text not in _SUMS + _PRODUCTS:
            return first
        product = self._chain(_PRODUCTS, self._signed_value, self._value(first, offset))
        return _Computed("", offset, self._chain(_SUMS, self._product, product))

    def _begins_a_value(self) -> bool:
        """Return whether what comes next is computed, which a filter would not know."""
        token, after = self.token, self.after if self.token.kind != "end" else self.token
        if token.kind == "sign":
            return token.text in ("-", "+") and after.kind in ("word", "quoted")
        if token.kind != "word" or after.text != "(":
            return self.is_word("case")
        word = token.text.lower()
        if word == "cast":
            inner = self._tokens[self._at + 2]
            return inner.kind == "quoted" or (
                inner.kind == "word" and inner.text.lower() not in ("null", "true", "false")
            )
        return word == "if" or word in _FUNCTIONS

    def _comparison(self, left: Operand, op: str, right: Operand) -> Predicate:
        computed = isinstance(left, _Computed) or isinstance(right, _Computed)
        if computed or (isinstance(left, Column) and isinstance(right, Column)):
            return self._compared(left, op, right)
        return super()._comparison(left, op, right)

    def _leaf(self, column: Column, op: str, value: Literal) -> Leaf | Compared:  # type: ignore[override]
        if not isinstance(column, _Computed):
            return super()._leaf(column, op, value)
        if op == "is null":
            return self._compared(column, "<=>", value)
        if op not in COMPARISONS:
            self.unsupported(f"{op.upper()} after a value that is computed", column.offset)
        return self._compared(column, op, value)

    def _column_of(self, argument: Predicate | Operand, start: int) -> Column:
        if isinstance(argument, _Computed):
            self.unsupported("a function of what is no column", start)
        return super()._column_of(argument, start)

    def _compared(self, left: Operand, op: str, right: Operand) -> Compared:
        a, b = (side.name if isinstance(side, Column) else "" for side in (left, right))
        return Compared(
            self.text, op, self._value(left, left.offset), self._value(right, right.offset), (a, b)
        )


def _scalar(value: Any) -> pa.Scalar:
    if not isinstance(value, int) or isinstance(value, bool):
        return pa.scalar(value)
    if not -_INT64 <= value < _INT64:
        return pa.scalar(Decimal(value))
    return pa.scalar(value, pa.int32() if -_INT32 <= value < _INT32 else pa.int64())


def _cast(found: Datum, target: pa.DataType) -> Datum:
    if pa.types.is_floating(found.type) and (pa.types.is_integer(target)):
        found = pc.trunc(found)
    if pa.types.is_floating(found.type) and pa.types.is_string(target):
        raise Invalid("a floating-point number is not cast to text here")
    if pa.types.is_integer(found.type) and pa.types.is_decimal(target):
        # wide enough for Arrow, whatever the values are
        found = pc.cast(found, pa.decimal128(38, target.scale))
    if pa.types.is_decimal(found.type) and pa.types.is_floating(target):
        return as_floating(found, target)
    return pc.cast(found, target, safe=not pa.types.is_floating(target))


Function = Callable[[list[Value]], Value]


def _each(kernel: Callable[..., Any], type: pa.DataType) -> Function:
    """Return a function of one argument; ``type``: what null is here."""

    def made(arguments: list[Value]) -> Value:
        def found(table: pa.Table) -> Datum:
            one = arguments[0](table)
            return kernel(pc.cast(one, type) if pa.types.is_null(one.type) else one)

        return found

    return made


def _among(op: str) -> Function:
    """Return a function that gives the first of its arguments which is ``op`` all others; nulls are
    left out, NaN is above everything.
    """

    def better(a: Datum, b: Datum) -> Datum:
        return pc.if_else(pc.or_(pc.is_null(a), pc.fill_null(compared(op, b, a), False)), b, a)

    def made(arguments: list[Value]) -> Value:
        return lambda table: reduce(better, arithmetic.promoted(*(one(table) for one in arguments)))

    return made


def _nullif(arguments: list[Value]) -> Value:
    def found(table: pa.Table) -> Datum:
        one, other = (argument(table) for argument in arguments)
        same = pc.fill_null(compared("=", one, other), False)
        return pc.if_else(same, pa.scalar(None, one.type), one)

    return found


_MANY = 100
# upper and lower map letter by letter, so ß stays one letter, where Spark's upper makes two of it.
_FUNCTIONS: Mapping[str, tuple[int, int, Function]] = {
    "coalesce": (1, _MANY, arithmetic.first_known),
    "nullif": (2, 2, _nullif),
    "concat": (1, _MANY, arithmetic.joined),
    "lower": (1, 1, _each(pc.utf8_lower, pa.string())),
    "upper": (1, 1, _each(pc.utf8_upper, pa.string())),
    "trim": (1, 1, _each(lambda text: pc.utf8_trim(text, " "), pa.string())),
    "length": (1, 1, _each(pc.utf8_length, pa.string())),
    "abs": (1, 1, _each(pc.abs_checked, pa.int32())),
    "greatest": (2, _MANY, _among(">")),
    "least": (2, _MANY, _among("<")),
}
