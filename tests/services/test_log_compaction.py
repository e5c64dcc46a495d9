"""Log compaction: small log files are merged into one. Rows, changes and every reader see the same,
and log files that deletes need are kept.
"""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from reader import agreed, bag, hudi_table
from texts import columns
from worlds import compact_logs

import mdt
from mdt.commit.transaction import run
from mdt.services.layout import small_files
from mdt.services.layout.log_compaction import LogCompaction, files_to_merge

SCHEMA = columns("id int64, ts int64, x float64, note string")
BARE = pa.schema(list(SCHEMA)[:3])
LOADED = 20_000


@pytest.fixture(autouse=True)
def every_group_is_large(monkeypatch):
    monkeypatch.setattr(small_files, "REWRITTEN_BYTES_MAX", 0)


def rows(ids, x=0.0):
    notes = [f"{i * 2654435761 % 2**40:010x}" for i in ids]  # no encoding makes these small
    return pa.table(
        [pa.array(ids, pa.int64()), pa.array([int(x)] * len(ids)), [x] * len(ids), notes],
        schema=SCHEMA,
    )


def loaded_table(path, **options):
    settings = {"mdt.durable": False, "mdt.compact.log.files": 4, **options}
    table = mdt.create(
        path,
        SCHEMA,
        ["id"],
        table_type="MERGE_ON_READ",
        key_index="record",
        ordering="ts",
        options=settings,
    )
    table.bulk_insert(rows(range(LOADED)))
    return table


def count_log_files(table):
    return len(table.files()) - 1


def operations(table):
    return Counter(table.history()["operation"].to_pylist())


def merge_log_files(table):
    names = table.snapshot().file_groups.names([0])
    return (
        run(table.metadata, LogCompaction(table.metadata, table.options, names=names)).record
        is not None
    )


