"""SQL parser for filters, values of updates, and conditions of merges.

The grammar is Spark's, in ANSI mode. A comparison of a column with a literal becomes a leaf
(:mod:`mdt.filters.sql`), which indexes support. Any other comparison, such as ``a + 1 > b``, is
evaluated on rows (:mod:`mdt.filters.comparison`). Values without columns are folded into literals,
so ``day > current_date() - interval 7 days`` compares with a literal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from indexes import functions, predicate
from indexes.paths import top_levels
from indexes.predicate import Predicate
from mdt.errors import Invalid
from mdt.filters import arithmetic, dates, literals
from mdt.filters.arithmetic import Value
from mdt.filters.comparison import Comparison
from mdt.filters.comparison_kernels import COMPARISONS
from mdt.filters.expression_tree import (
    Among,
    Apply,
    Case,
    Cast,
    Chain,
    Coalesce,
    Constant,
    Expression,
    Field,
    Shift,
)
from mdt.filters.parameters import Parameters
from mdt.filters.scalar_functions import CASTS, FUNCTIONS, MANY, names_hint
from mdt.filters.sql import Column, Conditions, Literal, Operand
from mdt.filters.tokens import NotSql, Token, caret, characters_besides_lists, tokenize
from mdt.limits import WHERE_BYTES_MAX, WHERE_LISTS_BYTES_MAX
from mdt.stores.clock import now_us

_NO_PARAMETERS = "expressions do not support parameters: write a literal, or pass a Python value"
T = TypeVar("T")
_SUMS, _PRODUCTS = ("+", "-", "||"), ("*", "/", "%")
_INT32, _INT64 = 1 << 31, 1 << 63
_COMPUTED_IN_MAX = 1_000
"""Literals in an IN list after an expression, which are compared one after the other."""
_NOW = ("current_timestamp", "current_date", "now")
_TEXT_TESTS = {"ilike": "ilike", "rlike": "regexp_like", "regexp": "regexp_like"}
_NO_ROWS = pa.table({"": pa.nulls(1)})
"""A row without named columns."""


def parse_expression(
    text: Any, schema: pa.Schema, params: Mapping[str, object] | None = None
) -> Value:
    """Parse SQL text into a function from tables with (at least) the columns of ``schema`` to a
    column.

    Raises Invalid and Unsupported with the position in the text. The returned function raises
    Invalid for rows without a value, e.g. after a division by zero.

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
    """Return the result of :func:`parse_expression`, and the columns of ``schema`` that it
    reads.
    """
    parameters = Parameters(params, hint=_NO_PARAMETERS)
    _require_text(text)
    value = _read(text, schema, parameters, Expressions.whole)
    return _GuardedExpression(text, value), top_levels(schema, value.paths())


def parse_condition(
    text: Any, schema: pa.Schema, params: Mapping[str, object] | None = None
) -> tuple[Predicate, frozenset[str]]:
    """Parse SQL text into a predicate. Return it with the columns of ``schema`` that it reads.

    Raises as :func:`parse_expression` does.

    >>> rows = pa.table({"a": [1, 2, None], "b": [0, 2, 4]})
    >>> asked, names = parse_condition("a > b and b + 1 < 9", rows.schema)
    >>> predicate.bind(asked, rows.schema)(rows).to_pylist(), sorted(names)
    ([True, False, False], ['a', 'b'])
    """
    _require_text(text)
    condition = _read(text, schema, Parameters(params), Expressions.run)
    return condition, top_levels(schema, predicate.columns(condition))


def parse_filter(text: str, schema: pa.Schema, parameters: Parameters) -> Predicate:
    """Parse the SQL text of a filter, see :func:`mdt.filters.where.parse_where`."""
    if not text.strip():
        raise Invalid("the filter is empty", hint="leave where out to read every row")
    return _read(text, schema, parameters, Expressions.run, "filter")


