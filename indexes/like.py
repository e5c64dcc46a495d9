"""LIKE patterns: parsing, quoting and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def parse_like(pattern: str) -> list[str | None]:
    r"""Parse a LIKE pattern into literal text, None for ``%``, and the empty string for ``_``.

    Consecutive ``%`` are merged. A backslash makes the next character literal. Raises ValueError
    for a backslash at the end.

    >>> parse_like("a%_b%%"), parse_like(r"100\%")
    (['a', None, '', 'b', None], ['100%'])
    """
    parts: list[str | None] = []
    text, escaped = "", False
    for character in pattern:
        if not escaped and character in "%_":
            if text:
                parts.append(text)
            if character == "_":
                parts.append("")
            elif parts[-1:] != [None]:
                parts.append(None)
            text = ""
        elif escaped or character != "\\":
            text += character
        escaped = character == "\\" and not escaped
    if escaped:
        raise ValueError(
            f"the LIKE pattern {pattern!r} ends in a single backslash; write two to match one"
        )
    return parts + ([text] if text else [])


def split_prefix(parts: list[str | None]) -> tuple[bytes, list[str | None]]:
    """Split a parsed pattern into its literal prefix (UTF-8) and the remaining parts.

    >>> split_prefix(parse_like("Os%o"))
    (b'Os', [None, 'o'])
    """
    if parts and parts[0]:
        return parts[0].encode("utf-8"), parts[1:]
    return b"", parts


def quote_like(text: str) -> str:
    r"""Return a LIKE pattern that matches only ``text``.

    >>> quote_like("50%_")
    '50\\%\\_'
    """
    return "".join("\\" + c if c in "%_\\" else c for c in text)


def like_test(parts: list[str | None]) -> Callable[[Any], Any]:
    """Return the test of text values [n] -> bool[n] for a parsed pattern.

    Uses the cheapest suitable Arrow kernel. Raises ValueError if the pattern is too large for a
    regular expression: some 100,000 characters with wildcards.

    >>> like_test(parse_like("%us%"))(pa.array(["bus", "car", None])).to_pylist()
    [True, False, None]
    """
    match parts:
        case []:
            return lambda column: pc.equal(column, pa.scalar("", column.type))
        case [str(text)] if text:
            return lambda column: pc.equal(column, pa.scalar(text, column.type))
        case [str(text), None] if text:
            return lambda column: pc.starts_with(column, pattern=text)
        case [None, str(text)] if text:
            return lambda column: pc.ends_with(column, pattern=text)
        case [None, str(text), None] if text:
            return lambda column: pc.match_substring(column, pattern=text)
    regex = "(?s)^" + "".join(map(_as_regex, parts)) + "$"
    try:
        pc.match_substring_regex(pa.array([""]), pattern=regex)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"a LIKE pattern of {len(parts)} parts is too large: {str(error)[:80]}"
        ) from None
    return lambda column: pc.match_substring_regex(column, pattern=regex)


def column_test(pattern: object, kind: str | None, *, negated: bool) -> Callable[[Any], Any]:
    """Return the LIKE test for a column of ``kind``. Raises ValueError unless both are text."""
    if kind != "string" or not isinstance(pattern, str):
        raise ValueError("like needs a text column and a text pattern")
    pattern.encode("utf-8")
    test = like_test(parse_like(pattern))
    if negated:
        return lambda column: pc.invert(test(column))
    return test


def _as_regex(part: str | None) -> str:
    """Return a part of a parsed pattern in RE2 syntax."""
    if part is None:
        return ".*"
    if part:
        return _quote_regex(part)
    return "."


def _quote_regex(text: str) -> str:
    """Return ``text`` as an RE2 literal. ASCII punctuation is written as a code point escape."""
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in text)