@pytest.mark.parametrize("positions", [False, True])
def test_log_files_of_a_large_group_are_merged_and_every_reader_sees_the_same(tmp_path, positions):
    table = loaded_table(tmp_path / "t", **{"mdt.write.record.positions": positions})
    [base] = [file["name"] for file in table.files().to_pylist()]
    expected = dict.fromkeys(range(LOADED), 0.0)
    rng = np.random.default_rng(5)
    for number in range(1, 13):
        ids = sorted({*rng.choice(LOADED, 4, replace=False).tolist(), LOADED + number // 2})
        assert table.upsert(rows(ids, float(number))).warnings == ()
        expected |= dict.fromkeys(ids, float(number))
    assert (
        base in {file["name"] for file in table.files().to_pylist()} and count_log_files(table) <= 4
    )
    assert operations(table)["log_compact"] >= 3 and operations(table)["compact"] == 0
    rows_found = agreed(table)
    assert (
        dict(zip(rows_found["id"].to_pylist(), rows_found["x"].to_pylist(), strict=True))
        == expected
    )
    table.clean(retain_commits=1)
    agreed(table, expected=rows_found)
    assert table.upsert(rows(range(LOADED), 99.0)).updated == LOADED
    table.compact()
    assert table.check().ok


def test_rows_moved_by_a_log_compaction_are_not_reported_as_changes(tmp_path):
    table = loaded_table(tmp_path / "t", **{"mdt.services.auto": False})
    for number in range(1, 5):
        table.upsert(rows([number, 7], float(number)))
    before = table.snapshot().seq
    times = table.scan(columns=["id", "_hoodie_commit_time"]).to_arrow()
    assert merge_log_files(table) and count_log_files(table) == 1
    assert len(pa.table(table.changes(before, mode="all"))) == 0
    assert len(pa.table(table.changes(1, mode="all"))) == 16
    assert bag(table.scan(columns=["id", "_hoodie_commit_time"]).to_arrow()) == bag(times)
    assert bag(table.scan(as_of=before).to_arrow()) == bag(table.scan().to_arrow())


def test_log_files_with_deletes_are_not_merged_nor_earlier_ones_with_deleted_rows(
    tmp_path,
):
    table = loaded_table(tmp_path / "t", **{"mdt.services.auto": False})
    table.upsert(rows([1], 1.0))
    table.upsert(rows([2], 2.0))
    table.upsert(rows([3], 3.0))
    table.delete({"id": [2]})
    table.upsert(rows([1], 4.0))
    table.upsert(rows([4, 5], 5.0))
    snapshot = table.snapshot()
    assert [snapshot.segment(number).seq for number in files_to_merge(snapshot, 0, 2)] == [4, 6, 7]
    assert merge_log_files(table) and count_log_files(table) == 4
    agreed(table)
    table.upsert(rows([2], 1.0))
    assert count_log_files(table) == 0, (
        "inserting a deleted key in a table with an ordering field starts a new file slice"
    )
    agreed(table)
    assert table.get([2])["x"].to_pylist() == [1.0] and table.check().ok


def test_log_files_without_live_rows_are_merged_with_the_others(tmp_path):
    table = loaded_table(tmp_path / "t")
    for number in range(1, 21):
        table.upsert(rows([1, 2, 3], float(number)))
        assert count_log_files(table) <= 4
    assert operations(table)["compact"] == 0 and table.check().ok
    agreed(table)


def test_a_group_is_compacted_when_its_log_files_are_a_fifth_of_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(small_files, "PAID_BYTES", 0)
    table = loaded_table(tmp_path / "t")
    for number in range(1, 5):
        table.upsert(rows(range(1_000 * number, 1_000 * number + 1_000), float(number)))
    base, *logs = sorted(table.files()["size"].to_pylist(), reverse=True)
    assert len(logs) == 4 and sum(logs) < (base + sum(logs)) / 5 < sum(logs) + min(logs)
    assert operations(table)["compact"] == 0
    table.upsert(rows(range(5_000, 6_000), 5.0))
    assert operations(table)["compact"] == 1 and len(table.files()) == 1
    assert table.check().ok


def test_a_group_is_compacted_earlier_when_its_commits_wrote_enough_bytes(tmp_path, monkeypatch):
    for part in (8, 80):
        table = loaded_table(tmp_path / str(part))
        monkeypatch.setattr(
            small_files, "PAID_BYTES", sum(table.files()["size"].to_pylist()) // part
        )
        for number in range(1, 16):
            table.upsert(rows(range(100 * number, 100 * number + 100), float(number)))
        assert operations(table)["compact"] == (part == 8), "a fourteenth of the rows is deleted"
        assert table.check().ok


@pytest.mark.parametrize(
    "seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(4, 60))]
)
def test_random_histories_with_log_compactions_equal_a_dictionary(seed, tmp_path):
    draw = random.Random(seed)
    ordering = draw.choice(["ts", None])
    options = {
        "mdt.durable": False,
        "mdt.services.auto": False,
        "mdt.writer.threads": 1,
        "mdt.write.record.positions": draw.random() < 0.3,
    }
    table = mdt.create(
        tmp_path / "t",
        BARE,
        ["id"],
        table_type="MERGE_ON_READ",
        key_index=draw.choice(["bloom", "record"]),
        ordering=ordering,
        options=options,
    )
    model = {}
    for step in range(30):
        ids = draw.sample(range(8), draw.randint(1, 3))
        action = draw.choices(["upsert", "delete", "join", "clean"], [6, 2, 3, 1])[0]
        if action == "upsert":
            ts = draw.randint(0, 5)
            table.upsert(pa.table([ids, [ts] * len(ids), [float(step)] * len(ids)], schema=BARE))
            written = {id: (ts, float(step)) for id in ids}
            model |= {
                id: row
                for id, row in written.items()
                if ordering is None or id not in model or model[id][0] <= ts
            }
        elif action == "delete":
            table.delete({"id": ids})
            model = {id: row for id, row in model.items() if id not in ids}
        elif action == "join":
            count("log compactions in random histories", compact_logs(table).record is not None)
        else:
            table.clean(retain_commits=draw.randint(1, 4))
        expected = pa.table(
            [[*model], *([row[n] for row in model.values()] for n in range(2))], schema=BARE
        )
        assert bag(table.scan().to_arrow()) == bag(expected), f"step {step}: {action} {ids}"
        assert bag(hudi_table(tmp_path / "t", BARE)) == bag(expected), (
            f"step {step}: {action} {ids}"
        )
    assert table.check().ok
