"""The parts of Hudi's directory that depend on the table version, and the supported versions.

A layout defines the names and bodies of instants, and the order of writes. It does no I/O and makes
no decisions. Its results depend on its arguments only, so everything can be recreated after a
crash.

Base files, blocks of log files, plans of services, bodies of cleanings and partition markers are
the same in all versions, and therefore not part of a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from mdt.errors import Unsupported
from mdt.hudi.commit_metadata import Cleaned, CommitMetadata
from mdt.hudi.timeline import Archive, Instant, InstantContent
from mdt.hudi.v6 import Version6
from mdt.hudi.v9 import Version8, Version9
from mdt.schema.definition import TableDefinition


class Layout(Protocol):
    """One table version of Hudi. Paths are relative to the table.

    In all methods, ``time`` is the time of an instant, 17 digits, and ``completion`` the time of
    its completion, which version 6 ignores. ``action`` is Hudi's name of the pending action:
    commit, deltacommit, compaction or replacecommit.

    Attributes:
        version: Value of ``hoodie.table.version``.
        versions: Values of it with which writers of this layout go on. Hudi 1.1 and newer upgrade
            version 8 with their first write, and change no instant and no data.
        has_completions: True if the names of completed instants have completion times.
        has_positions: True if all readers accept positions of replaced rows in log blocks.
        archive: Directory of Hudi's archive of instants.
        archived_actions: Actions of the completed instants that the archive gets.
        decisive: Properties that determine how the files of a table are read. They never change.
        timeline: Directory of the instants. Names of instants begin with their time, so a listing
            is in order. Other names in that directory begin with a letter or a dot.
    """

    version: int
    versions: Sequence[int]
    has_completions: bool
    has_positions: bool
    timeline: str
    archive: str
    archived_actions: AbstractSet[str]
    decisive: Sequence[str]

    # names

    def instant_at(self, path: str) -> Instant | None:
        """Return the instant of the file at ``path``, or None. Accepts any path."""

    def path_of(self, instant: Instant) -> str:
        """Return the path of the file of an instant."""
        ...

    def completed_path(self, time: str, completion: str, action: str) -> str:
        """Return the path of the file whose creation completes an action.

        ``completion`` is "" for commits from before an upgrade.
        """
        ...

    def log_instant(self, base_instant: str, time: str) -> str:
        """Return the instant in the name of a log file: the base file's instant or its own,
        ``time``.
        """
        ...

    def log_version(self, last: int) -> int:
        """Return the number in the name of a log file, after the largest one in its slice, 0 if
        it is the first.
        """
        ...

    def marker(self, path: str) -> str:
        """Return the name of the marker for the data file at ``path``.

        It is relative to the transaction's marker directory.
        """
        ...

    # bodies

    def properties(self, definition: TableDefinition) -> dict[str, str]:
        """Return the content of ``hoodie.properties`` of a new table, including the checksum."""
        ...

    def completed_body(self, time: str, metadata: CommitMetadata) -> bytes:
        """Return the content of a completed instant."""
        ...

    def extra(self, body: bytes) -> Mapping[str, str]:
        """Return the private entries of any writer's completed instant. Raises Corrupt for invalid
        bytes.
        """
        ...

    # order

    def announced(
        self, time: str, action: str, profile: bytes = b""
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files to write when a transaction begins, in any order.

        There are none for a transaction without data files.

        Args:
            profile: Content of the inflight instant, see
                :func:`mdt.hudi.commit_metadata.encode_profile`.
        """
        ...

    def retracted(self, time: str, action: str) -> Sequence[str]:
        """Return the paths to delete, in this order, if a transaction will not commit."""
        ...

    def completed(
        self,
        time: str,
        completion: str,
        action: str,
        metadata: CommitMetadata,
        plan: Sequence[Mapping[str, Any]],
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files to write after a commit, in this order.

        The first one is at :meth:`completed_path` and makes the commit visible.

        Args:
            metadata: The metadata of the commit. For log files they contain the slice's base file
                and all its log files so far.
            plan: The plan of a compaction or clustering, see :mod:`mdt.hudi.compaction_plan` and
                :mod:`mdt.hudi.clustering_plan`.
        """
        ...

    def upgraded(self, instant: Instant, body: bytes) -> tuple[str, bytes]:
        """Return (path, content) of an instant of version 6 after an upgrade to this version.

        Raises Corrupt if the content cannot be read.
        """
        ...

    def upgraded_properties(
        self, stored: Mapping[str, str], definition: TableDefinition
    ) -> dict[str, str]:
        """Return the properties of a table of version 6 after an upgrade to this version."""
        ...

    def superseded(self, time: str, action: str, operation: str) -> Sequence[str]:
        """Return the paths to delete when a commit is complete, before the second and later files
        of :meth:`completed`: pending instants that are not those of a service.

        Args:
            operation: Hudi's operation type.
        """
        ...

    def archived(
        self,
        existing: Sequence[str],
        read: Callable[[str], bytes],
        instants: Sequence[InstantContent],
    ) -> Archive:
        """Return the objects that add instants to Hudi's archive.

        Args:
            existing: Paths of the objects in the folder ``archive``.
            read: Returns the content of such an object.
            instants: Completed instants with ``archived_actions``, oldest first.

        Raises Corrupt if an instant or an object of the archive cannot be read.
        """
        ...

    def archive_pointer(self, existing: Sequence[str]) -> tuple[str, bytes] | None:
        """Return (path, content) of the object that names the newest part of Hudi's archive, which
        is replaced when there is a new part, or None.

        Args:
            existing: As in :meth:`archived`.
        """
        ...

    def cleaned(self, cleaning: Cleaned) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files to write after the commit of a cleaning, in this
        order.

        As in :meth:`completed`, the first one makes the cleaning visible.
        """
        ...

    def savepoint(
        self,
        time: str,
        completion: str,
        at_ms: int,
        comment: str,
        files: Mapping[str, Sequence[str]],
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of a savepoint on the commit ``time``, in the order of writing.

        A savepoint protects the snapshot from Hudi's services.

        Args:
            at_ms: Creation time in milliseconds since 1970.
            files: Partition path -> names of the snapshot's data files.
        """
        ...

    def restored(self, time: str, completion: str, to: str) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files written next to the commit ``time`` of a restore, in
        order.

        Args:
            to: Instant of the restored snapshot.
        """
        ...

    def indexing(
        self, time: str, completion: str, specs: Sequence[str]
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the instants of an index build: requested, inflight and
        completed.
        """
        ...


LAYOUTS: dict[int, Layout] = {6: Version6(), 8: Version8(), 9: Version9()}
"""Table version -> its layout."""


def layout_of(definition: TableDefinition) -> Layout:
    """Return the layout of a table. Raises Unsupported for a table version that mdt does not
    support.
    """
    layout = LAYOUTS.get(definition.hudi_version)
    if layout is None:
        versions = ", ".join(map(str, LAYOUTS))
        raise Unsupported(
            f"Hudi's table version {definition.hudi_version} is not supported, only {versions}",
            hint="upgrade the package pyspark-mdt",
        )
    return layout


def log_instants(base_instant: str, time: str) -> set[str]:
    """Return the instants that the name of a log file may contain in any layout.

    For callers that do not have the table's definition.
    """
    return {layout.log_instant(base_instant, time) for layout in LAYOUTS.values()}
