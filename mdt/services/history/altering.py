"""Changes of a table's schema or options.

A change is a commit without files. Its record contains the next schema version and the changed
options. Existing files stay as they are. Indexes on renamed or widened columns lose their
summaries, and indexes on dropped columns are dropped. Other readers do not know schema versions, so
changes after which they would read older files differently are refused, unless the caller accepts
that (Hudi's readers only) or has all rows written again in the same commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from indexes import registry
from mdt.commit.conflicts import Footprint
from mdt.commit.hudi_record_index import require_unique_keys
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import FORMATS_OPTION
from mdt.errors import Invalid
from mdt.formats.registry import refuse_alteration
from mdt.importing.imported_files import fits, read_file
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE, LOG
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import named_spec
from mdt.metadata.snapshot.apply import change_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.schema.alter import Alteration, apply_alteration
from mdt.schema.definition import TableDefinition
from mdt.schema.header_fields import present
from mdt.schema.versions import Column, SchemaVersion, version_of
from mdt.services.layout.compaction import compact_groups
from mdt.services.layout.rewriting import RewriteRunner, in_process
from mdt.stores.storage import Storage
from mdt.write.new_files import WriteJob


@dataclass(frozen=True, slots=True)
class AlterPlan(WritePlan):
    """The next schema version (None if the schema stays), the changed options, and the numbers of
    the file groups to write again.
    """

    version: SchemaVersion | None = None
    options: Mapping[str, str | None] = field(default_factory=dict)
    groups: Sequence[int] = ()

    def moved(self) -> Sequence[int]:
        """Return the file groups."""
        return self.groups


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How an alteration writes all rows again.

    Attributes:
        progress: Called with the number of finished file groups and of all.
        runner: Where rows are written.
    """

    metadata: Metadata
    progress: Progress | None = None
    runner: RewriteRunner = in_process


@dataclass(frozen=True, slots=True)
class Alter(Operation[AlterPlan]):
    """The alter operation.

    Attributes:
        storage: The table.
        find_alteration: Function from the current definition to the requested alteration.
        beyond_hudi: True to allow changes that other readers of the directory read differently.
        options: As returned by :func:`mdt.config.changed_options`.
        rewriting: None if existing files stay.
    """

    storage: Storage
    find_alteration: Callable[[TableDefinition], Alteration]
    action: str
    beyond_hudi: bool = False
    name: str = "alter_schema"
    options: Mapping[str, str | None] = field(default_factory=dict)
    rewriting: Rewriting | None = None

    @property
    def moves_rows(self) -> bool:
        """True if all rows are written again."""
        return self.rewriting is not None

    def prepare(self, snapshot: Snapshot, txn: str) -> AlterPlan:
        """Return the next version. Raises Invalid with a reason if that is not possible."""
        before = snapshot.definition
        changed = before.with_options(self.options)
        require_unique_keys(changed)
        options = self.options if changed is not before else {}
        version: SchemaVersion | None = None
        alteration = self.find_alteration(before)
        if alteration:
            version = apply_alteration(before, alteration, snapshot.seq + 1)
            changed = changed.with_version(version)
        adds_formats = self._adds_formats(snapshot, changed)
        decides_all = adds_formats or self.moves_rows
        if version is not None and not self.moves_rows:
            if not self.beyond_hudi:
                _refuse("answer differently", list(hudi_differences(before, version)), "")
                _refuse("fail", list(_log_file_problems(snapshot, version)), "compact() first; or ")
            decides_all |= before.is_mor and _changes_nested_type(before, version)
        footprint = Footprint(txn, alters=True, everything=decides_all)
        if version is not None and is_unaltered(before, version):
            version = None
        is_needed = version is not None or bool(options)
        groups: Sequence[int] = ()
        if is_needed and self.moves_rows:
            groups = snapshot.live_groups.tolist()
        return AlterPlan(
            footprint,
            sorted({snapshot.file_groups.partition(group) for group in groups}),
            is_needed=is_needed,
            version=version,
            options=options,
            groups=groups,
        )

    def write(self, snapshot: Snapshot, plan: AlterPlan, claim: Claim) -> Changes:
        """Write the file groups of the plan again, and return the fields of the record."""
        changes = Changes()
        if self.rewriting is not None:
            changes = self._rewritten(self.rewriting, snapshot, plan, claim)
        extra = present(options=dict(plan.options))
        if plan.version is not None:
            extra |= alteration_fields(snapshot.definition, plan.version)
        if FORMATS_OPTION in plan.options:
            extra |= {"location": self.storage.location}
        return replace(changes, extra=extra)

    def _rewritten(
        self, rewriting: Rewriting, snapshot: Snapshot, plan: AlterPlan, claim: Claim
    ) -> Changes:
        """Write a base file for each file group, with the new columns and options."""
        target = with_alteration(snapshot, plan.version, plan.options)
        options = rewriting.metadata.options(target.definition)
        shared = WriteJob.for_claim(rewriting.metadata, snapshot, options, claim)
        rewrite = partial(rewrite_groups, plan.version, plan.options)
        return rewriting.runner(shared, rewrite, plan.groups, rewriting.progress)

    def _adds_formats(self, snapshot: Snapshot, changed: TableDefinition) -> bool:
        """Return True if the table gets other formats. Raises Invalid if they cannot express it."""
        has_more = refuse_alteration(snapshot, changed, rewrites=self.moves_rows)
        if has_more and snapshot.is_shared and not self.moves_rows:
            _refuse_other_types(self.storage, snapshot)
        return has_more


