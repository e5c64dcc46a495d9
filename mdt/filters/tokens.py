r"""Tokenizer for SQL filters, with Spark's rules for quotes and escapes.

A token is (kind, text, offset). Kinds are "word" (name or keyword), "quoted" (a name, without its
backquotes), "string" (unescaped), "number" (with its suffix), "sign" (operators and brackets), and
"end". Comments are whitespace. Text in single or double quotes is a string. A quote in it is
doubled or escaped, ``r'…'`` has no escapes, and ``\%`` and ``\_`` are kept for LIKE. The brackets
after IN with many plain numbers or texts form a single token, a "list".

A cursor walks over the tokens and raises errors with their position.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from mdt.errors import Invalid, Unsupported
from mdt.limits import LITERALS_MAX

_TOKEN = re.compile(
    r"""
      (?P<space>(?:\s|--(?:\\\n|[^\r\n])*+)++)
    | (?P<raw>[rR](?:'[^']*+'|"[^"]*+"))
    | (?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[lLsSyYfFdD])?(?!\w))
    | (?P<word>\w++)
    | (?P<quoted>`(?:[^`]|``)++`)
    | (?P<comment>/\*)
    | (?P<sign><=>|<>|<=|>=|!=|==|::|\|\||&&|->|[=<>!(),.+\-:?*/%~|&^;\[\]{}@$])
    """,
    re.VERBOSE | re.DOTALL,
)
_LIST_ITEMS_MIN = 100
_LIST = re.compile(
    rf"""
    \s*+\(\s*+(?:
      -?[0-9]{{1,18}}+(?:\s*+,\s*+-?[0-9]{{1,18}}+){{{_LIST_ITEMS_MIN - 1},}}+
    | '[^'\\]*+'(?:\s*+,\s*+'[^'\\]*+'){{{_LIST_ITEMS_MIN - 1},}}+
    )\s*+\)
    """,
    re.VERBOSE,
)
"""An IN list that needs no tokenizing: integers, or texts without escapes."""
_IN = re.compile(r"\b[iI][nN]\b")
RESERVED = frozenset(("and", "or", "not", "in", "is", "like", "between"))
"""Words that must be quoted to be column names."""
_WORDS = """
select case when then else end exists rlike regexp ilike similar escape any some all over collate
div xor symmetric asymmetric interval limit order group having where union from join against within
filter as sort cluster distribute distinct
"""
BEYOND = frozenset(_WORDS.split())
"""SQL keywords that are not part of a simple test."""
_OPERATORS = frozenset(
    "= == != <> < <= > >= <=> + - * / % || | && & ^ ~ -> :: [ ? ;".split()  # noqa: SIM905 - a list is harder to read
)
SUPPORTED = (
    "conditions are comparisons (= != < <= > >= <=>, BETWEEN, IN, LIKE, ILIKE, RLIKE, IS NULL) and"
    " functions, joined by AND, OR, NOT; values are columns, literals, + - * / % ||, CASE, CAST and"
    " functions; for anything else filter the Arrow or Spark result"
)
"""The supported SQL, as a hint."""
_EXCERPT_CHARACTERS_MAX = 100
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)|(['\"])\2", re.DOTALL)
_ESCAPED = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}


class Token(NamedTuple):
    """A token and its offset in the text."""

    kind: str
    text: str
    offset: int


class NotSql(Exception):
    """Text that cannot be tokenized, with the offset of the problem."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def tokenize(text: str) -> list[Token]:
    """Split ``text`` into tokens, with a final token of kind "end". Raises NotSql. O(characters).

    >>> [(token.kind, token.text) for token in tokenize("fare >= 4.5 -- cheap")]
    [('word', 'fare'), ('sign', '>='), ('number', '4.5'), ('end', '')]
    """
    tokens, at, match = [], 0, _TOKEN.match
    while token := match(text, at):
        kind = token.lastgroup
        if kind == "string":
            tokens.append(Token(kind, _unescape(token[0], at), at))
        elif kind == "raw":
            tokens.append(Token("string", token[0][2:-1], at))
        elif kind == "quoted":
            tokens.append(Token(kind, token[0][1:-1].replace("``", "`"), at))
        elif kind == "comment":
            at = _comment_end(text, at)
            continue
        elif kind != "space":
            tokens.append(Token(str(kind), token[0], at))
        at = token.end()
        if kind == "word" and token[0].lower() == "in" and (items := _LIST.match(text, at)):
            tokens.append(Token("list", items[0], at))
            at = items.end()
    if at < len(text):
        if text[at] in "'\"`":
            raise NotSql("a quote is not closed", at)
        raise NotSql(f"unexpected character {text[at]!a}", at)
    tokens.append(Token("end", "", len(text)))
    return tokens


def characters_besides_lists(text: str) -> int:
    """Return the number of characters outside long IN lists. O(characters), about 10 ms per
    million.
    """
    listed = (items for word in _IN.finditer(text) if (items := _LIST.match(text, word.end())))
    return len(text) - sum(items.end() - items.start() for items in listed)


