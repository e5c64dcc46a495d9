"""Other formats of a table, kept by each commit.

:func:`keep` puts the version of a commit record before the record is published. A version is a pure
function of the state before the commit and its record, so two publishers put the same. After a
crash in between, readers of the format do not see the commit yet, and the next writer puts what is
missing. Other content under the name of a version is the commit of another writer, which no reader
of ours knows. It is refused.

A format that is added to a table begins with the version of that commit, which has all files, and
with its checkpoint. No version before it is derived. The versions of a format that is removed are
deleted by whoever publishes the commit.
"""

from __future__ import annotations

from functools import partial

from mdt.errors import Missing, Unsupported
from mdt.formats.data_files import Change, change_of, files_of
from mdt.formats.derivation import Derivation
from mdt.formats.format import Format, Objects
from mdt.formats.registry import ended_formats, formats_of
from mdt.formats.twins import Twins
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage

CHECKPOINT_COMMITS = 100
"""Commits after which there is another checkpoint. Readers replay at most so many versions."""
_SHOWN_BYTES_MAX = 1 << 16
"""Bytes of another writer's version in which its name is looked for."""


def keep(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Put the versions of ``record`` and of earlier records that lack theirs. Call it before the
    record is published. Removes a format that ends with ``record``.

    Args:
        newest: A snapshot with the record, or a later one.

    Raises Unsupported if another writer has put such a version, Corrupt, and Unavailable.
    """
    for form in formats_of(newest.definition):
        for seq in range(_first_missing(metadata, form, record.seq, newest), record.seq + 1):
            _put(metadata, form, seq, newest)
    for form in ended_formats(newest.definition):
        if newest.definition.formats_since[form.name] == record.seq:
            form.remove(metadata.storage, record.seq)


def refuse_foreign_writers(metadata: Metadata, newest: Snapshot) -> None:
    """Raise Unsupported if another writer has put a version that follows the state ``newest``."""
    for form in formats_of(newest.definition):
        path, seq = form.path(newest.seq + 1), newest.seq + 1
        if metadata.storage.size(path) is not None and metadata.record(seq) is None:
            raise _foreign(metadata, form, path)


def derive(metadata: Metadata, form: Format, record: CommitRecord, newest: Snapshot) -> Derivation:
    """Return the derivation of a format from a commit.

    Args:
        newest: A snapshot with the record, or a later one.

    Raises Missing if earlier records are gone.
    """
    definition, twins = newest.definition.at(record.seq), twins_of(metadata)
    is_first = record.seq == newest.definition.begin_of_format(form.name)
    if is_first:
        change = Change(added=files_of(_state(metadata, record.seq, newest), twins))
    else:
        change = change_of(metadata.state(record.seq - 1), record, definition, twins)
    return Derivation(record, definition, change, is_first)


def twins_of(metadata: Metadata) -> Twins:
    """Return the twins of a table."""
    return Twins(metadata.storage, metadata.twins)


def version_objects(
    metadata: Metadata, form: Format, record: CommitRecord, newest: Snapshot
) -> Objects:
    """Return (path, content) of all objects of the version of ``record``, the version last.

    Raises Missing if earlier records or log files are gone.
    """
    derivation = derive(metadata, form, record, newest)
    twins = [(new.twin.path, b"".join(new.content)) for new in derivation.change.twins]
    objects = [*twins, *form.objects(derivation)]
    if derivation.is_first and record.seq:
        files = derivation.change.added
        objects.append(form.checkpoint(record.seq, files, derivation.definition))
    return [*objects, (form.path(record.seq), form.content(derivation))]


def checkpoint_of(
    metadata: Metadata, form: Format, seq: int, newest: Snapshot
) -> tuple[str, bytes]:
    """Return path and content of the checkpoint of the version ``seq``. O(files)."""
    files = files_of(_state(metadata, seq, newest), twins_of(metadata))
    return form.checkpoint(seq, files, newest.definition.at(seq))


def _state(metadata: Metadata, seq: int, newest: Snapshot) -> Snapshot:
    return newest if newest.seq == seq else metadata.state(seq)


def put_checkpoint(metadata: Metadata, form: Format, seq: int, newest: Snapshot) -> None:
    """Put the checkpoint of the version ``seq``, and point to it."""
    storage, definition = metadata.storage, newest.definition.at(seq)
    content = form.advanced_checkpoint(storage, seq, definition)
    if content is None:
        content = checkpoint_of(metadata, form, seq, newest)[1]
    storage.put_if_absent(form.checkpoint_path(seq), content)
    form.point_to(metadata.storage, seq, content)


def _first_missing(metadata: Metadata, form: Format, seq: int, newest: Snapshot) -> int:
    """Return the first commit up to ``seq`` whose version has to be put, ``seq`` + 1 or more for
    none.

    Versions before a checkpoint may have been deleted, while a publisher slept.
    """
    storage, first = metadata.storage, seq
    begin = newest.definition.begin_of_format(form.name)
    if first <= begin or storage.size(form.path(first - 1)) is not None:
        return max(first, begin)
    oldest = max(form.newest_checkpoint(storage) + 1, begin)
    if oldest > first:  # others have gone on, or another program has forged the pointer
        newest = metadata.newest(watched=False)
        if oldest > newest.seq + 1:
            oldest = max(newest.retention.horizon, begin)
    while first > oldest and storage.size(form.path(first - 1)) is None:
        first -= 1
    return max(first, oldest)


def _put(metadata: Metadata, form: Format, seq: int, newest: Snapshot) -> None:
    record = metadata.record(seq)
    if record is None:
        raise Missing("a commit record is missing", path=form.path(seq))
    storage = metadata.storage
    *objects, (path, content) = version_objects(metadata, form, record, newest)
    storage.together(*(partial(storage.put_if_absent, *each) for each in objects))
    if not storage.put_if_absent(path, content) and not _has_content(storage, path, content):
        raise _foreign(metadata, form, path)
    checkpoint = dict(objects).get(form.checkpoint_path(seq))
    if checkpoint is not None:
        form.point_to(storage, seq, checkpoint)
    elif seq and not seq % CHECKPOINT_COMMITS:
        put_checkpoint(metadata, form, seq, newest)


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
