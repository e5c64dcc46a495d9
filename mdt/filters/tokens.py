r"""SQL text of a filter as tokens, cut and unescaped as Spark does.

A token is (kind, text, offset).  Kinds: "word" (name or keyword), "quoted" (a name in backquotes,
without them), "string" (unescaped), "number" (with its suffix), "sign" (operators and brackets),
and "end".  Comments are space.  Text in single or double quotes is a string; a quote is doubled or
escaped in it, ``r'…'`` knows no escapes, and ``\%`` and ``\_`` stay as they are, for LIKE.  The
brackets after IN with many plain numbers or texts are one token, a "list".

A cursor walks over the tokens of a text and refuses what it must, with the place.
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
"""What follows IN, where it can be read without cutting each literal: whole numbers, or texts
without escapes.
"""
_IN = re.compile(r"\b[iI][nN]\b")
RESERVED = frozenset(("and", "or", "not", "in", "is", "like", "between"))
"""Words that are no names of columns unless they are quoted."""
_WORDS = """
select case when then else end exists rlike regexp ilike similar escape any some all over collate
div xor symmetric asymmetric interval limit order group having where union from join against within
filter as sort cluster distribute distinct
"""
BEYOND = frozenset(_WORDS.split())
"""Words of SQL that begin or continue what is no test of one column."""
_OPERATORS = frozenset(
    "= == != <> < <= > >= <=> + - * / % || | && & ^ ~ -> :: [ ? ;".split()  # noqa: SIM905 - a list is harder to read
)
SUPPORTED = (
    "conditions are comparisons of values (= != < <= > >= <=>, BETWEEN, IN, LIKE, ILIKE, RLIKE,"
    " IS [NOT] NULL, IS TRUE, startswith, endswith, contains, match(column, 'words'[, tokenizer]),"
    " registered functions of columns and literals), joined by AND, OR, NOT; values are columns,"
    " literals, + - * / % ||, intervals, CASE WHEN … THEN … ELSE … END, CAST, and the functions"
    " coalesce, nullif, if, concat, lower, upper, trim, length, substr, replace, regexp_like,"
    " ilike, abs, round, floor, ceil, sign, sqrt, power, greatest, least, year to second,"
    " date_trunc, date_add, date_sub, to_date, to_timestamp, current_date,"
    " current_timestamp; for anything else filter or change the Arrow or Spark result"
)
"""What a filter or an expression may be, as a hint."""
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
    """One token; ``offset``: where it starts in the text."""

    kind: str
    text: str
    offset: int


class NotSql(Exception):
    """The text cannot be cut into tokens; ``offset``: where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def tokenize(text: str) -> list[Token]:
    """Return the tokens of ``text``, at the end one of kind "end".  Raises NotSql.  O(characters).

    >>> [(token.kind, token.text) for token in tokenize("fare >= 4.5 -- cheap")]
    [('word', 'fare'), ('sign', '>='), ('number', '4.5'), ('end', '')]
    """
    found, at, match = [], 0, _TOKEN.match
    while token := match(text, at):
        kind = token.lastgroup
        if kind == "string":
            found.append(Token(kind, _unescaped(token[0], at), at))
        elif kind == "raw":
            found.append(Token("string", token[0][2:-1], at))
        elif kind == "quoted":
            found.append(Token(kind, token[0][1:-1].replace("``", "`"), at))
        elif kind == "comment":
            at = _comment_end(text, at)
            continue
        elif kind != "space":
            found.append(Token(str(kind), token[0], at))
        at = token.end()
        if kind == "word" and token[0].lower() == "in" and (items := _LIST.match(text, at)):
            found.append(Token("list", items[0], at))
            at = items.end()
    if at < len(text):
        if text[at] in "'\"`":
            raise NotSql("a quote is not closed", at)
        raise NotSql(f"{text[at]!a} means nothing here", at)
    found.append(Token("end", "", len(text)))
    return found


def characters_besides_lists(text: str) -> int:
    """Return how many characters of ``text`` are no long list after IN.  O(characters), some ten
    milliseconds for a million.
    """
    listed = (items for word in _IN.finditer(text) if (items := _LIST.match(text, word.end())))
    return len(text) - sum(items.end() - items.start() for items in listed)