def with_alteration(
    snapshot: Snapshot,
    version: SchemaVersion | None,
    options: Mapping[str, str | None] | None = None,
) -> Snapshot:
    """Return the snapshot as a writer of the schema ``version`` and with changed ``options`` sees
    it. None for the current version.
    """
    definition = snapshot.definition
    if version is not None:
        change = change_of(index_changes(definition, version))
        definition = change.defined(definition).with_version(version)
    return replace(snapshot, definition=definition.with_options(options or {}))


def rewrite_groups(
    version: SchemaVersion | None,
    options: Mapping[str, str | None],
    shared: WriteJob,
    groups: Sequence[int],
    part: str,
    progress: Progress | None,
) -> Changes:
    """Write a base file for each file group of ``groups``, with the columns and options of an
    alteration.

    With ``version`` and ``options`` bound this is a :class:`mdt.services.layout.rewriting.Rewrite`.
    """
    target = with_alteration(shared.snapshot, version, options)
    job = WriteJob.for_claim(shared.metadata, target, shared.options, shared.claim)
    return compact_groups(job, groups, part, progress)


def _refuse_other_types(storage: Storage, snapshot: Snapshot) -> None:
    """Raise Invalid if a column has another type in a base file than in the table, because readers
    of other formats do not convert it. Reads all footers.
    """
    live = snapshot.live_numbers
    numbers = live[(snapshot.rows[live] > 0) & (snapshot.kind[live] == BASE)]
    facts = snapshot.files.take(("partition", "name", "size"), numbers).to_pylist()
    files = [(paths.data_file(row["partition"], row["name"]), row["size"]) for row in facts]
    footers = storage.each(partial(read_file, storage, *file) for file in files)
    for (path, _), footer in zip(files, footers, strict=True):
        if not fits(footer, snapshot.definition.file_schema, exactly=True):
            raise Invalid(
                f"the table cannot have other formats yet: a column of {path} has another type than"
                " in the table, which their readers do not convert",
                hint="t.alter(…, rewrite=True) writes all rows again in the same commit",
            )


def is_unaltered(definition: TableDefinition, version: SchemaVersion) -> bool:
    """Return True if ``version`` has the same columns as the table."""
    return (
        version.declared.equals(definition.declared, check_metadata=True)
        and version.ids == definition.version.ids
    )


def alteration_fields(definition: TableDefinition, new: SchemaVersion) -> dict[str, Any]:
    """Return the header fields of a record that begins the schema version ``new``."""
    schema = new.to_json()
    del schema["since"]  # implied by the record's seq
    return present(schema=schema, indexes=index_changes(definition, new))


def hudi_differences(definition: TableDefinition, new: SchemaVersion) -> Iterator[str]:
    """Yield the differences that Hudi's readers would see after the alteration.

    They match columns of older files by name, and read missing columns as null.
    """
    older = {column.id: column for column in definition.version.walk()}
    for column in new.columns if definition.is_mor else ():
        if (
            column.children
            and column.id in older
            and not _only_adds_fields(column, older[column.id])
        ):
            yield (
                f"they fail if the type of {column.field.name!r} differs between a log file and"
                " its base file"
            )
    paths = {column.id: path for path, column in definition.version.all_paths()}
    ids_by_path = {
        path: column.id
        for v in definition.versions or (definition.version,)
        for path, column in v.all_paths()
    }
    for path, column in new.all_paths():
        before = older.get(column.id)
        if before is None and column.id in new.defaults:
            yield f"older rows have null in {path!r} instead of the default"
        if before is None and ids_by_path.get(path, column.id) != column.id:
            yield f"older rows have in {path!r} the values of the dropped column of that name"
        if (
            before is not None
            and pa.types.is_date(before.type)
            and pa.types.is_timestamp(column.type)
        ):
            yield f"they cannot read the dates of {path!r} as timestamps"
        if before is not None and before.field.name != column.field.name:
            yield f"older rows have null in {path!r}, which was {paths[column.id]!r}"


