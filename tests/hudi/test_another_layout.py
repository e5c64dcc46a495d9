"""A layout with other file names, contents and order of files. Code that writes or looks for
instants without :data:`mdt.hudi.layout.Layout` fails here.
"""

from __future__ import annotations

from typing import Any

import pytest
from counting import count
from refusals import refused
from worlds import (
    BASE_STATE,
    State,
    assert_clean,
    compact_while_another_commits,
    deleted,
    later,
    make,
    ours,
    rows,
    survivors,
    upserted,
)

import mdt
from mdt.errors import Missing, Unsupported
from mdt.hudi import layout, timeline
from mdt.hudi.timeline import COMPLETED, Instant
from mdt.hudi.v6 import Version6
from mdt.limits import LATE_SECONDS_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import LOG
from mdt.stores.storage import MemoryStorage

MIXED = upserted(BASE_STATE, range(2, 9), 3, 3.0)


class OtherLayout(Version6):
    """A layout with instants in a separate directory under other names. Log files are named by
    their own instants, and an action is announced in one step.
    """

    version = 9
    versions = (9,)
    timeline = ".hoodie/timeline"

    def path_of(self, instant):
        return f"{self.timeline}/{instant.time}-{instant.state}-{instant.action}"

    def instant_at(self, path):
        time, _, rest = path.removeprefix(f"{self.timeline}/").partition("-")
        state, _, action = rest.partition("-")
        is_instant = (
            path.startswith(self.timeline) and timeline.is_time(time) and action in timeline.ACTIONS
        )
        return Instant(time, action, state) if is_instant else None

    def log_instant(self, base_instant, time):
        return time

    def properties(self, definition):
        return super().properties(definition) | {
            "hoodie.table.version": "9",
            "hoodie.timeline.layout.version": "2",
        }

    def extra(self, body):
        return super().extra(body.removeprefix(b"other "))

    def announced(self, time, action, profile=b""):
        return super().announced(time, action, profile)[:1]

    def completed(self, time, completion, action, metadata, plan):
        path = self.completed_path(time, completion, action)
        return [(path, b"other " + self.completed_body(time, metadata))]


@pytest.fixture(autouse=True)
def _other_layout(monkeypatch):
    monkeypatch.setitem(layout.LAYOUTS, 9, OtherLayout())


def base_state_table():
    """Return a table of the other layout with BASE_STATE. Its second commit is in log files."""
    storage = MemoryStorage()
    make(storage, "MERGE_ON_READ", "record", **{"mdt.table.version": 9})
    mdt.open(storage).upsert(rows(range(6), 1, 1.0))
    mdt.open(storage).upsert(rows(range(3), 2, 2.0))
    return storage


def assert_files_match_layout(storage):
    """Assert that instants are in the directory of the layout, and none is where version 6 has
    them.
    """
    assert_clean(storage)
    assert [info.path for info in storage.list_dir(".hoodie")] == [paths.PROPERTIES]
    assert storage.list_dir(OtherLayout.timeline)


def test_commits_deletes_and_compactions_write_the_file_names_of_the_layout():
    storage = base_state_table()
    assert_files_match_layout(storage)
    table = mdt.open(storage)
    snapshot = table.snapshot()
    logs = [file for file in snapshot.files.segments(snapshot.live_numbers) if file.kind == LOG]
    assert logs and all(file.instant in file.name for file in logs)
    assert table.delete(rows((0, 3), 0, 0.0)).deleted == 2
    table.compact()
    assert ours(storage) == deleted(BASE_STATE, (0, 3))
    assert_files_match_layout(storage)


FLOWS: dict[str, tuple[Any, State]] = {
    "upsert": (lambda s: mdt.open(s).upsert(rows(range(2, 9), 3, 3.0)), MIXED),
    "compaction": (lambda s: mdt.open(s).compact(), BASE_STATE),
    "compaction beside an upsert": (
        compact_while_another_commits,
        upserted(BASE_STATE, [0], 3, 3.0),
    ),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_readers_see_all_or_nothing_after_a_crash_at_any_storage_change(flow):
    run, after = FLOWS[flow]
    start = base_state_table()
    for where, storage in survivors(start.copy, run):
        count("crash points of another layout")
        before = ours(storage)
        mdt.open(later(storage)).abort()
        assert ours(storage) == before, where
        assert before in (BASE_STATE, after, upserted(BASE_STATE, [0], 3, 3.0)), (
            f"a mixed state {where}"
        )
        assert_files_match_layout(storage)


@pytest.mark.parametrize("action", ["commit", "deltacommit", "clean"])
def test_a_commit_of_another_writer_is_detected_on_the_timeline_of_the_layout(action):
    path = OtherLayout().path_of(Instant("20990101000000000", action, COMPLETED))
    storage = base_state_table()
    table = mdt.open(storage)
    storage.create(path, b"other {}")
    for act in (table.snapshot, lambda: mdt.Table(storage).snapshot()):
        refused("another Hudi writer has completed", act, kind=Unsupported)


def test_a_missing_commit_record_is_detected_by_its_instant():
    storage = base_state_table()
    storage.delete(paths.commit(2))
    storage.sleep(LATE_SECONDS_MAX)
    message = "a commit record is missing: Hudi's timeline has commit 2"
    refused(message, mdt.open, storage, kind=Missing)


def test_a_table_version_without_a_layout_is_refused(monkeypatch):
    storage = base_state_table()
    monkeypatch.delitem(layout.LAYOUTS, 9)
    message = "able version 9 is not supported, only 6"
    refused(message, mdt.open, storage, kind=Unsupported)
    version = {"mdt.table.version": 9}
    refused(message, make, MemoryStorage(), "MERGE_ON_READ", "record", kind=Unsupported, **version)