def list_items(token: Token) -> list[int] | list[str]:
    """Return the literals of a "list" token, at most one more than the limit.

    >>> list_items(Token("list", "(3, -4)", 0)), list_items(Token("list", "('a','b, c')", 0))
    ([3, -4], ['a', 'b, c'])
    """
    if "'" in token.text:
        return token.text.split("'", 2 * LITERALS_MAX + 2)[1::2]
    return list(map(int, token.text.strip()[1:-1].split(",", LITERALS_MAX + 1)[: LITERALS_MAX + 1]))


def _comment_end(text: str, start: int) -> int:
    """Return the end of the comment at ``start``. Comments nest."""
    if text.startswith("/*+", start):
        raise NotSql("hints are not supported", start)
    depth, at = 0, start
    while edge := _COMMENT_EDGE.search(text, at):
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
        if not depth:
            return at
    raise NotSql("a comment is not closed", start)


def _unescape(token: str, offset: int) -> str:
    quote, text = token[0], token[1:-1]
    if "\\" not in text and quote not in text:
        return text

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code is None:
            if escape[2] == quote:
                return quote
            return escape[0]
        if len(code) == 1:
            return _ESCAPED.get(code, code)
        if code[0] in "uU":
            return chr(int(code[1:], 16))
        return chr(int(code, 8))

    try:
        # Two escapes may form a surrogate pair, as in Java.
        return _ESCAPE.sub(character, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except (ValueError, OverflowError):
        raise NotSql("an escape in this text is not a Unicode character", offset) from None


class Cursor:
    """A position in the tokens of a text. ``token`` is the next token. Raises NotSql for text that
    cannot be tokenized.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokenize(text)
        self._at = 0
        self.token = self._tokens[0]

    @property
    def after(self) -> Token:
        """The token after the next token, which must not be the last."""
        return self._tokens[self._at + 1]

    def next(self) -> Token:
        """Return the next token and advance. Raises Invalid at the end of the text."""
        token = self.token
        if token.kind == "end":
            self.missing()
        self._at += 1
        self.token = self._tokens[self._at]
        return token

    def is_word(self, word: str) -> bool:
        """Return True if the next token is this lower-case word."""
        return self.token.kind == "word" and self.token.text.lower() == word

    def is_sign(self, sign: str) -> bool:
        """Return True if the next token is this sign."""
        return self.token.text == sign and self.token.kind == "sign"

    def take_word(self, word: str) -> bool:
        """Advance if the next token is this word. Return True if so."""
        return self.is_word(word) and bool(self.next())

    def take_sign(self, sign: str) -> bool:
        """Advance if the next token is this sign. Return True if so."""
        return self.is_sign(sign) and bool(self.next())

    def expect_word(self, word: str) -> None:
        """Advance past this word. Raises Invalid or Unsupported for any other token."""
        if not self.take_word(word):
            self.unexpected()

    def expect_sign(self, sign: str) -> None:
        """Advance past this sign. Raises Invalid or Unsupported for any other token."""
        if not self.take_sign(sign):
            self.unexpected()

    def missing(self) -> NoReturn:
        """Raise for a token in the place of a column or literal."""
        if self.token.kind == "sign" and self.token.text in ("*", "~", "?", "[", "{"):
            self.unsupported(f"{self.token.text} in a filter", self.token.offset)
        self.invalid("the filter is not SQL: something is missing here", self.token.offset)

    def unexpected(self) -> NoReturn:
        """Raise for a token after a complete operand or condition."""
        kind, text, offset = self.token
        if (kind == "sign" and text in _OPERATORS) or (
            kind == "word" and text.lower() in BEYOND | RESERVED
        ):
            hint = "write AND" if text == "&&" else SUPPORTED
            self.unsupported(f"{text.upper()} in this place", offset, hint)
        if kind == "end":
            self.missing()
        self.invalid("the filter is not SQL: an operator is missing before this", offset)

    def unsupported(self, subject: str, offset: int, hint: str = SUPPORTED) -> NoReturn:
        """Raise Unsupported with the position."""
        raise Unsupported(f"{subject} is not supported{caret(self.text, offset)}", hint=hint)

    def invalid(self, message: str, offset: int, hint: str = "") -> NoReturn:
        """Raise Invalid with the position."""
        raise Invalid(message + caret(self.text, offset), hint=hint)


def caret(text: str, offset: int) -> str:
    r"""Return two lines: the line of ``text`` around ``offset``, and a caret below the position.

    >>> print(caret("fare > > 4", 7).lstrip("\n"))
      fare > > 4
             ^
    """
    start = text.rfind("\n", 0, offset) + 1
    first = max(start, offset - _EXCERPT_CHARACTERS_MAX)
    line = text[first : offset + _EXCERPT_CHARACTERS_MAX].partition("\n")[0]
    excerpt = "".join(c if c.isprintable() else " " for c in line)
    return f"\n  {excerpt}\n  {' ' * (offset - first)}^"
