"""SQL text to a condition or a value: filters, the values that updates set, conditions of merges.

The grammar is Spark's, in its ANSI mode.  A test of a column with a literal becomes a leaf
(:mod:`mdt.filters.sql`), which indexes understand; any other comparison of values, such as ``a + 1
> b``, is evaluated on rows (:mod:`mdt.filters.comparison`).  A value without a column is computed
when it is read: ``day > current_date() - interval 7 days`` is a test with a literal.
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
from mdt.filters.comparison import Compared
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
from mdt.filters.scalar_functions import CASTS, FUNCTIONS, MANY
from mdt.filters.sql import Column, Conditions, Literal, Operand
from mdt.filters.tokens import NotSql, Token, caret, characters_besides_lists, tokenize
from mdt.limits import WHERE_BYTES_MAX, WHERE_LISTS_BYTES_MAX
from mdt.stores.clock import now_us

_NO_PARAMETERS = (
    "an expression has no parameters: write a literal, or give the column a value of Python"
)
T = TypeVar("T")
_SUMS, _PRODUCTS = ("+", "-", "||"), ("*", "/", "%")
_INT32, _INT64 = 1 << 31, 1 << 63
_COMPUTED_IN_MAX = 1_000
"""Values that a computed one is compared with, one after the other."""
_NOW = ("current_timestamp", "current_date", "now")
_TEXT_TESTS = {"ilike": "ilike", "rlike": "regexp_like", "regexp": "regexp_like"}
_NO_ROWS = pa.table({"": pa.nulls(1)})
"""One row without a column that anything names."""


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
    _require_text(text)
    value = _read(text, schema, parameters, Expressions.whole)
    return _Guarded(text, value), top_levels(schema, value.paths())


def parse_condition(
    text: Any, schema: pa.Schema, params: Mapping[str, object] | None = None
) -> tuple[Predicate, frozenset[str]]:
    """Return the condition that SQL text is, and the columns of ``schema`` that it reads.

    Raises as :func:`parse_expression` does.

    >>> rows = pa.table({"a": [1, 2, None], "b": [0, 2, 4]})
    >>> asked, names = parse_condition("a > b and b + 1 < 9", rows.schema)
    >>> predicate.bind(asked, rows.schema)(rows).to_pylist(), sorted(names)
    ([True, False, False], ['a', 'b'])
    """
    _require_text(text)
    found = _read(text, schema, Parameters(params), Expressions.run)
    return found, top_levels(schema, predicate.columns(found))


def parse_filter(text: str, schema: pa.Schema, parameters: Parameters) -> Predicate:
    """Return the predicate of a filter, as :func:`mdt.filters.where.parse_where` does."""
    if not text.strip():
        raise Invalid("the filter is empty", hint="leave where out to read every row")
    return _read(text, schema, parameters, Expressions.run, "filter")


def pinned(text: T, columns: Collection[str] = (), at_us: int | None = None) -> T:
    """Return SQL text with ``current_timestamp()`` and ``current_date()`` as literals of now.

    A text that travels to several tasks means the same moment in all of them then.  ``columns``:
    names of columns; a column of that name comes before the function without brackets, as in Spark.
    ``at_us``: the moment, in microseconds; None for the clock's.  Everything but text is returned
    as it is, and so is text that is too long to be read.
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
    taken = {name.lower() for name in columns}
    parts, at = list[str](), 0
    for n, token in enumerate(tokens):
        name = token.text.lower()
        if token.kind != "word" or name not in _NOW or (n and tokens[n - 1].text in (".", ":")):
            continue
        following = [one.text for one in tokens[n + 1 : n + 3]]
        is_called = following == ["(", ")"]
        if not is_called and (name == "now" or name in taken):
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
    """Return whether a text of ``size`` bytes is refused; long lists after IN count apart."""
    if size <= WHERE_BYTES_MAX:
        return False
    return size > WHERE_LISTS_BYTES_MAX or characters_besides_lists(text) > WHERE_BYTES_MAX