def with_fixed_time(text: T, columns: Collection[str] = (), at_us: int | None = None) -> T:
    """Replace ``current_timestamp()`` and ``current_date()`` in SQL text by literals of the current
    time.

    All tasks that receive the text then use the same time. Anything but text, and text above the
    size limit, is returned unchanged.

    columns: Column names. As in Spark, a column takes precedence over a function without brackets.
    at_us: The time in microseconds, or None for the current time.
    """
    if not isinstance(text, str) or _is_too_long(text, len(text)):
        return text
    if not any(word in text.lower() for word in _NOW):
        return text
    try:
        tokens = tokenize(text)
    except NotSql:
        return text
    if at_us is None:
        at_us = now_us()
    seconds, micros = divmod(at_us, 1_000_000)
    now = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    column_names = {name.lower() for name in columns}
    parts, at = list[str](), 0
    for n, token in enumerate(tokens):
        name = token.text.lower()
        if token.kind != "word" or name not in _NOW or (n and tokens[n - 1].text in (".", ":")):
            continue
        following = [token_after.text for token_after in tokens[n + 1 : n + 3]]
        is_called = following == ["(", ")"]
        if not is_called and (name == "now" or name in column_names):
            continue
        literal = f"timestamp'{now:%F %T.%f}'"
        if name == "current_date":
            literal = f"date'{now:%F}'"
        parts += [text[at : token.offset], literal]
        at = token.offset + len(token.text)
        if is_called:
            at = tokens[n + 2].offset + 1
    return "".join([*parts, text[at:]])  # type: ignore[return-value]  # T is text here


def _is_too_long(text: str, size: int) -> bool:
    """Return True if a text of ``size`` bytes exceeds the limit. Long IN lists have a limit of
    their own.
    """
    if size <= WHERE_BYTES_MAX:
        return False
    return size > WHERE_LISTS_BYTES_MAX or characters_besides_lists(text) > WHERE_BYTES_MAX


def _require_text(text: Any) -> None:
    if not isinstance(text, str):
        raise Invalid(
            f"an expression must be text, not {type(text).__name__}",
            hint="e.g. set={'fare': 'fare * 2'}, or values={'fare': 2.0} for Python values",
        )


def _read(
    text: str,
    schema: pa.Schema,
    parameters: Parameters,
    run: Callable[[Expressions], T],
    noun: str = "expression",
) -> T:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Invalid(
            f"the {noun} has a lone surrogate {text[error.start]!a} at character {error.start}"
        ) from None
    if _is_too_long(text, size):
        raise Invalid(
            f"the {noun} has {size} bytes",
            hint=(
                f"the limit is {WHERE_BYTES_MAX}, or {WHERE_LISTS_BYTES_MAX} with long lists of"
                " numbers or texts after IN; pass lists as parameters (id in :ids), or use a join"
            ),
        )
    try:
        result = run(Expressions(with_fixed_time(text, schema.names), schema, parameters))
    except NotSql as error:
        raise Invalid(f"the {noun} is not SQL: {error}{caret(text, error.offset)}") from None
    except RecursionError:
        raise Invalid(f"the {noun} is nested too deeply", hint="write long lists with IN") from None
    parameters.require_all_used()
    return result


@dataclass(frozen=True, slots=True)
class _GuardedExpression:
    """An expression as a function from tables to columns. Its errors contain its text."""

    text: str
    value: Expression

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        try:
            return arithmetic.column_of(rows, self.value(rows))
        except Invalid as error:
            raise Invalid(f"{self.text}: {error.message}", hint=error.hint) from error
        except RecursionError:
            raise Invalid("the expression is nested too deeply") from None
        except arithmetic.FAILURES as error:
            raise Invalid(
                f"{self.text} cannot be evaluated: {error}",
                hint="exclude such rows with case when … then … end",
            ) from error


@dataclass(frozen=True, slots=True)
class _ComputedColumn(Column):
    """An expression in the place of a column. It has no name."""

    value: Expression


