"""The changes of file groups from a state of a table of other writers to the next."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyroaring import BitMap

from indexes.arrays import in_batches
from mdt.hudi import file_names
from mdt.hudi.file_names import LogFileName
from mdt.hudi.read.file_slices import DataFile, FileSlice, log_order
from mdt.hudi.read.service_metadata import GroupId
from mdt.importing.imported_slices import (
    ImportedPart,
    ImportedSlice,
    Importer,
    PartKey,
)
from mdt.limits import IMPORTED_FILES_PER_RECORD_MAX
from mdt.metadata.files.file_group import BASE, LOG
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """A slice in the log.

    Attributes:
        segments: Part -> number of its segment.
        dead: Part with rows in a merged file or log file of ours -> its dead rows.
    """

    slice: ImportedSlice
    segments: Mapping[PartKey, int]
    dead: Mapping[PartKey, BitMap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceStep:
    """The change of a file group from a state to the next.

    Attributes:
        old: The slice before, None for a new file group.
        new: The slice afterwards, None if the file group has no rows any more.
        removed: The files that leave, with their segments.
        added: The files that come.
        vectors: Segment of a base file that stays -> its rows that are dead from now on.
    """

    old: PlacedSlice | None
    new: ImportedSlice | None
    removed: Sequence[tuple[ImportedPart, int]]
    added: Sequence[ImportedPart]
    vectors: Mapping[int, BitMap]

    @classmethod
    def between(
        cls, old: PlacedSlice | None, new: ImportedSlice | None, *, is_altered: bool
    ) -> SliceStep:
        """Return the step between two slices.

        Files that both have stay. A base file is added again if its dead rows become live, because
        deletion vectors only grow.

        Args:
            is_altered: True if the columns change. No file stays then.
        """
        old_parts, new_parts = old.slice.parts if old else (), new.parts if new else ()
        stays, vectors = set[PartKey](), dict[int, BitMap]()
        if old is not None and new is not None and not is_altered:
            stays = {part.key for part in old_parts} & {part.key for part in new_parts}
            bases = {part.key for part in new_parts if part.kind == BASE} & stays
            if not old.slice.dead <= new.dead:
                stays -= bases
            elif new.dead != old.slice.dead:
                vectors = {old.segments[base]: new.dead - old.slice.dead for base in bases}
        removed = [part for part in old_parts if part.key not in stays]
        return cls(
            old,
            new,
            [(part, old.segments[part.key]) for part in removed if old],
            [part for part in new_parts if part.key not in stays],
            vectors,
        )

    @property
    def dead(self) -> Mapping[PartKey, BitMap]:
        """Base file that comes -> its dead rows."""
        if self.new is None or not self.new.dead:
            return {}
        return {part.key: self.new.dead for part in self.added if part.kind == BASE}

    @property
    def group_id(self) -> GroupId:
        """The partition path and the file id."""
        if self.new is not None:
            return self.new.file_slice.group_id
        assert self.old is not None, "a step has a slice before or afterwards"
        return self.old.slice.file_slice.group_id


def batches(groups: Iterable[GroupId], slices: Iterable[FileSlice]) -> Iterator[list[GroupId]]:
    """Return the file groups of each record, as many as a record may have files of.

    Args:
        slices: The slices of the new state.
    """
    files = {file_slice.group_id: len(file_slice.logs) + 2 for file_slice in slices}
    return in_batches(groups, lambda group: files.get(group, 0), IMPORTED_FILES_PER_RECORD_MAX)


def changed_groups(
    placed: Mapping[GroupId, PlacedSlice], slices: Iterable[FileSlice], *, all_change: bool
) -> list[GroupId]:
    """Return the file groups whose slices are not those of the log, sorted.

    Args:
        slices: The slices of the new state.
        all_change: True if every file group changes, as the columns do or as files may have other
            rows than before.
    """
    by_group = {file_slice.group_id: file_slice for file_slice in slices}
    changed = []
    for group in placed.keys() | by_group.keys():
        known = placed.get(group)
        is_known = known is not None and known.slice.is_settled and not all_change
        if not is_known or placed[group].slice.file_slice != by_group.get(group):
            changed.append(group)
    return sorted(changed)


def slice_steps(
    importer: Importer,
    placed: Mapping[GroupId, PlacedSlice],
    slices: Iterable[FileSlice],
    groups: Sequence[GroupId],
    *,
    is_altered: bool,
    progress: Callable[[int], object] | None = None,
) -> list[SliceStep]:
    """Return the steps of ``groups`` to the new ``slices``. Reads the files of the slices.

    Args:
        progress: Called with the number of slices that were read.

    Raises Corrupt, Unsupported, and Missing if files were deleted meanwhile.
    """
    chosen = set(groups)
    new = [file_slice for file_slice in slices if file_slice.group_id in chosen]
    imported = importer.source.each(
        partial(importer.import_slice, file_slice) for file_slice in new
    )
    by_group = dict[GroupId, ImportedSlice]()
    for number, imported_slice in enumerate(imported, 1):
        by_group[imported_slice.file_slice.group_id] = imported_slice
        if progress is not None:
            progress(number)
    return [
        SliceStep.between(placed.get(group), by_group.get(group), is_altered=is_altered)
        for group in groups
    ]


def placed_slices(
    snapshot: Snapshot, unsettled: Container[GroupId] = frozenset()
) -> dict[GroupId, PlacedSlice]:
    """Return the slices of the live files of a snapshot by file group.

    Args:
        unsettled: File groups with blocks of writes that were pending.
    """
    numbers = snapshot.live_numbers
    rows = snapshot.files.take(_COLUMNS, numbers).to_pylist()
    files: dict[GroupId, list[tuple[int, dict[str, object]]]] = {}
    for number, row in zip(numbers.tolist(), rows, strict=True):
        files.setdefault((row["partition"], row["file_id"]), []).append((number, row))
    return {
        group: _placed(snapshot, group, group_files, is_settled=group not in unsettled)
        for group, group_files in files.items()
    }


def _placed(
    snapshot: Snapshot,
    group: GroupId,
    files: Sequence[tuple[int, Mapping[str, Any]]],
    *,
    is_settled: bool,
) -> PlacedSlice:
    """Return the slice of a file group, from its file numbers with their rows of FILES."""
    base, logs, dead = None, list[tuple[LogFileName, DataFile]](), BitMap()
    parts, segments = list[ImportedPart](), dict[PartKey, int]()
    dead_rows = dict[PartKey, BitMap]()
    for number, row in files:
        name, size = row["name"], row["size"]
        part = ImportedPart(
            name,
            row["kind"],
            row["instant"],
            row["log_version"],
            size,
            row["rows"],
            block=(row["block_offset"], row["block_length"]),
        )
        parts.append(part)
        segments[part.key] = row["segment"]
        if part.kind == BASE:
            base = DataFile(name, size, part.instant)
            dead = snapshot.vector(number) or dead
        elif part.rows:
            dead_rows[part.key] = snapshot.vector(number) or BitMap()
        if part.kind == LOG:
            parsed = file_names.parse_log(name, file_names.ANY_LOG)
            assert parsed is not None, "the log has valid names only"
            logs.append((parsed, DataFile(name, size, parsed.instant)))
    ordered = tuple(file for _, file in sorted(logs, key=log_order))
    base_instant = files[0][1]["base_instant"]
    if base is not None:  # log files that came while a compaction was pending name an older one
        base_instant = base.instant
    file_slice = FileSlice(*group, base_instant, base, ordered)
    imported_slice = ImportedSlice(file_slice, tuple(parts), dead, is_settled)
    return PlacedSlice(imported_slice, segments, dead_rows)


_COLUMNS = (
    "partition",
    "file_id",
    "segment",
    "name",
    "kind",
    "base_instant",
    "instant",
    "log_version",
    "size",
    "rows",
    "block_offset",
    "block_length",
)
