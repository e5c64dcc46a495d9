"""What a table keeps of its past: which states can be read, and which records are still in the log.

Cleaning moves both forward, by commit records with the action ``clean``: first the record says so,
then files go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mdt.limits import COUNT_MAX
from mdt.metadata.log import trusted_names as names


@dataclass(frozen=True, slots=True)
class Retention:
    """``horizon``: seq of the oldest state that can be read.  ``first``: seq of the oldest record
    that the log is sure to have; a checkpoint stands right before it, and another one before the
    horizon.  ``instant``: the newest instant of the records before ``first``, "" if there are none.
    """

    horizon: int = 0
    first: int = 0
    instant: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as records and checkpoints hold them."""
        return asdict(self)

    def followed_by(self, header: Mapping[str, Any]) -> Retention:
        """Return what is kept after a record with this header."""
        told = header.get("retention")
        if told is None:
            return self
        new = Retention(**told)
        return Retention(
            max(self.horizon, new.horizon),
            max(self.first, new.first),
            max(self.instant, new.instant),
        )


def is_retention(value: Any, last: int) -> bool:
    """Return whether ``value`` is what :meth:`Retention.to_json` gives; ``last``: the newest seq
    that it may name.

    The state at the horizon is made from a checkpoint before it: so the records from there on must
    be in the log.
    """
    return (
        isinstance(value, dict)
        and value.keys() == {"horizon", "first", "instant"}
        and names.is_number(value["horizon"], 0, min(last, COUNT_MAX))
        and names.is_number(value["first"], 0, value["horizon"] + 1)
        and (names.is_instant(value["instant"]) if value["first"] else value["instant"] == "")
    )


def retention_of(header: Mapping[str, Any]) -> Retention:
    """Return what the header of a checkpoint says.  Raises ValueError if it makes no sense."""
    told = header.get("retention", Retention().to_json())
    if not is_retention(told, header["seq"]):
        raise ValueError("what is kept of the past makes no sense")
    return Retention(**told)
