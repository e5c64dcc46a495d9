"""Metadata that users give to commits: kept in records, told to Hudi, shown by the history, also of
archived records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mdt
from mdt.errors import Corrupt, Invalid
from mdt.limits import ARCHIVE_RECORDS_MIN
from mdt.metadata.files import paths
from mdt.metadata.log import codec, commit_log
from mdt.metadata.log.checkpoint_columns import HISTORY, HISTORY_ADDED
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
RUN = {"run": "nightly-7", "who": "Zoë"}


def rows(*ids: str, v: int = 1) -> pa.Table:
    return pa.table([list(ids), [id[0] for id in ids], [v] * len(ids)], schema=SCHEMA)


def merged(table: mdt.Table, **more: Any) -> object:
    return table.merge(rows("a", v=7)).when_matched().update("*").execute(**more)


WRITES: dict[str, Callable[..., object]] = {
    "upsert": lambda t, **more: t.upsert(rows("a"), **more),
    "upsert of a reader": lambda t, **more: t.upsert(iter([rows("a")]), **more),
    "upsert of parts": lambda t, **more: t.upsert(
        rows("a").drop_columns("v"), partial=True, **more
    ),
    "evolve": lambda t, **more: t.upsert(
        rows("a").append_column("w", [[1.5]]), evolve=True, **more
    ),
    "insert": lambda t, **more: t.insert(rows("n"), **more),
    "bulk_insert": lambda t, **more: t.bulk_insert(rows("n"), **more),
    "delete": lambda t, **more: t.delete(rows("a"), **more),
    "delete_where": lambda t, **more: t.delete_where("v = 1", **more),
    "update_where": lambda t, **more: t.update_where({"v": "v + 1"}, **more),
    "merge": merged,
    "insert_overwrite": lambda t, **more: t.insert_overwrite(rows("a"), **more),
    "insert_overwrite_table": lambda t, **more: t.insert_overwrite_table(rows("a"), **more),
    "delete_partition": lambda t, **more: t.delete_partition({"p": "a"}, **more),
    "truncate": lambda t, **more: t.truncate(**more),
    "alter": lambda t, **more: t.alter(add={"w": "int64"}, **more),
    "alter options": lambda t, **more: t.alter(options={"mdt.page.bytes": 512}, **more),
    "restore": lambda t, **more: t.restore(1, **more),
    "rollback": lambda t, **more: t.rollback(2, **more),
    "compact": lambda t, **more: t.compact(**more),
    "cluster": lambda t, **more: t.cluster("v", **more),
    "clean": lambda t, **more: t.clean(retain_commits=1, **more),
    "purge": lambda t, **more: t.purge(**more),
    "tag": lambda t, **more: t.tag("x", **more),
    "savepoint": lambda t, **more: t.savepoint("x", **more),
    "untag": lambda t, **more: t.untag("old", **more),
    "create_index": lambda t, **more: t.create_index("bitmap(v)", **more),
    "drop_index": lambda t, **more: t.drop_index("bitmap(p)", **more),
    "rebuild_index": lambda t, **more: t.rebuild_index("bitmap(p)", **more),
    "analyze": lambda t, **more: t.analyze(["v"], **more),
}


def made(place: Any = None) -> mdt.Table:
    """Return a table in which each of WRITES finds something to do."""
    place = MemoryStorage() if place is None else place
    options = {"mdt.services.auto": False, "mdt.small.file.bytes": 0}
    table = mdt.create(
        place, SCHEMA, ["id"], partition_by=["p"], indexes=["bitmap(p)"], options=options
    )
    for ids in (("a", "b"), ("a", "b", "c1", "c3"), ("c2", "c4")):
        table.upsert(
            pa.table(
                [list(ids), [id[0] for id in ids], [int(id[1:] or 1) for id in ids]], schema=SCHEMA
            )
        )
    table.tag("old", 1)
    return table


@pytest.mark.parametrize("name", WRITES)
def test_every_write_and_service_takes_metadata(name: str) -> None:
    table = made()
    before = table.snapshot().seq
    WRITES[name](table, metadata=RUN)
    told = table.history().slice(before + 1)
    assert len(told) and told["metadata"].to_pylist() == [list(RUN.items())] * len(told)
    table.tag("afterwards")
    assert table.history()["metadata"][-1].as_py() is None, "it ends with the call"


def test_a_writer_s_commits_have_its_metadata() -> None:
    table = made()
    with table.writer(metadata=RUN) as writer:
        writer.upsert(rows("c"))
        writer.flush()
    assert table.history()["metadata"][-1].as_py() == list(RUN.items())


def test_hudi_has_metadata_beside_its_own(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    done = table.upsert(rows("a"), metadata=RUN)
    told = json.loads((tmp_path / "t" / ".hoodie" / f"{done.instant}.deltacommit").read_bytes())[
        "extraMetadata"
    ]
    assert {name: told[name] for name in RUN} == RUN
    assert told["mdt.seq"] == "1" and "fields" in told["schema"]


def test_metadata_stay_when_records_leave_the_log() -> None:
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


def test_the_history_has_times_and_what_was_written(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    history = table.history()
    now = datetime.now(UTC)
    assert all(
        now - timedelta(hours=1) < time <= now + timedelta(seconds=5)
        for time in history["time"].to_pylist()
    )
    instant = pc.strftime(history["time"], "%Y%m%d%H%M%S").to_pylist()
    assert [one[:14] for one in instant] == [one[:14] for one in history["instant"].to_pylist()]
    files = table.files()
    assert pc.sum(history["bytes"]).as_py() == pc.sum(files["size"]).as_py()
    assert history["rows"].to_pylist() == [0, 2, 4, 2, 0] and history["files"].to_pylist() == [
        0,
        2,
        3,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"run": 7}, "'run' is 7(.|\n)*are texts"),
        ({7: "run"}, "texts"),
        ({"schema": "x"}, "Hudi or mdt uses"),
        ({"mdt.txn": "x"}, "Hudi or mdt uses"),
        ({"hoodie.x": "x"}, "Hudi or mdt uses"),
        ({"": "x"}, "printable names"),
        ({"a\n": "x"}, "printable names"),
        ({"a": "x" * 70_000}, "at most 256 texts and 65,536 bytes"),
        ({str(n): "" for n in range(300)}, "at most 256 texts"),
        ({"a": "\ud800"}, "Unicode"),
        ("run", "takes a dict"),
    ],
)
def test_other_metadata_are_refused_and_nothing_is_written(metadata: Any, message: str) -> None:
    table = made()
    with pytest.raises(Invalid, match=message):
        table.truncate(metadata=metadata)
    assert table.snapshot().seq == 4


@pytest.mark.parametrize("value", [{"schema": "{}"}, {"a": 1}, {"a": "x" * 70_000}, ["a"], "a"])
def test_forged_metadata_of_a_record_are_corrupt(value: Any) -> None:
    table = made()
    record = commit_log.read(table.storage, 2)
    assert record is not None
    forged = commit_log.CommitRecord(2, {**record.header, "metadata": value}, record.tables)
    table.storage.replace(paths.commit(2), commit_log.encode(forged))
    with pytest.raises(Corrupt, match="metadata"):
        mdt.open(table.storage)


def test_histories_of_older_writers_have_nulls_in_later_columns() -> None:
    older = pa.schema(list(HISTORY)[:-HISTORY_ADDED])
    data = codec.encode_ipc(pa.Table.from_pylist([{"seq": 3, "instant": "x"}], schema=older))
    found = codec.decode_ipc(data, HISTORY, path="p", added=HISTORY_ADDED)
    assert (
        found.schema == HISTORY
        and found["metadata"].to_pylist() == [None]
        and found["seq"].to_pylist() == [3]
    )
    with pytest.raises(Corrupt, match="another schema"):
        codec.decode_ipc(data, HISTORY, path="p")
