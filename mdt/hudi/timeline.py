"""Instants: times, actions and states; which files they are is said by a layout
(:mod:`mdt.hudi.layout`).

An instant's time is 17 digits, ``yyyyMMddHHmmssSSS`` in UTC; the order of the text is the order of
time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mdt.errors import Invalid

REQUESTED = "requested"
INFLIGHT = "inflight"
COMPLETED = "completed"

ACTIONS = frozenset(
    {
        "commit",
        "deltacommit",
        "replacecommit",
        "compaction",
        "logcompaction",
        "clustering",
        "clean",
        "rollback",
        "savepoint",
        "restore",
        "indexing",
        "schemacommit",
    }
)
"""Every action that Hudi 0.14 to 1.x puts on a timeline."""

INSTANT_DIGITS = 17
"""Of every instant that this version writes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_DIGIT = re.compile(r"[^0-9]")
_TIME = re.compile(r"[0-9]{17}|[0-9]{14}")


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One state of one action.  ``time``: 17 (or, in old tables, 14) digits.  ``state``: requested,
    inflight, completed.
    """

    time: str
    action: str
    state: str


def instant_text(us_since_epoch: int) -> str:
    """Return the instant of a UTC time in microseconds, cut to milliseconds.  Raises Invalid
    outside years 1 to 9999.

    >>> instant_text(1_709_208_000_123_456)
    '20240229120000123'
    """
    try:
        moment = _EPOCH + timedelta(microseconds=us_since_epoch)
    except OverflowError as error:
        raise Invalid(
            f"{us_since_epoch} microseconds since 1970 is no time of the years 1 to 9999"
        ) from error
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return _NO_DIGIT.sub("", text)


def instant_us(text: str) -> int:
    """Return the UTC time of an instant in microseconds; 14 digits mean the last millisecond of
    their second, as in Hudi.

    Raises Invalid if ``text`` is no instant.

    >>> instant_us("20240229120000123"), instant_us("20240229120000")
    (1709208000123000, 1709208000999000)
    """
    if not (len(text) in (14, 17) and text.isascii() and text.isdigit()):
        raise Invalid(
            f"{text!r} is no instant", hint="an instant has the form yyyyMMddHHmmssSSS, in UTC"
        )
    digits = text.ljust(17, "9")
    year, month, day, hour, minute, second = (int(digits[a:b]) for a, b in _FIELDS)
    try:
        moment = datetime(
            year, month, day, hour, minute, second, int(digits[14:]) * 1000, tzinfo=UTC
        )
    except ValueError as error:
        raise Invalid(f"{text!r} is no instant: {error}") from error
    return (moment - _EPOCH) // timedelta(microseconds=1)


_FIELDS = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14))


def is_time(text: str) -> bool:
    """Return whether ``text`` has the digits of an instant; whether that day exists is not
    asked.
    """
    return _TIME.fullmatch(text) is not None
