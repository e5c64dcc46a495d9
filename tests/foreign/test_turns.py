"""Hudi and mdt write to a table at random and in turns. Both crash at random. After each step all
readers have the same rows.

MDT_HUDI_TURNS is the number of histories, by default 3, and MDT_HUDI_STEPS that of their steps, by
default 15. A longer campaign has 40 histories of 15 steps and one of 200.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from counting import count
from follower import Follower, replayable, require_rows_of_hudi, rows_of
from format_views import VIEWS
from hidden import HiddenMetadata
from hudi_kinds import COMMIT_TIME, PLAIN_PATHS
from hudi_session import HudiSession, Refused
from our_steps import HudiIsAtWork, OurSteps
from random_steps import CDC, FOLLOWED, LAZY, RandomSteps
from reader import bag

import mdt
from mdt.commit.metadata_partitions import partitions_in
from mdt.commit.recovery import pending
from mdt.errors import Expired, Unsupported
from mdt.hudi.avro_schema import META_FIELDS
from mdt.metadata.history.foreign_writers import read_properties
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import LocalStorage

HISTORIES = int(os.environ.get("MDT_HUDI_TURNS", "3"))
STEPS = int(os.environ.get("MDT_HUDI_STEPS", "15"))
REFUSED_MAX = 0.6
"""Share of the steps that Hudi may refuse, or that mdt may refuse while Hudi is at work."""
KILLED = 0.08
"""Probability that Hudi's process is killed during one of its steps."""
KILLED_AFTER_SECONDS_MAX = 2.5
ZONES = ("UTC", "America/New_York", "Asia/Tokyo")
"""Time zones of Hudi's writers, which take their instants from local time by default."""
WRITES = {"commit", "deltacommit", "replacecommit", "compaction"}
OUR_OPTIONS = {"mdt.rollback.after.seconds": 1, "mdt.metadata.compact.records": 3}
FORMATS = ["hudi", "delta", "iceberg"]
WITH_FORMATS = 0.6
"""Share of the tables that are Delta and Iceberg tables, too."""
WITH_PLAIN_PATHS = 0.5
"""Share of the tables whose partition directories have no column names, which is Hudi's default."""
MARKERS = {"hoodie.rollback.using.markers": "true"}
"""Hudi's default, which half of the histories have. The others roll back by listing files. In
version 6, Hudi's metadata table then lacks the log files of failed writes, which later listings
have.
"""
MISREAD = re.compile(r"Index \d out of bounds for length 7")
"""Error of all writes of a Hudi process whose first operation is to compact its metadata table."""
ARCHIVE_RECORDS = 2
"""Least number of records that our cleaning removes from the log. The default is more than a
history has.
"""


