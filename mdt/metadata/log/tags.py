"""Tags: names of states, which cleaning keeps, and what lies between them not; and savepoints, tags
of which Hudi's readers know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mdt.limits import COUNT_MAX, LIST_ITEMS_MAX, NAME_BYTES_MAX
from mdt.metadata.log import trusted_names as names
from mdt.session import memo


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a table: name -> seq.  ``savepoints``: of some of them, name -> instant of the
    commit that Hudi keeps.
    """

    seqs: Mapping[str, int] = field(default_factory=dict)
    savepoints: Mapping[str, str] = field(default_factory=dict)

    @property
    def states(self) -> frozenset[int]:
        """The seqs of the states that have a tag."""
        return frozenset(self.seqs.values())

    def before(self, horizon: int) -> list[int]:
        """Return the seqs of tagged states before ``horizon``, rising: each is kept by itself,
        without what came after it.
        """
        return sorted(seq for seq in self.states if seq < horizon)

    def followed_by(self, header: Mapping[str, Any]) -> Tags:
        """Return the tags after a record with this header."""
        told = header.get("tags")
        if told is None:
            return self
        gone = told.get("drop", ())
        kept = {name: seq for name, seq in self.seqs.items() if name not in gone}
        saved = {name: time for name, time in self.savepoints.items() if name not in gone}
        savepoint = header.get("savepoint")
        fresh = {} if savepoint is None else {savepoint["name"]: savepoint["time"]}
        return Tags({**kept, **told.get("add", {})}, {**saved, **fresh})

    def to_json(self) -> dict[str, Any]:
        """Return the tags as checkpoints hold them."""
        return {"seqs": dict(self.seqs), "savepoints": dict(self.savepoints)}


def is_tag(value: Any) -> bool:
    """Return whether ``value`` may name a tag: printable text that is no other point of history."""
    return isinstance(value, str) and 0 < len(value) <= NAME_BYTES_MAX and _is_name(value)


@memo(names.KNOWN_MAX)
def _is_name(text: str) -> bool:
    is_number = text.isascii() and text.isdigit()
    return text.isprintable() and text == text.strip() and not is_number and not _is_time(text)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def are_changes(value: Any, last: int) -> bool:
    """Return whether ``value`` says what a record changes of the tags; ``last``: the newest seq
    that may be named.
    """
    return (
        isinstance(value, dict)
        and value.keys() <= {"add", "drop"}
        and _are_seqs(value.get("add", {}), last)
        and isinstance(value.get("drop", []), list)
        and len(value.get("drop", [])) <= LIST_ITEMS_MAX
        and all(map(is_tag, value.get("drop", [])))
    )


def is_savepoint(value: Any, added: Any) -> bool:
    """Return whether ``value`` says what Hudi is told of a tag that is added."""
    return (
        isinstance(value, dict)
        and value.keys() == {"name", "time", "comment"}
        and isinstance(added, dict)
        and isinstance(value["name"], str)
        and value["name"] in added
        and names.is_instant(value["time"])
        and isinstance(value["comment"], str)
        and len(value["comment"]) <= NAME_BYTES_MAX
    )


def tags_of(header: Mapping[str, Any]) -> Tags:
    """Return what the header of a checkpoint says.  Raises ValueError if it makes no sense."""
    told = header.get("tags", Tags().to_json())
    if (
        not isinstance(told, dict)
        or told.keys() != {"seqs", "savepoints"}
        or not _are_seqs(told["seqs"], header["seq"])
    ):
        raise ValueError("the tags make no sense")
    saved = told["savepoints"]
    if (
        not isinstance(saved, dict)
        or not saved.keys() <= told["seqs"].keys()
        or not all(map(names.is_instant, saved.values()))
    ):
        raise ValueError("the savepoints make no sense")
    return Tags(told["seqs"], saved)


def _are_seqs(value: Any, last: int) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= LIST_ITEMS_MAX
        and all(
            is_tag(name) and names.is_number(seq, 0, min(last, COUNT_MAX))
            for name, seq in value.items()
        )
    )
