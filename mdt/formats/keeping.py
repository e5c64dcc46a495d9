"""Other formats of a table, kept by each commit.

:func:`keep` puts the version of a commit record after the record is published. A version is a pure
function of the state before the commit and its record, so two publishers put the same. After a
crash in between, readers of the format do not see the commit yet, and the next writer puts what is
missing. Other content under the name of a version is the commit of another writer, which no reader
of ours knows. It is refused.

If other Hudi writers write to the table, readers must not see the state after some records: after
all but the last record of an import, and after commits that another writer rolled back before they
were published. The versions of these have the files of the version before (:func:`shown`).

A format that is added to a table begins with the version of that commit, which has all files. No
version before it is derived. The versions of a format that is removed are deleted by whoever
publishes the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from mdt.errors import Missing, Unsupported
from mdt.formats.data_files import Change, DataFile, change_of, difference, files_of
from mdt.formats.derivation import Derivation
from mdt.formats.earlier import Earlier
from mdt.formats.format import FilesOf, Format, Objects
from mdt.formats.registry import ended_formats, formats_of
from mdt.formats.twins import Twins
from mdt.limits import DERIVED_CACHE_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.session import Recent
from mdt.stores.storage import Storage

_SHOWN_BYTES_MAX = 1 << 16
"""Bytes of another writer's version in which its name is looked for."""