def _require_text(text: Any) -> None:
    if not isinstance(text, str):
        raise Invalid(
            f"an expression is text, not {type(text).__name__}",
            hint="set={'fare': 'fare * 2'}; values={'fare': 2.0} takes values",
        )


def _read(
    text: str,
    schema: pa.Schema,
    parameters: Parameters,
    run: Callable[[Expressions], T],
    what: str = "expression",
) -> T:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Invalid(
            f"the {what} holds half a character, {text[error.start]!a}, at {error.start}"
        ) from None
    if _is_too_long(text, size):
        raise Invalid(
            f"the {what} has {size} bytes",
            hint=(
                f"at most {WHERE_BYTES_MAX} are read beside long lists of numbers or texts after"
                f" IN, {WHERE_LISTS_BYTES_MAX} with them; give lists as parameters (id in :ids), or"
                " use a join"
            ),
        )
    try:
        found = run(Expressions(pinned(text, schema.names), schema, parameters))
    except NotSql as error:
        raise Invalid(f"the {what} is not SQL: {error}{caret(text, error.offset)}") from None
    except RecursionError:
        raise Invalid(f"the {what} nests too deeply", hint="write long lists with IN") from None
    parameters.require_all_used()
    return found


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A value as a column of the table, whose errors name its text."""

    text: str
    value: Expression

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        try:
            return arithmetic.column_of(rows, self.value(rows))
        except Invalid as error:
            raise Invalid(f"{self.text}: {error.message}", hint=error.hint) from error
        except RecursionError:
            raise Invalid("the expression nests too deeply") from None
        except arithmetic.FAILURES as error:
            raise Invalid(
                f"{self.text} has no value: {error}",
                hint="case when … then … leaves such rows out",
            ) from error


@dataclass(frozen=True, slots=True)
class _Computed(Column):
    """A value that is no column and no literal, where a test has a column; it has no name."""

    value: Expression


class Expressions(Conditions):
    """One SQL text on its way to a value, or to a condition."""

    def whole(self) -> Expression:
        """Return the value of the whole text."""
        found = self._sum()
        if self.token.kind != "end":
            self.unexpected()
        return found

    def ends(self) -> bool:
        """Return whether a condition may end here."""
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
        found = part() if first is None else first
        rest: list[tuple[str, Expression]] = []
        while self.token.kind == "sign" and self.token.text in signs:
            sign = self.next().text
            if sign in "+-" and self._begins_an_interval(self.token):
                chain = Chain(found, tuple(rest)) if rest else found
                found, rest = self._shifted(chain, sign), []
            else:
                rest.append((sign, part()))
        if rest:
            return Chain(found, tuple(rest))
        return found

    def _begins_an_interval(self, token: Token) -> bool:
        """Return whether INTERVAL and a number follow, not a column that is called so."""
        if token.kind != "word" or token.text.lower() != "interval":
            return False
        return self._begins_a_number(self._at + 1)

    def _begins_a_number(self, at: int) -> bool:
        """Return whether a number in digits or quotes stands at a token, after a minus or not."""
        first, second = self._tokens[at], self._tokens[min(at + 1, len(self._tokens) - 1)]
        if first.kind in ("number", "string"):
            return True
        return first.text == "-" and second.kind in ("number", "string")

    def _shifted(self, value: Expression, sign: str) -> Expression:
        """Return a date or time plus the interval here; several intervals are one node."""
        by = self._interval()
        if sign == "-":
            by = by.negated()
        if isinstance(value, Shift):
            return Shift(value.argument, (*value.intervals, by))
        return Shift(value, (by,))

    def _interval(self) -> dates.Interval:
        """Return INTERVAL '1' DAY, INTERVAL 2 HOURS 30 MINUTES or INTERVAL '1 day'."""
        start, parts = self.next().offset, list[tuple[str, str]]()
        while self.token.kind in ("number", "string") or not parts:
            sign = self.next().text if self.is_sign("-") else ""
            words = (sign + self.next().text).split()
            if len(words) == 1 and self.token.kind == "word":
                words.append(self.next().text)
            if not words or len(words) % 2:
                self.invalid("an interval is a number and a unit, as in 1 day", start)
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
            return self._deeper(token.offset)
        if self.is_word("case"):
            with self.nested(self.next().offset):
                return self._case()
        if token.kind == "word" and self.after.text == "(":
            with self.nested(token.offset):
                return self._function(self.next().text.lower(), token.offset)
        return self._value(super().operand(False), token.offset)

    def _value(self, found: Predicate | Operand, offset: int) -> Expression:
        """Return the value that an operand is."""
        if isinstance(found, _Computed):
            return found.value
        if isinstance(found, Column):
            return Field(found.name)
        if not isinstance(found, Literal) or found.several:
            self.unsupported("a condition where a value is needed", offset)
        try:
            return Constant(_scalar(found.value, CASTS.get(found.type)))
        except arithmetic.FAILURES:
            self.invalid("a number of more digits than a decimal has", offset)

    def _deeper(self, offset: int) -> Expression:
        with self.nested(offset):
            found = self._sum()
            self.expect_sign(")")
        return found

    def _made_case(
        self, branches: list[tuple[Predicate, Expression]], otherwise: Expression | None
    ) -> Case:
        tested = [predicate.columns(test) for test, _ in branches]
        return Case(tuple(branches), otherwise, self._columns(frozenset().union(*tested)))

    def _columns(self, paths: Iterable[str]) -> pa.Schema:
        """Return the columns to read for ``paths``."""
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
        return self._made_case(branches, otherwise)

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
            return self._made_case([(holds, yes)], no)
        function = FUNCTIONS.get(name)
        if function is None and name != "coalesce":
            self.unsupported(f"the function {name}", offset)
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
        if self.token.kind == "sign" and self.token.text in _SUMS + _PRODUCTS:
            product = self._chain(_PRODUCTS, self._signed_value, self._value(first, offset))
            first = _Computed("", offset, self._chain(_SUMS, self._product, product))
        if isinstance(first, _Computed):
            return self._folded(first)
        return first

    def _folded(self, found: _Computed) -> Column | Literal:
        """Return a value that depends on no column as a literal, which indexes understand."""
        if next(found.value.paths(), None) is not None:
            return found
        try:
            scalar = arithmetic.column_of(_NO_ROWS, found.value(_NO_ROWS))[0]
            plain = scalar.as_py()
        except Invalid as error:
            self.invalid(error.message, found.offset, error.hint)
        except arithmetic.FAILURES as error:
            self.invalid(f"this has no value: {error}", found.offset)
        if isinstance(plain, datetime):
            plain = plain.replace(tzinfo=None)
        name = next((name for name, type in CASTS.items() if type == scalar.type), "")
        return Literal(plain, found.offset, type=name)

    def _begins_a_value(self) -> bool:
        """Return whether what comes next is computed, which a filter would not know."""
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
        # a predicate function of somebody's own comes first
        return word in FUNCTIONS and isinstance(functions.find(word), functions.Unknown)

    def _signs_a_value(self) -> bool:
        """Return whether a column, a bracket or a function follows the signs here."""
        at = self._at
        while self._tokens[at].kind == "sign" and self._tokens[at].text in "+-":
            at += 1
        return self._tokens[at].kind in ("word", "quoted") or self._tokens[at].text == "("

    def _begins_a_case(self) -> bool:
        return self.after.kind == "word" and self.after.text.lower() == "when"

    def condition(self, found: Predicate | Operand, negated: bool) -> Predicate:
        """Return the condition that an operand is, if nothing tests it."""
        if not isinstance(found, _Computed):
            return super().condition(found, negated)
        if not self.ends():
            self.unexpected()
        holds = Constant(pa.scalar(True))
        test = self._tested(found.offset, "=", found.value, holds)
        if negated:
            return test.negated()
        return test

    def _comparison(self, left: Operand, op: str, right: Operand) -> Predicate:
        computed = isinstance(left, _Computed) or isinstance(right, _Computed)
        if computed or (isinstance(left, Column) and isinstance(right, Column)):
            return self._compared(left, op, right)
        return super()._comparison(left, op, right)

    def _leaf(self, column: Column, op: str, value: Literal) -> Predicate:  # type: ignore[override]
        if not isinstance(column, _Computed):
            return super()._leaf(column, op, value)
        if op == "is null":
            return self._compared(column, "<=>", value)
        if op == "in" and isinstance(value.value, tuple):
            return self._among(column, value)
        if op == "like":
            return self._text_test("like", column, value)
        if op not in COMPARISONS:
            self.unsupported(f"{op.upper()} after a value that is computed", column.offset)
        return self._compared(column, op, value)

    def _among(self, column: Column, several: Literal) -> Predicate:
        """Return whether a computed value is one of several literals."""
        given = several.value
        assert isinstance(given, tuple), "IN has a list"
        if len(given) > _COMPUTED_IN_MAX:
            self.unsupported(
                f"a list of {len(given):,} values after a value that is computed", several.offset
            )
        value, type = self._value(column, column.offset), self._type_of(column)
        constants = (Constant(self._fitted(Literal(one, several.offset), type)) for one in given)
        test = Among(value, tuple(constants))
        return self._tested(column.offset, "=", test, Constant(pa.scalar(True)))

    def _worded(self, left: Operand, negated: bool) -> Predicate | None:
        """Return the test that follows, [NOT] ILIKE and RLIKE included; None if none does."""
        inverted = self.is_word("not")
        word = (self.after if inverted else self.token).text.lower()
        if word not in _TEXT_TESTS or self.token.kind != "word":
            return super()._worded(left, negated)
        for _ in range(1 + inverted):
            self.next()
        found = self._text_test(_TEXT_TESTS[word], left, self._side())
        if negated != inverted:
            return found.negated()
        return found

    def _text_test(self, function: str, text: Operand, pattern: Operand) -> Compared:
        """Return whether a text matches a pattern."""
        values = self._value(text, text.offset), self._value(pattern, pattern.offset)
        return self._tested(text.offset, "=", Apply(function, values), Constant(pa.scalar(True)))

    def _column_of(self, argument: Predicate | Operand, start: int) -> Column:
        if isinstance(argument, _Computed):
            self.unsupported("a function of what is no column", start)
        return super()._column_of(argument, start)

    def _compared(self, left: Operand, op: str, right: Operand) -> Compared:
        values = []
        for side, other in ((left, right), (right, left)):
            value = self._value(side, side.offset)
            if isinstance(side, Literal) and isinstance(side.value, str):
                value = Constant(self._fitted(side, self._type_of(other)))
            values.append(value)
        return self._tested(left.offset, op, *values)

    def _type_of(self, operand: Operand) -> pa.DataType:
        """Return the type of an operand's values."""
        value = self._value(operand, operand.offset)
        try:
            return value(self._columns(value.paths()).empty_table()).type
        except Invalid as error:
            self.invalid(error.message, operand.offset, error.hint)
        except arithmetic.FAILURES as error:
            self.invalid(f"this has no value: {error}", operand.offset)

    def _fitted(self, literal: Literal, type: pa.DataType) -> pa.Scalar:
        """Return a literal; a text beside numbers, dates or times is read as one, as in Spark."""
        value = literal.value
        is_read = pa.types.is_temporal(type) or arithmetic.is_number(type)
        if isinstance(value, str) and is_read:
            try:
                value = literals.fitted(value, type)
            except ValueError as error:
                self.invalid(str(error), literal.offset)
        constant = self._value(replace(literal, value=value), literal.offset)
        assert isinstance(constant, Constant), "a literal is a constant"
        return constant.scalar

    def _tested(self, offset: int, op: str, left: Expression, right: Expression) -> Compared:
        """Return the comparison, refused here if values of these types are not compared."""
        test = Compared(self.text[offset : self.token.offset].strip(), op, left, right)
        rows = self._columns(test.columns).empty_table()
        try:
            test.bound(rows.schema)(rows)
        except Invalid as error:
            self.invalid(error.message, offset, error.hint)
        return test


def _scalar(value: Any, type: pa.DataType | None) -> pa.Scalar:
    """Return a literal as a value of Arrow; ``type``: the one that the text names, if any."""
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
