"""A layout of other names, bodies and order: what is written or looked for past
:data:`mdt.hudi.layout.Layout` fails here.
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
    """Instants in a directory of their own under other names, log files under their own instants;
    announced in one step.
    """

    version = 9
    versions = (9,)
    timeline = ".hoodie/timeline"

    def path_of(self, instant):
        return f"{self.timeline}/{instant.time}-{instant.state}-{instant.action}"

    def instant_at(self, path):
        time, _, rest = path.removeprefix(f"{self.timeline}/").partition("-")
        state, _, action = rest.partition("-")
        known = (
            path.startswith(self.timeline) and timeline.is_time(time) and action in timeline.ACTIONS
        )
        return Instant(time, action, state) if known else None

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

    def completed(self, time, completion, action, told, plan):
        path = self.completed_path(time, completion, action)
        return [(path, b"other " + self.completed_body(time, told))]


@pytest.fixture(autouse=True)
def _other_layout(monkeypatch):
    monkeypatch.setitem(layout.LAYOUTS, 9, OtherLayout())


def filled():
    """Return a table of the other layout that holds BASE_STATE, the second commit in log files."""
    storage = MemoryStorage()
    make(storage, "MERGE_ON_READ", "record", **{"mdt.table.version": 9})
    mdt.open(storage).upsert(rows(range(6), 1, 1.0))
    mdt.open(storage).upsert(rows(range(3), 2, 2.0))
    return storage


def assert_in_place(storage):
    """Assert that every instant stands where the layout says, and nothing where version 6 has
    it.
    """
    assert_clean(storage)
    assert [info.path for info in storage.list_dir(".hoodie")] == [paths.properties()]
    assert storage.list_dir(OtherLayout.timeline)


def test_what_is_written_stands_under_the_names_of_the_layout():
    storage = filled()
    assert_in_place(storage)
    table = mdt.open(storage)
    snapshot = table.snapshot()
    logs = [file for file in snapshot.files.segments(snapshot.live_numbers) if file.kind == LOG]
    assert logs and all(file.instant in file.name for file in logs)
    assert table.delete(rows((0, 3), 0, 0.0)).deleted == 2
    table.compact()
    assert ours(storage) == deleted(BASE_STATE, (0, 3))
    assert_in_place(storage)


FLOWS: dict[str, tuple[Any, State]] = {
    "upsert": (lambda s: mdt.open(s).upsert(rows(range(2, 9), 3, 3.0)), MIXED),
    "compaction": (lambda s: mdt.open(s).compact(), BASE_STATE),
    "compaction beside an upsert": (
        compact_while_another_commits,
        upserted(BASE_STATE, [0], 3, 3.0),
    ),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_after_a_crash_at_any_change_readers_see_all_or_nothing(flow):
    run, after = FLOWS[flow]
    start = filled()
    for where, storage in survivors(start.copy, run):
        count("crash points of another layout")
        before = ours(storage)
        mdt.open(later(storage)).abort()
        assert ours(storage) == before, where
        assert before in (BASE_STATE, after, upserted(BASE_STATE, [0], 3, 3.0)), (
            f"a mixture {where}"
        )
        assert_in_place(storage)


@pytest.mark.parametrize("action", ["commit", "deltacommit", "clean"])
def test_another_writer_is_noticed_on_the_timeline_of_the_layout(action):
    path = OtherLayout().path_of(Instant("20990101000000000", action, COMPLETED))
    storage = filled()
    table = mdt.open(storage)
    storage.create(path, b"other {}")
    for act in (table.snapshot, lambda: mdt.Table(storage).snapshot()):
        refused("another Hudi writer has completed", act, kind=Unsupported)


def test_a_commit_record_that_is_gone_is_told_by_its_instant():
    storage = filled()
    storage.delete(paths.commit(2))
    storage.sleep(LATE_SECONDS_MAX)
    said = "a commit record is missing: Hudi's timeline has commit 2"
    refused(said, mdt.open, storage, kind=Missing)


def test_a_table_of_a_version_without_layout_is_refused(monkeypatch):
    storage = filled()
    monkeypatch.delitem(layout.LAYOUTS, 9)
    said = "able version 9 is not supported, only 6"
    refused(said, mdt.open, storage, kind=Unsupported)
    version = {"mdt.table.version": 9}
    refused(said, make, MemoryStorage(), "MERGE_ON_READ", "record", kind=Unsupported, **version)
