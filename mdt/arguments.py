"""Checks of the arguments of public calls. A wrong type raises Invalid and names the argument."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from mdt.errors import Invalid

T = TypeVar("T")

_COMPARED_CHARACTERS = 200
_SIMILARITY_MIN, _SIMILARITY_SPREAD = 0.7, 0.1
"""Names that a hint proposes are at least this similar, and not much less than the most similar."""
_META_PREFIX = "_hoodie_"
"""Hudi's meta columns, which a list of columns leaves out."""


def texts(argument: str, value: object, example: str) -> tuple[str, ...]:
    """Return a text, or an iterable of texts, as a tuple. Raises Invalid for anything else, with
    ``example`` as the hint.

    >>> texts("columns", "id", "['id']"), texts("columns", ["id", "ts"], "['id']")
    (('id',), ('id', 'ts'))
    """
    parts: tuple[Any, ...] = (value,)
    if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)):
        with suppress(TypeError, ValueError):  # e.g. a zero-dimensional array
            parts = tuple(value)
    return tuple(one_text(argument, part, example) for part in parts)


def one_text(argument: str, value: object, example: str) -> str:
    """Return ``value`` if it is a text. Raises Invalid for anything else, with ``example`` as the
    hint.
    """
    if not isinstance(value, str):
        raise _wrong_type(argument, "text", value, f"write {argument}={example}")
    require_unicode(argument, value)
    return value


def _wrong_type(argument: str, noun: str, value: object, hint: str = "") -> Invalid:
    return Invalid(f"{argument} takes {noun}, not a {type(value).__name__}", hint=hint)


def require_unicode(argument: str, text: str) -> None:
    """Raise Invalid for a text with lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            f"{argument}: {shown(text)} is not Unicode: {error.reason}",
            hint="decode it with errors='replace'",
        ) from None


def one_of(argument: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value`` if ``allowed`` contains it. Raises Invalid otherwise."""
    if not isinstance(value, str) or value not in allowed:
        raise Invalid(
            f"{argument}={shown(value)} is not supported", hint=f"use one of {', '.join(allowed)}"
        )
    return value


def own_spelling(name: str, names: Collection[str]) -> str | None:
    """Return the name in ``names`` that ``name`` means: an exact match, or the only match when case
    is ignored.

    Returns None if nothing matches. Raises Invalid and lists the candidates if several names match
    when case is ignored.

    >>> own_spelling("FARE", ["id", "fare"]), own_spelling("price", ["id", "fare"])
    ('fare', None)
    """
    if name in names:
        return name
    fold = name.casefold()
    matches = [candidate for candidate in names if candidate.casefold() == fold]
    if len(matches) > 1:
        raise Invalid(
            f"column {shown(name)} is ambiguous: {', '.join(matches)}",
            hint="spell it as in the schema",
        )
    return matches[0] if matches else None


def named_column(name: str, names: Sequence[str]) -> str:
    """Return the column that ``name`` means, as :func:`own_spelling` does. Raises Invalid, with the
    nearest names, for an unknown column.

    >>> named_column("FARE", ["id", "fare"])
    'fare'
    """
    column = own_spelling(name, names)
    if column is None:
        columns = [each for each in names if not each.startswith(_META_PREFIX)]
        hint = nearest(name, names) or f"columns: {', '.join(columns[:20])}"
        struct = own_spelling(name.split(".")[0], names)
        has_fields = any(each.startswith(f"{struct}.") for each in names)
        if struct is not None and not has_fields:
            hint = f"name the whole column: {struct}"
        raise Invalid(f"there is no column {shown(name)}", hint=hint)
    return column


_LISTED = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^,]*?))\s*(?:,|$)")


def listed(text: str) -> list[str]:
    """Split a comma-separated list of names. Names in backquotes may contain commas and doubled
    backquotes.

    >>> listed("id, city"), listed("trip id,`last, first`,")
    (['id', 'city'], ['trip id', 'last, first'])
    """
    names = [quoted.replace("``", "`") or plain for quoted, plain in _LISTED.findall(text)]
    return [name for name in names if name]


def listing(names: Iterable[str]) -> str:
    """Join names into the list that :func:`listed` reads.

    >>> listing(["id", "last, first"])
    'id,`last, first`'
    """
    return ",".join(_in_list(name) for name in names)


def backquoted(name: str) -> str:
    """Quote a name with backquotes, as Spark SQL does for names with special characters.

    >>> backquoted("fare amount"), backquoted("a`b")
    ('`fare amount`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


def _in_list(name: str) -> str:
    is_plain = "`" not in name and listed(name) == [name]
    return name if is_plain else backquoted(name)


def by_column(argument: str, items: Mapping[Any, T], names: Sequence[str]) -> dict[str, T]:
    """Return a mapping with its keys replaced by the table's own column names
    (:func:`named_column`). Raises Invalid if two keys name the same column.
    """
    values: dict[str, T] = {}
    for name, value in items.items():
        column = named_column(one_text(argument, name, "{'fare': …}"), names)
        if column in values:
            raise Invalid(f"{argument} names the column {column!r} twice")
        values[column] = value
    return values


def mapping(argument: str, value: object) -> Mapping[Any, Any]:
    """Return a mapping, an empty one for None. Raises Invalid for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong_type(argument, "a dict", value, f"write {argument}={{name: value}}")
    return value


def whole_number(argument: str, value: object) -> int:
    """Return an integer of any type as an int. Raises Invalid for anything else, bool included."""
    if not isinstance(value, bool) and hasattr(type(value), "__index__"):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:  # an array with several items
            pass
    raise _wrong_type(argument, "a whole number", value, f"write {argument}=3")


def flag(argument: str, value: object) -> bool:
    """Return True or False.  Raises Invalid for anything else."""
    if not isinstance(value, bool):
        raise _wrong_type(argument, "True or False", value)
    return value


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint that proposes the names similar to ``name``, ignoring case, or "".

    >>> nearest("faree", ["fare", "Fare", "id"])
    'did you mean fare or Fare?'
    """
    by_fold: dict[str, list[str]] = {}
    for each in names:
        by_fold.setdefault(each.casefold(), []).append(each)
    fold = name.casefold()[:_COMPARED_CHARACTERS]
    matches = difflib.get_close_matches(fold, by_fold, cutoff=_SIMILARITY_MIN)
    if not matches:
        return ""
    least = _similarity(matches[0], fold) - _SIMILARITY_SPREAD
    closest = [match for match in matches if _similarity(match, fold) >= least]
    similar = [each for match in closest for each in by_fold[match]]
    return f"did you mean {' or '.join(similar)}?"


def _similarity(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()


def shown(value: object) -> str:
    """Return the repr of a rejected value, cut to 80 characters."""
    return repr(value)[:80]