def list_items(token: Token) -> list[int] | list[str]:
    """Return the literals of a token of kind "list"; of more than are taken, one more than that.

    >>> list_items(Token("list", "(3, -4)", 0)), list_items(Token("list", "('a','b, c')", 0))
    ([3, -4], ['a', 'b, c'])
    """
    if "'" in token.text:
        return token.text.split("'", 2 * LITERALS_MAX + 2)[1::2]
    return list(map(int, token.text.strip()[1:-1].split(",", LITERALS_MAX + 1)[: LITERALS_MAX + 1]))


def _comment_end(text: str, start: int) -> int:
    """Return where the comment that begins at ``start`` ends; comments nest."""
    if text.startswith("/*+", start):
        raise NotSql("a hint means nothing in a filter", start)
    depth, at = 0, start
    while edge := _COMMENT_EDGE.search(text, at):
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
        if not depth:
            return at
    raise NotSql("a comment is not closed", start)


def _unescaped(token: str, offset: int) -> str:
    quote, text = token[0], token[1:-1]
    if "\\" not in text and quote not in text:
        return text

    def one(escape: re.Match[str]) -> str:
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
        # Two escapes may be the halves of one character beyond 16 bits, as in Java.
        return _ESCAPE.sub(one, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except (ValueError, OverflowError):
        raise NotSql("an escape in this text is no Unicode character", offset) from None


class Cursor:
    """A place in the tokens of one text: ``token`` is the one that comes next.  Raises NotSql for
    text that has none.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokenize(text)
        self._at = 0
        self.token = self._tokens[0]

    @property
    def after(self) -> Token:
        """The token behind the next one, which is not the end."""
        return self._tokens[self._at + 1]

    def next(self) -> Token:
        """Return the next token and move behind it; refuses the end of the text."""
        token = self.token
        if token.kind == "end":
            self.missing()
        self._at += 1
        self.token = self._tokens[self._at]
        return token

    def is_word(self, word: str) -> bool:
        """Return whether the next token is this word, in lower case."""
        return self.token.kind == "word" and self.token.text.lower() == word

    def is_sign(self, sign: str) -> bool:
        """Return whether the next token is this sign."""
        return self.token.text == sign and self.token.kind == "sign"

    def take_word(self, word: str) -> bool:
        """Move behind this word if it comes next; return whether it did."""
        return self.is_word(word) and bool(self.next())

    def take_sign(self, sign: str) -> bool:
        """Move behind this sign if it comes next; return whether it did."""
        return self.is_sign(sign) and bool(self.next())

    def expect_word(self, word: str) -> None:
        """Move behind this word, or refuse what comes next."""
        if not self.take_word(word):
            self.unexpected()

    def expect_sign(self, sign: str) -> None:
        """Move behind this sign, or refuse what comes next."""
        if not self.take_sign(sign):
            self.unexpected()

    def missing(self) -> NoReturn:
        """Refuse what stands where a column or a literal must."""
        if self.token.kind == "sign" and self.token.text in ("*", "~", "?", "[", "{"):
            self.unsupported(f"{self.token.text} in a filter", self.token.offset)
        self.invalid("the filter is not SQL: something is missing here", self.token.offset)

    def unexpected(self) -> NoReturn:
        """Refuse what stands behind a complete operand or condition."""
        kind, text, offset = self.token
        if (kind == "sign" and text in _OPERATORS) or (
            kind == "word" and text.lower() in BEYOND | RESERVED
        ):
            self.unsupported(f"{text.upper()} in this place of a filter", offset)
        if kind == "end":
            self.missing()
        self.invalid("the filter is not SQL: an operator is missing before this", offset)

    def unsupported(self, what: str, offset: int) -> NoReturn:
        """Raise Unsupported with the place."""
        raise Unsupported(f"{what} is not supported{caret(self.text, offset)}", hint=SUPPORTED)

    def invalid(self, message: str, offset: int, hint: str = "") -> NoReturn:
        """Raise Invalid with the place."""
        raise Invalid(message + caret(self.text, offset), hint=hint)


def caret(text: str, offset: int) -> str:
    r"""Return two lines: the line of ``text`` around ``offset``, and a caret below the place.

    >>> print(caret("fare > > 4", 7).lstrip("\n"))
      fare > > 4
             ^
    """
    start = text.rfind("\n", 0, offset) + 1
    first = max(start, offset - _EXCERPT_CHARACTERS_MAX)
    line = text[first : offset + _EXCERPT_CHARACTERS_MAX].partition("\n")[0]
    shown = "".join(c if c.isprintable() else " " for c in line)
    return f"\n  {shown}\n  {' ' * (offset - first)}^"