class Expressions(Conditions):
    """The parser of a text with expressions."""

    def whole(self) -> Expression:
        """Parse the text as an expression."""
        value = self._sum()
        if self.token.kind != "end":
            self.unexpected()
        return value

    def ends(self) -> bool:
        """Return True if a condition can end at this token."""
        return super().ends() or self.is_word("then") or self.is_sign(",")

    def _sum(self) -> Expression:
        return self._chain(_SUMS, self._product)

    def _product(self) -> Expression:
        return self._chain(_PRODUCTS, self._signed_value)

    def _chain(
        self,
        signs: tuple[str, ...],
        part: Callable[[], Expression],
        first: Expression | None = None,
    ) -> Expression:
        value = part() if first is None else first
        operations: list[tuple[str, Expression]] = []
        while self.token.kind == "sign" and self.token.text in signs:
            sign = self.next().text
            if sign in "+-" and self._begins_an_interval(self.token):
                chain = Chain(value, tuple(operations)) if operations else value
                value, operations = self._with_interval(chain, sign), []
            else:
                operations.append((sign, part()))
        if operations:
            return Chain(value, tuple(operations))
        return value

    def _begins_an_interval(self, token: Token) -> bool:
        """Return True at INTERVAL before a number. A column may have the name interval."""
        if token.kind != "word" or token.text.lower() != "interval":
            return False
        return self._begins_a_number(self._at + 1)

    def _begins_a_number(self, at: int) -> bool:
        """Return True if a number follows, in digits or quotes, with an optional minus."""
        first, second = self._tokens[at], self._tokens[min(at + 1, len(self._tokens) - 1)]
        if first.kind in ("number", "string"):
            return True
        return first.text == "-" and second.kind in ("number", "string")

    def _with_interval(self, value: Expression, sign: str) -> Expression:
        """Parse an interval and add it to a date or timestamp. Several intervals form a single
        node.
        """
        by = self._interval()
        if sign == "-":
            by = by.negated()
        if isinstance(value, Shift):
            return Shift(value.argument, (*value.intervals, by))
        return Shift(value, (by,))

    def _interval(self) -> dates.Interval:
        """Parse INTERVAL '1' DAY, INTERVAL 2 HOURS 30 MINUTES or INTERVAL '1 day'."""
        start, parts = self.next().offset, list[tuple[str, str]]()
        while self.token.kind in ("number", "string") or not parts:
            sign = self.next().text if self.is_sign("-") else ""
            words = (sign + self.next().text).split()
            if len(words) == 1 and self.token.kind == "word":
                words.append(self.next().text)
            if not words or len(words) % 2:
                self.invalid("an interval needs numbers and units, such as 1 day", start)
            parts += zip(words[::2], words[1::2], strict=True)
        try:
            return dates.interval(parts)
        except ValueError as error:
            self.invalid(str(error), start)

    def _signed_value(self) -> Expression:
        if self.is_sign("+"):
            self.next()
            return self._signed_value()
        if self.is_sign("-") and self.after.kind != "number":
            self.next()
            return Apply("negative", (self._signed_value(),))
        return self._atom()

    def _atom(self) -> Expression:
        token = self.token
        if self.take_sign("("):
            return self._bracketed_value(token.offset)
        if self.is_word("case"):
            with self.nested(self.next().offset):
                return self._case()
        if token.kind == "word" and self.after.text == "(":
            with self.nested(token.offset):
                return self._function(self.next().text.lower(), token.offset)
        return self._value(super().operand(False), token.offset)

    def _value(self, operand: Predicate | Operand, offset: int) -> Expression:
        """Return an operand as an expression."""
        if isinstance(operand, _ComputedColumn):
            return operand.value
        if isinstance(operand, Column):
            return Field(operand.name)
        if not isinstance(operand, Literal) or operand.several:
            self.unsupported("a condition where a value is needed", offset)
        try:
            return Constant(_scalar(operand.value, CASTS.get(operand.type)))
        except arithmetic.FAILURES:
            self.invalid("the number has more digits than a decimal supports", offset)

    def _bracketed_value(self, offset: int) -> Expression:
        with self.nested(offset):
            value = self._sum()
            self.expect_sign(")")
        return value

    def _case_of(
        self, branches: list[tuple[Predicate, Expression]], otherwise: Expression | None
    ) -> Case:
        tested = [predicate.columns(test) for test, _ in branches]
        return Case(tuple(branches), otherwise, self._columns(frozenset().union(*tested)))

    def _columns(self, paths: Iterable[str]) -> pa.Schema:
        """Return the schema of the columns that contain ``paths``."""
        names = top_levels(self._schema, paths)
        return pa.schema([field for field in self._schema if field.name in names])

    def _case(self) -> Expression:
        branches = []
        while self.take_word("when"):
            holds = self.condition(self.disjunction(False), False)
            self.expect_word("then")
            branches.append((holds, self._sum()))
        if not branches:
            self.unsupported("CASE without WHEN", self.token.offset)
        otherwise = self._sum() if self.take_word("else") else None
        self.expect_word("end")
        return self._case_of(branches, otherwise)

    def _function(self, name: str, offset: int) -> Expression:
        self.expect_sign("(")
        if name == "cast":
            return self._cast_value(offset)
        if name == "if":
            holds = self.condition(self.disjunction(False), False)
            self.expect_sign(",")
            yes = self._sum()
            self.expect_sign(",")
            no = self._sum()
            self.expect_sign(")")
            return self._case_of([(holds, yes)], no)
        function = FUNCTIONS.get(name)
        if function is None and name != "coalesce":
            self.unsupported(f"the function {name}", offset, names_hint(name))
        arguments = [self._sum()]
        while self.take_sign(","):
            arguments.append(self._sum())
        self.expect_sign(")")
        least, most = (1, MANY) if function is None else (function.least, function.most)
        if not least <= len(arguments) <= most:
            self.invalid(f"{name} does not take {len(arguments)} arguments", offset)
        if function is None:
            return Coalesce(tuple(arguments))
        return Apply(name, tuple(arguments))

    def _cast_value(self, offset: int) -> Expression:
        value = self._sum()
        self.expect_word("as")
        token = self.next()
        target = CASTS.get(token.text.lower())
        if token.text.lower() == "decimal":
            sizes = self.sizes()
            precision, scale = [*(sizes or [10]), 0][:2]
            if not 1 <= precision <= 38 or scale > precision:
                self.invalid("a decimal has 1 to 38 digits", token.offset)
            target = pa.decimal128(precision, scale)
        if target is None:
            self.unsupported(f"a cast to {token.text}", offset)
        self.expect_sign(")")
        return Cast(value, target)

    # Tests of expressions

    def operand(self, negated: bool) -> Predicate | Operand:
        """Parse a side of a comparison: a filter operand or an expression."""
        offset = self.token.offset
        value: Predicate | Operand
        if self._begins_a_value():
            value = _ComputedColumn("", offset, self._signed_value())
        else:
            value = super().operand(negated)
        if self.token.kind == "sign" and self.token.text in _SUMS + _PRODUCTS:
            product = self._chain(_PRODUCTS, self._signed_value, self._value(value, offset))
            value = _ComputedColumn("", offset, self._chain(_SUMS, self._product, product))
        if isinstance(value, _ComputedColumn):
            return self._fold_constants(value)
        return value

    def _fold_constants(self, computed: _ComputedColumn) -> Column | Literal:
        """Return an expression without columns as a literal, which indexes support."""
        if next(computed.value.paths(), None) is not None:
            return computed
        try:
            scalar = arithmetic.column_of(_NO_ROWS, computed.value(_NO_ROWS))[0]
            value = scalar.as_py()
        except Invalid as error:
            self.invalid(error.message, computed.offset, error.hint)
        except arithmetic.FAILURES as error:
            self.invalid(f"this has no value: {error}", computed.offset)
        if isinstance(value, datetime):
            value = value.replace(tzinfo=None)
        name = next((name for name, type in CASTS.items() if type == scalar.type), "")
        return Literal(value, computed.offset, type=name)

    def _begins_a_value(self) -> bool:
        """Return True if an expression follows that is not a filter operand."""
        token = after = self.token
        if token.kind != "end":
            after = self.after
        if token.kind == "sign":
            return token.text in ("-", "+") and self._signs_a_value()
        if token.kind != "word" or after.text != "(":
            return self.is_word("case") and self._begins_a_case()
        word = token.text.lower()
        if word == "cast":
            inner = self._tokens[self._at + 2]
            return inner.kind == "quoted" or (
                inner.kind == "word" and inner.text.lower() not in ("null", "true", "false")
            )
        if word in ("if", "coalesce"):
            return True
        # registered predicate functions take precedence
        return word in FUNCTIONS and isinstance(functions.find(word), functions.Unknown)

    def _signs_a_value(self) -> bool:
        """Return True if a column, bracket or function follows the signs here."""
        at = self._at
        while self._tokens[at].kind == "sign" and self._tokens[at].text in "+-":
            at += 1
        return self._tokens[at].kind in ("word", "quoted") or self._tokens[at].text == "("

    def _begins_a_case(self) -> bool:
        return self.after.kind == "word" and self.after.text.lower() == "when"

    def condition(self, operand: Predicate | Operand, negated: bool) -> Predicate:
        """Return an operand that is not compared as a condition."""
        if not isinstance(operand, _ComputedColumn):
            return super().condition(operand, negated)
        if not self.ends():
            self.unexpected()
        holds = Constant(pa.scalar(True))
        test = self._checked_comparison(operand.offset, "=", operand.value, holds)
        if negated:
            return test.negated()
        return test

    def _comparison(self, left: Operand, op: str, right: Operand) -> Predicate:
        computed = isinstance(left, _ComputedColumn) or isinstance(right, _ComputedColumn)
        if computed or (isinstance(left, Column) and isinstance(right, Column)):
            return self._compare(left, op, right)
        return super()._comparison(left, op, right)

    def _leaf(self, column: Column, op: str, value: Literal) -> Predicate:  # type: ignore[override]
        if not isinstance(column, _ComputedColumn):
            return super()._leaf(column, op, value)
        if op == "is null":
            return self._compare(column, "<=>", value)
        if op == "in" and isinstance(value.value, tuple):
            return self._in_list(column, value)
        if op == "like":
            return self._text_test("like", column, value)
        if op not in COMPARISONS:
            self.unsupported(f"{op.upper()} after an expression", column.offset)
        return self._compare(column, op, value)

    def _in_list(self, column: Column, several: Literal) -> Predicate:
        """Return the test of an expression against a list of literals."""
        items = several.value
        assert isinstance(items, tuple), "IN has a list"
        if len(items) > _COMPUTED_IN_MAX:
            self.unsupported(f"a list of {len(items):,} values after an expression", several.offset)
        value, type = self._value(column, column.offset), self._type_of(column)
        constants = (
            Constant(self._convert_literal(Literal(item, several.offset), type)) for item in items
        )
        test = Among(value, tuple(constants))
        return self._checked_comparison(column.offset, "=", test, Constant(pa.scalar(True)))

    def _word_test(self, operand: Operand, negated: bool) -> Predicate | None:
        """Parse the test that follows, including [NOT] ILIKE and RLIKE. Return None if there is
        none.
        """
        inverted = self.is_word("not")
        word = (self.after if inverted else self.token).text.lower()
        if word not in _TEXT_TESTS or self.token.kind != "word":
            return super()._word_test(operand, negated)
        for _ in range(1 + inverted):
            self.next()
        test = self._text_test(_TEXT_TESTS[word], operand, self._plain_operand())
        if negated != inverted:
            return test.negated()
        return test

    def _text_test(self, function: str, text: Operand, pattern: Operand) -> Comparison:
        """Return the test of a text against a pattern."""
        values = self._value(text, text.offset), self._value(pattern, pattern.offset)
        return self._checked_comparison(
            text.offset, "=", Apply(function, values), Constant(pa.scalar(True))
        )

    def _column_of(self, argument: Predicate | Operand, start: int) -> Column:
        if isinstance(argument, _ComputedColumn):
            self.unsupported("a function of an expression", start)
        return super()._column_of(argument, start)

    def _compare(self, left: Operand, op: str, right: Operand) -> Comparison:
        values = []
        for side, opposite in ((left, right), (right, left)):
            value = self._value(side, side.offset)
            if isinstance(side, Literal) and isinstance(side.value, str):
                value = Constant(self._convert_literal(side, self._type_of(opposite)))
            values.append(value)
        return self._checked_comparison(left.offset, op, *values)

    def _type_of(self, operand: Operand) -> pa.DataType:
        """Return the type of an operand's values."""
        value = self._value(operand, operand.offset)
        try:
            return value(self._columns(value.paths()).empty_table()).type
        except Invalid as error:
            self.invalid(error.message, operand.offset, error.hint)
        except arithmetic.FAILURES as error:
            self.invalid(f"this has no value: {error}", operand.offset)

    def _convert_literal(self, literal: Literal, type: pa.DataType) -> pa.Scalar:
        """Return a literal as a scalar. A text compared with numbers, dates or timestamps is
        parsed, as in Spark.
        """
        value = literal.value
        is_read = pa.types.is_temporal(type) or arithmetic.is_number(type)
        if isinstance(value, str) and is_read:
            try:
                value = literals.converted_for(value, type)
            except ValueError as error:
                self.invalid(str(error), literal.offset)
        constant = self._value(replace(literal, value=value), literal.offset)
        assert isinstance(constant, Constant), "a literal is a constant"
        return constant.scalar

    def _checked_comparison(
        self, offset: int, op: str, left: Expression, right: Expression
    ) -> Comparison:
        """Return a comparison. Raises Invalid if its types cannot be compared."""
        test = Comparison(self.text[offset : self.token.offset].strip(), op, left, right)
        rows = self._columns(test.columns).empty_table()
        try:
            test.bound(rows.schema)(rows)
        except Invalid as error:
            self.invalid(error.message, offset, error.hint)
        return test


def _scalar(value: Any, type: pa.DataType | None) -> pa.Scalar:
    """Return a literal as an Arrow scalar. ``type`` is the type named in the text, if any."""
    if isinstance(value, UUID):
        value = str(value)
    if type is not None:
        return pa.scalar(value, type)
    if isinstance(value, datetime):
        return pa.scalar(value.replace(tzinfo=value.tzinfo or UTC), dates.TIMESTAMP)
    if not isinstance(value, int) or isinstance(value, bool):
        return pa.scalar(value)
    if not -_INT64 <= value < _INT64:
        return pa.scalar(Decimal(value))
    if -_INT32 <= value < _INT32:
        return pa.scalar(value, pa.int32())
    return pa.scalar(value, pa.int64())
