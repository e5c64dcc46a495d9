"""The records of a table's log that import the states of a table that other Hudi writers write.

Record 0 defines the table, and each later record imports the file slices that have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mdt.hudi import timeline
from mdt.hudi.read.instants import Timeline, completed_instants
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.table_schema import TableSchema
from mdt.importing.imported_definition import changed_version, data_columns, definition_of
from mdt.importing.imported_records import (
    changed_rows,
    import_header,
    import_sections,
    unsettled_groups,
)
from mdt.importing.imported_slices import Importer, MergedFiles
from mdt.importing.imported_steps import (
    PlacedSlice,
    SliceStep,
    batches,
    changed_groups,
    placed_slices,
    slice_steps,
)
from mdt.metadata.files.file_group import MERGED
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.imports import GroupId, Imports
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage

_NO_WRITE = "19700101000000000"
"""Instant of a table without a completed write."""


def import_records(
    source: Storage,
    merged: MergedFiles,
    state: TableState,
    after: Snapshot | None,
    *,
    schema: TableSchema,
    is_past: bool = False,
) -> Iterator[CommitRecord]:
    """Yield the records that import a state, none if the log contains it.

    Args:
        source: The table's storage, which is only read.
        merged: Gets the merged files.
        after: The newest snapshot of the log, None if there is no log yet.
        schema: The columns of the state.
        is_past: The state is one of several. It gets a record even without a change, and from the
            second one on, the record contains the rows that changed.

    Raises Corrupt, Unsupported if the state cannot be read, and Missing if files were deleted
    meanwhile.
    """
    columns = data_columns(schema.columns)
    instant = _later(_newest(state), 0)
    placed, unsettled = dict[GroupId, PlacedSlice](), frozenset[GroupId]()
    version, seq, is_older_copy = None, 1, False
    if after is None:
        definition = definition_of(state.table, columns, source)
        created = _header(source, "create", _later(instant, -1), -1)
        yield CommitRecord(0, created | {"definition": definition.to_json()})
    else:
        definition, seq = after.definition, after.seq + 1
        version = changed_version(definition, columns, seq, definition.numbered)
        unsettled = after.imports.unsettled
        is_older_copy = _has_lost_writes(state.timeline, after.imports)
        placed = placed_slices(after, unsettled)
        if instant <= after.last_instant:
            instant = _later(after.last_instant, 1)
    stored = definition.schema if version is None else version.schema
    importer = Importer(source, merged.add, state, schema, stored, _newest(state))
    is_altered = version is not None
    groups = changed_groups(placed, state.slices, all_change=is_altered or is_older_copy)
    has_changes = is_past and bool(placed)
    parts = list(batches(groups, state.slices))
    if has_changes or (not parts and (is_past or is_altered)):
        parts = [groups]  # a single record, even without a change
    for number, part in enumerate(parts):
        steps = slice_steps(importer, placed, state.slices, part, is_altered=is_altered)
        tables = import_sections(steps, stored)
        if has_changes:
            tables |= changed_rows(steps, source, merged.storage)
        imports = None
        if number == len(parts) - 1:
            imports = Imports(completed_instants(state.timeline))
        header = _header(source, IMPORT, _later(instant, number), seq + number - 1)
        unsettled = unsettled_groups(unsettled, steps)
        header |= import_header(steps, imports, unsettled, version)
        if not is_past:
            merged.remove_later(_replaced(steps), source.now_us())
        version = None
        yield CommitRecord(seq + number, header, tables)


def _has_lost_writes(active: Timeline, known: Imports) -> bool:
    """Return True if writes that the log contains are neither on the timeline nor archived.

    They were restored, or a backup is in the place of the table. Log files of version 6 then get
    the names of lost ones.
    """
    lost = known.instants - completed_instants(active)
    times = (name.partition(".") for name in lost)
    return any(time > active.start for time, _, action in times if action in timeline.WRITES)


def _header(source: Storage, action: str, instant: str, begun_at: int) -> dict[str, Any]:
    return {
        "txn": source.random_hex(16),
        "instant": instant,
        "action": action,
        "operation": action,
        "begun_at": begun_at,
        "counts": {},
    }


def _replaced(steps: Sequence[SliceStep]) -> Iterator[str]:
    """Yield the paths of the merged files that ``steps`` replace."""
    for step in steps:
        for part, _ in step.removed:
            if step.old is not None and part.kind == MERGED:
                yield step.old.slice.path(part)


def _newest(state: TableState) -> str:
    """Return the instant of the newest write in a state."""
    at = state.at
    times = [write.time for write in state.timeline.writes() if not at or write.time <= at]
    return max(times, default=_NO_WRITE)


def _later(instant: str, milliseconds: int) -> str:
    """Return an instant in 17 digits, moved by some milliseconds."""
    return timeline.instant_text(timeline.date_us(instant) + 1_000 * milliseconds)
