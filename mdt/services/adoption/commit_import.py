"""Import of the commits of other Hudi writers into the log of a table.

A commit adds the file slices that have changed on Hudi's timeline, and removes those that they
replace. Base files stay in place. Live rows of log files are written into merged files, see
:mod:`mdt.importing.imported_slices`. Large imports take several commits, and only the last of them
tells readers that the log is up to date (:mod:`mdt.metadata.log.imports`). After a crash, the next
import continues with the slices that are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.recovery import settle_beside_others
from mdt.commit.transaction import run
from mdt.config import FORMATS_OPTION
from mdt.errors import Missing, Unsupported
from mdt.formats.registry import inexpressible
from mdt.hudi import timeline
from mdt.hudi.layout import layout_of
from mdt.hudi.read.instants import Timeline, completed_instants
from mdt.hudi.read.loading import TableState, load_properties, load_timeline
from mdt.hudi.read.service_metadata import GroupId
from mdt.hudi.read.table_properties import refuse
from mdt.hudi.read.table_schema import TableSchema, load_schema
from mdt.hudi.read.table_state import load_state
from mdt.hudi.timeline import COMPLETED
from mdt.importing.imported_definition import (
    changed_version,
    data_columns,
    require_writable_columns,
)
from mdt.importing.imported_records import (
    changed_rows,
    import_header,
    import_sections,
    unsettled_groups,
)
from mdt.importing.imported_slices import Importer
from mdt.importing.imported_steps import (
    PlacedSlice,
    batches,
    changed_groups,
    placed_slices,
    slice_steps,
)
from mdt.metadata.history.foreign_writers import read_properties, refuse_version
from mdt.metadata.history.tolerate_missing import retry_missing
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.imports import Imports
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.schema.versions import SchemaVersion


@dataclass(frozen=True, slots=True)
class ImportPlan(WritePlan):
    """The slices to import.

    Attributes:
        state: The state of the table on Hudi's timeline.
        schema: Its columns.
        placed: The slices of the log by file group.
        groups: The file groups to import now.
        total: Number of file groups to import now and later.
        imports: The field ``imported`` of the record, None if more records follow.
        version: The schema version that the record begins, None for the current columns.
        ended_formats: The formats that the table loses.
    """

    state: TableState = field(kw_only=True)
    schema: TableSchema = field(kw_only=True)
    placed: Mapping[GroupId, PlacedSlice] = field(kw_only=True)
    groups: Sequence[GroupId] = field(kw_only=True)
    total: int = field(kw_only=True)
    imports: Imports | None = field(kw_only=True)
    version: SchemaVersion | None = field(kw_only=True)
    ended_formats: Sequence[str] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class CommitImport(Operation[ImportPlan]):
    """The operation that imports commits of other writers.

    Attributes:
        done: File groups that earlier commits of the same import contain.
    """

    metadata: Metadata
    progress: Progress | None = None
    done: AbstractSet[GroupId] = frozenset()
    name: str = "import"
    action: str = IMPORT

    def prepare(self, snapshot: Snapshot, txn: str) -> ImportPlan:
        """Compare the log with Hudi's timeline.

        Raises Corrupt, and Unsupported if the state cannot be read or the table was changed in a
        way that the log cannot describe.
        """
        source = self.metadata.storage
        stored = read_properties(source)
        if stored is not None:
            refuse_version(stored, layout_of(snapshot.definition))
        voided = snapshot.imports.voided | settle_beside_others(self.metadata)
        table = load_properties(source)
        refuse(table)
        active = load_timeline(source, table)
        state = load_state(source, table, timeline=active)
        schema = load_schema(source, state)
        old = snapshot.definition
        require_writable_columns(schema, old.fixed, is_adopted=old.adopted)
        columns = data_columns(schema.columns)
        version = changed_version(old, columns, snapshot.seq + 1, schema.numbered)
        changed = old
        if version is not None:
            changed = old.with_version(version)
        is_altered = not changed.schema.equals(old.schema)
        placed = placed_slices(snapshot, snapshot.imports.unsettled)
        groups = changed_groups(placed, state.slices, all_change=is_altered)
        groups = [group for group in groups if not self._is_done(group, placed, state)]
        instants = _other_instants(active, snapshot)
        chosen: Sequence[GroupId] = groups
        if not is_altered:
            chosen = next(batches(groups, state.slices), ())
        imports = None
        if len(chosen) == len(groups):
            imports = Imports(instants, voided=voided)
        ended = inexpressible(changed, {partition for partition, _ in chosen})
        is_known = instants <= snapshot.imports.instants and voided == snapshot.imports.voided
        return ImportPlan(
            Footprint(txn, everything=True),
            is_needed=bool(chosen) or not is_known,
            after=_newest(active),
            state=state,
            schema=schema,
            placed=placed,
            groups=chosen,
            total=len(groups),
            imports=imports,
            version=version,
            ended_formats=ended,
            warnings=tuple(
                f"the table no longer has the format {name}, which cannot express the columns or"
                " partitions that another Hudi writer has made"
                for name in ended
            ),
        )

    def _is_done(
        self, group: GroupId, placed: Mapping[GroupId, PlacedSlice], state: TableState
    ) -> bool:
        """Return True if the log has the slice of a group, which may only have pending blocks."""
        if group not in self.done or group not in placed:
            return False
        return placed[group].slice.file_slice in state.slices

    def write(self, snapshot: Snapshot, plan: ImportPlan, claim: Claim) -> Changes:
        """Read the files of the slices, and write merged files."""
        storage = self.metadata.storage
        definition = snapshot.definition
        if plan.version is not None:
            definition = definition.with_version(plan.version)
        exact = definition.file_schema if definition.other_formats else None
        importer = Importer(
            storage,
            storage.create,
            plan.state,
            plan.schema,
            definition.schema,
            _newest(plan.state.timeline),
            str(claim.token),
            exact=exact,
        )
        steps = slice_steps(
            importer,
            plan.placed,
            plan.state.slices,
            plan.groups,
            is_altered=not definition.schema.equals(snapshot.definition.schema),
            progress=partial(self._report, plan),
        )
        require_names(part.name for step in steps for part in step.added)
        tables, extra = import_sections(steps, definition.schema), dict[str, Any]()
        try:
            tables |= changed_rows(steps, storage, storage)
        except Missing:
            extra["without_changes"] = True  # the old files have been cleaned
        unsettled = unsettled_groups(snapshot.imports.unsettled, steps)
        extra |= import_header(steps, plan.imports, unsettled, plan.version)
        if plan.ended_formats:
            formats = snapshot.definition.parsed.formats
            remaining = [name for name in formats if name not in plan.ended_formats]
            extra["options"] = {FORMATS_OPTION: ",".join(remaining)}
        return Changes(imported=tables, extra=extra)

    def _report(self, plan: ImportPlan, slices: int) -> None:
        if self.progress is not None:
            self.progress(len(self.done) + slices, len(self.done) + plan.total)


def import_commits(metadata: Metadata, progress: Progress | None = None) -> int:
    """Import everything that other writers have committed. Return the number of commits made.

    Raises Corrupt, Conflict, Unavailable, and Unsupported if a state cannot be imported.
    """
    commits, done = 0, set[GroupId]()
    while True:
        result = retry_missing(lambda: run(metadata, CommitImport(metadata, progress, done)))
        if result.record is None:
            return commits
        commits += 1
        done.update(result.plan.groups)
        if result.plan.imports is not None:
            return commits


def require_names(file_names: Iterable[str]) -> None:
    """Raise Unsupported for file names that writers of mdt cannot continue."""
    for name in file_names:
        if names.token_of(name) is None:
            raise Unsupported(
                f"the file {name[:200]} has a name without a write token of three numbers,"
                " or with _ in its file id, as old or other writers give",
                hint="cluster or compact the table with Hudi, or read it with mdt.open(path)",
            )


def _other_instants(active: Timeline, snapshot: Snapshot) -> frozenset[str]:
    """Return the completed instants of other writers as ``<time>.<action>``."""
    instants = set[str]()
    for name in completed_instants(active):
        time, _, action = name.partition(".")
        if not snapshot.is_ours(time, action):
            instants.add(name)
    return frozenset(instants)


def _newest(active: Timeline) -> str:
    """Return the newest time of a completed instant of any action, of its request or completion,
    as 17 digits. "" if there is none.
    """
    completed = (
        max(file.time, file.completion) for file in active.files if file.state == COMPLETED
    )
    newest = max(completed, default="")
    return newest[: timeline.INSTANT_DIGITS].ljust(timeline.INSTANT_DIGITS, "0") if newest else ""
