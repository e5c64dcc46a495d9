"""Table options are stored and altered permanently. Session and machine options are never stored in
a table or read from one.
"""

import json
import logging
import shutil

import lmdb
from obstore.store import MemoryStore
from refusals import refused
from texts import columns, rows_of

import mdt
from mdt.commit.transaction import steps
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.schema.alter import Alteration
from mdt.services.history.altering import Alter
from mdt.stores.storage import ObjectStorage

SCHEMA = columns("id string, v int64")
ROWS = rows_of(SCHEMA, "a 1", "b 2")


def _filled_table(location, **more):
    table = mdt.create(location, SCHEMA, ["id"], **more)
    table.upsert(ROWS)
    return table


def _remote():
    return ObjectStorage("memory:///", MemoryStore())


def _store_options(storage, **options):
    """Store options in the first commit record, as an older version or another writer might."""
    record = commit_log.read(storage, 0)
    assert record is not None
    header = json.loads(json.dumps(record.header))
    header["definition"]["options"].update(options)
    storage.replace(paths.commit(0), commit_log.encode(CommitRecord(0, header, record.tables)))


def _foreign_database(folder):
    """Create an LMDB file of another program. Return the bytes of its files."""
    with lmdb.open(str(folder), map_size=1 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"users", b"precious")
    return _bytes_of(folder)


def _bytes_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_machine_and_session_options_apply_to_the_created_object_and_are_not_stored(
    tmp_path,
):
    options = {
        "mdt.cache.dir": str(tmp_path / "c"),
        "mdt.commit.attempts": 3,
        "mdt.reader.threads": 1,
        "mdt.page.bytes": 512,
    }
    effective = mdt.create(tmp_path / "t", SCHEMA, ["id"], options=options).options
    assert (effective.commit_attempts, effective.reader_threads, effective.page_bytes) == (
        3,
        1,
        512,
    )
    reopened = mdt.open(tmp_path / "t")
    stored = reopened.options
    assert (stored.commit_attempts, stored.reader_threads, stored.page_bytes) == (100, 0, 512)
    assert stored.cache_dir == ""
    assert set(reopened.definition.options) == {"mdt.write.footer.bloom", "mdt.page.bytes"}


def test_stored_machine_options_are_ignored_with_a_warning(tmp_path, caplog):
    options = {
        "mdt.write.spill.dir": "/nowhere",
        "mdt.reader.threads": "7",
        "mdt.page.bytes": "512",
    }
    _store_options(_filled_table(tmp_path / "t").storage, **options)
    with caplog.at_level(logging.WARNING, "mdt.metadata"):
        reopened = mdt.open(tmp_path / "t")
    effective = reopened.options
    assert (effective.write_spill_dir, effective.reader_threads, effective.page_bytes) == (
        "",
        0,
        512,
    )
    (warning,) = [text for text in caplog.messages if "mdt.write.spill.dir" in text]
    assert "mdt.reader.threads" in warning and "page.bytes" not in warning
    reopened.upsert(iter([ROWS]))
    reopened.metadata.compact()
    assert "mdt.reader.threads" not in mdt.open(tmp_path / "t").definition.to_json()["options"]


def test_stored_cache_and_key_store_directories_are_not_used_by_readers(tmp_path):
    before = _foreign_database(tmp_path / "app")
    remote = _remote()
    table = _filled_table(remote)
    _store_options(remote, **{"mdt.cache.dir": str(tmp_path / "app")})
    table.metadata.compact()
    assert mdt.open(remote).scan("v = 2").count() == 1
    local = _filled_table(tmp_path / "t", key_index="lmdb")
    _store_options(local.storage, **{"mdt.key.store.dir": str(tmp_path / "app")})
    reopened = mdt.open(tmp_path / "t")
    assert reopened.get("a") == {"id": "a", "v": 1} and reopened.upsert(ROWS).updated == 2
    assert _bytes_of(tmp_path / "app") == before


