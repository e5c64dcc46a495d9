"""The timeline of a table: names of instants in both layouts, and which instants are completed.

Layout 1 (version 6) names a completed instant ``<time>.<action>``, layout 2 (versions 8 and 9)
``<time>_<completion time>.<action>``. Pending instants are called ``<time>.<action>.requested``
and ``<time>.<action>.inflight`` in both, and an inflight commit ``<time>.inflight``. Times are
compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mdt.hudi.timeline import ACTIONS, COMPLETED, INFLIGHT, REQUESTED, WRITES

REPLACE = "replacecommit"
CLUSTERING = "clustering"
COMPACTION = "compaction"
SAVEPOINT = "savepoint"

_NAME = re.compile(
    r"([0-9]{14,23})(?:_([0-9]{14,20}))?\.([a-z]+)(?:\.(requested|inflight))?", re.ASCII
)


@dataclass(frozen=True, slots=True, order=True)
class InstantFile:
    """The file of one state of an instant.

    Attributes:
        time: Time of the request, 14 to 23 digits.
        completion: Time of the completion, "" if pending. Layout 1 does not store it, so it is
            the time of the request there.
        action: One of :data:`mdt.hudi.timeline.ACTIONS`.
        state: requested, inflight or completed.
        path: Path in the table.
        size: Size in bytes.
    """

    time: str
    completion: str
    action: str
    state: str
    path: str = ""
    size: int = 0


def parse_name(name: str, layout: int) -> InstantFile | None:
    """Return the instant of a file name, or None for any other file.

    >>> parse_name("20240229120000123_20240229120001456.commit", 2).completion
    '20240229120001456'
    >>> parse_name("20240229120000123.inflight", 1).action
    'commit'
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    time, completion, action, state = match.groups()
    if action == INFLIGHT and state is None:
        action, state = "commit", INFLIGHT
    if action not in ACTIONS:
        return None
    if completion and (layout == 1 or state):
        return None
    if state:
        return InstantFile(time, "", action, state)
    # Hudi 0.x has left completed instants without completion time in tables of layout 2
    return InstantFile(time, completion or time, action, COMPLETED)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants of a table at one moment.

    Attributes:
        files: The files of all active instants, in order of time.
        completed: Time -> completed file of each completed write.
        pending: Time -> file of each write that is not completed, the requested one if it exists.
        start: Time of the first active write. Older writes were archived and are completed. "" if
            there is no such write.
        history: Time -> completion time of archived instants, as far as they were looked up.
    """

    files: tuple[InstantFile, ...]
    completed: Mapping[str, InstantFile]
    pending: Mapping[str, InstantFile]
    start: str
    history: Mapping[str, str] = field(default_factory=dict)

    def is_completed(self, time: str) -> bool:
        """Return True if the write at ``time`` is completed, active or archived.

        >>> active = timeline_of([InstantFile("20240229120000123", "", "commit", "requested")])
        >>> active.is_completed("20240229120000123"), active.is_completed("20240101000000000")
        (False, True)
        """
        if time in self.completed:
            return True
        if time in self.pending:
            return False
        return time < self.start or time in self.history

    def completion(self, time: str) -> str | None:
        """Return the completion time of the write at ``time``, or None if it is not completed.

        An archived write that was not found in the history has completed at ``time``.
        """
        if time in self.completed:
            return self.completed[time].completion
        if not self.is_completed(time):
            return None
        return self.history.get(time, time)

    def is_pending_compaction(self, time: str) -> bool:
        """Return True if a compaction is requested or running at ``time``."""
        return time in self.pending and self.pending[time].action == COMPACTION

    def writes(self) -> list[InstantFile]:
        """Return the active completed writes, in the order of their completion."""
        return sorted(self.completed.values(), key=_by_completion)

    def of_action(self, action: str, state: str = COMPLETED) -> list[InstantFile]:
        """Return the files of the instants with ``action`` and ``state``, in order of time."""
        files = []
        for file in self.files:
            if file.action == action and file.state == state:
                files.append(file)
        return files

    def needs_history(self, time: str) -> bool:
        """Return True if only the history knows when the write at ``time`` was completed."""
        return time not in self.completed and time not in self.pending

    def with_history(self, history: Mapping[str, str]) -> Timeline:
        """Return this timeline with completion times of archived instants.

        Args:
            history: Time -> completion time.
        """
        return replace(self, history={**self.history, **history})


def timeline_of(files: Iterable[InstantFile]) -> Timeline:
    """Return the timeline of all ``files`` of active instants."""
    ordered = tuple(sorted(files))
    completed: dict[str, InstantFile] = {}
    unfinished: dict[str, InstantFile] = {}
    savepoints = set()
    for file in ordered:
        if file.action == SAVEPOINT:
            savepoints.add(file.time)
        elif file.action in WRITES:
            instants = completed if file.state == COMPLETED else unfinished
            if file.time not in instants or file.state == REQUESTED:
                instants[file.time] = file
    pending = {time: file for time, file in unfinished.items() if time not in completed}
    return Timeline(ordered, completed, pending, _start(completed, pending, savepoints))


def completed_instants(timeline: Timeline) -> frozenset[str]:
    """Return the completed instants of every action as ``<time>.<action>``."""
    files = (file for file in timeline.files if file.state == COMPLETED)
    return frozenset(f"{file.time}.{file.action}" for file in files)


def _start(
    completed: Mapping[str, InstantFile], pending: Mapping[str, InstantFile], savepoints: set[str]
) -> str:
    """Return the time of the first active write.

    A commit with a savepoint stays active after later ones were archived, so it does not count.
    Hudi 1.2.0 lets it count in versions 8 and 9, and does not read the later ones any more.
    """
    return min((completed.keys() | pending.keys()) - savepoints, default="")


def _by_completion(file: InstantFile) -> tuple[str, str]:
    return file.completion, file.time
