"""Filters as users write them, turned into predicates.

SQL text is parsed by sqlglot (dialect Spark) and translated node by node; only what has an exact meaning as a test of
one column passes.  The rest is refused with the place in the text: a filter is never silently weakened.
Naive timestamps are UTC.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from indexes import functions, paths, predicate
from indexes.predicate import And, Call, Leaf, Or, Predicate
from mdt import limits
from mdt.errors import Invalid, Unsupported

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>"
}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COLUMN = (exp.Column, exp.Dot)
"""References to columns, and to fields in structs: up to four names are one Column, more are a Dot around it."""
_CASTS: dict[str, Callable[[str], object]] = {
    "DATE": date.fromisoformat,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"), datetime.fromisoformat),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), int),
    **dict.fromkeys(("FLOAT", "DOUBLE"), float),
}
_UNDERSTOOD: dict[type[exp.Expr], frozenset[str]] = {
    exp.Alias: frozenset(("this", "alias")),
    exp.Column: frozenset(("this", "table", "db", "catalog")),
    exp.In: frozenset(("this", "expressions")),
    exp.Between: frozenset(("this", "low", "high")),
    exp.Like: frozenset(("this", "expression", "negate")),
    exp.Cast: frozenset(("this", "to", "_type")),
    exp.TryCast: frozenset(("this", "to", "_type")),
    exp.Concat: frozenset(("expressions",)),
    exp.Anonymous: frozenset(("this", "expressions")),
}
"""The parts of a node that the translation reads; for other kinds, _OPERANDS.  A node with more is refused."""
_OPERANDS = frozenset(("this", "expression"))
_QUOTED = re.compile(r"(['\"])(?:\\.|(?!\1).)*\1", re.DOTALL)
_SUPPORTED = (
    "filters are comparisons of one column with literals: = != <> < <= > >= <=>, BETWEEN, IN, LIKE, IS [NOT] NULL, "
    "IS TRUE, startswith, endswith, contains, match(column, 'words'[, tokenizer]), registered functions of columns and literals, joined by AND, OR, NOT; for anything else filter the Arrow or Spark result"
)
_EXCERPT_CHARACTERS_MAX = 100


class _Dialect(Spark):
    """Spark's SQL, in which MATCH is not MySQL's MATCH (…) AGAINST (…) but a function like others."""

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]  # mypy takes it for a variable
        """Spark's parser without the special form of one function."""

        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in Spark.Parser.FUNCTION_PARSERS.items() if name != "MATCH"
        }


def parse_where(where: str | Sequence[tuple[str, str, object]] | None, schema: pa.Schema) -> Predicate:
    """Return the predicate of a filter on rows of ``schema``.

    ``where``: SQL text; or tuples (column, operator of ``predicate.OPS``, value), all of which must hold; or None for
    every row.  A field of a struct is written ``address.city``.  Names may differ in case if that leaves one candidate.  Raises ``errors.Invalid`` for text that
    is not SQL, an unknown column or a literal that cannot be compared with it, and ``errors.Unsupported`` for SQL
    beyond tests of one column.
    """
    if where is None:
        return And(())
    if isinstance(where, str):
        return predicate.simplify(_Translation(where, schema).run())
    return predicate.simplify(And(tuple(_listed(item, schema) for item in where)))


def _listed(item: object, schema: pa.Schema) -> Leaf:
    """Return the leaf of one tuple of the list form."""
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3) or not isinstance(item[0], str):
        raise Invalid(f"{item!r} is not a test", hint="write (column, operator, value), e.g. ('fare', '>', 10)")
    value = item[2] if len(item) == 3 else None
    try:
        op = " ".join(str(item[1]).lower().split())
        listed = isinstance(value, (list, set, frozenset)) and op in ("in", "not in")
        leaf = Leaf(_column_name(item[0], schema), op, tuple(value) if listed else value)  # type: ignore[arg-type]
        predicate.check(leaf, schema)
    except Invalid:
        raise
    except ValueError as error:
        raise Invalid(f"the test {item!r} is not possible: {error}") from error
    return leaf


