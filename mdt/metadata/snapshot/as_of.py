"""Points in the history of a table, as users write them, and their seqs.

A point is the seq of a commit, the name of a tag, an instant or a time.  Concurrent writers may get
seqs in another order than their instants, and seqs are the order of the history.  So a time means
the newest commit whose instant is not later, with everything committed before that commit.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import NoReturn

import numpy as np
import pyarrow.compute as pc

from mdt.arguments import require_unicode, shown, whole_number
from mdt.errors import Invalid, Unsupported
from mdt.hudi import timeline
from mdt.metadata.snapshot.snapshot import Snapshot

Point = int | str | date | datetime
"""A seq, a tag, an instant (14 or 17 digits), a time in ISO 8601, a date or a datetime.

Times without a zone are UTC.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HINT = "give a seq, a tag, an instant, or a time such as '2026-02-28 12:00:00'"


def seq_at(newest: Snapshot, point: Point, argument: str = "as_of") -> int:
    """Return the seq of the commit at ``point`` in the history of ``newest``.

    A number is returned without a check that its snapshot exists.  ``argument`` is the argument's
    name for messages.  Raises Invalid if ``point`` is not a point or is before the table's
    creation, and Expired if it is before the oldest known record.
    """
    if isinstance(point, str):
        require_unicode(argument, point)
        if point in newest.tags.seqs:
            return newest.tags.seqs[point]
        return _before(newest, _instant(point, argument), point)
    if isinstance(point, date) and point == point:  # noqa: PLR0124 - a datetime is one, and so is NaT of pandas, which no time equals
        return _before(newest, timeline.instant_text(_us(point)), str(point))
    if isinstance(point, date):
        _refuse(str(point), argument)
    return whole_number(argument, point)


def is_time_point(newest: Snapshot, point: Point) -> bool:
    """Return True for an instant or a time, False for a seq or a tag."""
    if isinstance(point, str):
        return point not in newest.tags.seqs
    return isinstance(point, date)


def seq_in_log(
    newest: Snapshot, point: Point, argument: str = "as_of", *, is_read: bool = False
) -> int:
    """Return the seq of the commit at ``point`` like :func:`seq_at`.

    Raises Unsupported for instants and times of a table that other writers share: a record may
    import several of their commits, so only Hudi's timeline has the state at each time.

    Args:
        is_read: True if the caller can read that state instead.
    """
    if newest.is_shared and is_time_point(newest, point):
        error = Unsupported(
            f"{argument}={shown(point)} is a point of Hudi's timeline, on which other writers"
            " commit, too",
            hint="give a seq or a tag",
        )
        raise error.of_others() if is_read else error
    return seq_at(newest, point, argument)


def instant_of(point: Point, argument: str = "as_of") -> str:
    """Return the instant of a point in the history of a table that other writers wrote.

    Raises Invalid for seqs and tags, which such a table does not have.
    """
    if isinstance(point, str):
        return _instant(point, argument)
    if isinstance(point, date) and point == point:  # noqa: PLR0124 - as in seq_at
        return timeline.instant_text(_us(point))
    _refuse(str(point), argument)


def _before(newest: Snapshot, instant: str, point: str) -> int:
    """Return the newest seq whose instant is not after ``instant``."""
    history = newest.history
    seqs = pc.filter(history["seq"], pc.less_equal(history["instant"], instant))
    if not len(seqs) and newest.retention.first:
        raise newest.expired(f"the state at {point!r} was cleaned")
    if not len(seqs):
        first = history["instant"][0].as_py()
        raise Invalid(
            f"the table did not exist yet at {point!r}",
            hint=f"its first commit is at {first} UTC",
        )
    return int(np.max(seqs.to_numpy()))


def _instant(text: str, argument: str) -> str:
    """Return the time in ``text`` as an instant of 17 digits."""
    if timeline.is_time(text):
        return text.ljust(timeline.INSTANT_DIGITS, "9")
    try:
        return timeline.instant_text(_us(datetime.fromisoformat(text)))
    except (ValueError, OverflowError):
        _refuse(text, argument)


def _us(time: date) -> int:
    """Return a date or time in microseconds since 1970."""
    if not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)


def _refuse(text: str, argument: str) -> NoReturn:
    raise Invalid(f"{argument}={shown(text)} is not a tag, instant or time", hint=_HINT)
