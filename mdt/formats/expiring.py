"""Removal of what other formats no longer need after a cleaning.

Versions before the horizon expire first with the objects that only they have, then twins. The
caller deletes data files afterwards. All steps can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mdt.formats.data_files import DataFile, changed_files, files_of
from mdt.formats.keeping import put_start, twins_of
from mdt.formats.registry import formats_of
from mdt.formats.twins import FOLDER, twin_path
from mdt.metadata.files.file_group import LOG
from mdt.metadata.metadata import Metadata


def expire(metadata: Metadata) -> None:
    """Delete versions before the horizon, and what only they name. O(files).

    Raises Missing if records of readable states are gone, Corrupt and Unavailable.
    """
    formats = formats_of(metadata.cached_snapshot().definition)
    if not formats:
        return
    newest = metadata.newest(watched=False)
    horizon = newest.retention.horizon
    if not horizon:
        return
    table_id = newest.definition.table_id
    for form in formats:
        put_start(metadata, form, horizon, newest)
        form.expire(metadata.storage, horizon, partial(_readable_files, metadata), table_id)
    _delete_twins(metadata, horizon)


def _delete_twins(metadata: Metadata, horizon: int) -> None:
    """Delete the twins of commits before the horizon whose log files are all gone there.

    Removed files never return.
    """
    state = metadata.state(horizon)
    numbers = state.live_numbers
    logs = numbers[state.kind[numbers] == LOG].tolist()
    needed = {twin_path(segment.seq, segment.partition) for segment in map(state.segment, logs)}
    names = [(info.path, info.path.rpartition("/")[2]) for info in metadata.storage.list(FOLDER)]
    first = twin_path(horizon, "").rpartition("/")[2]
    old = [path for path, name in names if name < first and path not in needed]
    metadata.storage.delete_many(old)


def _readable_files(metadata: Metadata) -> Iterator[DataFile]:
    """Yield the files of all readable states with their deleted rows, without statistics."""
    newest = metadata.newest(watched=False)
    horizon, twins = newest.retention.horizon, twins_of(metadata)
    yield from files_of(metadata.state(horizon), twins)
    for record in metadata.records(horizon + 1, newest.seq):
        yield from changed_files(metadata.state(record.seq - 1), record, twins)
