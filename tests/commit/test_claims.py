"""Forged, torn and lost claims: no files of other transactions are deleted, no writer is blocked,
and check reports the leftovers.
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from other_writer import OtherWriter
from schedules import EVERY_PAUSE, Actor, Ended, explore, rollback_of_all, upsert
from shared_tables import batch, other_table
from texts import columns
from worlds import (
    BASE_STATE,
    LATER_SECONDS,
    assert_clean,
    filled,
    later,
    ours,
    rows,
    theirs,
    upserted,
)

import mdt
from mdt import create_table
from mdt.commit import claims, leftovers
from mdt.commit.recovery import pending, recover
from mdt.hudi.layout import layout_of
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import Watch
from mdt.metadata.log import commit_log, trusted_names
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash

pytestmark = pytest.mark.usefixtures("records_decoded_once")

OLD = "20200101000000000"
GOOD: dict[str, Any] = {
    "instant": OLD,
    "txn": "0" * 32,
    "action": "deltacommit",
    "operation": "upsert",
    "token": 5,
    "begun_at": 0,
    "started_us": 1,
    "partitions": ["city=x"],
}
WRONG: dict[str, list[Any]] = {
    "instant": [
        "",
        ".",
        "../base",
        "20200101000000001",
        5,
        None,
        "20209999000000000",
        "2020010100000000٣",
    ],
    "txn": [6, "", "0" * 31, "F" * 32, None, "../" + "0" * 29],
    "action": ["create", "freeze", 7, "", None, ["deltacommit"]],
    "operation": ["", 8, "Upsert!", "x" * 65],
    "token": ["x", -1, 2**31, 1.0, True, None],
    "begun_at": ["y", -1, 2**63, None],
    "started_us": ["z", -1, 1e9, 10**30],
    "partitions": [
        None,
        "city=x",
        [1],
        ["../.."],
        ["/etc"],
        ["a//b"],
        ["a\0b"],
        [".hoodie"],
        [".hoodie/.mdt"],
        ["\ud800"],
        [["x"]],
    ],
}
TORN = [
    b"",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b"7",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"instant": NaN}',
    b"9" * 5000,
]
FORGED = [
    *TORN,
    *(
        json.dumps({**GOOD, name: value}).encode()
        for name, values in WRONG.items()
        for value in values
    ),
]


def put(storage, data, instant=OLD):
    storage.replace(paths.pending(instant), data)


def announcement(storage, instant):
    """Return the objects that announce a write at ``instant`` to Hudi, as (path, content)."""
    return layout_of(mdt.open(storage).definition).announced(instant, "deltacommit")


def all_paths(storage):
    return {info.path for info in storage.list("")}


@pytest.mark.parametrize("data", FORGED, ids=lambda data: repr(data[:40]))
def test_an_invalid_claim_is_set_aside_and_reported_by_check(data):
    storage = filled("MERGE_ON_READ", "record")
    put(storage, data)
    before = all_paths(storage)
    result = mdt.open(storage).abort()
    assert (result.set_aside, result.rolled_back, result.files_removed) == (
        (paths.pending(OLD),),
        (),
        0,
    )
    assert all_paths(storage) == before
    mdt.open(storage).upsert(rows([0, 20], 9, 9.0))
    assert all_paths(storage) > before
    expected = upserted(BASE_STATE, [0, 20], 9, 9.0)
    assert ours(storage) == expected == theirs(storage)
    (problem,) = mdt.open(storage).check().problems
    assert problem.path == paths.pending(OLD)
    assert "delete it" in problem.text
    storage.delete(paths.pending(OLD))
    assert_clean(storage)
    count("senseless claims, set aside")


def test_a_claim_with_the_instant_or_token_of_a_commit_deletes_no_files_of_the_commit():
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        storage = filled(table_type, "record")
        table = mdt.open(storage)
        for seq in range(1, table.snapshot().seq + 1):
            record = table.metadata.record(seq)
            for instant, token in (
                (record.instant, record.token),
                (record.instant, 5),
                (OLD, record.token),
            ):
                forged = {
                    **GOOD,
                    "instant": instant,
                    "token": token,
                    "partitions": ["", "city=x", "city=y"],
                }
                put(storage, json.dumps(forged).encode(), instant)
                before = all_paths(storage)
                assert mdt.open(storage).abort().set_aside == (paths.pending(instant),)
                assert all_paths(storage) == before
                assert [p.path for p in mdt.open(storage).check().problems] == [
                    paths.pending(instant)
                ]
                storage.delete(paths.pending(instant))
        assert_clean(storage)


def test_rolling_back_a_claim_removes_only_files_with_its_token():
    storage = filled("MERGE_ON_READ", "record")
    group = "0" * 8 + "-0000-4000-8000-" + "0" * 12 + "-0"
    own_files = [
        f"city=x/{group}_0-5-0_{OLD}.parquet",
        f"city=x/.{group}_{OLD}.log.1_3-5-0",
        f".hoodie/.mdt/attachments/{OLD}/5-1-2.attached",
    ]
    other_files = [
        f"city=x/{group}_5-6-5_{OLD}.parquet",
        f"city=x/{group}_0-5-0_20200101000000001.parquet",
        "city=x/notes-5-.txt",
        f"city=x/deep/{group}_0-5-0_{OLD}.parquet",
        f".hoodie/.mdt/attachments/{OLD}/6.attached",
        f".hoodie/.mdt/attachments/{OLD}/5/x.keys",
        f"city=x/.{group}_{OLD}.log.1_5-6-5",
    ]
    for path in [*own_files, *other_files]:
        storage.create(path, b"x")
    put(storage, json.dumps(GOOD).encode())
    later(storage)
    mdt.open(storage).upsert(rows([0], 9, 9.0))
    assert all_paths(storage).isdisjoint(own_files)
    assert all_paths(storage) >= set(other_files)
    assert not pending(mdt.open(storage).metadata)
    assert "0" * 32 in mdt.open(storage).snapshot().rolled_back


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_claim_with_the_instant_of_another_writers_pending_write_deletes_no_files(
    table_type, version
):
    storage = MemoryStorage()
    other = other_table(storage, table_type, version)
    other.upsert(batch(list(range(10)), 1))
    table = mdt.adopt(storage)
    table.upsert(batch([20], 1))
    before = all_paths(storage)
    complete_run = OtherWriter(storage.copy())
    mdt.open(complete_run).upsert(batch([1, 30], 2))
    puts = [
        k
        for k, operation in enumerate(complete_run.operations, 1)
        if operation.startswith("put_if_absent")
    ]
    *_, at = [k for k in puts if "/log/" in complete_run.operations[k - 1]]
    with pytest.raises(Crash):
        mdt.open(OtherWriter(storage, fail_at=at)).upsert(batch([1, 30], 2))
    [inflight] = [path for path in all_paths(storage) - before if path.endswith("inflight")]
    if not storage.size(inflight):
        storage.replace(inflight, b"Hudi keeps the file groups of its write here")
    instant = inflight.rpartition("/")[2][:17]
    writers = map(trusted_names.writer_of, sorted(all_paths(storage) - before))
    [token, *_] = filter(None, (writer.token for writer in writers))
    forged = {**GOOD, "instant": instant, "token": token, "action": "deltacommit"}
    forged |= {"begun_at": table.snapshot().seq, "partitions": ["city=Oslo"]}
    put(storage, json.dumps(forged).encode(), instant)
    before = all_paths(storage)
    assert recover(table.metadata, after_seconds=0).set_aside == (paths.pending(instant),)
    assert all_paths(storage) == before
    assert paths.pending(instant) in [problem.path for problem in table.check().problems]


def test_recovery_does_not_delete_files_behind_a_symbolic_link(tmp_path):
    home = tmp_path / "home"
    group = "0" * 8 + "-0000-4000-8000-" + "0" * 12 + "-0"
    names = ["thesis.txt", "5.attached", f"{group}_0-5-0_{OLD}.parquet"]
    (home / "docs").mkdir(parents=True)
    for name in names:
        (home / name).write_text("precious")
        (home / "docs" / name).write_text("precious")
    schema = columns("id string, v int64")
    table = mdt.create(str(tmp_path / "t"), schema, key=["id"], options={"mdt.durable": False})
    table.upsert(pa.table({"id": ["a"], "v": [1]}))
    (tmp_path / f"t/.hoodie/.mdt/attachments/{OLD}").symlink_to(home)
    (tmp_path / "t/lnk").symlink_to(home)
    put(
        LocalStorage(tmp_path / "t"),
        json.dumps({**GOOD, "partitions": ["", "lnk", "lnk/docs"]}).encode(),
    )
    mdt.open(str(tmp_path / "t")).upsert(pa.table({"id": ["b"], "v": [2]}))
    mdt.open(str(tmp_path / "t")).abort()
    assert sorted(os.listdir(home)) == sorted([*names, "docs"])
    assert sorted(os.listdir(home / "docs")) == sorted(names)
    assert mdt.open(str(tmp_path / "t")).check().ok


def test_a_claim_that_is_too_large_is_not_read(monkeypatch):
    storage = filled("MERGE_ON_READ", "record")
    monkeypatch.setattr(claims, "CLAIM_BYTES_MAX", 100)
    put(storage, json.dumps(GOOD).encode())
    valid_claims, (error,) = claims.read_all(storage)
    assert not valid_claims
    assert "too large" in str(error)


# Leftovers


def rolled_back_at(storage, phase):
    """Run a writer to ``phase``, let another process roll it back, let it continue to the end of
    its writing, and stop it there.
    """
    writer = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE).start(storage)
    while next(writer) != phase:
        pass
    later(storage)
    mdt.open(storage).upsert(rows([1], 5, 5.0))
    assert not pending(mdt.open(storage).metadata)
    while phase == "claimed" and next(writer) != "written":
        pass


@pytest.mark.parametrize("phase", ["claimed", "written"])
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_files_that_a_writer_wrote_after_its_rollback_are_reported_and_removed(phase, table_type):
    storage = filled(table_type, "record")
    rolled_back_at(storage, phase)
    state = ours(storage)
    reported_paths = [p.path for p in mdt.open(storage).check().problems]
    assert bool(reported_paths) == (phase == "claimed"), (
        "the rollback removed the files of a writer that had finished writing"
    )
    files = [path for path in reported_paths if not path.startswith(paths.MARKERS_DIR)]
    assert mdt.open(storage).abort().files_removed == len(files)
    assert ours(storage) == state == theirs(storage)
    assert_clean(storage)


def test_pending_instants_of_a_rolled_back_writer_are_reported_and_removed():
    storage = filled("MERGE_ON_READ", "record")
    rolled_back_at(storage, "written")
    (dead_instant,) = mdt.open(storage).snapshot().log.dead_instants
    (stray, content), *_ = announcement(storage, dead_instant)
    storage.create(stray, content)
    assert [p.path for p in mdt.open(storage).check().problems] == [stray]
    mdt.open(storage).abort()
    assert_clean(storage)


def test_an_instant_that_a_commit_overtakes_before_its_claim_leaves_no_files(monkeypatch):
    storage, put = filled("MERGE_ON_READ", "record"), claims.put

    def put_too_late(target, claim):
        monkeypatch.setattr(claims, "put", put)
        mdt.open(storage).upsert(rows([1], 2, 2.0))
        return put(target, claim)

    monkeypatch.setattr(claims, "put", put_too_late)
    mdt.open(storage).upsert(rows([0, 20], 3, 3.0))
    assert ours(storage) == upserted(upserted(BASE_STATE, [1], 2, 2.0), [0, 20], 3, 3.0)
    assert not storage.list(".hoodie/.heartbeat") and not storage.list(".hoodie/.temp")
    assert_clean(storage)


def test_files_whose_claim_was_lost_are_removed_and_their_token_is_recorded_as_dead():
    storage = filled("MERGE_ON_READ", "record")
    writer = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE).start(storage)
    while next(writer) != "written":
        pass
    (claim,) = pending(mdt.open(storage).metadata)
    storage.delete(paths.pending(claim.instant))
    for path, _ in announcement(storage, claim.instant):
        storage.delete(path)
    assert len(mdt.open(storage).check().problems) == 2
    assert mdt.open(storage).abort().files_removed == 2
    assert claim.token in mdt.open(storage).snapshot().log.dead_tokens
    for _ in writer:
        pass
    assert ours(storage) == upserted(BASE_STATE, [0, 20], 3, 3.0), (
        "the writer was still running and retried"
    )
    assert_clean(storage)


def test_files_that_another_hudi_writer_may_have_written_are_kept():
    storage = filled("MERGE_ON_READ", "record")
    theirs_file = "city=x/" + "0" * 8 + f"-0000-4000-8000-000000000000-0_0-14-37_{OLD}.parquet"
    storage.create(theirs_file, b"x")
    for path, content in announcement(storage, OLD):
        storage.create(path, content)
    assert recover(mdt.open(storage).metadata, after_seconds=0).files_removed == 0
    assert storage.size(theirs_file) == 1
    (problem,) = mdt.open(storage).check().problems
    assert problem.path == theirs_file
    assert "another writer" in problem.text


@pytest.mark.parametrize("preemptions", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_no_leftovers_are_found_while_writers_run_or_after_they_end(preemptions):
    """Files reported while writers run must never become part of a commit. A sweep at any moment
    deletes no file of a running writer.
    """

    def start():
        return filled("MERGE_ON_READ", "record")

    def sweeping(storage):
        for _ in range(3):
            assert not leftovers.find(Metadata(storage)).files
            yield "swept"
        return Ended()

    actors = (
        upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE),
        upsert([1], 3, 4.0),
        Actor("sweeper", sweeping, lambda state: state),
    )
    for number, run in enumerate(explore(start, actors, preemptions=preemptions)):
        count("schedules")
        assert number % 9 or mdt.open(run.storage).check().ok, run.schedule
        assert ours(run.storage) == upserted(upserted(BASE_STATE, [0, 20], 3, 3.0), [1], 3, 4.0), (
            run.schedule
        )


def test_a_rollback_of_all_claims_beside_a_running_writer_only_costs_it_a_retry():
    writer = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE)
    for run in explore(
        lambda: filled("MERGE_ON_READ", "record"), (writer, sweeping_rollback()), preemptions=2
    ):
        count("schedules")
        assert ours(run.storage) == upserted(BASE_STATE, [0, 20], 3, 3.0), run.schedule
        assert_clean(run.storage)


def sweeping_rollback():
    """A user who calls t.abort() three times."""

    def start(storage):
        for _ in range(3):
            mdt.open(storage).abort()
            yield "rolled back"
        return Ended()

    return Actor("rollback", start, lambda state: state)


def test_concurrent_recoveries_leave_no_files_of_a_writer_that_continues_after_them():
    def start():
        storage = filled("MERGE_ON_READ", "record")
        storage.sleep(LATER_SECONDS)
        return storage

    actors = (upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE), rollback_of_all(), sweeping_rollback())
    for number, run in enumerate(explore(start, actors, preemptions=1)):
        count("schedules")
        mdt.open(run.storage).abort()
        assert ours(run.storage) == upserted(BASE_STATE, [0, 20], 3, 3.0), run.schedule
        if number % 5 == 0:
            assert_clean(run.storage)


def test_a_claim_of_a_writer_whose_clock_is_a_month_ahead_expires_as_soon_as_others():
    storage = filled("MERGE_ON_READ", "record")
    month_us = 30 * 24 * 3600 * 1_000_000
    claim = {**GOOD, "instant": "20990101000000000", "started_us": storage.now_us() + month_us}
    put(storage, json.dumps(claim).encode(), claim["instant"])
    mdt.open(storage).upsert(rows([1], 3, 3.0))
    assert [claim.instant for claim in pending(Metadata(storage))] == ["20990101000000000"]
    storage.sleep(LATER_SECONDS)
    mdt.open(storage).upsert(rows([2], 3, 3.0))
    assert pending(Metadata(storage)) == []


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("way", ["rolled back", "overtaken"])
def test_a_claim_with_the_instant_and_token_of_another_writers_file_does_not_delete_it(
    version, way
):
    storage = MemoryStorage()
    other_table(storage, version=version).upsert(batch(list(range(10)), 1))
    table = mdt.adopt(storage)
    [path] = [info.path for info in storage.list("city=Oslo") if info.path.endswith(".parquet")]
    name = path.rpartition("/")[2]
    claim = {
        **GOOD,
        "instant": trusted_names.instant_of(name),
        "token": trusted_names.token_of(name),
        "begun_at": 0,
        "started_us": 0 if way == "rolled back" else storage.now_us(),
        "partitions": ["city=Oslo"],
    }
    put(storage, json.dumps(claim).encode(), claim["instant"])
    if way == "rolled back":
        assert table.abort().set_aside == (paths.pending(claim["instant"]),)
    else:
        table.upsert(batch([1], 2))
    assert storage.size(path) is not None
    assert mdt.open(storage).scan().count() == 10


def test_a_rollback_reads_the_timeline_as_often_for_many_crashed_writers_as_for_few(
    monkeypatch,
):
    looks: list[int] = []
    look = Watch.look
    monkeypatch.setattr(Watch, "look", lambda self, layout: looks.append(1) or look(self, layout))
    look_counts = []
    for writers in (3, 12):
        storage = MemoryStorage()
        mdt.create(storage, columns("id int64"), ["id"]).upsert({"id": [0]})
        for n in range(writers):
            with monkeypatch.context() as patch, pytest.raises(Crash):
                patch.setattr(
                    storage, "put_if_absent", partial(_cut_at_the_log, storage.put_if_absent)
                )
                mdt.open(storage).upsert({"id": [n + 1]})
        table = mdt.open(storage)
        looks.clear()
        assert len(table.abort().rolled_back) == writers
        look_counts.append(len(looks))
        assert table.check().ok and table.scan().count() == 1
    assert look_counts[0] == look_counts[1]


def _cut_at_the_log(put, path, data):
    if "/log/" in path:
        raise Crash("the power is cut")
    return put(path, data)


def test_a_new_table_is_not_discarded_while_another_writer_writes_to_it(monkeypatch):
    storage = MemoryStorage()
    t = mdt.create(storage, pa.schema({"id": pa.int64()}), ["id"])
    append = commit_log.append

    def discard_before(storage, record):
        create_table.discard(storage)
        return append(storage, record)

    monkeypatch.setattr(commit_log, "append", discard_before)
    t.upsert({"id": [1]})
    assert mdt.open(storage).scan().count() == 1
    create_table.discard(storage)
    assert mdt.open(storage).check().ok