class TurnSteps(RandomSteps):
    """Random steps of Hudi, with an upgrade of tables of version 8."""

    def __init__(self, seed, version):
        super().__init__(seed, version)
        for name in CDC:
            self.options.pop(name, None)  # mdt does not adopt such tables
        lists_all = version >= 8 or not self._has_metadata_table
        if not lists_all or random.Random(f"markers {seed}").random() < 0.5:
            self.options |= MARKERS
        if seed % 3 == 2:
            self.options |= LAZY
        if random.Random(f"paths {seed}").random() < WITH_PLAIN_PATHS:
            self.options |= PLAIN_PATHS

    def _weights(self):
        weights = dict(super()._weights())
        if self.version < 8:
            weights.pop(self._upgrade)
        if MARKERS.items() <= self.options.items():
            # the step only removes the completion of a write, whose markers Hudi has deleted
            weights.pop(self._die, None)
        return weights


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_all_readers_have_the_same_rows_after_each_turn(
    seed, version, tmp_path, request, monkeypatch
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", ARCHIVE_RECORDS)
    with (
        replayable(f"MDT_HUDI_TURNS={seed + 1}", request) as done,
        HudiSession(tmp_path / "session", ZONES[seed % len(ZONES)]) as hudi,
    ):
        take_turns(hudi, tmp_path / "shared", seed, version, done)


def take_turns(hudi: HudiSession, path: Path, seed: int, version: int, done: list[str]) -> None:
    """Let Hudi and mdt carry out random steps in turns, and compare the table after each.

    Args:
        done: List to which the names of the steps are appended, even if a comparison fails.
    """
    draw = random.Random(seed)
    steps = TurnSteps(seed, version)
    name, step = steps.first()
    done += [f"{steps.kind} {steps.options}", name]
    if (
        version != 8
        and seed % 2
        and not {"BUCKET", *COMMIT_TIME.values()} & {*steps.options.values()}
    ):
        done.append("the table is one of mdt")
        source = path.with_name("made")
        hudi.create(source, steps.version, steps.kind, steps.options)
        step(hudi, source)
        create(path, draw, mdt.open(source), version)
        hudi.create(path, steps.version, steps.kind, steps.options)
    else:
        hudi.create(path, steps.version, steps.kind, steps.options)
        step(hudi, path)
        adopt(path, draw, has_buckets="BUCKET" in steps.options.values())
    if random.Random(f"formats {seed}").random() < WITH_FORMATS:
        done.append("other formats")
        mdt.open(path).alter(formats=FORMATS)
    ours, follower = OurSteps(str(seed), path), Follower(hudi, path, name)
    refused, killed, is_open = 0, 0, False
    for _ in range(STEPS):
        before = data_rows(follower, ours)
        states, is_imported = None, False
        if draw.random() < 0.5 and not is_open:
            try:
                name, states = ours.next(before)
                is_imported = True
            except HudiIsAtWork as error:
                refused += 1
                name, states = f"refused {error}", [before]
        else:
            name, step = steps.next()
            killed_after = None
            if draw.random() < KILLED:
                killed += 1
                killed_after = draw.uniform(0, KILLED_AFTER_SECONDS_MAX)
                name += f", killed after {killed_after:.2f} s"
            try:
                with hudi.killed(killed_after):
                    step(hudi, path)
            except Refused as error:
                require_no_later_commit_of_ours(path, error)
                if MISREAD.search(str(error)):
                    start_with_a_read(hudi, path)
                refused += 1
                name += f" -- refused: {str(error)[:200]} … {str(error)[-600:]}"
        done.append(name)
        is_open = not is_open and ours.has_unpublished_commit()
        if is_open:
            require_rows_of_hudi(hudi, path, rows_of(mdt.open(path)))
        if is_open and draw.random() < 0.5:
            continue  # Hudi's next step starts with the commit of a crashed writer
        if ours.has_unpublished_commit() and not ours.settle():
            is_open = True
            continue
        is_open = False
        try:
            follower.look(may_expire=True, was_killed=killed > 0)
        except Expired:
            raise AssertionError("the newest state has expired") from None
        require_rows_of_hudi(hudi, path, follower.rows)
        if states is not None:
            assert data_rows(follower, ours) in states
        read_metadata_table(path, is_ours=states is not None)
        if is_imported:
            read_other_formats(path)
    count("turns of two writers", STEPS)
    count("turns that were refused", refused)
    count("writers of Hudi that were killed", killed)
    first = mdt.open(path).metadata.newest(watched=False).retention.first
    count("records that our cleaning removed from the log", first)
    assert refused <= REFUSED_MAX * STEPS


def read_metadata_table(path: Path, *, is_ours: bool) -> None:
    """Assert that Hudi's metadata table, if there is one, has the files and the keys of the table.

    Args:
        is_ours: True after a step of ours.
    """
    if not partitions_in(read_properties(LocalStorage(str(path))) or {}):
        return
    problems = mdt.open(HiddenMetadata(LocalStorage(str(path)))).check().problems
    # a restore of Hudi also removes the files of indexes that are newer than the restored state
    assert [problem for problem in problems if "has no files" not in problem.text] == []
    count("looks at a metadata table after a step of " + ("mdt" if is_ours else "Hudi"))


def read_other_formats(path: Path) -> None:
    """Assert that readers of the table's other formats have the rows of its log. After a crash of a
    writer, they may lack its commit until the next write. The log may also lack commits of Hudi.
    """
    t = mdt.open(path)
    newest = t.metadata.newest(watched=False)
    if not newest.definition.other_formats or any(t.formats()["behind"].to_pylist()):
        return
    try:
        claims = pending(t.metadata)
    except Unsupported as error:
        assert "the log does not contain it yet" in str(error)
        return
    if claims:
        return
    schema, rows = newest.definition.declared, bag(t.scan().to_arrow())
    for view in (VIEWS[name] for name in newest.definition.other_formats):
        assert bag(view.rows(LocalStorage(str(path)), schema, None)) == rows, view.form.name
        for reader, rows_read in view.others_rows(path, schema, None):
            assert bag(rows_read) == rows, reader
        count("looks of other formats at tables that Hudi writes")


def require_no_later_commit_of_ours(path: Path, error: Refused) -> None:
    """If the error is that Hudi cannot roll back a failed write, assert that no commit of ours
    follows this write. Only Hudi's own services write while there is such a write.
    """
    match = FOLLOWED.search(str(error))
    if match is not None:
        history = mdt.open(path).history().to_pylist()
        ours = {row["instant"] for row in history if row["action"] in WRITES}
        assert max(ours, default="") < match[1], "a commit of ours follows a failed write of Hudi"


def start_with_a_read(hudi: HudiSession, path: Path) -> None:
    """Start a new process of Hudi that can write. It reads the table first, as users would."""
    with hudi.killed(0):
        pass
    hudi.rows(path, **{"hoodie.metadata.enable": "true"})
    count("processes of Hudi that could not write to its metadata table", 1)


def create(path: Path, draw: random.Random, rows: mdt.Table, version: int) -> None:
    """Create a table of mdt with the rows of another one, and a key index that suits Hudi."""
    definition = rows.definition
    options = OUR_OPTIONS | {
        "mdt.write.footer.bloom": True,
        "mdt.hive.style": definition.hive_style,
    }
    t = mdt.create(
        path,
        rows.schema,
        key=definition.key,
        partition_by=definition.partition_by,
        ordering=definition.ordering,
        table_type=definition.table_type,
        version=version,
        # inserts with these indexes write base files only, like Hudi's
        key_index=draw.choice(["bloom", "simple"]),
        options=options,
    )
    t.bulk_insert(rows.scan())


def adopt(path: Path, draw: random.Random, *, has_buckets: bool) -> None:
    """Adopt the table with a key index that suits it."""
    key_index = draw.choice(["record", "bloom", "simple"])
    if has_buckets:
        key_index = "bucket(buckets='2')"
    mdt.adopt(path, key_index=key_index, options=OUR_OPTIONS)


def data_rows(follower: Follower, ours: OurSteps) -> dict:
    """Return the rows of the table by key, without meta columns."""
    rows: pa.Table = follower.rows.drop_columns(list(META_FIELDS))
    return {ours.key_of(row): row for row in rows.to_pylist()}
