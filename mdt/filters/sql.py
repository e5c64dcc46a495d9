"""Recursive-descent parser for tests of columns with literals. :mod:`mdt.filters.expression` adds
expressions.

Precedence is Spark's: OR, AND, NOT, comparison. Operands are columns, literals, parameters and
calls. Each test becomes a leaf as soon as it is parsed. ``negated`` is passed down, so that a
condition yields either the rows where it is true or the rows where it is false. SQL's unknown is in
neither.

SQL that mdt does not evaluate raises Unsupported, and text that is not SQL raises Invalid, both
with the position. A filter is never weakened silently. Timestamps without a zone are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from indexes import functions, paths, predicate
from indexes.like import quote_like
from indexes.predicate import And, Call, Leaf, Or, Predicate, Unknown
from mdt.arguments import backquoted
from mdt.errors import Invalid, Unsupported
from mdt.filters import literals
from mdt.filters.arithmetic import is_number, is_text
from mdt.filters.leaves import column_name, leaf
from mdt.filters.parameters import Parameters
from mdt.filters.scalar_functions import names_hint
from mdt.filters.tokens import (
    BEYOND,
    RESERVED,
    Cursor,
    caret,
    list_items,
)
from mdt.limits import LITERALS_MAX, WHERE_DEPTH_MAX

_COMPARISONS = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "<=>",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TYPES = {
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "decimal": "decimal",
    "dec": "decimal",
    "numeric": "decimal",
    "boolean": "boolean",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp_ltz",
    "timestamp_ntz": "timestamp_ntz",
}
"""Maps names of types to the names in ``literals.cast``."""
_TYPED_LITERALS = frozenset(("x", "date", "timestamp", "timestamp_ltz", "timestamp_ntz"))
_CONSTANTS = {"null": None, "true": True, "false": False}
_FILTER_FUNCTIONS = ("contains", "endswith", "match", "startswith")
"""Functions that only filters have, because indexes understand them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the schema, or the path of a struct field."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal, or the list value of a parameter (``several``).

    type: Its SQL type such as "bigint" for 5L, or "" if the value determines it.
    """

    value: object
    offset: int
    several: bool = False
    type: str = ""


Operand = Column | Literal
_PREDICATES = (Leaf, And, Or, Unknown)


class Conditions(Cursor):
    """The parser of a text with conditions."""

    def __init__(self, text: str, schema: pa.Schema, parameters: Parameters) -> None:
        super().__init__(text)
        self._schema = schema
        self._parameters = parameters
        self._depth = 0

    def run(self) -> Predicate:
        """Parse the whole text as a predicate."""
        whole = self.condition(self.disjunction(False), False)
        if self.token.kind != "end":
            self.unexpected()
        return whole

    # Conditions: each method returns the rows where it is true, or false if ``negated``. An operand
    # without a comparison is returned as it is, since a comparison may follow: (a) = 1.

    def disjunction(self, negated: bool) -> Predicate | Operand:
        """Parse a condition, or an operand that is not compared."""
        return self._combine("or", self._conjunction, negated)

    def _conjunction(self, negated: bool) -> Predicate | Operand:
        return self._combine("and", self._negation, negated)

    def _combine(
        self, word: str, part: Callable[[bool], Predicate | Operand], negated: bool
    ) -> Predicate | Operand:
        first = part(negated)
        if not self.is_word(word):
            return first
        children = [self.condition(first, negated)]
        while self.take_word(word):
            children.append(self.condition(part(negated), negated))
        if (word == "or") == negated:
            return And(tuple(children))
        return Or(tuple(children))

    def _negation(self, negated: bool) -> Predicate | Operand:
        if not self._take_not():
            return self._test(negated)
        negated = not negated
        while self._take_not():
            negated = not negated
        return self.condition(self._test(negated), negated)

    def condition(self, operand: Predicate | Operand, negated: bool) -> Predicate:
        """Return an operand that is not compared as a condition: a boolean column or literal."""
        if isinstance(operand, _PREDICATES):
            return operand
        if not self.ends():
            self.unexpected()
        if isinstance(operand, Column):
            type = paths.type_at(self._schema, operand.name)
            if not pa.types.is_boolean(type):
                message = f"column {operand.name!r} has type {type} and is not a condition"
                self.invalid(message, operand.offset, "compare it with a value")
            positive = self._leaf(operand, "=", Literal(True, operand.offset))
            if negated:
                return predicate.negate(positive)
            return positive
        if isinstance(operand, Literal):
            if operand.value is None:
                return Or(())
            if not isinstance(operand.value, bool):
                self.unsupported("a literal as a condition", operand.offset)
            if operand.value != negated:
                return And(())
            return Or(())
        raise AssertionError(operand)

    def ends(self) -> bool:
        """Return True if a condition can end at this token."""
        token = self.token
        return token.kind == "end" or token.text == ")" or self.is_word("and") or self.is_word("or")

    def _take_not(self) -> bool:
        return self.take_word("not") or self.take_sign("!")

    def _test(self, negated: bool) -> Predicate | Operand:
        left = self.operand(negated)
        if isinstance(left, _PREDICATES):
            return left
        op = _COMPARISONS.get(self.token.text) if self.token.kind == "sign" else None
        if op is None:
            return self._word_test(left, negated) or left
        self.next()
        test = self._comparison(left, op, self._plain_operand())
        if negated:
            return predicate.negate(test)
        return test

    # Tests of a column

    def _comparison(self, left: Operand, op: str, right: Operand) -> Predicate:
        if isinstance(left, Literal) and isinstance(right, Column):
            left, right, op = right, left, _MIRRORED.get(op, op)
        if isinstance(left, Column) and isinstance(right, Literal):
            return self._leaf(left, op, right)
        for side in (left, right):
            # other SQL dialects quote columns with double quotes
            name = side.value if isinstance(side, Literal) else None
            if isinstance(name, str) and name in self._schema.names:
                hint = f"write the column as {backquoted(name)}"
                self.invalid(f"{name!r} is text here, not a column", side.offset, hint)
        self.unsupported("a comparison of two literals", left.offset)

    def _word_test(self, operand: Operand, negated: bool) -> Predicate | None:
        """Parse [NOT] BETWEEN, IN, LIKE or IS. Return None if none of them follows."""
        if self.token.kind != "word":
            return None
        if self.take_word("is"):
            return self._is(operand, negated)
        inverted = self.take_word("not")
        for word, test in (
            ("between", self._between),
            ("in", self._membership),
            ("like", self._like),
        ):
            if self.take_word(word):
                if isinstance(operand, Literal):
                    self.unsupported(f"a literal before {word.upper()}", operand.offset)
                if negated != inverted:
                    return predicate.negate(test(operand))
                return test(operand)
        if inverted:
            self.unexpected()
        return None

    def _is(self, operand: Operand, negated: bool) -> Predicate:
        if isinstance(operand, Literal):
            self.unsupported("a literal before IS", operand.offset)
        negated ^= self.take_word("not")
        if self.take_word("distinct"):
            self.expect_word("from")
            test, negated = self._comparison(operand, "<=>", self._plain_operand()), not negated
        elif self.is_word("null"):
            test = self._leaf(operand, "is null", Literal(None, self.next().offset))
        elif self.is_word("true") or self.is_word("false"):
            token = self.next()
            test = self._leaf(operand, "<=>", Literal(token.text.lower() == "true", token.offset))
        else:
            self.unexpected()
        if negated:
            return predicate.negate(test)
        return test

    def _between(self, column: Column) -> Predicate:
        low = self._plain_operand()
        self.expect_word("and")
        return And(
            (
                self._comparison(column, ">=", low),
                self._comparison(column, "<=", self._plain_operand()),
            )
        )

    def _like(self, column: Column) -> Predicate:
        return self._leaf(column, "like", self._literal())

    def _membership(self, column: Column) -> Predicate:
        start, items = self.token.offset, list[object]()
        if self.token.kind == "list":
            items = [*list_items(self.next())]
        elif self.is_sign(":"):
            items = list(self._values_of_list(self._parameter()))
        else:
            self.expect_sign("(")
            if self.is_sign(")"):
                self.invalid("the list after IN is empty", self.token.offset)
            items = list(self._values_of_list(self._plain_operand()))
            while self.take_sign(","):
                items += self._values_of_list(self._plain_operand())
            self.expect_sign(")")
        if len(items) > LITERALS_MAX:
            self.invalid(
                f"IN has {len(items)} values",
                start,
                f"the limit is {LITERALS_MAX}; use a join",
            )
        return self._leaf(column, "in", Literal(tuple(items), start, True))

    def _values_of_list(self, operand: Operand) -> tuple[object, ...]:
        if not isinstance(operand, Literal):
            self.unsupported("a column in the list after IN", operand.offset)
        if isinstance(operand.value, tuple) and operand.several:
            return operand.value
        return (operand.value,)

    def _leaf(self, column: Column, op: str, value: Literal) -> Leaf:
        """Return a leaf. An invalid literal raises Invalid with its position."""
        if value.several and op != "in":
            self.invalid("the parameter is a list", value.offset, "compare it with IN")
        try:
            return leaf(column.name, op, value.value, self._schema)
        except ValueError as error:
            self.invalid(str(error), value.offset, self._literal_hint(column, value.value))

    def _literal_hint(self, column: Column, value: object) -> str:
        """Return a hint for an integer that is compared with a column of another type, or ""."""
        type = paths.type_at(self._schema, column.name)
        if not isinstance(value, int) or isinstance(value, bool):
            return ""
        if is_text(type):
            return f"text needs quotes: '{value}'"
        if pa.types.is_date(type) or pa.types.is_timestamp(type):
            return "dates need quotes: '2024-01-31'"
        return ""

    # Operands

    def _plain_operand(self) -> Operand:
        """Parse an operand, refusing conditions."""
        start = self.token.offset
        side = self.operand(False)
        if isinstance(side, (Column, Literal)):
            return side
        self.unsupported("a condition where a value is needed", start)

    def _literal(self) -> Literal:
        side = self._plain_operand()
        if isinstance(side, Literal):
            return side
        self.unsupported("a column where a literal is needed", side.offset)

    def operand(self, negated: bool) -> Predicate | Operand:
        """Parse an operand, a condition in brackets, or a call."""
        token = self.token
        result: Predicate | Operand
        if token.kind == "word":
            result = self._word(negated)
        elif token.kind == "quoted":
            result = self.column()
        elif token.kind == "string":
            result = Literal(self._string(), token.offset)
        elif token.kind == "number":
            result = self._number(False)
        elif token.text == "(":
            result = self._brackets(negated)
        elif token.text in ("-", "+"):
            result = self._signed_number()
        elif token.text == ":":
            result = self._parameter()
        else:
            self.missing()
        while self.is_sign("::"):
            self.next()
            result = self._cast(result, token.offset)
        return result

    def _brackets(self, negated: bool) -> Predicate | Operand:
        with self.nested(self.next().offset):
            inner = self.disjunction(negated)
            self.expect_sign(")")
        return inner

    @contextmanager
    def nested(self, offset: int) -> Iterator[None]:
        """Track the nesting depth of a bracket, call or CASE at ``offset``, and refuse too many
        levels.
        """
        self._depth += 1
        if self._depth > WHERE_DEPTH_MAX:
            self.invalid("the text is nested too deeply", offset, "write long lists with IN")
        yield
        self._depth -= 1

    def _word(self, negated: bool) -> Predicate | Operand:
        token, after = self.token, self.after
        word = token.text.lower()
        if word in _CONSTANTS:
            self.next()
            return Literal(_CONSTANTS[word], token.offset)
        if after.kind == "string" and word in _TYPED_LITERALS:
            self.next()
            return self._parsed_literal(
                lambda: literals.typed_literal(word, self._string()), token.offset
            )
        if after.kind == "sign" and after.text == "(":
            result = self._call(word)
            if negated and isinstance(result, _PREDICATES):
                return predicate.negate(result)
            return result
        if word in RESERVED:
            self.missing()
        return self.column()

    def column(self) -> Column:
        """Parse the name of a column."""
        start, at = self.token, self._at
        parts = [self.next().text]
        while self.take_sign("."):
            if self.token.kind not in ("word", "quoted"):
                self.unexpected()
            parts.append(self.next().text)
        if self.is_sign("("):
            self.unsupported("a function of this name", start.offset)
        try:
            return Column(column_name(".".join(parts), self._schema), start.offset)
        except Invalid as error:
            if len(parts) == 1 and start.kind == "word" and parts[0].lower() in BEYOND:
                self.unsupported(f"{parts[0].upper()} in a filter", start.offset)
            hint = error.hint
            if len(parts) == 1 and start.kind == "word" and self._is_compared(at):
                near = f"{hint} " if hint.startswith("did you mean") else ""
                hint = f"{near}text needs quotes: '{start.text}'"
            self.invalid(error.message, start.offset, hint)

    def _is_compared(self, at: int) -> bool:
        """Return True if the word at a token is compared with a column that is not a number."""
        before, after = self._tokens[max(at - 1, 0)], self._tokens[at + 1]
        if at and before.kind == "word":
            return before.text.lower() in ("like", "ilike", "rlike", "regexp")
        if before.text in _COMPARISONS:
            return self._is_text(self._path_until(at - 2))
        if after.text in _COMPARISONS and self._tokens[at + 2].kind in ("word", "quoted"):
            return self._is_text(self._tokens[at + 2].text)
        while at and (before.text in "(," or before.kind in ("word", "string", "number")):
            at, before = at - 1, self._tokens[max(at - 2, 0)]
            if self._tokens[at].text.lower() == "in":
                return True
        return False

    def _path_until(self, at: int) -> str:
        """Return the path of the column that ends at a token."""
        path = self._tokens[at].text
        while at >= 2 and self._tokens[at - 1].text == ".":
            at -= 2
            path = f"{self._tokens[at].text}.{path}"
        return path

    def _is_text(self, path: str) -> bool:
        """Return True for a column that is not a number, and for an expression."""
        if path == ")":
            return True
        try:
            type = paths.type_at(self._schema, column_name(path, self._schema))
        except Invalid:
            return False
        return not is_number(type)

    def _string(self) -> str:
        """Parse a string. Adjacent strings are concatenated."""
        text = self.next().text
        while self.token.kind == "string":
            text += self.next().text
        return text

    def _number(self, negative: bool) -> Literal:
        token = self.next()
        literal = self._parsed_literal(lambda: literals.number(token.text, negative), token.offset)
        return replace(literal, type=literals.suffix_type(token.text))

    def _signed_number(self) -> Literal:
        """Parse a number with signs. The last sign is part of the number, so -128Y is a tinyint."""
        start, negative = self.token.offset, False
        while self.is_sign("-") or self.is_sign("+"):
            negative ^= self.next().text == "-"
        if self.token.kind == "number":
            return self._number(negative)
        side = self._plain_operand()
        value = side.value if isinstance(side, Literal) else None
        if isinstance(value, bool) or not isinstance(value, literals.NUMBERS):
            self.unsupported("a sign before anything but a number", start)
        if negative:
            value = literals.negate(value)
        return Literal(value, start)

    def _parameter(self) -> Literal:
        offset = self.next().offset
        token = self.token
        if token.kind != "word" or token.offset != offset + 1:
            self.invalid("the name of a parameter is missing", offset, "write :name")
        self.next()
        try:
            value = self._parameters.value(token.text)
        except Invalid as error:
            self.invalid(error.message, offset, error.hint)
        return Literal(value, offset, isinstance(value, tuple))

    def _parsed_literal(self, make: Callable[[], literals.Value], offset: int) -> Literal:
        try:
            return Literal(make(), offset)
        except ValueError as error:
            self.invalid(str(error), offset)
        except literals.NoSuchCast:
            self.unsupported("this cast", offset)

    # Calls

    def _call(self, word: str) -> Predicate | Operand:
        start = self.next().offset
        if word in ("cast", "try_cast"):
            return self._cast_call(start, lenient=word == "try_cast")
        arguments = self._arguments()
        if word in _TYPES and len(arguments) == 1:
            return self._parsed_literal(
                lambda: literals.cast(self._value_of(arguments[0]), _TYPES[word]), start
            )
        if word == "match":
            return self._match(arguments, start)
        if word in ("startswith", "endswith", "contains") and len(arguments) == 2:
            return self._part_test(word, arguments)
        return self._registered_call(word, arguments, start)

    def _arguments(self) -> list[Predicate | Operand]:
        self.expect_sign("(")
        arguments: list[Predicate | Operand] = []
        while not self.take_sign(")"):
            if arguments:
                self.expect_sign(",")
            arguments.append(self.operand(False))
        return arguments

    def _match(self, arguments: list[Predicate | Operand], start: int) -> Leaf:
        if len(arguments) not in (2, 3):
            hint = "e.g. match(note, 'all of these words') or match(note, 'part', 'ngram(3)')"
            self.invalid(f"match takes 2 or 3 arguments, not {len(arguments)}", start, hint)
        text, *tokenizer = (self._value_of(argument) for argument in arguments[1:])
        value = (text, *tokenizer) if tokenizer and text is not None else text
        last = arguments[-1]
        assert isinstance(last, Literal)
        return self._leaf(
            self._column_of(arguments[0], start), "match", Literal(value, last.offset)
        )

    def _part_test(self, word: str, arguments: list[Predicate | Operand]) -> Leaf:
        value = self._value_of(arguments[1])
        assert isinstance(arguments[1], Literal)
        op, offset = "starts with" if word == "startswith" else "like", arguments[1].offset
        if op == "like" and isinstance(value, str):
            value = f"%{quote_like(value)}{'%' if word == 'contains' else ''}"
        return self._leaf(self._column_of(arguments[0], offset), op, Literal(value, offset))

    def _registered_call(self, word: str, arguments: list[Predicate | Operand], start: int) -> Call:
        """Parse a call of a registered predicate function (``indexes.functions``): columns first,
        then literals.
        """
        function = functions.find(word)
        if isinstance(function, functions.Unknown):
            hint = names_hint(word, _FILTER_FUNCTIONS)
            raise Unsupported(function.reason + caret(self.text, start), hint=hint)
        names = [
            self._column_of(argument, start).name for argument in arguments[: function.columns]
        ]
        constants = [self._value_of(argument) for argument in arguments[function.columns :]]
        try:
            if len(names) < function.columns:
                raise ValueError(f"it takes {function.columns} columns: {function.usage}")
            test = predicate.call(function.name, names, function.convert_arguments(constants))
            predicate.check(test, self._schema)
        except ValueError as error:
            self.invalid(f"{function.name}: {error}", start)
        return test

    def _column_of(self, argument: Predicate | Operand, start: int) -> Column:
        if isinstance(argument, Column):
            return argument
        self.unsupported("a function of a literal", start)

    def _value_of(self, argument: Predicate | Operand) -> literals.Value:
        if isinstance(argument, Literal) and not argument.several:
            return argument.value  # type: ignore[return-value]  # not a list, so a literal
        self.unsupported("a function with this argument", self._tokens[self._at - 1].offset)

    def _cast_call(self, start: int, lenient: bool) -> Literal:
        self.expect_sign("(")
        value = self.operand(False)
        self.expect_word("as")
        literal = self._cast(value, start, lenient)
        self.expect_sign(")")
        return literal

    def _cast(self, operand: Predicate | Operand, start: int, lenient: bool = False) -> Literal:
        """Parse a type and cast a literal to it."""
        token = self.token
        target = _TYPES.get(token.text.lower()) if token.kind == "word" else None
        if target is None or not isinstance(operand, Literal) or operand.several:
            self.unsupported("a cast of this value, or to this type,", start)
        self.next()
        sizes = self.sizes() if target == "decimal" else []
        value: literals.Value = operand.value  # type: ignore[assignment]  # not a list, so a literal
        try:
            literal = self._parsed_literal(lambda: literals.cast(value, target, *sizes), start)
            if sizes:
                return literal
            return replace(literal, type=target)
        except Invalid:
            if not lenient:
                raise
            return Literal(None, start)

    def sizes(self) -> list[int]:
        """Parse the brackets of decimal(10, 2): no, one or two numbers."""
        numbers, sign = list[int](), "("
        while self.take_sign(sign):
            sign = ","
            token = self.next()
            if (
                token.kind != "number"
                or not token.text.isdecimal()
                or len(token.text) > 2
                or len(numbers) == 2
            ):
                self.invalid("this is not a precision or scale of a decimal", token.offset)
            numbers.append(int(token.text))
        if numbers:
            self.expect_sign(")")
        return numbers
