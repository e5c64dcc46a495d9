"""Arguments of public calls, checked at the door: a wrong type is an error of ours that names the
argument.
"""

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


def texts(argument: str, value: object, example: str) -> tuple[str, ...]:
    """Return one text, or an iterable of texts, as a tuple.  Raises Invalid, with ``example``, for
    anything else.

    >>> texts("columns", "id", "['id']"), texts("columns", ["id", "ts"], "['id']")
    (('id',), ('id', 'ts'))
    """
    parts: tuple[Any, ...] = (value,)
    if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)):
        with suppress(TypeError, ValueError):  # only looks like an iterable
            parts = tuple(value)
    return tuple(one_text(argument, part, example) for part in parts)


def one_text(argument: str, value: object, example: str) -> str:
    """Return a text.  Raises Invalid, with ``example``, for anything else."""
    if not isinstance(value, str):
        raise _wrong_type(argument, "text", value, f"write {argument}={example}")
    require_unicode(argument, value)
    return value


def _wrong_type(argument: str, noun: str, value: object, hint: str = "") -> Invalid:
    return Invalid(f"{argument} takes {noun}, not a {type(value).__name__}", hint=hint)


def require_unicode(argument: str, text: str) -> None:
    """Raise Invalid for a text with lone surrogates, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            f"{argument}: {shown(text)} is not Unicode: {error.reason}",
            hint="decode it with errors='replace'",
        ) from None


def one_of(argument: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``allowed``.  Raises Invalid otherwise."""
    if not isinstance(value, str) or value not in allowed:
        raise Invalid(
            f"{argument}={shown(value)} is not possible", hint=f"give one of {', '.join(allowed)}"
        )
    return value


def own_spelling(name: str, known: Collection[str]) -> str | None:
    """Return the one of ``known`` that a name means: the same, else the only one that differs in
    case alone; None if there is none.

    Raises Invalid, naming them, if there are several.

    >>> own_spelling("FARE", ["id", "fare"]), own_spelling("price", ["id", "fare"])
    ('fare', None)
    """
    if name in known:
        return name
    fold = name.casefold()
    found = [one for one in known if one.casefold() == fold]
    if len(found) > 1:
        raise Invalid(
            f"column {shown(name)} may be any of {', '.join(found)}",
            hint="write it as the schema does",
        )
    return found[0] if found else None


def named_column(name: str, known: Sequence[str]) -> str:
    """Return the column that a name means, as :func:`own_spelling` does.  Raises Invalid, with the
    nearest, if there is none.

    >>> named_column("FARE", ["id", "fare"])
    'fare'
    """
    column = own_spelling(name, known)
    if column is None:
        hint = nearest(name, known) or f"columns: {', '.join(known[:20])}"
        raise Invalid(f"there is no column {shown(name)}", hint=hint)
    return column


_LISTED = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^,]*?))\s*(?:,|$)")


def listed(text: str) -> list[str]:
    """Return the names in a list that is written with commas; those in backquotes may hold commas,
    and backquotes twice.

    >>> listed("id, city"), listed("trip id,`last, first`,")
    (['id', 'city'], ['trip id', 'last, first'])
    """
    found = [quoted.replace("``", "`") or plain for quoted, plain in _LISTED.findall(text)]
    return [name for name in found if name]


def listing(names: Iterable[str]) -> str:
    """Return names as the list that :func:`listed` reads.

    >>> listing(["id", "last, first"])
    'id,`last, first`'
    """
    return ",".join(_in_list(name) for name in names)


def backquoted(name: str) -> str:
    """Return a name in backquotes, as Spark's SQL writes names of any characters.

    >>> backquoted("fare amount"), backquoted("a`b")
    ('`fare amount`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


def _in_list(name: str) -> str:
    is_plain = "`" not in name and listed(name) == [name]
    return name if is_plain else backquoted(name)


def by_column(argument: str, given: Mapping[Any, T], known: Sequence[str]) -> dict[str, T]:
    """Return a mapping by columns, each by its own name (:func:`named_column`).  Raises Invalid for
    one that is named twice.
    """
    found: dict[str, T] = {}
    for name, value in given.items():
        own = named_column(one_text(argument, name, "{'fare': …}"), known)
        if own in found:
            raise Invalid(f"{argument} names the column {own!r} twice")
        found[own] = value
    return found


def mapping(argument: str, value: object) -> Mapping[Any, Any]:
    """Return a mapping, an empty one for None.  Raises Invalid for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong_type(argument, "a dict", value, f"write {argument}={{name: value}}")
    return value


def whole_number(argument: str, value: object) -> int:
    """Return a number of any integer type.  Raises Invalid for anything else, a bool included."""
    if not isinstance(value, bool) and hasattr(type(value), "__index__"):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:  # an array of several
            pass
    raise _wrong_type(argument, "a whole number", value, f"write {argument}=3")


def flag(argument: str, value: object) -> bool:
    """Return True or False.  Raises Invalid for anything else."""
    if not isinstance(value, bool):
        raise _wrong_type(argument, "True or False", value)
    return value


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint to the few of ``known`` that an unknown name is like, in any case; empty if it
    is like none.
    """
    by_fold = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold()[:_COMPARED_CHARACTERS], by_fold)
    if not near:
        return ""
    return f"did you mean {' or '.join(by_fold[fold] for fold in near)}?"


def shown(value: object) -> str:
    """Return a short text of a value that is refused."""
    return repr(value)[:80]
