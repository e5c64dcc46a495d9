"""Options of a table are kept and altered for good; those of a session or machine are never written
into a table or read from one.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pytest
from obstore.store import MemoryStore

import mdt
from mdt.errors import Invalid
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.stores.storage import ObjectStorage, Storage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})


def _rewritten(storage: Storage, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header of the record that made the table, as an older version or a stranger would
    have written it.
    """
    record = commit_log.read(storage, 0)
    assert record is not None
    header = json.loads(json.dumps(record.header))
    change(header)
    storage.replace(paths.commit(0), commit_log.encode(CommitRecord(0, header, record.tables)))


def _keeping(storage: Storage, **options: str) -> None:
    _rewritten(storage, lambda header: header["definition"]["options"].update(options))


def _foreign_database(folder: Path) -> dict[str, bytes]:
    """Make an LMDB file as another program has it; return the bytes of its files."""
    with lmdb.open(str(folder), map_size=1 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"users", b"precious")
    return _bytes_of(folder)


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_options_of_the_machine_and_session_hold_for_the_object_that_create_returns_and_are_not_kept(
    tmp_path: Path,
) -> None:
    given = {
        "mdt.cache.dir": str(tmp_path / "c"),
        "mdt.commit.attempts": 3,
        "mdt.reader.threads": 1,
        "mdt.page.bytes": 512,
    }
    made = mdt.create(tmp_path / "t", SCHEMA, ["id"], options=given)
    assert (made.options.commit_attempts, made.options.reader_threads, made.options.page_bytes) == (
        3,
        1,
        512,
    )
    again = mdt.open(tmp_path / "t")
    assert (
        again.options.commit_attempts,
        again.options.reader_threads,
        again.options.page_bytes,
    ) == (100, 0, 512)
    assert again.options.cache_dir == "" and set(again.definition.options) == {
        "mdt.write.footer.bloom",
        "mdt.page.bytes",
    }


def test_a_table_with_options_of_the_machine_is_opened_without_them_and_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.upsert(ROWS)
    _keeping(
        table.storage,
        **{"mdt.write.spill.dir": "/nowhere", "mdt.reader.threads": "7", "mdt.page.bytes": "512"},
    )
    with caplog.at_level(logging.WARNING, "mdt.metadata"):
        found = mdt.open(tmp_path / "t")
    assert (
        found.options.write_spill_dir,
        found.options.reader_threads,
        found.options.page_bytes,
    ) == ("", 0, 512)
    told = [record for record in caplog.records if "mdt.write.spill.dir" in record.getMessage()]
    assert (
        len(told) == 1
        and "mdt.reader.threads" in told[0].getMessage()
        and "page.bytes" not in told[0].getMessage()
    )
    found.upsert(iter([ROWS]))
    found.metadata.compact()
    assert "reader.threads" not in str(
        mdt.open(tmp_path / "t").metadata.newest().definition.to_json()["options"]
    )


def test_a_table_does_not_choose_where_its_reader_keeps_pages(tmp_path: Path) -> None:
    remote = ObjectStorage("memory:///", MemoryStore())
    table = mdt.create(remote, SCHEMA, ["id"])
    table.upsert(ROWS)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "data.mdb").write_bytes(b"a database of another program" * 500)
    before = _bytes_of(tmp_path / "app")
    _keeping(remote, **{"mdt.cache.dir": str(tmp_path / "app")})
    table.metadata.compact()
    assert mdt.open(remote).scan("v = 2").count() == 1
    assert _bytes_of(tmp_path / "app") == before


def test_a_table_does_not_choose_where_its_reader_keeps_keys(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], key_index="lmdb")
    table.upsert(ROWS)
    before = _foreign_database(tmp_path / "app")
    _keeping(table.storage, **{"mdt.key.store.dir": str(tmp_path / "app")})
    found = mdt.open(tmp_path / "t")
    assert found.get("a") == {"id": "a", "v": 1} and found.upsert(ROWS).updated == 2
    assert _bytes_of(tmp_path / "app") == before