def _column_name(name: str, schema: pa.Schema) -> str:
    """Return the own spelling of a column or path; raises ``errors.Invalid`` naming the nearest."""
    if name in schema.names or paths.steps(schema, name) is not None:
        return name
    names = [known for known, _ in paths.addressable(schema)]
    found = [known for known in names if known.casefold() == name.casefold()]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise Invalid(f"column {name!r} may be any of {', '.join(found)}", hint="write it as the schema does")
    by_fold = {known.casefold(): known for known in names}
    near = [by_fold[fold] for fold in difflib.get_close_matches(name.casefold(), by_fold, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "columns: " + ", ".join(schema.names[:20])
    raise Invalid(f"there is no column {name!r}", hint=hint)


class _Translation:
    """One SQL text on its way to a predicate.

    ``negated`` travels down with the nodes: a node yields what makes it true, or what makes it false, never the rest,
    so SQL's unknown stays apart from both.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def run(self) -> Predicate:
        size = len(self._text.encode("utf-8", "surrogatepass"))
        if size > limits.WHERE_BYTES_MAX:
            raise Invalid(f"the filter has {size} bytes", hint=f"at most {limits.WHERE_BYTES_MAX} are read; use a join")
        try:
            return self._predicate(self._parse(), False)
        except RecursionError:
            raise Invalid("the filter nests too deeply", hint="write long lists with IN") from None

    def _parse(self) -> exp.Expr:
        if not self._text.strip():
            raise Invalid("the filter is empty", hint="leave where out to read every row")
        try:
            return sqlglot.parse_one(self._text, dialect=_Dialect)
        except ParseError as error:
            self._invalid(f"the filter is not SQL: {_reason(error)}", _error_offset(self._text, error))
        except (SqlglotError, ValueError) as error:
            self._invalid(f"the filter is not SQL: {_reason(error)}", len(self._text))

    def _predicate(self, node: exp.Expr, negated: bool) -> Predicate:
        """Return what makes the condition ``node`` true, or false if ``negated``."""
        if isinstance(node, exp.Paren):
            return self._predicate(node.this, negated)
        if isinstance(node, exp.Not):
            return self._predicate(node.this, not negated)
        if isinstance(node, (exp.And, exp.Or)):
            children = tuple(self._predicate(child, negated) for child in node.flatten(unnest=False))
            return And(children) if isinstance(node, exp.And) != negated else Or(children)
        if isinstance(node, exp.Boolean):
            return And(()) if bool(node.this) != negated else Or(())
        if isinstance(node, exp.Null):
            return Or(())
        positive = self._test(node)
        return predicate.negate(positive) if negated else positive

    def _test(self, node: exp.Expr) -> Predicate:
        """Return the predicate of one test; its negation by ``predicate.negate`` is exact."""
        self._require_understood(node)
        if isinstance(node, _COLUMN):
            return self._leaf(node, "=", True, node)
        if type(node) in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[type(node)])
        if isinstance(node, exp.NullSafeNEQ):
            return predicate.negate(self._comparison(node, "<=>"))
        if isinstance(node, exp.In):
            return self._membership(node)
        if isinstance(node, exp.Between):
            return self._between(node)
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, exp.Like):
            op = "not like" if node.args.get("negate") else "like"
            return self._leaf(node.this, op, self._literal(node.expression), node.expression)
        if isinstance(node, exp.StartsWith):
            return self._leaf(node.this, "starts with", self._literal(node.expression), node.expression)
        if isinstance(node, (exp.Contains, exp.EndsWith)):
            return self._containing(node, "%" if isinstance(node, exp.Contains) else "")
        if isinstance(node, exp.Anonymous) and node.name.lower() == "match":
            return self._match(node)
        if isinstance(node, exp.Anonymous):
            return self._call(node)
        if isinstance(node, exp.Alias):
            self._invalid("an operator is missing before this", self._offset(node.args["alias"]))
        self._unsupported(node)

    def _comparison(self, node: exp.Expr, op: str) -> Leaf:
        left, right = _unwrapped(node.this), _unwrapped(node.args["expression"])
        if isinstance(left, _COLUMN):
            return self._leaf(left, op, self._literal(right), right)
        if isinstance(right, _COLUMN):
            return self._leaf(right, _MIRRORED.get(op, op), self._literal(left), left)
        self._unsupported(node)

    def _membership(self, node: exp.In) -> Leaf:
        literals = node.expressions
        if not literals:
            self._invalid("the list after IN is empty", self._offset(node))
        return self._leaf(node.this, "in", tuple(self._literal(item) for item in literals), literals[0])

    def _containing(self, node: exp.Expr, rest: str) -> Leaf:
        value = self._literal(node.expression)
        pattern = f"%{predicate.quote_like(value)}{rest}" if isinstance(value, str) else value
        return self._leaf(node.this, "like", pattern, node.expression)

    def _match(self, node: exp.Anonymous) -> Leaf:
        arguments = node.expressions
        if len(arguments) not in (2, 3):
            hint = "write match(note, 'all of these words'), or with a tokenizer match(note, 'part', 'ngram(3)')"
            self._invalid(f"match takes 2 or 3 arguments, not {len(arguments)}", self._offset(node), hint)
        text, *tokenizer = (self._literal(argument) for argument in arguments[1:])
        value = None if text is None else (text, *tokenizer) if tokenizer else text
        return self._leaf(arguments[0], "match", value, arguments[-1])

    def _call(self, node: exp.Anonymous) -> Call:
        """Return the test of a predicate function: its columns first, then literals."""
        function = functions.find(node.name)
        if isinstance(function, functions.Unknown):
            hint = f"{_SUPPORTED}; mdt.function registers one, or the package that has it must be installed"
            raise Unsupported(function.reason + _caret(self._text, self._offset(node)), hint=hint)
        columns, literals = node.expressions[: function.columns], node.expressions[function.columns :]
        names = [self._column(_unwrapped(argument)) for argument in columns]
        try:
            if len(names) < function.columns:
                raise ValueError(f"it takes {function.columns} columns: {function.usage}")
            arguments = function.converted([self._literal(argument) for argument in literals])
            leaf = predicate.call(function.name, names, arguments)
            predicate.check(leaf, self._schema)
        except ValueError as error:
            if isinstance(error, Invalid):
                raise
            self._invalid(f"{function.name}: {error}", self._offset(node))
        return leaf

    def _between(self, node: exp.Between) -> Predicate:
        low, high = node.args["low"], node.args["high"]
        at_least = self._leaf(node.this, ">=", self._literal(low), low)
        return And((at_least, self._leaf(node.this, "<=", self._literal(high), high)))

    def _is(self, node: exp.Is) -> Predicate:
        wanted = node.expression
        if isinstance(wanted, exp.Null):
            return self._leaf(node.this, "is null", None, node)
        if isinstance(wanted, exp.Boolean):
            return self._leaf(node.this, "<=>", bool(wanted.this), node)
        self._unsupported(node)

    def _leaf(self, column: exp.Expr, op: str, value: object, at: exp.Expr) -> Leaf:
        """Return a leaf that can be tested; ``at`` is where a literal that cannot be is shown."""
        leaf = Leaf(self._column(_unwrapped(column)), op, value)
        try:
            predicate.check(leaf, self._schema)
        except ValueError as error:
            self._invalid(str(error), self._offset(at))
        return leaf

    def _column(self, node: exp.Expr) -> str:
        if not isinstance(node, _COLUMN) or not all(isinstance(part, exp.Identifier) for part in node.parts):
            self._unsupported(node)
        for part in node.find_all(*_COLUMN):
            self._require_understood(part)
        try:
            return _column_name(".".join(part.name for part in node.parts), self._schema)
        except Invalid as error:
            self._invalid(error.message, self._offset(node), error.hint)

    def _literal(self, node: exp.Expr) -> object:
        """Return the Python value of a literal, signed and typed ones included."""
        node = _unwrapped(node)
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else _number(str(node.this))
        if isinstance(node, exp.HexString):
            return self._converted(bytes.fromhex, str(node.this), node)
        if isinstance(node, exp.Neg):
            return self._negative(node)
        if isinstance(node, exp.Concat):
            return self._adjacent(node)
        if isinstance(node, exp.Cast):
            return self._typed(node)
        self._unsupported(node)

    def _negative(self, node: exp.Neg) -> object:
        value = self._literal(node.this)
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            self._unsupported(node)
        return -value

    def _adjacent(self, node: exp.Concat) -> str:
        """Return 'it''s' as Spark 4 reads it (a quote), and 'a' 'b' joined; the parser calls both a concatenation."""
        self._require_understood(node)
        text, at, before = "", self._offset(node), ""
        for item in node.expressions:
            gap = len(self._text[at:]) - len(self._text[at:].lstrip())
            token = _QUOTED.match(self._text, at + gap)
            if token is None or not (isinstance(item, exp.Literal) and item.is_string):
                self._unsupported(node)
            text += (before if gap == 0 and token[1] == before else "") + str(item.this)
            at, before = token.end(), token[1]
        return text

    def _typed(self, node: exp.Cast) -> object:
        """Return DATE '…', TIMESTAMP '…', 5L, 1.5D and casts of literals."""
        self._require_understood(node)
        convert = _CASTS.get(node.to.this.name)
        value = self._literal(node.this)
        if convert is None or isinstance(value, (bool, bytes)):
            self._unsupported(node)
        if value is None:
            return None
        return self._converted(convert, str(value).strip(), node)

    def _converted(self, convert: Callable[[str], object], text: str, node: exp.Expr) -> object:
        try:
            return convert(text)
        except (ValueError, OverflowError):
            self._invalid(f"the literal {text!r} cannot be read", self._offset(node))

    def _require_understood(self, node: exp.Expr) -> None:
        """Refuse a node that says more than the translation reads: a word that is not known could be a NOT."""
        if {name for name, value in node.args.items() if value} - _UNDERSTOOD.get(type(node), _OPERANDS):
            self._unsupported(node)

    def _offset(self, node: exp.Expr) -> int:
        return min((int(part.meta["start"]) for part in node.walk() if "start" in part.meta), default=0)

    def _unsupported(self, node: exp.Expr) -> NoReturn:
        name = self._text[self._offset(node) :].partition("(")[0].strip()
        if isinstance(node, exp.Func) and isinstance(functions.find(name), functions.Function):
            raise Unsupported(
                f"{name} is a function of SQL itself{_caret(self._text, self._offset(node))}", hint="register yours by another name"
            )
        text = node.sql(dialect="spark")
        shown = text if len(text) <= _EXCERPT_CHARACTERS_MAX else text[:_EXCERPT_CHARACTERS_MAX] + "…"
        raise Unsupported(
            f"the filter cannot be used: {shown}{_caret(self._text, self._offset(node))}", hint=_SUPPORTED
        )

    def _invalid(self, message: str, offset: int, hint: str = "") -> NoReturn:
        raise Invalid(message + _caret(self._text, offset), hint=hint)


def _unwrapped(node: Any) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    assert isinstance(node, exp.Expr)
    return node


def _number(text: str) -> int | float | Decimal:
    """Return a numeric literal as Spark types it: integer, decimal, or double if it has an exponent."""
    if text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _reason(error: Exception) -> str:
    """Return the parser's own words, without class names or terminal colours."""
    if isinstance(error, ParseError) and error.errors:
        text = str(error.errors[0]["description"])
        return "something is missing here" if text.startswith("Required keyword") else text.lower()
    return "a quote or comment is not closed" if "tokenizing" in str(error) else "it cannot be read"


def _error_offset(text: str, error: ParseError) -> int:
    """Return where in ``text`` the parser stopped; it counts lines from 1, and columns up to the token's end."""
    if not error.errors:
        return len(text)
    found = error.errors[0]
    before = sum(len(line) for line in text.splitlines(keepends=True)[: found["line"] - 1])
    offset = before + int(found["col"]) - len(found["highlight"])
    return min(max(offset, 0), len(text))


def _caret(text: str, offset: int) -> str:
    """Return two lines: the line of ``text`` around ``offset``, and a caret below the place."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    first = max(start, offset - _EXCERPT_CHARACTERS_MAX)
    line = text[first : min(len(text) if end < 0 else end, offset + _EXCERPT_CHARACTERS_MAX)]
    return f"\n  {line.replace(chr(9), ' ')}\n  {' ' * (offset - first)}^"
