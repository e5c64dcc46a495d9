"""The log of a table that other Hudi writers write: a record for each state that we have read.

Record 0 defines the table, and each later record imports the file slices that have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mdt.errors import Missing, Unsupported
from mdt.hudi import timeline
from mdt.hudi.read.file_slices import Files, FileSlice
from mdt.hudi.read.instants import Timeline, completed_instants
from mdt.hudi.read.loading import (
    TableState,
    load_files,
    load_properties,
    load_timeline,
    state_of,
)
from mdt.hudi.read.service_metadata import GroupId
from mdt.hudi.read.table_properties import TableProperties, refuse
from mdt.hudi.read.table_schema import load_schema
from mdt.hudi.read.table_state import load_state
from mdt.importing.imported_definition import (
    data_columns,
    definition_of,
    known_columns,
    next_version,
)
from mdt.importing.imported_records import changed_rows, import_sections
from mdt.importing.imported_slices import Importer, MergedFiles
from mdt.importing.imported_steps import (
    PlacedSlice,
    SliceStep,
    batches,
    changed_groups,
    placed_groups,
    placed_slices,
    slice_steps,
)
from mdt.importing.past_states import require_state
from mdt.metadata.files.file_group import MERGED
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.imports import Imports
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.versions import SchemaVersion
from mdt.stores.storage import Storage

_TRIES = 3
"""Attempts to read a state, because a writer may clean files at the same time."""
_WAIT_SECONDS = 0.1
_NO_WRITE = "19700101000000000"
"""Instant of a table without a completed write."""


class ImportedLog:
    """Makes the records of a table's log from what other writers wrote. Not thread-safe.

    Attributes:
        seq: Number of the newest record, -1 at first.
        first_seq: Number of the last record of the first of several states.
    """

    def __init__(
        self,
        source: Storage,
        merged: MergedFiles,
        instants: Sequence[str] = (),
        *,
        base_only: bool = False,
        after: Snapshot | None = None,
    ) -> None:
        """Prepare to read a table.

        Args:
            source: The table's storage, which is only read.
            merged: Gets the merged files.
            instants: Import the states at these instants, ascending, with the rows that changed
                from each to the next. Empty to follow the newest state.
            base_only: Leave log files out.
            after: A snapshot of the table's own log that the records follow. None to begin anew.
        """
        self.seq = -1
        self.first_seq = 0
        self._source = source
        self._merged = merged
        self._instants = tuple(instants)
        self._base_only = base_only
        self._placed: dict[GroupId, PlacedSlice] = {}
        self._listed: tuple[TableProperties, Timeline, Files] | None = None
        self._timeline: Timeline | None = None
        self._definition: TableDefinition | None = None
        self._identity: tuple[object, ...] = ()
        self._instant = ""
        if after is not None:
            self.seq, self._instant = after.seq, after.last_instant
            self._placed = placed_slices(after, after.imports.unsettled)
            self._definition = after.definition

    def read(self) -> list[CommitRecord]:
        """Return the records of all states at first, later those of changes since the last call.

        Raises Missing if there is no table, Corrupt, and Unsupported if it cannot be read. This
        object is then unusable, so callers read a copy and keep it if that succeeds.
        """
        if not self._instants:
            return self._read_state("")
        records = list[CommitRecord]()
        for at in self._instants if self._timeline is None else ():
            records += self._read_state(at)
            self.first_seq = self.first_seq or records[-1].seq
        self._listed = None
        return records

    def _read_state(self, at: str) -> list[CommitRecord]:
        for _ in range(_TRIES - 1):
            try:
                return self._import_state(at)
            except Missing:
                self._listed = None
                self._source.sleep(_WAIT_SECONDS)
        return self._import_state(at)

    def _load(self, at: str) -> TableState | None:
        """Return the state at an instant, or the newest state, or None if it is known.

        All past states come from a single listing.
        """
        if not at:
            table, active = self._look()
            is_known = self._timeline is not None and self._timeline.files == active.files
            return None if is_known else load_state(self._source, table, timeline=active)
        if self._listed is None:
            self._listed = (*self._look(), load_files(self._source))
        table, active, files = self._listed
        state = state_of(self._source, table, active, files, at)
        require_state(self._source, state, files)
        return state

    def _look(self) -> tuple[TableProperties, Timeline]:
        table = load_properties(self._source)
        refuse(table)
        return table, load_timeline(self._source, table)

    def _import_state(self, at: str) -> list[CommitRecord]:
        """Return the records of the state at an instant, or of the newest state, if it is new."""
        state = self._load(at)
        if state is None:
            return []
        instant = self._next_instant(state)
        schema = load_schema(self._source, state)
        columns = data_columns(schema.columns)
        identity = _identity(state.table)
        if self._identity and identity != self._identity:
            raise Unsupported(
                "another writer has changed the table's properties", hint="open the table again"
            )
        definition, header, records = self._definition, dict[str, Any](), list[CommitRecord]()
        if definition is None:
            definition = definition_of(state.table, columns, self._source)
            records.append(self._create(definition, instant))
        elif not known_columns(definition, columns).equals(definition.schema):
            version = next_version(definition, columns, self.seq + 1)
            definition = _altered(definition, version)
            header["schema"] = version.to_json()
            del header["schema"]["since"]
        seq = self.seq + len(records) + 1
        importer = Importer(
            self._source,
            self._merged.add,
            state,
            schema,
            definition.schema,
            _newest(state),
        )
        slices = self._slices(state)
        groups = changed_groups(self._placed, slices, is_altered=bool(header))
        steps = slice_steps(importer, self._placed, slices, groups, is_altered=bool(header))
        has_changes = bool(self._instants and self._placed)
        parts = [steps] if has_changes else list(batches(steps))
        if not parts and (self._instants or header):
            parts = [[]]  # a record without a change
        placed = dict(self._placed)
        for step in steps:
            if step.old is not None:
                del placed[step.old.slice.file_slice.group_id]
        for number, part in enumerate(parts):
            of_record = header | self._header(IMPORT, _later(instant, number), seq + number - 1)
            tables = import_sections(part, definition.schema)
            if has_changes:
                tables |= changed_rows(part, self._source, self._merged.storage)
            if number == len(parts) - 1:
                of_record["imported"] = Imports(completed_instants(state.timeline)).to_json()
            records.append(CommitRecord(seq + number, of_record, tables))
            placed |= placed_groups(part, seq + number)
            header = {}
        if not self._instants:
            self._merged.remove_later(_replaced(steps), self._source.now_us())
        self._placed = placed
        self._timeline, self._definition, self._identity = state.timeline, definition, identity
        if records:
            self.seq, self._instant = records[-1].seq, records[-1].instant
        return records

    def _create(self, definition: TableDefinition, instant: str) -> CommitRecord:
        header = self._header("create", _later(instant, -1), -1)
        return CommitRecord(0, header | {"definition": definition.to_json()})

    def _header(self, action: str, instant: str, begun_at: int) -> dict[str, Any]:
        return {
            "txn": self._source.random_hex(16),
            "instant": instant,
            "action": action,
            "operation": action,
            "begun_at": begun_at,
            "counts": {},
        }

    def _next_instant(self, state: TableState) -> str:
        """Return the instant of the newest write in a state, or the next one if it was used."""
        newest = _later(_newest(state), 0)
        if newest > self._instant:
            return newest
        return _later(self._instant, 1)

    def _slices(self, state: TableState) -> list[FileSlice]:
        if not self._base_only:
            return state.slices
        return [replace(one, logs=()) for one in state.slices if one.base is not None]


def _replaced(steps: Sequence[SliceStep]) -> Iterator[str]:
    """Yield the paths of the merged files that ``steps`` replace."""
    for step in steps:
        for part, _ in step.removed:
            if step.old is not None and part.kind == MERGED:
                yield step.old.slice.path(part)


def write_instants(source: Storage, after: str, until: str) -> list[str]:
    """Return the instants of completed writes from ``after`` (exclusive) to ``until``.

    Raises Missing if there is no table, Corrupt, and Unsupported if it cannot be read.
    """
    table = load_properties(source)
    writes = (write.time for write in load_timeline(source, table).writes())
    return sorted(time for time in writes if after < time <= until)


def _identity(table: TableProperties) -> tuple[object, ...]:
    """Return the properties that stay the same while a table is written and upgraded."""
    columns = table.key_fields, table.partition_fields, table.ordering_fields
    return table.name, table.table_type, *columns, table.merge_mode, table.hive_style


def _newest(state: TableState) -> str:
    """Return the instant of the newest write in a state."""
    at = state.at
    times = [write.time for write in state.timeline.writes() if not at or write.time <= at]
    return max(times, default=_NO_WRITE)


def _later(instant: str, milliseconds: int) -> str:
    """Return an instant in 17 digits, moved by some milliseconds."""
    return timeline.instant_text(timeline.instant_us(instant) + 1_000 * milliseconds)


def _altered(definition: TableDefinition, version: SchemaVersion) -> TableDefinition:
    try:
        return definition.with_version(version)
    except ValueError as error:
        raise Unsupported(
            f"the columns of the table were changed: {error}", hint="open the table again"
        ) from error