def keep(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Put the versions of ``record`` and of earlier records that lack theirs. Call it after the
    record is published. Removes a format that ends with ``record``.

    Args:
        newest: A snapshot with the record, or a later one.

    Raises Unsupported if another writer has put such a version, Corrupt, and Unavailable.
    """
    end = record.seq + 1
    firsts = {
        form: _first_missing(metadata, form, record.seq, newest)
        for form in formats_of(newest.definition)
    }
    for seq in range(min(firsts.values(), default=end), end):
        _put(metadata, [form for form, first in firsts.items() if first <= seq], seq, newest)
    for form in ended_formats(newest.definition):
        if newest.definition.formats_since[form.name] == record.seq:
            form.remove(metadata.storage, record.seq)


def refuse_foreign_writers(metadata: Metadata, newest: Snapshot) -> None:
    """Raise Unsupported if another writer has put a version that follows the state ``newest``."""
    for form in formats_of(newest.definition):
        path, seq = form.path(newest.seq + 1), newest.seq + 1
        if metadata.storage.size(path) is not None and metadata.record(seq) is None:
            raise _foreign(metadata, form, path)


def derive(
    metadata: Metadata, formats: Sequence[Format], record: CommitRecord, newest: Snapshot
) -> list[Derivation]:
    """Return the derivation of each format from a commit. They share the change.

    Args:
        newest: A snapshot with the record, or a later one.

    Raises Missing if earlier records are gone.
    """
    definition, seq, change, horizon = newest.definition.at(record.seq), record.seq, Change(), 0
    begins = [newest.definition.begin_of_format(form.name) for form in formats]
    if any(begin < seq for begin in begins):
        before = metadata.state(seq - 1)
        change = _change(metadata, before, record, newest)
        horizon = before.retention.followed_by(record.header).horizon
    derivations = []
    for begin in begins:
        if begin < seq:
            derivation = Derivation(record, definition, change, False, max(horizon, begin))
        else:
            files = Change(added=list(files_at(metadata, seq, newest)()))
            derivation = Derivation(record, definition, files, True, begin)
        derivations.append(derivation)
    return derivations


def _change(metadata: Metadata, before: Snapshot, record: CommitRecord, newest: Snapshot) -> Change:
    """Return the change between the states that readers see ``before`` and after a commit."""
    seq, twins = record.seq, twins_of(metadata)
    old, new = shown(metadata, seq - 1, newest), shown(metadata, seq, newest)
    if new < seq:
        return Change()
    if old == seq - 1 and record.action != IMPORT:
        return change_of(before, record, newest.definition.at(seq), twins)
    before = before if old == seq - 1 else metadata.state(old)
    return difference(before, _state(metadata, seq, newest), record, twins)


def shown(metadata: Metadata, seq: int, newest: Snapshot) -> int:
    """Return the newest commit up to ``seq`` whose state readers may see. It is not before the
    horizon, because that is such a commit.

    Args:
        newest: A snapshot with the commits that another Hudi writer has rolled back.
    """
    begins = map(newest.definition.begin_of_format, newest.definition.other_formats)
    first = max((begin for begin in begins if begin <= seq), default=0)
    while newest.is_shared and seq > first:
        record = metadata.record(seq)
        if record is None or not _is_passed_over(record, newest):
            break
        seq -= 1
    return seq


def _is_passed_over(record: CommitRecord, newest: Snapshot) -> bool:
    """Return True for a part of an import, and for a commit that was rolled back."""
    is_part = record.action == IMPORT and "imported" not in record.header
    return is_part or record.instant in newest.imports.voided


def _state(metadata: Metadata, seq: int, newest: Snapshot) -> Snapshot:
    return newest if newest.seq == seq else metadata.state(seq)


def start_of(metadata: Metadata, seq: int, newest: Snapshot, oldest: int) -> Derivation:
    """Return commit ``seq`` for a start with its version, without its change. Raises Missing.

    Args:
        oldest: The oldest commit that readers of the format can read.
    """
    record = _record(metadata, seq)
    return Derivation(record, newest.definition.at(seq), Change(), False, oldest)


def twins_of(metadata: Metadata) -> Twins:
    """Return the twins of a table."""
    return Twins(metadata.storage, metadata.twins)


def earlier_of(metadata: Metadata, *, mends: bool = False) -> Earlier:
    """Return a reader of earlier versions.

    Args:
        mends: See :class:`Earlier`.
    """
    decoded = metadata.derived
    if mends:  # all objects are read again
        decoded = Recent(DERIVED_CACHE_BYTES_MAX)
    return Earlier(metadata.storage, decoded, mends=mends)


def version_objects(
    metadata: Metadata, form: Format, record: CommitRecord, newest: Snapshot, earlier: Earlier
) -> Objects:
    """Return (path, content) of all objects of the version of ``record``, the version last.

    Raises Missing if earlier records, versions or log files are gone, and Corrupt.
    """
    [derivation] = derive(metadata, [form], record, newest)
    return [*_twin_objects([derivation]), *form.objects(derivation, earlier)]


def _twin_objects(derivations: Iterable[Derivation]) -> Objects:
    """Return the new twins that any of the derivations of a commit names."""
    twins = {new.twin.path: new.content for each in derivations for new in each.change.twins}
    return [(path, b"".join(content)) for path, content in twins.items()]


def files_at(metadata: Metadata, seq: int, newest: Snapshot) -> FilesOf:
    """Return a function that returns all files of the state ``seq``."""

    def files() -> Iterable[DataFile]:
        state = _state(metadata, shown(metadata, seq, newest), newest)
        return files_of(state, twins_of(metadata))

    return files


def put_start(metadata: Metadata, form: Format, seq: int, newest: Snapshot) -> None:
    """Let readers begin with the version ``seq``, unless they begin with a later one."""
    form.put_start(metadata.storage, seq, newest.definition.at(seq))


def _first_missing(metadata: Metadata, form: Format, seq: int, newest: Snapshot) -> int:
    """Return the first commit up to ``seq`` whose version has to be put, ``seq`` + 1 or more for
    none.

    Versions before one with which readers begin may have been deleted, while a publisher slept.
    """
    storage, first = metadata.storage, seq
    begin = newest.definition.begin_of_format(form.name)
    if first <= begin or storage.size(form.path(first - 1)) is not None:
        return max(first, begin)
    oldest = max(form.newest_start(storage) + 1, begin)
    if oldest > first:  # others have gone on, or another program has forged the pointer
        newest = metadata.newest(watched=False)
        if oldest > newest.seq + 1:
            oldest = max(newest.retention.horizon, begin)
    while first > oldest and storage.size(form.path(first - 1)) is None:
        first -= 1
    return max(first, oldest)


def _put(metadata: Metadata, formats: Sequence[Format], seq: int, newest: Snapshot) -> None:
    """Put the version of each format, after what it names."""
    storage, earlier = metadata.storage, earlier_of(metadata)
    derivations = derive(metadata, formats, _record(metadata, seq), newest)
    objects, versions = list(_twin_objects(derivations)), []
    for form, derivation in zip(formats, derivations, strict=True):
        *named, version = form.objects(derivation, earlier)
        objects += named
        versions.append((form, *version))
    storage.together(*(partial(storage.put_if_absent, *each) for each in objects))
    for form, path, content in versions:
        if not storage.put_if_absent(path, content) and not _has_content(storage, path, content):
            raise _foreign(metadata, form, path)
        is_begin = seq > 0 and seq == newest.definition.begin_of_format(form.name)
        if is_begin or form.is_start(seq):
            put_start(metadata, form, seq, newest)


def _record(metadata: Metadata, seq: int) -> CommitRecord:
    record = metadata.record(seq)
    if record is None:
        raise Missing("a commit record is missing", path=paths.commit(seq))
    return record


def _has_content(storage: Storage, path: str, content: bytes) -> bool:
    """Return True if an object has this content. Reads no more of it."""
    return storage.size(path) == len(content) and storage.read(path, 0, len(content)) == content


def _foreign(metadata: Metadata, form: Format, path: str) -> Unsupported:
    size = metadata.storage.size(path) or 0
    writer = form.foreign_writer(metadata.storage.read(path, 0, min(size, _SHOWN_BYTES_MAX)))
    by = f" ({writer})" if writer else ""
    return Unsupported(
        f"another writer{by} has written {path} into the {form.title} log of the table, which only"
        " mdt may write",
        hint="t.repair() replaces it; rows that the other writer has added are not in the table",
    )
