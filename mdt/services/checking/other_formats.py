"""Check and repair of the table's other formats: versions are derived again and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from mdt.catalogs import pointers
from mdt.commit.recovery import pending
from mdt.errors import Corrupt, Invalid, Unavailable, Unsupported
from mdt.formats.earlier import Earlier
from mdt.formats.format import Format, Objects
from mdt.formats.keeping import earlier_of, files_at, start_of, version_objects
from mdt.formats.registry import FOLDERS, ended_formats, formats_of
from mdt.metadata.log import trusted_names as names
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState
from mdt.stores.storage import Storage

_OTHER_BYTES_MAX = 1 << 20
"""Bytes that another release of a library may need more for a checkpoint, besides as many again."""


def check(state: TableState) -> Iterator[Problem]:
    """Compare the versions after the horizon, what they name, and the versions with which readers
    begin, and find data files of other programs. O(records + files).
    """
    for form in formats_of(state.definition):
        for path, stored, content in _differences(state, form):
            yield Problem(path, _description(form, stored, content), Kind.FORMAT)
    for form in ended_formats(state.definition):
        for info in state.storage.list(form.folder) if not pending(state.metadata) else ():
            text = f"is left from the format {form.title}, which the table no longer has; delete it"
            yield Problem(info.path, text, Kind.LEFT_OVER)
    yield from _pointer_problems(state)
    for path in _files_of_others(state) if formats_of(state.definition) else ():
        text = "is a data file of another program, with which some readers of Hudi fail; delete it"
        yield Problem(path, text, Kind.LEFT_OVER)


def _pointer_problems(state: TableState) -> Iterator[Problem]:
    """Yield the problem of the entry in a catalog of Iceberg. The next writer moves one that is
    behind, if it is about to publish.
    """
    place = pointers.standing(state.metadata, state.snapshot)
    if place is None or (place.behind == 0) or (place.behind and pending(state.metadata)):
        return
    text = f"is {place.behind} commits behind, which the readers of the catalog do not see"
    yield Problem(place.name, text if place.error is None else str(place.error), Kind.FORMAT)


def _files_of_others(state: TableState) -> Iterator[str]:
    """Yield the Parquet files in partitions whose names mdt does not use. Writers of other formats
    write them before the log refuses their commit.
    """
    for info in state.storage.list(""):
        partition, _, name = info.path.rpartition("/")
        is_shown = name.endswith(".parquet") and not name.startswith((".", "_"))
        is_in_table = partition not in FOLDERS and names.is_partition(partition)
        if is_shown and is_in_table and not names.is_data_file(info.path):
            yield info.path


def _description(form: Format, stored: bytes | None, content: bytes | None) -> str:
    if content is None:
        return f"is an object of {form.title} that another program has put"
    if stored is None:
        return f"is missing, so {form.title}'s readers do not see all commits"
    return f"differs from the commit, so {form.title}'s readers see other rows"


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Write the objects with problems again, and delete those of other programs."""
    state, damaged = repair.state(), {problem.path for problem in problems}
    for form in formats_of(state.definition):
        for path, _, content in _differences(state, form):
            if path not in damaged:
                continue
            if content is None:
                repair.storage.delete(path)
                repair.note(path, "deleted", Kind.FORMAT)
            else:
                repair.storage.replace(path, content)
                repair.note(path, "derived from the log", Kind.FORMAT)
            repair.storage.delete(_checksum_path(path))
    with suppress(Invalid, Unavailable, Unsupported):  # the problem stays
        pointer = pointers.pointer_of(state.metadata, state.definition)
        if pointer is not None and pointer.title in damaged:
            newest = pointers.newest_version(state.metadata, state.snapshot)
            pointer.move(newest, replaces=True)
            repair.note(pointer.title, f"points to version {newest}", Kind.FORMAT)


def _checksum_path(path: str) -> str:
    """Return the path at which Hadoop's writers on local disks put the checksum of an object."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def remove_foreign_versions(repair: Repair) -> None:
    """Repair versions before anything else, because nothing commits beside those of others."""
    problems = list(check(repair.state()))
    repair.damaged += problems
    rebuild(repair, problems)


_Difference = tuple[str, bytes | None, bytes | None]
"""Path of an object, and its stored and its expected content. None for an object that is missing,
or that no commit has made.
"""


def _differences(state: TableState, form: Format) -> Iterator[_Difference]:
    """Yield the objects of a format that are not what the commits make.

    Commits that their writer, or the next one, is about to publish may lack their version.
    """
    metadata = state.metadata
    earlier = earlier_of(metadata, mends=True)
    for objects in _expected(state, form, earlier):
        for path, content in objects:
            stored = _stored(state.storage, path, len(content))
            if not form.is_same(path, stored, content):
                earlier.derived[path] = content
                yield path, stored, content
    for path, wanted in form.strays(state.storage, lambda: metadata.newest(watched=False).seq):
        yield path, _stored(state.storage, path, 0), wanted


def _stored(storage: Storage, path: str, expected: int) -> bytes | None:
    """Return a stored object, or nothing of it if it is much larger than expected."""
    try:
        return storage.read_if_exists(path, 2 * expected + _OTHER_BYTES_MAX)
    except Corrupt:
        return b""


def _expected(state: TableState, form: Format, earlier: Earlier) -> Iterator[Objects]:
    """Yield the objects of each version of a format, and of those with which readers begin."""
    metadata, snapshot = state.metadata, state.snapshot
    unpublished = {claim.instant for claim in pending(metadata)}
    horizon = snapshot.retention.horizon
    begin = snapshot.definition.begin_of_format(form.name)
    oldest = max(horizon, begin)
    starts = {n for n in form.starts(state.storage, horizon) if oldest <= n <= snapshot.seq}

    def start(seq: int) -> Objects:
        derivation = start_of(metadata, seq, snapshot, oldest)
        return form.start_objects(derivation, files_at(metadata, seq, snapshot), earlier)

    if horizon and horizon in starts:
        yield start(horizon)
    for record in metadata.records(max(horizon + 1 if horizon else 0, begin), snapshot.seq):
        is_waiting = record.instant in unpublished
        if not is_waiting or state.storage.size(form.path(record.seq)) is not None:
            yield version_objects(metadata, form, record, snapshot, earlier)
        if record.seq in starts:
            yield start(record.seq)
