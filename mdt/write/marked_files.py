"""Names of the data files of a transaction. Each file gets a marker before it is stored
(:mod:`mdt.commit.markers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Lock
from typing import Protocol

from mdt.commit import markers
from mdt.commit.operation import Claim
from mdt.errors import Conflict, Invalid
from mdt.hudi import base_file, log_file
from mdt.hudi.layout import Layout, layout_of
from mdt.hudi.partitions import is_hidden
from mdt.metadata.files import paths
from mdt.metadata.keys import buckets
from mdt.metadata.snapshot.live_partitions import live_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment, slice_instant
from mdt.stores.storage import Storage
from mdt.write.assign import NEW


class FileTarget(Protocol):
    """The properties of a slice that determine the name of its file. See
    :class:`mdt.write.slices.Slice`.
    """

    @property
    def partition(self) -> str:
        """Path of the partition."""

    @property
    def group(self) -> int:
        """Number of the file group, NEW, or the number of a bucket."""

    @property
    def is_log(self) -> bool:
        """True for a log file."""


class MarkedFiles:
    """File names of the slices of a transaction, or of one of its tasks. Thread-safe.

    Slices are identified by their numbers in the transaction or task.
    """

    def __init__(self, storage: Storage, snapshot: Snapshot, claim: Claim) -> None:
        self._storage, self._snapshot, self._claim = storage, snapshot, claim
        self._names: dict[tuple[int, bool], tuple[str, str]] = {}
        self._under_way: list[Callable[[], object]] = []
        self._lock = Lock()

    def mark(self, targets: Iterable[tuple[int, FileTarget]]) -> None:
        """Begin to put the markers of numbered slices. A single call for many slices takes fewer
        requests.
        """
        files = []
        for number, target in targets:
            file_id, name = self._named(number, target)
            self._names[number, target.is_log] = file_id, name
            files.append(paths.partition_file(target.partition, name))
        if files:
            self._require_running(files[0])
            storage, instant, layout = (
                self._storage,
                self._claim.instant,
                layout_of(self._snapshot.definition),
            )
            name = self._claim.write_token(number)
            self._under_way.append(
                storage.begin(partial(markers.put, storage, layout, instant, name, files))
            )

    def file(self, number: int, target: FileTarget) -> tuple[str, str]:
        """Return (file id, file name) of a slice.

        Puts the marker if :meth:`mark` has not. An update may turn out to need a log file where a
        base file was marked.
        """
        if (number, target.is_log) not in self._names:
            self.mark([(number, target)])
        return self._names[number, target.is_log]

    def wait(self, path: str) -> None:
        """Wait for all pending markers before the file at ``path`` is stored. Every waiting thread
        gets the error if a marker fails.

        Raises Conflict in a task whose transaction has ended.
        """
        with self._lock:
            while self._under_way:
                self._under_way[0]()
                del self._under_way[0]
        self._require_running(path)

    def _require_running(self, path: str) -> None:
        """Raise Conflict in a task whose transaction has ended. Hudi readers would take the file
        for a committed file.
        """
        if (
            self._claim.is_of_task
            and self._storage.size(paths.pending(self._claim.instant)) is None
        ):
            raise Conflict(
                f"the transaction {self._claim.instant} ended before its task stored {path}"
            )

    def _named(self, number: int, target: FileTarget) -> tuple[str, str]:
        snapshot, token, instant = (
            self._snapshot,
            self._claim.write_token(number),
            self._claim.instant,
        )
        if target.group <= NEW:
            _refuse_hidden(snapshot, target.partition)
            file_id = base_file.new_file_id(self._storage.random_hex(16))
            if target.group < NEW:
                file_id = base_file.bucket_file_id(file_id, buckets.bucket_of(target.group))
        else:
            file_id = snapshot.file_groups.name(target.group)
        if not target.is_log:
            return file_id, base_file.name(file_id, token, instant)
        members = snapshot.files.segments(snapshot.file_groups.members(target.group))
        layout = layout_of(snapshot.definition)
        name_instant = layout.log_instant(slice_instant(members), instant)
        return file_id, log_file.name(file_id, name_instant, next_version(layout, members), token)


def next_version(layout: Layout, members: Sequence[Segment]) -> int:
    """Return the version of the next log file of a file group."""
    return layout.log_version(max(member.log_version for member in members))


def _refuse_hidden(snapshot: Snapshot, partition: str) -> None:
    """Raise Invalid for a new partition in a hidden directory, which hudi-rs does not read.
    Existing partitions are accepted.
    """
    if is_hidden(partition) and partition not in live_paths(snapshot):
        raise Invalid(
            f"a partition cannot be in the directory {partition.partition('/')[0]!r}, because"
            " hudi-rs does not read it",
            hint=(
                "change the value, or create the table with mdt.hive.style=true, which names"
                " directories column=value"
            ),
        )
