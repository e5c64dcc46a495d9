"""Conversion of a token of ``match`` to a Java regular expression and back.

The expression lists every code point that folds to each letter, and every word character, so that
it does not depend on Java's Unicode version. This makes it long and easy to recognize.
"""

from __future__ import annotations

import re
from functools import cache

from indexes.characters import CODE_POINTS, fold_table, pattern, word_ranges
from indexes.tokenizers import NGRAM_MAX, find

NEVER = "(?!)"
"""A pattern without matches, for a query without tokens."""

_UNIT = re.compile(r"\[\\x\{([0-9a-f]{1,8})\}(?:\\x\{[0-9a-f]{1,8}\})*\]")


def token_pattern(token: str, whole_word: bool) -> str:
    """Return the regular expression that finds ``token``, as a whole word or anywhere. ``token``:
    case-folded, not empty.

    The look-behind follows the first letter, so that it is evaluated only where that letter
    matches.
    """
    if not whole_word:
        return pattern(token)
    first, word = pattern(token[0]), _word_class()
    return f"{first}(?<!{word}{first}){pattern(token[1:])}(?!{word})"


def query_of(regex: str) -> tuple[str, str] | None:
    """Return (query, tokenizer) of the ``match`` that is equivalent to finding ``regex`` in a text.

    Recognizes only the output of :func:`token_pattern`, else returns None. O(length).
    """
    if regex == NEVER:
        return "", "word"
    letters = [_letter(unit) for unit in _UNIT.findall(regex)]
    if not letters or None in letters:
        return None
    for token, whole_word in ((letters, False), ([letters[0], *letters[2:]], True)):
        query = "".join(map(str, token)), "word" if whole_word else f"ngram({len(token)})"
        is_valid = whole_word or len(token) <= NGRAM_MAX
        if (
            is_valid
            and token_pattern(query[0], whole_word) == regex
            and find(query[1]).query(query[0]) == [query[0]]
        ):
            return query
    return None


def _letter(unit: str) -> str | None:
    """Return the folded letter of a unit of an expression."""
    code = int(unit, 16)
    surrogate = 0xD800 <= code < 0xE000
    if code < CODE_POINTS and not surrogate:
        return chr(fold_table()[code])
    return None


@cache
def _word_class() -> str:
    # As characters, not as escapes: Java's look-behind uses code points only if the pattern has a
    # character beyond the basic plane.
    return "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in word_ranges()) + "]"
