"""LIKE patterns: their parts, the pattern of a text, and the test of values that they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def parse_like(pattern: str) -> list[str | None]:
    r"""Return the parts of a LIKE pattern: literal text, None for ``%`` (runs merged), and ``"_"``
    as the empty string.

    Backslash makes the next character literal.  Raises ValueError for a backslash at the end.

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
            f"the LIKE pattern {pattern!r} ends in a lone backslash; write two for a backslash"
        )
    return parts + ([text] if text else [])


def split_prefix(parts: list[str | None]) -> tuple[bytes, list[str | None]]:
    """Return the text that a parsed pattern begins with, and the parts behind it.

    >>> split_prefix(parse_like("Os%o"))
    (b'Os', [None, 'o'])
    """
    if parts and parts[0]:
        return parts[0].encode("utf-8"), parts[1:]
    return b"", parts


def quote_like(text: str) -> str:
    r"""Return the LIKE pattern that only ``text`` itself fits.

    >>> quote_like("50%_")
    '50\\%\\_'
    """
    return "".join("\\" + c if c in "%_\\" else c for c in text)


def like_test(parts: list[str | None]) -> Callable[[Any], Any]:
    """Return the test of text values [n] that a parsed pattern is -> bool[n]: the cheapest kernel
    that does it.

    Raises ValueError for a pattern of which no regular expression can be made: some 100,000
    characters with wildcards.

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
    """Return the test of a column of some ``kind`` of values, as :func:`like_test` does.  Raises
    ValueError unless both are text.
    """
    if kind != "string" or not isinstance(pattern, str):
        raise ValueError("like compares text with a text pattern")
    pattern.encode("utf-8")
    test = like_test(parse_like(pattern))
    if negated:
        return lambda column: pc.invert(test(column))
    return test


def _as_regex(part: str | None) -> str:
    """Return one part of a parsed pattern as RE2 writes it."""
    if part is None:
        return ".*"
    if part:
        return _quoted(part)
    return "."


def _quoted(text: str) -> str:
    """Return ``text`` as an RE2 literal: whatever ASCII could mean something is written as its code
    point.
    """
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in text)
