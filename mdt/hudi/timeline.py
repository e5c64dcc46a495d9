"""Instants: times, actions and states. A layout (:mod:`mdt.hudi.layout`) maps them to files.

The time of an instant has 17 digits, ``yyyyMMddHHmmssSSS`` in UTC. Instants sort as text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from mdt.errors import Invalid, Unsupported

REQUESTED = "requested"
INFLIGHT = "inflight"
COMPLETED = "completed"

COMMITS = frozenset(("commit", "deltacommit", "replacecommit"))
"""Actions of completed writes."""
WRITES = COMMITS | {"compaction", "logcompaction", "clustering"}
"""Actions that write data files."""
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
"""All timeline actions of Hudi 0.14 to 1.x."""
UNARCHIVED = frozenset(("restore", "indexing"))
"""Actions that Hudi's archiving leaves on the timeline.

Since version 8, Hudi 1.2 takes archived commits that are newer than such an instant for pending,
and adds their log files to the newest file slice. Deleted rows then appear again.
"""

INSTANT_DIGITS = 17
"""Digits of every instant that mdt writes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_DIGIT = re.compile(r"[^0-9]")
_TIME = re.compile(r"[0-9]{17}|[0-9]{14}")


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A state of an action.

    Attributes:
        time: 17 digits, or 14 in old tables.
        state: requested, inflight or completed.
        completion: Time of the completion in the name of the file, "" if the name has none.
            Version 6 never has one.
    """

    time: str
    action: str
    state: str
    completion: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Archive:
    """The objects that make instants part of Hudi's archive, as (path, content).

    Attributes:
        files: Objects to write first. They may replace those of a writer that died.
        commit: The object that makes them valid, which must not exist yet.
        outdated: Paths to delete at the end.
    """

    files: Sequence[tuple[str, bytes]]
    commit: tuple[str, bytes]
    outdated: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class InstantContent:
    """A completed instant that leaves the timeline.

    Attributes:
        body: Content of its file.
        plan: Content of its requested file, or None if there is none.
    """

    instant: Instant
    body: bytes
    plan: bytes | None = None


def instant_text(us_since_epoch: int) -> str:
    """Return the instant of a UTC time in microseconds, truncated to milliseconds.

    Raises Invalid outside the years 1 to 9999.

    >>> instant_text(1_709_208_000_123_456)
    '20240229120000123'
    """
    try:
        moment = _EPOCH + timedelta(microseconds=us_since_epoch)
    except OverflowError as error:
        raise Invalid(
            f"{us_since_epoch} microseconds since 1970 is not in the years 1 to 9999"
        ) from error
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return _NO_DIGIT.sub("", text)


def instant_us(text: str) -> int:
    """Return the UTC time of an instant in microseconds.

    14 digits mean the last millisecond of the second, as in Hudi. Raises Invalid if ``text`` is not
    an instant.

    >>> instant_us("20240229120000123"), instant_us("20240229120000")
    (1709208000123000, 1709208000999000)
    """
    if not (len(text) in (14, 17) and text.isascii() and text.isdigit()):
        raise Invalid(
            f"{text!r} is not an instant", hint="an instant has the form yyyyMMddHHmmssSSS, in UTC"
        )
    digits = text.ljust(17, "9")
    year, month, day, hour, minute, second = (int(digits[a:b]) for a, b in _FIELDS)
    try:
        moment = datetime(
            year, month, day, hour, minute, second, int(digits[14:]) * 1000, tzinfo=UTC
        )
    except ValueError as error:
        raise Invalid(f"{text!r} is not an instant: {error}") from error
    return (moment - _EPOCH) // timedelta(microseconds=1)


_FIELDS = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14))


def date_us(text: str) -> int:
    """Return the time of an instant of any writer like :func:`instant_us`. Digits that are not a
    date have that of the next date: Hudi compares instants as text.

    Raises Unsupported for digits after the last date.

    >>> instant_text(date_us("20261399000000000"))
    '20270101000000000'
    """
    try:
        return instant_us(text)
    except Invalid as error:
        ms = bisect_left(_DATES_MS, text, key=lambda ms: instant_text(ms * 1000))
        if ms == len(_DATES_MS):
            raise Unsupported(
                f"Hudi's timeline has the instant {text}, which is not a date, and no date follows",
                hint=f"find out what has written the files {text}* below .hoodie, and remove them",
            ) from error
        return _DATES_MS[ms] * 1000


_DATES_MS = range(
    (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1),
    (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1) + 1,
)
"""Milliseconds since 1970 of all instants that are dates."""


def is_time(text: str) -> bool:
    """Return True if ``text`` has 14 or 17 digits, even if the date does not exist.

    >>> is_time("20240229120000123"), is_time("2024-02-29")
    (True, False)
    """
    return _TIME.fullmatch(text) is not None
