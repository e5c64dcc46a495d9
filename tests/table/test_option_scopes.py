"""Options of a table are kept and altered for good; those of a session or machine are never written
into a table or read from one.
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


def _made(place, **more):
    table = mdt.create(place, SCHEMA, ["id"], **more)
    table.upsert(ROWS)
    return table


def _remote():
    return ObjectStorage("memory:///", MemoryStore())


def _keeping(storage, **options):
    """Put options into the record that made the table, as an older version or a stranger would."""
    record = commit_log.read(storage, 0)
    assert record is not None
    header = json.loads(json.dumps(record.header))
    header["definition"]["options"].update(options)
    storage.replace(paths.commit(0), commit_log.encode(CommitRecord(0, header, record.tables)))


def _foreign_database(folder):
    """Make an LMDB file as another program has it; return the bytes of its files."""
    with lmdb.open(str(folder), map_size=1 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"users", b"precious")
    return _bytes_of(folder)


def _bytes_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_options_of_the_machine_and_session_hold_for_the_object_that_create_returns_and_are_not_kept(
    tmp_path,
):
    given = {
        "mdt.cache.dir": str(tmp_path / "c"),
        "mdt.commit.attempts": 3,
        "mdt.reader.threads": 1,
        "mdt.page.bytes": 512,
    }
    made = mdt.create(tmp_path / "t", SCHEMA, ["id"], options=given).options
    assert (made.commit_attempts, made.reader_threads, made.page_bytes) == (3, 1, 512)
    again = mdt.open(tmp_path / "t")
    kept = again.options
    assert (kept.commit_attempts, kept.reader_threads, kept.page_bytes) == (100, 0, 512)
    assert kept.cache_dir == ""
    assert set(again.definition.options) == {"mdt.write.footer.bloom", "mdt.page.bytes"}


def test_a_table_with_options_of_the_machine_is_opened_without_them_and_with_a_warning(
    tmp_path, caplog
):
    options = {
        "mdt.write.spill.dir": "/nowhere",
        "mdt.reader.threads": "7",
        "mdt.page.bytes": "512",
    }
    _keeping(_made(tmp_path / "t").storage, **options)
    with caplog.at_level(logging.WARNING, "mdt.metadata"):
        found = mdt.open(tmp_path / "t")
    kept = found.options
    assert (kept.write_spill_dir, kept.reader_threads, kept.page_bytes) == ("", 0, 512)
    (told,) = [text for text in caplog.messages if "mdt.write.spill.dir" in text]
    assert "mdt.reader.threads" in told and "page.bytes" not in told
    found.upsert(iter([ROWS]))
    found.metadata.compact()
    assert "mdt.reader.threads" not in mdt.open(tmp_path / "t").definition.to_json()["options"]


def test_a_table_does_not_choose_where_its_reader_keeps_pages_and_keys(tmp_path):
    before = _foreign_database(tmp_path / "app")
    remote = _remote()
    table = _made(remote)
    _keeping(remote, **{"mdt.cache.dir": str(tmp_path / "app")})
    table.metadata.compact()
    assert mdt.open(remote).scan("v = 2").count() == 1
    local = _made(tmp_path / "t", key_index="lmdb")
    _keeping(local.storage, **{"mdt.key.store.dir": str(tmp_path / "app")})
    found = mdt.open(tmp_path / "t")
    assert found.get("a") == {"id": "a", "v": 1} and found.upsert(ROWS).updated == 2
    assert _bytes_of(tmp_path / "app") == before


def test_a_directory_of_another_program_is_not_used_even_if_its_user_names_it(tmp_path, caplog):
    before = _foreign_database(tmp_path / "app")
    _made(tmp_path / "t", key_index="lmdb")
    table = mdt.open(tmp_path / "t", {"mdt.key.store.dir": str(tmp_path / "app")})
    assert table.upsert(ROWS).updated == 2
    remote = _remote()
    _made(remote).metadata.compact()
    for _ in range(2):
        assert mdt.open(remote, {"mdt.cache.dir": str(tmp_path / "app")}).scan().count() == 2
    assert _bytes_of(tmp_path / "app") == before
    assert caplog.text.count("not cached") == 1
    assert (
        caplog.text.count("contains files of another program; choose an empty or a new directory")
        == 2
    )


def test_an_altered_option_holds_for_everybody_and_stands_in_the_history(tmp_path):
    table = _made(tmp_path / "t")
    other = mdt.open(tmp_path / "t")
    own = mdt.open(tmp_path / "t", {"mdt.clean.retain.commits": 9})
    options = {"mdt.clean.retain.commits": 2, "hoodie.parquet.compression.codec": "zstd"}
    assert table.alter(options=options).seq == 2 and table.options.clean_retain_commits == 2
    for one, retained in ((other, 2), (own, 9), (mdt.open(tmp_path / "t"), 2)):
        assert one.scan().count() == 2
        assert (one.options.clean_retain_commits, one.options.compression) == (retained, "zstd")
    assert mdt.open(tmp_path / "t", as_of=1).options.clean_retain_commits == 100
    assert table.history()["operation"].to_pylist() == ["create", "upsert", "alter_options"]
    table.metadata.compact()
    assert mdt.open(tmp_path / "t").options.compression == "zstd"
    table.alter(options={"mdt.compression": None})
    plain = _made(tmp_path / "u", options={"mdt.clean.retain.commits": 2})
    assert mdt.open(tmp_path / "t").options == plain.options
    assert table.check().ok and table.get("a") == {"id": "a", "v": 1}


def test_columns_and_options_are_altered_in_one_commit(tmp_path):
    table = _made(tmp_path / "t")
    done = table.alter(add={"w": "int64"}, options={"mdt.usage.counts": True})
    assert done.seq == 2 and table.options.usage_counts and table.schema.names == ["id", "v", "w"]
    assert table.alter(options={"mdt.usage.counts": "true"}).instant == ""


def test_options_that_do_not_go_together_are_refused_also_beside_another_who_alters_them(
    tmp_path,
):
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.max.file.bytes": 200 << 20})
    small = {"mdt.small.file.bytes": str(150 << 20)}
    metadata = mdt.open(tmp_path / "t").metadata
    late = Alter(metadata.storage, lambda _: Alteration(), "deltacommit", options=small)
    under_way = steps(metadata, late)
    assert [next(under_way) for _ in range(4)][-1] == "written"
    table.alter(options={"mdt.max.file.bytes": None})
    refused("is larger than mdt.max.file.bytes", list, under_way)
    refused("is larger than mdt.max.file.bytes", table.alter, options=small)
    assert mdt.open(tmp_path / "t").options.small_file_bytes == 100 << 20
    assert table.snapshot().seq == 1


def test_statistics_that_are_kept_of_other_columns_than_before_are_right(tmp_path):
    table = _made(tmp_path / "t")
    table.alter(options={"mdt.column.stats.columns": ["id"]})
    table.upsert(rows_of(SCHEMA, "c 3"))
    table.alter(options={"mdt.column.stats.columns": None})
    assert table.scan("v = 3").count() == 1 and table.check().ok


def test_a_copy_of_a_table_is_read_the_same_where_its_maker_had_other_options(
    tmp_path,
):
    _made(tmp_path / "t", key_index="lmdb", options={"mdt.key.store.dir": str(tmp_path / "k")})
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    assert mdt.open(tmp_path / "copy").get(["a", "b"])["v"].to_pylist() == [1, 2]