def test_a_directory_with_files_of_another_program_is_not_used_even_if_configured(tmp_path, caplog):
    before = _foreign_database(tmp_path / "app")
    _filled_table(tmp_path / "t", key_index="lmdb")
    table = mdt.open(tmp_path / "t", {"mdt.key.store.dir": str(tmp_path / "app")})
    assert table.upsert(ROWS).updated == 2
    remote = _remote()
    _filled_table(remote).metadata.compact()
    for _ in range(2):
        assert mdt.open(remote, {"mdt.cache.dir": str(tmp_path / "app")}).scan().count() == 2
    assert _bytes_of(tmp_path / "app") == before
    assert caplog.text.count("not cached") == 1
    assert (
        caplog.text.count("contains files of another program; choose an empty or a new directory")
        == 2
    )


def test_an_altered_option_applies_to_all_users_and_is_in_the_history(tmp_path):
    table = _filled_table(tmp_path / "t")
    other = mdt.open(tmp_path / "t")
    own = mdt.open(tmp_path / "t", {"mdt.clean.retain.commits": 9})
    options = {"mdt.clean.retain.commits": 2, "hoodie.parquet.compression.codec": "zstd"}
    assert table.alter(options=options).seq == 2 and table.options.clean_retain_commits == 2
    for each, retained in ((other, 2), (own, 9), (mdt.open(tmp_path / "t"), 2)):
        assert each.scan().count() == 2
        assert (each.options.clean_retain_commits, each.options.compression) == (retained, "zstd")
    assert mdt.open(tmp_path / "t", as_of=1).options.clean_retain_commits == 100
    assert table.history()["operation"].to_pylist() == ["create", "upsert", "alter_options"]
    table.metadata.compact()
    assert mdt.open(tmp_path / "t").options.compression == "zstd"
    table.alter(options={"mdt.compression": None})
    plain = _filled_table(tmp_path / "u", options={"mdt.clean.retain.commits": 2})
    assert mdt.open(tmp_path / "t").options == plain.options
    assert table.check().ok and table.get("a") == {"id": "a", "v": 1}


def test_columns_and_options_can_be_altered_in_one_commit(tmp_path):
    table = _filled_table(tmp_path / "t")
    result = table.alter(add={"w": "int64"}, options={"mdt.usage.counts": True})
    assert result.seq == 2 and table.options.usage_counts and table.schema.names == ["id", "v", "w"]
    assert table.alter(options={"mdt.usage.counts": "true"}).instant == ""


def test_contradicting_options_are_refused_also_after_a_concurrent_alteration(
    tmp_path,
):
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.max.file.bytes": 200 << 20})
    small = {"mdt.small.file.bytes": str(150 << 20)}
    metadata = mdt.open(tmp_path / "t").metadata
    alteration = Alter(metadata.storage, lambda _: Alteration(), "deltacommit", options=small)
    commit_steps = steps(metadata, alteration)
    assert [next(commit_steps) for _ in range(4)][-1] == "written"
    table.alter(options={"mdt.max.file.bytes": None})
    refused("is larger than mdt.max.file.bytes", list, commit_steps)
    refused("is larger than mdt.max.file.bytes", table.alter, options=small)
    assert mdt.open(tmp_path / "t").options.small_file_bytes == 100 << 20
    assert table.snapshot().seq == 1


def test_statistics_are_correct_after_their_columns_were_altered(tmp_path):
    table = _filled_table(tmp_path / "t")
    table.alter(options={"mdt.column.stats.columns": ["id"]})
    table.upsert(rows_of(SCHEMA, "c 3"))
    table.alter(options={"mdt.column.stats.columns": None})
    assert table.scan("v = 3").count() == 1 and table.check().ok


def test_a_copy_of_a_table_can_be_read_without_its_creators_machine_options(
    tmp_path,
):
    _filled_table(
        tmp_path / "t", key_index="lmdb", options={"mdt.key.store.dir": str(tmp_path / "k")}
    )
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    assert mdt.open(tmp_path / "copy").get(["a", "b"])["v"].to_pylist() == [1, 2]
