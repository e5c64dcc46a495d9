"""Points in the history of a table: what users write where a past state is meant, and the seq that
each names.

A point is the seq of a commit, the name of a tag, an instant or a time.  Commits of several writers
may get their seqs in another order than their instants; seqs are the order of the history, so a
time means the newest commit whose instant is not after it, with everything that was committed
before that one.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import NoReturn

import numpy as np
import pyarrow.compute as pc

from mdt.arguments import require_unicode, shown, whole_number
from mdt.errors import Invalid
from mdt.hudi import timeline
from mdt.metadata.snapshot.snapshot import Snapshot

Point = int | str | date | datetime
"""A seq; a tag, an instant (14 or 17 digits) or a time in ISO 8601; a date or time.  Without a zone
they are UTC.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HINT = "give a seq, a tag, an instant, or a time such as '2026-02-28 12:00:00'"


def seq_at(newest: Snapshot, point: Point, argument: str = "as_of") -> int:
    """Return the seq of the commit that ``point`` names in the history of ``newest``; ``argument``:
    for messages.

    A number is returned as it is: who reads that state finds out whether it is there.  Raises
    Invalid for what is no point, and for a time before the table was created, Expired for one
    before the oldest record that is known.
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


def _before(newest: Snapshot, instant: str, point: str) -> int:
    """Return the newest seq whose instant is not after ``instant``."""
    history = newest.history
    seqs = pc.filter(history["seq"], pc.less_equal(history["instant"], instant))
    if not len(seqs) and newest.retention.first:
        raise newest.expired(f"the state at {point!r} was cleaned")
    if not len(seqs):
        first = history["instant"][0].as_py()
        raise Invalid(
            f"the table was not there yet at {point!r}",
            hint=f"its first commit is of {first}, in UTC",
        )
    return int(np.max(seqs.to_numpy()))


def _instant(text: str, argument: str) -> str:
    """Return what ``text`` says as 17 digits."""
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
    raise Invalid(f"{argument}={shown(text)} is no tag, instant or time", hint=_HINT)