def needs_compaction(snapshot: Snapshot, alteration: Alteration) -> bool:
    """Return True if log files prevent the alteration, so that a compaction must run first."""
    if not snapshot.definition.is_mor or not alteration:
        return False
    return any(
        _log_file_problems(
            snapshot, apply_alteration(snapshot.definition, alteration, snapshot.seq + 1)
        )
    )


def _changes_nested_type(definition: TableDefinition, new: SchemaVersion) -> bool:
    """Return True if the type of a nested column changes."""
    older = {column.id: column for column in definition.version.columns}
    return any(
        c.children and c.id in older and not _has_same_fields(c, older[c.id]) for c in new.columns
    )


def _log_file_problems(snapshot: Snapshot, new: SchemaVersion) -> Iterator[str]:
    """Yield reasons why Hudi's readers would fail on existing log files. O(files).

    They treat rows without all columns as partial updates, do not widen these, and do not add
    struct fields to log files.
    """
    current_types = {column.field.name: column.type for column in new.columns}
    versions = snapshot.definition.versions or (snapshot.definition.version,)
    logs = snapshot.segment_ids[(snapshot.kind == LOG) & (snapshot.rows > 0)].tolist()
    for version in dict.fromkeys(version_of(versions, segment) for segment in logs):
        older = {column.id: column for column in version.columns}
        for column in new.columns:
            if (
                column.children
                and column.id in older
                and not _has_same_fields(column, older[column.id])
            ):
                yield (
                    f"there are log files in which {column.field.name!r} is {older[column.id].type}"
                )
        old_types = {column.field.name: column.type for column in version.columns}
        added_names = [name for name in current_types if name not in old_types]
        widened_names = [
            name for name, type in current_types.items() if old_types.get(name, type) != type
        ]
        if added_names and widened_names:
            yield (
                f"there are log files that lack {added_names[0]!r}, and in which"
                f" {widened_names[0]!r} is {old_types[widened_names[0]]}"
            )


def _refuse(would: str, reasons: Sequence[str], otherwise: str) -> None:
    """Raise Invalid if there are ``reasons`` why Hudi's readers ``would`` fail or differ.

    ``otherwise`` is an alternative, at the beginning of the hint.
    """
    if reasons:
        raise Invalid(
            f"Hudi's readers would {would}: " + "; ".join(reasons),
            hint=(
                f"{otherwise}t.alter(rewrite=True) (--rewrite) writes all rows again; or"
                " beyond_hudi=True (--beyond-hudi) alters the table anyway, and only mdt reads it"
                " correctly"
            ),
        )


def _nested_fields(column: Column) -> list[tuple[int, str, pa.DataType | None]]:
    return [(c.id, c.field.name, None if c.children else c.type) for c in column.walk()]


def _has_same_fields(new: Column, old: Column) -> bool:
    return _nested_fields(new) == _nested_fields(old)


def _only_adds_fields(new: Column, old: Column) -> bool:
    """Return True if fields were added to a nested column and nothing else changed."""
    ids = {c.id for c in old.walk()}
    return [item for item in _nested_fields(new) if item[0] in ids] == _nested_fields(old)


def index_changes(definition: TableDefinition, new: SchemaVersion) -> dict[str, list[str]]:
    """Return the effect on the table's indexes as header fields: add, drop and forget."""
    before = {path: column for path, column in definition.version.paths()}
    after = {column.id: (path, column) for path, column in new.paths()}
    changes: dict[str, list[str]] = {"add": [], "drop": [], "forget": []}
    for text in definition.indexes:
        spec = registry.parse_spec(text)
        columns = [before[path] for path in spec.columns if path in before]
        current = [after[column.id] for column in columns if column.id in after]
        if len(current) < len(spec.columns):
            changes["drop"].append(text)
            continue
        named = replace(spec, columns=tuple(path for path, _ in current))
        same_types = all(
            column.type == old.type for (_, column), old in zip(current, columns, strict=True)
        )
        if named == spec and same_types:
            continue
        try:
            new_text = named_spec(str(named), new.schema)
        except Invalid:  # the index does not support the wider type
            changes["drop"].append(text)
            continue
        if new_text == text:
            changes["forget"].append(text)
        else:
            changes["drop"].append(text)
            changes["add"].append(new_text)
    return present(**changes)