def test_a_directory_of_another_program_is_not_used_even_if_its_user_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = _foreign_database(tmp_path / "app")
    mdt.create(tmp_path / "t", SCHEMA, ["id"], key_index="lmdb").upsert(ROWS)
    table = mdt.open(tmp_path / "t", {"mdt.key.store.dir": str(tmp_path / "app")})
    assert table.upsert(ROWS).updated == 2
    remote = ObjectStorage("memory:///", MemoryStore())
    mdt.create(remote, SCHEMA, ["id"]).metadata.compact()
    for _ in range(2):
        assert mdt.open(remote, {"mdt.cache.dir": str(tmp_path / "app")}).scan().count() == 0
    assert _bytes_of(tmp_path / "app") == before
    assert sum("not cached" in record.getMessage() for record in caplog.records) == 1
    assert caplog.text.count("has files of another program; name an empty directory") == 2


def test_an_altered_option_holds_for_everybody_and_stands_in_the_history(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.upsert(ROWS)
    other = mdt.open(tmp_path / "t")
    own = mdt.open(tmp_path / "t", {"mdt.clean.retain.commits": 9})
    done = table.alter(
        options={"mdt.clean.retain.commits": 2, "hoodie.parquet.compression.codec": "zstd"}
    )
    assert done.seq == 2 and table.options.clean_retain_commits == 2
    for one, retained in ((other, 2), (own, 9), (mdt.open(tmp_path / "t"), 2)):
        assert one.scan().count() == 2
        assert (one.options.clean_retain_commits, one.options.compression) == (retained, "zstd")
    assert mdt.open(tmp_path / "t", as_of=1).options.clean_retain_commits == 100
    assert table.history()["operation"].to_pylist() == ["create", "upsert", "alter_options"]
    table.metadata.compact()
    assert mdt.open(tmp_path / "t").options.compression == "zstd"
    table.alter(options={"mdt.compression": None})
    assert (
        mdt.open(tmp_path / "t").options
        == mdt.create(
            tmp_path / "u", SCHEMA, ["id"], options={"mdt.clean.retain.commits": 2}
        ).options
    )
    assert table.check().ok and table.get("a") == {"id": "a", "v": 1}


def test_columns_and_options_are_altered_in_one_commit(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    done = table.alter(add={"w": "int64"}, options={"mdt.usage.counts": True})
    assert done.seq == 1 and table.options.usage_counts and table.schema.names == ["id", "v", "w"]
    assert table.alter(options={"mdt.usage.counts": "true"}).instant == ""


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.alter(options={"mdt.max.file.bytes": 200 << 20, "mdt.small.file.bytes": 150 << 20})
    with pytest.raises(Invalid, match="above the largest file"):
        table.alter(options={"mdt.max.file.bytes": None})
    assert table.options.max_file_bytes == 200 << 20 and table.snapshot().seq == 1


def test_of_two_who_alter_options_at_the_same_time_the_second_looks_at_what_the_first_has_left(
    tmp_path: Path,
) -> None:
    from mdt.commit.transaction import steps
    from mdt.schema.alter import Alteration
    from mdt.services.history.altering import Alter

    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.max.file.bytes": 200 << 20})
    late = Alter(
        lambda _: Alteration(), "deltacommit", options={"mdt.small.file.bytes": str(150 << 20)}
    )
    under_way = steps(mdt.open(tmp_path / "t").metadata, late)
    assert [next(under_way) for _ in range(4)][-1] == "written"
    table.alter(options={"mdt.max.file.bytes": None})
    with pytest.raises(Invalid, match="above the largest file"):
        list(under_way)
    assert mdt.open(tmp_path / "t").options.small_file_bytes == 100 << 20


def test_statistics_that_are_kept_of_other_columns_than_before_are_right(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.upsert(ROWS)
    table.alter(options={"mdt.column.stats.columns": ["id"]})
    table.upsert(pa.table({"id": ["c"], "v": [3]}))
    table.alter(options={"mdt.column.stats.columns": None})
    assert table.scan("v = 3").count() == 1 and table.check().ok


def test_a_copy_of_a_table_is_read_the_same_where_its_maker_had_other_options(
    tmp_path: Path,
) -> None:
    table = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        key_index="lmdb",
        options={"mdt.key.store.dir": str(tmp_path / "k")},
    )
    table.upsert(ROWS)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    assert mdt.open(tmp_path / "copy").get(["a", "b"])["v"].to_pylist() == [1, 2]
