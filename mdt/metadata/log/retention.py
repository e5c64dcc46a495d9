"""The retained history of a table: the readable snapshots, and the records that the log still has.

Cleaning moves both forward.  It commits a ``clean`` record first and deletes files afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mdt.limits import COUNT_MAX
from mdt.metadata.log import trusted_names as names


@dataclass(frozen=True, slots=True)
class Retention:
    """The retained history of a table.

    ``horizon`` is the seq of the oldest readable snapshot.  ``first`` is the seq of the oldest
    record that is guaranteed to be in the log.  There is a checkpoint right before ``first``, and
    another before the horizon.  ``instant`` is the newest instant of the records before ``first``,
    or "" if there are none.
    """

    horizon: int = 0
    first: int = 0
    instant: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as records and checkpoints store them."""
        return asdict(self)

    def followed_by(self, header: Mapping[str, Any]) -> Retention:
        """Return the retention after a record with this header."""
        change = header.get("retention")
        if change is None:
            return self
        new = Retention(**change)
        return Retention(
            max(self.horizon, new.horizon),
            max(self.first, new.first),
            max(self.instant, new.instant),
        )


def is_retention(value: Any, last: int) -> bool:
    """Return True if ``value`` is a valid result of :meth:`Retention.to_json`.

    ``last`` is the newest seq that it may name.  ``first`` is at most ``horizon`` + 1, because the
    snapshot at the horizon is made from a checkpoint before it and later records.
    """
    return (
        isinstance(value, dict)
        and value.keys() == {"horizon", "first", "instant"}
        and names.is_number(value["horizon"], 0, min(last, COUNT_MAX))
        and names.is_number(value["first"], 0, value["horizon"] + 1)
        and (names.is_instant(value["instant"]) if value["first"] else value["instant"] == "")
    )


def retention_of(header: Mapping[str, Any]) -> Retention:
    """Return the retention in the header of a checkpoint.  Raises ValueError if it is malformed."""
    retention = header.get("retention", Retention().to_json())
    if not is_retention(retention, header["seq"]):
        raise ValueError("the retention is malformed")
    return Retention(**retention)
