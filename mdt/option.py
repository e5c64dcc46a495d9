"""What an option is: its names, its type, what may be given, and how it is read from text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from mdt.arguments import listed, listing, shown
from mdt.errors import Invalid
from mdt.limits import OPTION_BYTES_MAX

Scope = Literal["table", "session", "machine"]
"""``table``: kept with the table, whoever opens it; ``session``: of whoever opens it, never kept;
``machine``: likewise, and it names directories, memory or threads of the computer, which nothing
that comes with a table may choose.
"""

ALL_COLUMNS = "*"
"""Text form of None in a list of columns."""

_REFUSED = object()


def _parse_bool(value: object) -> object:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower(), _REFUSED)
    return value if isinstance(value, bool) else _REFUSED


def _parse_int(value: object) -> object:
    if isinstance(value, str):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else _REFUSED


def _parse_float(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return _REFUSED
    number = float(value)
    return number if math.isfinite(number) else _REFUSED


def _parse_text(value: object) -> object:
    return value.strip() if isinstance(value, str) else _REFUSED


def _parse_columns(value: object) -> object:
    if value is None or value == ALL_COLUMNS:
        return None
    names = listed(value) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return _REFUSED
    return tuple(dict.fromkeys(name for name in names if name))


_PARSERS: dict[type, Any] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _parse_text,
    tuple: _parse_columns,
}


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option: names, type, scope, range and purpose.

    ``fixed``: of a table option, whether it decides what the data mean or where they lie, so that
    it is set at creation and stays.
    """

    name: str
    kind: type
    scope: Scope
    doc: str
    aliases: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    fixed: bool = False

    def allowed(self) -> str:
        """Return in words what may be given."""
        if self.kind is tuple:
            return (
                "column names separated by commas, those with commas in backquotes, or"
                f" {ALL_COLUMNS} for all scalar columns"
            )
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        noun = "a whole number" if self.kind is int else "a number"
        if self.minimum is None or self.maximum is None:
            return noun
        return f"{noun} from {self.minimum} to {self.maximum}"

    def parse(self, value: object, given_as: str) -> Any:
        """Return ``value`` as the option's type; raises ``errors.Invalid`` saying what is
        allowed.
        """
        try:
            parsed = _PARSERS[self.kind](value)
        except (ValueError, OverflowError):
            parsed = _REFUSED
        if parsed is _REFUSED or not self._in_range(parsed):
            raise Invalid(
                f"option {given_as} = {shown(value)} is not possible", hint=f"give {self.allowed()}"
            )
        if len(to_text(parsed).encode(errors="surrogatepass")) > OPTION_BYTES_MAX:
            raise Invalid(
                f"option {given_as} has more than {OPTION_BYTES_MAX:,} bytes",
                hint="give a shorter text",
            )
        return parsed

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.minimum is None or self.maximum is None:
            return True
        return bool(self.minimum <= value <= self.maximum)


def to_text(value: object) -> str:
    """Return a value of an option as :meth:`Option.parse` takes it back."""
    if value is None:
        return ALL_COLUMNS
    if isinstance(value, bool):
        return str(value).lower()
    return listing(value) if isinstance(value, tuple) else str(value)
