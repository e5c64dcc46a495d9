"""The commits of other Hudi writers that the log contains.

A record with the action ``import`` brings the log up to a state of Hudi's timeline. If that takes
several records, only the last one has the field ``imported``, so that readers know that the log is
behind until then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mdt.hudi.timeline import COMPLETED, Instant, is_time
from mdt.limits import LIST_ITEMS_MAX, NAME_BYTES_MAX
from mdt.metadata.log import trusted_names as names

GroupId = tuple[str, str]
"""Partition path and file id."""

_INSTANT = re.compile(r"[0-9]{14,17}\.[a-z]{1,20}")
_FIELDS = frozenset(("instants", "unsettled", "voided"))


@dataclass(frozen=True, slots=True)
class Imports:
    """The part of Hudi's timeline that the log contains.

    Attributes:
        instants: Completed instants of other writers that were on the timeline at the last import,
            as ``<time>.<action>``.
        unsettled: File groups with blocks of writes that were pending then.
        voided: Instants of our commits that another writer rolled back before they were on the
            timeline. They are never published.
    """

    instants: frozenset[str] = frozenset()
    unsettled: frozenset[GroupId] = frozenset()
    voided: frozenset[str] = frozenset()
    _times: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        times = frozenset(name.partition(".")[0] for name in self.instants)
        object.__setattr__(self, "_times", times)

    def __bool__(self) -> bool:
        return bool(self.instants)

    def has(self, instant: Instant) -> bool:
        """Return True if the log contains an instant. The pending files of a completed instant are
        contained, too.
        """
        if instant.state == COMPLETED:
            return f"{instant.time}.{instant.action}" in self.instants
        return instant.time in self._times

    def followed_by(self, header: Mapping[str, Any]) -> Imports:
        """Return the imports after a record with this header."""
        value = header.get("imported")
        if value is not None:
            return _parse(value)
        more = header.get("unsettled")
        if more is None:
            return self
        unsettled = self.unsettled.union((partition, file_id) for partition, file_id in more)
        return replace(self, unsettled=unsettled)

    def to_json(self) -> dict[str, Any]:
        """Return the imports as records and checkpoints store them."""
        return {
            "instants": sorted(self.instants),
            "unsettled": [list(group) for group in sorted(self.unsettled)],
            "voided": sorted(self.voided),
        }


def _parse(value: Mapping[str, Any]) -> Imports:
    unsettled = ((partition, file_id) for partition, file_id in value["unsettled"])
    return Imports(frozenset(value["instants"]), frozenset(unsettled), frozenset(value["voided"]))


def are_imports(value: Any) -> bool:
    """Return True if ``value`` has the form that :meth:`Imports.to_json` returns."""
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        return False
    lists = value["instants"], value["unsettled"], value["voided"]
    if not all(isinstance(part, list) and len(part) <= LIST_ITEMS_MAX for part in lists):
        return False
    instants, groups, voided = lists
    if not all(map(_is_instant, instants)) or not all(map(names.is_instant, voided)):
        return False
    return all(map(_is_group, groups))


def are_groups(value: Any) -> bool:
    """Return True if ``value`` is a list of file groups, as [partition path, file id]."""
    return isinstance(value, list) and len(value) <= LIST_ITEMS_MAX and all(map(_is_group, value))


def imports_of(header: Mapping[str, Any]) -> Imports:
    """Return the imports in the header of a checkpoint. Raises ValueError if they are malformed."""
    value = header.get("imported", Imports().to_json())
    if not are_imports(value):
        raise ValueError("the imports are malformed")
    return _parse(value)


def _is_instant(value: Any) -> bool:
    if not isinstance(value, str) or _INSTANT.fullmatch(value) is None:
        return False
    return is_time(value.partition(".")[0])


def _is_group(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not names.is_partition(value[0]):
        return False
    return isinstance(value[1], str) and 0 < len(value[1]) <= NAME_BYTES_MAX
