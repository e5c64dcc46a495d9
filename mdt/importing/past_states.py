"""Past states of tables of other writers, and which of them can no longer be read."""

from __future__ import annotations

from collections.abc import Iterator

from mdt.errors import Expired
from mdt.hudi import file_names
from mdt.hudi.read.file_slices import Files, group_files
from mdt.hudi.read.loading import TableState, load_body, load_replaced_groups
from mdt.hudi.read.service_metadata import GroupId, decode_clean
from mdt.stores.storage import Storage

_CLEAN = "clean"


def require_state(source: Storage, state: TableState, files: Files) -> None:
    """Raise Expired unless all files of a past state still exist.

    Args:
        files: All files of the table.

    The cleanings on the timeline list the files that they deleted. Older cleanings deleted only
    files that were replaced before the timeline begins.

    Raises Corrupt and Missing.
    """
    at = state.at
    is_archived = state.slices or source.list_dir(state.table.history_folder)
    if at < state.timeline.start and is_archived:
        raise _expired(at, f"the timeline begins at {state.timeline.start}")
    groups = group_files(files, state.table)
    replaced = load_replaced_groups(source, state.timeline)
    for group, instant in _deleted_files(source, state):
        is_older = instant <= at and not (group in replaced and replaced[group] <= at)
        newer = groups[group].bases if group in groups else ()
        if is_older and not any(instant < base <= at for base in newer):
            raise _expired(at, "its files were cleaned")


def _deleted_files(source: Storage, state: TableState) -> Iterator[tuple[GroupId, str]]:
    """Yield the file group and the instant of each data file that a cleaning deleted."""
    for file in state.timeline.of_action(_CLEAN):
        deleted = decode_clean(load_body(source, file), file.path)
        for partition, names in deleted.items():
            for name in names:
                base = file_names.parse_base(name, file_names.ANY_BASE)
                parsed = base or file_names.parse_log(name, file_names.ANY_LOG)
                if parsed is not None:
                    yield (partition, parsed.file_id), parsed.instant


def _expired(at: str, reason: str) -> Expired:
    return Expired(
        f"the state at {at} cannot be read any more: {reason}",
        hint="read a newer state, or let Hudi's cleaner keep more commits",
    )
