"""User metadata of commits: stored in commit records, written to Hudi's timeline, and shown by the
history, also for archived records.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from texts import columns, rows_of

import mdt
from mdt.errors import Corrupt, Invalid
from mdt.limits import ARCHIVE_RECORDS_MIN
from mdt.metadata.files import paths
from mdt.metadata.log import codec, commit_log
from mdt.metadata.log.checkpoint_columns import HISTORY, HISTORY_ADDED
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, p string, v int64")
RUN = {"run": "nightly-7", "who": "Zoë"}


def rows(*ids, v=1):
    return pa.table([list(ids), [id[0] for id in ids], [v] * len(ids)], schema=SCHEMA)


WRITES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "upsert": ("upsert", [rows("a")], {}),
    "upsert of parts": ("upsert", [rows("a").drop_columns("v")], {"partial": True}),
    "evolve": ("upsert", [rows("a").append_column("w", [[1.5]])], {"evolve": True}),
    "insert": ("insert", [rows("n")], {}),
    "bulk_insert": ("bulk_insert", [rows("n")], {}),
    "delete": ("delete", [rows("a")], {}),
    "delete_where": ("delete_where", ["v = 1"], {}),
    "update_where": ("update_where", [{"v": "v + 1"}], {}),
    "insert_overwrite": ("insert_overwrite", [rows("a")], {}),
    "insert_overwrite_table": ("insert_overwrite_table", [rows("a")], {}),
    "delete_partition": ("delete_partition", [{"p": "a"}], {}),
    "truncate": ("truncate", [], {}),
    "alter": ("alter", [], {"add": {"w": "int64"}}),
    "alter options": ("alter", [], {"options": {"mdt.page.bytes": 512}}),
    "restore": ("restore", [1], {}),
    "rollback": ("rollback", [2], {}),
    "compact": ("compact", [], {}),
    "cluster": ("cluster", ["v"], {}),
    "clean": ("clean", [], {"retain_commits": 1}),
    "purge": ("purge", [], {}),
    "tag": ("tag", ["x"], {}),
    "savepoint": ("savepoint", ["x"], {}),
    "untag": ("untag", ["old"], {}),
    "create_index": ("create_index", ["bitmap(v)"], {}),
    "drop_index": ("drop_index", ["bitmap(p)"], {}),
    "rebuild_index": ("rebuild_index", ["bitmap(p)"], {}),
    "analyze": ("analyze", [["v"]], {}),
}
"""Method, positional and keyword arguments of each write and service."""


def table_for_writes(location=None):
    """Return a table on which each of WRITES has something to do."""
    table = mdt.create(
        MemoryStorage() if location is None else location,
        SCHEMA,
        ["id"],
        partition_by=["p"],
        indexes=["bitmap(p)"],
        options={"mdt.services.auto": False, "mdt.small.file.bytes": 0},
    )
    for row_texts in (
        ("a a 1", "b b 1"),
        ("a a 1", "b b 1", "c1 c 1", "c3 c 3"),
        ("c2 c 2", "c4 c 4"),
    ):
        table.upsert(rows_of(SCHEMA, *row_texts))
    table.tag("old", 1)
    return table


def assert_metadata(table, before):
    """Assert that all commits after ``before`` have the metadata, and that the next has none."""
    later_commits = table.history().slice(before + 1)
    assert len(later_commits) and later_commits["metadata"].to_pylist() == [
        list(RUN.items())
    ] * len(later_commits)
    table.tag("afterwards")
    assert table.history()["metadata"][-1].as_py() is None, "metadata are for one call only"


@pytest.mark.parametrize("name", WRITES)
def test_every_write_and_service_takes_metadata(name):
    table = table_for_writes()
    method, arguments, keywords = WRITES[name]
    getattr(table, method)(*arguments, **keywords, metadata=RUN)
    assert_metadata(table, before=4)


def test_merges_writers_and_upserts_of_streamed_rows_take_metadata():
    table = table_for_writes()
    table.merge(rows("a", v=7)).when_matched().update("*").execute(metadata=RUN)
    table.upsert(iter([rows("a")]), metadata=RUN)
    with table.writer(metadata=RUN) as writer:
        writer.upsert(rows("c"))
        writer.flush()
    assert_metadata(table, before=4)


def test_completed_instants_have_the_metadata_beside_the_entries_of_hudi(tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    result = table.upsert(rows("a"), metadata=RUN)
    extra_metadata = json.loads(
        (tmp_path / "t" / ".hoodie" / f"{result.instant}.deltacommit").read_bytes()
    )["extraMetadata"]
    assert {name: extra_metadata[name] for name in RUN} == RUN
    assert extra_metadata["mdt.seq"] == "1" and "fields" in extra_metadata["schema"]


def test_metadata_remain_in_the_history_when_records_are_archived():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options={"mdt.metadata.compact.records": 1})
    for n in range(ARCHIVE_RECORDS_MIN + 4):
        table.upsert(rows(f"k{n}"), metadata={"run": str(n)})
    before = table.history()
    assert table.clean(retain_commits=1).records > 0
    table.metadata.compact()
    after = mdt.open(table.storage).history()
    assert after.slice(0, len(before)).equals(before) and after["metadata"][3].as_py() == [
        ("run", "2")
    ]


def test_the_history_has_times_and_the_bytes_rows_and_files_of_each_commit(tmp_path):
    table = table_for_writes(tmp_path / "t")
    history = table.history()
    now = datetime.now(UTC)
    for time in history["time"].to_pylist():
        assert now - timedelta(hours=1) < time <= now + timedelta(seconds=5)
    instant = pc.strftime(history["time"], "%Y%m%d%H%M%S").to_pylist()
    assert [text[:14] for text in instant] == [text[:14] for text in history["instant"].to_pylist()]
    assert pc.sum(history["bytes"]).as_py() == pc.sum(table.files()["size"]).as_py()
    assert history["rows"].to_pylist() == [0, 2, 4, 2, 0]
    assert history["files"].to_pylist() == [0, 2, 3, 1, 0]


@pytest.mark.parametrize(
    "metadata, message",
    [
        ({"run": 7}, "strings, not 'run' to 7"),
        ({7: "run"}, "must map strings"),
        ({"schema": "x"}, "reserved by Hudi or mdt"),
        ({"mdt.txn": "x"}, "reserved by Hudi or mdt"),
        ({"hoodie.x": "x"}, "reserved by Hudi or mdt"),
        ({"": "x"}, "printable names"),
        ({"a\n": "x"}, "printable names"),
        ({"a": "x" * 70_000}, "at most 256 entries and 65,536 bytes"),
        ({str(n): "" for n in range(300)}, "at most 256 entries"),
        ({"a": "\ud800"}, "Unicode"),
        ("run", "takes a dict"),
    ],
)
def test_invalid_metadata_are_refused_and_nothing_is_written(metadata, message):
    table = table_for_writes()
    with pytest.raises(Invalid, match=message):
        table.truncate(metadata=metadata)
    assert table.snapshot().seq == 4


@pytest.mark.parametrize("value", [{"schema": "{}"}, {"a": 1}, {"a": "x" * 70_000}, ["a"], "a"])
def test_forged_metadata_of_a_record_are_corrupt(value):
    table = table_for_writes()
    record = commit_log.read(table.storage, 2)
    forged = commit_log.CommitRecord(2, {**record.header, "metadata": value}, record.tables)
    table.storage.replace(paths.commit(2), commit_log.encode(forged))
    with pytest.raises(Corrupt, match="metadata"):
        mdt.open(table.storage)


def test_histories_of_older_writers_have_nulls_in_later_columns():
    older = pa.schema(list(HISTORY)[:-HISTORY_ADDED])
    data = codec.encode_ipc(pa.Table.from_pylist([{"seq": 3, "instant": "x"}], schema=older))
    history = codec.decode_ipc(data, HISTORY, path="p", added=HISTORY_ADDED)
    assert history.schema == HISTORY
    assert history.select(["seq", "metadata"]).to_pylist() == [{"seq": 3, "metadata": None}]
    with pytest.raises(Corrupt, match="a wrong schema"):
        codec.decode_ipc(data, HISTORY, path="p")
