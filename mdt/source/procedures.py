"""Procedures of Spark's SQL: ``CALL mdt.compact(table => 't', budget_bytes => 1000000)`` is ``t.compact(budget_bytes=1_000_000)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

from mdt.arguments import one_of
from mdt.errors import Invalid
from mdt.source import writing
from mdt.source.words import Words, point_of, value_of
from mdt.table import Table

_Parser = Callable[[str], Any]


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _flag(text: str) -> bool:
    return one_of("flag", text.lower(), ("true", "false")) == "true"


_SPECS: _Parser = partial(value_of, "indexes", "specs")
_RETAINED: Mapping[str, _Parser] = {"retain_commits": int, "retain_hours": int, "retain_versions": int}
PROCEDURES: Mapping[str, Mapping[str, _Parser]] = {
    "compact": {"strategy": str, "partitions": _list, "budget_bytes": int, "spark": _flag},
    "cluster": {"by": _list, "curve": str, "partitions": _list, "spark": _flag},
    "clean": _RETAINED,
    "restore": {"to": point_of},
    "rollback": {"commit": point_of},
    "tag": {"name": str, "at": point_of},
    "savepoint": {"name": str, "at": point_of, "comment": str},
    "untag": {"name": str},
    "check": {},
    "delete_partition": {"partitions": partial(value_of, "overwrite_partitions", "partitions")},
    "truncate": {},
    "create_index": {"specs": _SPECS, "mode": str, "spark": _flag},
    "drop_index": {"specs": _SPECS},
    "rebuild_index": {"specs": _SPECS, "mode": str, "spark": _flag},
    "build_indexes": {"specs": _SPECS, "spark": _flag},
}
"""Methods of a table, and their parameters after the table, in order; what is given as text becomes a value by a function."""


def call(
    asked: Words, name: str, names: Sequence[str], values: Sequence[str | None], spark: Any
) -> tuple[Table, list[tuple[str, str]]]:
    """Carry out a procedure on the table that is ``asked`` for, and return the table and what it tells, names and values.

    ``names``, ``values``: of its arguments; an empty name for one that stands in its place, None for a null, which is as if it were left out.
    ``spark``: the session, for those that are asked to run in its tasks.  Raises Invalid for another procedure and other arguments,
    and what the method raises.
    """
    writing.require_newest(asked)
    parameters = PROCEDURES[one_of("the procedure", name, tuple(PROCEDURES))]
    given = _arguments(name, parameters, names, values)
    if "spark" in parameters:
        given["spark"] = spark if given.get("spark") else None
    table = writing.opened(asked)
    _require_all(name, getattr(table, name), given)
    return table, _told(getattr(table, name)(**given))


def _require_all(name: str, method: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise Invalid for an argument that the method needs and that is not given."""
    needed = [
        one for one, what in signature(method).parameters.items() if what.default is what.empty and one not in given
    ]
    if needed:
        raise Invalid(f"mdt.{name} needs {' and '.join(needed)}", hint=f"CALL mdt.{name}('table', {needed[0]} => …)")


def _arguments(
    name: str, parameters: Mapping[str, _Parser], names: Sequence[str], values: Sequence[str | None]
) -> dict[str, Any]:
    known, found = list(parameters), dict[str, Any]()
    for place, (said, text) in enumerate(zip(names, values, strict=True)):
        if not said and place >= len(known):
            raise Invalid(f"mdt.{name} takes {len(known) + 1} arguments", hint=f"table, {', '.join(known)}")
        word = one_of(f"an argument of mdt.{name}", said, known) if said else known[place]
        if word in found:
            raise Invalid(f"mdt.{name}: {word} is given twice")
        if text is not None:
            try:
                found[word] = parameters[word](text)
            except ValueError as error:
                raise Invalid(f"mdt.{name}: {word} => {text!r}: {error}") from error
    return found


def _told(result: Any) -> list[tuple[str, str]]:
    if result is None:
        return []
    if dataclasses.is_dataclass(result):
        fields = [(field.name, getattr(result, field.name)) for field in dataclasses.fields(result)]
        return [(name, _shown(value)) for name, value in fields]
    return [("seq", str(result))]


def _shown(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
