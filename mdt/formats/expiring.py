"""Removal of what other formats no longer need after a cleaning.

Versions before the horizon expire first, then twins and other objects that only they name. The
caller deletes data files afterwards. All steps can be repeated.
"""

from __future__ import annotations

from mdt.formats.keeping import put_start
from mdt.formats.registry import ended_formats, formats_of
from mdt.formats.twins import FOLDER, twin_path
from mdt.metadata.files.file_group import LOG
from mdt.metadata.metadata import Metadata


def expire(metadata: Metadata) -> None:
    """Delete versions before the horizon, and what only they name. O(files).

    Raises Missing if records of readable states are gone, Corrupt and Unavailable.
    """
    definition = metadata.cached_snapshot().definition
    if not definition.other_formats and not definition.formats_since:
        return
    newest = metadata.newest(watched=False)
    formats, horizon = formats_of(newest.definition), newest.retention.horizon
    if not horizon:
        return
    for form in formats:
        if horizon > newest.definition.begin_of_format(form.name):
            put_start(metadata, form, horizon, newest)
            form.expire(metadata.storage, horizon, newest.definition.table_id)
    _delete_twins(metadata, horizon, is_needed=bool(formats))
    # The directory of an ended format may belong to another program by now.
    for form in ended_formats(newest.definition):
        end = newest.definition.formats_since[form.name]
        form.delete_unused(metadata.storage, end, newest.definition.table_id)


def _delete_twins(metadata: Metadata, horizon: int, *, is_needed: bool) -> None:
    """Delete the twins of commits before the horizon whose log files are all gone there.

    Removed files never return.

    Args:
        is_needed: False if the table has no other format any more.
    """
    state = metadata.state(horizon)
    numbers = state.live_numbers
    logs = numbers[state.kind[numbers] == LOG].tolist() if is_needed else []
    needed = {twin_path(segment.seq, segment.partition) for segment in map(state.segment, logs)}
    names = [(info.path, info.path.rpartition("/")[2]) for info in metadata.storage.list(FOLDER)]
    first = twin_path(horizon, "").rpartition("/")[2]
    old = [path for path, name in names if name < first and path not in needed]
    metadata.storage.delete_many(old)
