"""Tags name snapshots that cleaning must keep.  Tags exported to Hudi are savepoints."""

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
    """The tags of a table.

    ``seqs`` maps names to seqs.  ``savepoints`` maps the names of exported tags to the instant of
    the commit that Hudi keeps.
    """

    seqs: Mapping[str, int] = field(default_factory=dict)
    savepoints: Mapping[str, str] = field(default_factory=dict)

    @property
    def states(self) -> frozenset[int]:
        """The seqs of the tagged snapshots."""
        return frozenset(self.seqs.values())

    def before(self, horizon: int) -> list[int]:
        """Return the seqs of tagged snapshots before ``horizon``, ascending.

        Each of these snapshots is kept without the commits after it.
        """
        return sorted(seq for seq in self.states if seq < horizon)

    def followed_by(self, header: Mapping[str, Any]) -> Tags:
        """Return the tags after a record with this header."""
        change = header.get("tags")
        if change is None:
            return self
        added = change.get("add", {})
        ended = {*change.get("drop", ()), *added}
        seqs = {name: seq for name, seq in self.seqs.items() if name not in ended}
        savepoints = {name: time for name, time in self.savepoints.items() if name not in ended}
        savepoint = header.get("savepoint")
        if savepoint is not None:
            savepoints[savepoint["name"]] = savepoint["time"]
        return Tags({**seqs, **added}, savepoints)

    def to_json(self) -> dict[str, Any]:
        """Return the tags as checkpoints store them."""
        return {"seqs": dict(self.seqs), "savepoints": dict(self.savepoints)}


def is_tag(value: Any) -> bool:
    """Return True if ``value`` may name a tag: printable text that is not a seq, an instant or a
    time.

    Tables may have names of NAME_BYTES_MAX characters, because older writers did not count bytes.
    """
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
    """Return True if ``value`` is a valid ``tags`` field of a record.

    ``last`` is the newest seq that a tag may name.
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
    """Return True if ``value`` is a valid ``savepoint`` field of a record that adds the tags
    ``added``.
    """
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
    """Return the tags in the header of a checkpoint.  Raises ValueError if they are malformed."""
    tags = header.get("tags", Tags().to_json())
    if (
        not isinstance(tags, dict)
        or tags.keys() != {"seqs", "savepoints"}
        or not _are_seqs(tags["seqs"], header["seq"])
    ):
        raise ValueError("the tags are malformed")
    savepoints = tags["savepoints"]
    if (
        not isinstance(savepoints, dict)
        or not savepoints.keys() <= tags["seqs"].keys()
        or not all(map(names.is_instant, savepoints.values()))
    ):
        raise ValueError("the savepoints are malformed")
    return Tags(tags["seqs"], savepoints)


def _are_seqs(value: Any, last: int) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= LIST_ITEMS_MAX
        and all(
            is_tag(name) and names.is_number(seq, 0, min(last, COUNT_MAX))
            for name, seq in value.items()
        )
    )
