"""Check and rebuild Hudi's view of a table: properties, partition markers, and instants.

Properties are derived from the table definition, markers from partition paths, and instants from
commit records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import tee

from mdt.commit import publish
from mdt.commit.recovery import pending
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi import properties
from mdt.hudi.avro_columns import arrow_schema
from mdt.hudi.layout import layout_of
from mdt.hudi.partitions import partition_depth
from mdt.hudi.timeline import WRITES, Instant
from mdt.limits import PROPERTIES_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.history import foreign_writers
from mdt.metadata.log.commit_log import CommitRecord
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState
from mdt.stores.storage import Storage

Objects = Sequence[tuple[str, bytes]]
"""(path, content) of objects that are written together. Only the first one is compared."""


def check(state: TableState) -> Iterator[Problem]:
    """Compare properties, markers and instants with their expected contents."""
    storage, layout = state.storage, layout_of(state.definition)
    wrong = _properties_problem(state)
    if wrong:
        yield Problem(paths.PROPERTIES, wrong, Kind.TIMELINE)
    markers = _markers(state)
    depths = storage.each(partial(_stored_depth, storage, path) for path, _ in markers)
    for (path, content), depth in zip(markers, depths, strict=True):
        if isinstance(depth, Corrupt):
            yield Problem.from_error(depth, path, Kind.TIMELINE)
        elif depth != properties.decode(content).get(_DEPTH):
            yield Problem(path, f"has depth {depth!r}", Kind.TIMELINE)
    times = {record.instant for record in state.records}
    first = _first_instants(state)
    instants, lookups = tee(_instants(state))
    contents = storage.each(partial(_stored, storage, group[0][0]) for _, group in lookups)
    for (record, objects), stored in zip(instants, contents, strict=True):
        path, content = objects[0]
        if stored is None:
            instant = layout.instant_at(path)
            if instant is None or (instant.time in times and not _is_archived(instant, first)):
                yield from _check_unpublished(state, record, path)
        elif isinstance(stored, Corrupt):
            yield Problem.from_error(stored, path, Kind.TIMELINE)
        elif stored != content:
            yield Problem(path, f"differs from commit record {record.seq}", Kind.TIMELINE)


def _stored(storage: Storage, path: str) -> bytes | None | Corrupt:
    """Return the content of an object, None if it is absent, or the error if it is too large."""
    try:
        return storage.read_if_exists(path)
    except Corrupt as error:
        return error


def _first_instants(state: TableState) -> Mapping[str, str]:
    """Return action -> its first instant on the timeline, if other writers archive instants.

    All writes count as "commit", because they are archived together. "" is the first of all.
    """
    first = dict[str, str]()
    if state.snapshot.is_shared:
        layout = layout_of(state.definition)
        for info in state.storage.list_dir(layout.timeline):
            instant = layout.instant_at(info.path)
            if instant is not None:
                for action in ("", _archived_with(instant)):
                    first[action] = min(first.get(action, instant.time), instant.time)
    return first


def _is_archived(instant: Instant, first: Mapping[str, str]) -> bool:
    """Return True if another writer has archived ``instant``, given :func:`_first_instants`."""
    return instant.time < first.get(_archived_with(instant), first.get("", ""))


def _archived_with(instant: Instant) -> str:
    return "commit" if instant.action in WRITES else instant.action


def _instants(state: TableState) -> Iterator[tuple[CommitRecord, Objects]]:
    """Yield the records and their expected instants on the timeline."""
    definition, dropped = state.definition, set[str]()
    for record in state.records:
        dropped.update(publish.index_instants(record, definition)[1])
    for record in state.records:
        requested, _ = publish.index_instants(record, definition)
        for path, content in (*requested, *publish.restore_instants(record, definition)):
            if path not in dropped:
                yield record, [(path, content)]
        if publish.has_instant(record) and record.instant not in state.snapshot.imports.voided:
            yield record, publish.completed_files(record, definition)


def _check_unpublished(state: TableState, record: CommitRecord, path: str) -> Iterator[Problem]:
    """Yield a problem if the instant of ``record`` is missing.

    There is no problem if the claim of its writer is young, because the writer may be about to
    publish it.
    """
    claims, text = pending(state.metadata), f"commit {record.seq} is not on Hudi's timeline"
    oldest = state.storage.now_us() - (state.options.rollback_after_seconds or 1) * 1_000_000
    for claim in claims:
        if claim.instant == record.instant:
            if claim.started_us >= oldest:
                return
            text += "; the next writer publishes it"
    if state.storage.size(path) is None:
        yield Problem(path, text, Kind.TIMELINE)


def _properties_problem(state: TableState) -> str:
    """Return the problem of ``hoodie.properties``, or "".

    Properties that determine the meaning of files must have the values from the creation of the
    table. Raises Unsupported for an unknown table version.
    """
    data, definition = state.storage.read_if_exists(paths.PROPERTIES), state.definition
    if data is None and state.snapshot.is_shared:
        data = state.storage.read_if_exists(foreign_writers.BACKUP)
    if data is None:
        return "is missing; the next writer creates it"
    try:
        stored = properties.decode(data)
        properties.verify(stored)
    except (Corrupt, Invalid) as error:
        return str(error)
    if definition.adopted:
        return ""
    decisive, allowed = layout_of(definition).decisive, set[tuple[str, object]]()
    for seq in {0, *(version.since for version in definition.versions)}:
        expected = layout_of(definition).properties(definition.at(seq))
        allowed.update((name, _comparable_value(expected, name)) for name in decisive)
    for name in decisive:
        if (name, _comparable_value(stored, name)) not in allowed:
            return f"{name} differs from its value when the table was created"
    return ""


_DEPTH = "partitionDepth"


def _comparable_value(stored: Mapping[str, str], name: str) -> object:
    """Return the value of a property or, for the first schema of the table, its columns.

    CREATE TABLE of Hudi 0.15 writes this schema again, with all columns nullable.
    """
    value = stored.get(name)
    if name != properties.CREATE_SCHEMA or value is None:
        return value
    try:
        return frozenset((field.name, field.type) for field in arrow_schema(value))
    except (Corrupt, Unsupported):
        return value


def _markers(state: TableState) -> Objects:
    """Return the markers of partitions with live files.

    Readers that list directories skip partitions without a marker.
    """
    files = state.snapshot.files.take(["partition", "instant"], state.snapshot.live_numbers)
    oldest = files.group_by("partition").aggregate([("instant", "min")])
    markers = []
    for partition, instant in zip(*oldest.to_pydict().values(), strict=True):
        content = properties.partition_metadata(instant, partition_depth(partition))
        markers.append((paths.partition_metadata(partition), content))
    return markers


def _stored_depth(storage: Storage, path: str) -> str | None | Corrupt:
    """Return the depth in a stored marker, or the error if it cannot be read."""
    try:
        return properties.decode(storage.read_whole(path, PROPERTIES_BYTES_MAX)).get(_DEPTH)
    except Corrupt as error:
        return error


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Rewrite the objects with problems."""
    rebuild_properties(repair)
    state, damaged = repair.state(), {problem.path for problem in problems}
    for marker in _markers(state):
        _write(repair, damaged, [marker])
    for _, objects in _instants(state):
        _write(repair, damaged, objects)


def _write(repair: Repair, damaged: set[str], objects: Objects) -> None:
    """Write ``objects`` if the path of the first one is in ``damaged``."""
    for path, content in objects if objects[0][0] in damaged else ():
        if _stored(repair.storage, path) != content:
            repair.storage.replace(path, content)
            repair.note(path, "rewritten", Kind.TIMELINE)


def rebuild_properties(repair: Repair) -> None:
    """Write ``hoodie.properties`` from the table definition if it is missing or wrong.

    Other properties are kept.
    """
    state, path = repair.state(), paths.PROPERTIES
    wrong = _properties_problem(state)
    if not wrong or state.snapshot.is_shared:
        return  # only Hudi knows the properties that other writers have set
    content: dict[str, str] = {}
    with suppress(Corrupt, Invalid):
        stored = properties.decode(repair.storage.read_if_exists(path) or b"")
        properties.verify(stored)
        content = stored
    content |= layout_of(state.definition).properties(state.definition)
    repair.storage.replace(path, properties.encode(content))
    repair.damaged.append(Problem(path, wrong, Kind.TIMELINE))
    repair.note(path, "written from the definition of the table")
