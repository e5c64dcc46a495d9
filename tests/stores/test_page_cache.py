"""Pages of remote metadata on the local disk: shared by processes, limited in size, and always
verified.
"""

import multiprocessing
import os
from contextlib import suppress

import lmdb
import pyarrow as pa
import pytest
from obstore.store import MemoryStore
from reader import bag
from texts import columns

import mdt
from mdt.stores import lmdb_file
from mdt.stores.key_store import LmdbStore, StoreFailed
from mdt.stores.own_directory import claim
from mdt.stores.page_cache import PageCache, open_page_cache
from mdt.stores.storage import ObjectStorage

SCHEMA = columns("id string, n int64")
BYTES_MAX = 1 << 20


def _rows(*numbers):
    return pa.table([[f"k{n}" for n in numbers], list(numbers)], schema=SCHEMA)


@pytest.fixture
def storage(tmp_path_factory):
    """A remote table with compacted metadata."""
    remote = ObjectStorage("memory:///", MemoryStore())
    options = {"mdt.cache.dir": str(tmp_path_factory.mktemp("made"))}
    table = mdt.create(remote, SCHEMA, ["id"], options=options)
    table.upsert(_rows(1, 2, 3))
    table.metadata.compact()
    return remote


def _open_table(storage, directory, **options):
    return mdt.open(storage, {"mdt.cache.dir": str(directory), **options})


def test_pages_are_read_from_the_local_disk_the_second_time(storage, tmp_path):
    counts = []
    for _ in range(2):
        table = _open_table(storage, tmp_path / "cache")
        assert bag(table.scan("n >= 1").to_arrow()) == bag(_rows(1, 2, 3))
        counts.append(table.metadata.cache_counts()["disk"])
    (hits, misses), second_counts = counts
    assert hits == 0 and misses > 0 and second_counts == (misses, misses)


def test_a_cache_of_zero_bytes_is_off_and_local_tables_have_no_cache(storage, tmp_path):
    table = _open_table(storage, tmp_path / "cache", **{"mdt.cache.bytes.max": 0})
    assert table.scan("n = 2").count() == 1
    assert table.metadata.cache_counts()["disk"] == (0, 0)
    options = {"mdt.cache.dir": str(tmp_path / "cache")}
    local = mdt.create(tmp_path / "t", SCHEMA, ["id"], options=options)
    local.upsert(_rows(1))
    local.metadata.compact()
    assert mdt.open(tmp_path / "t", options).scan("n = 1").count() == 1
    assert not (tmp_path / "cache").exists(), "pages of local tables are mapped from their files"


def test_damaged_pages_in_the_cache_are_read_again(storage, tmp_path):
    assert _open_table(storage, tmp_path).scan("n = 2").count() == 1
    cache = open_page_cache(str(tmp_path), BYTES_MAX)
    assert cache._env is not None
    with cache._env.begin(write=True, db=cache._pages) as txn:
        for n, (key, data) in enumerate(list(txn.cursor())):
            txn.put(key, (b"", data[:-1], bytes(len(data)), data[:-1] + b"?")[n % 4])
    table = _open_table(storage, tmp_path)
    assert table.scan("n = 2").count() == 1 and table.metadata.damage is None


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000, None])
def test_a_cache_that_is_not_a_database_or_not_a_directory_is_ignored(content, storage, tmp_path):
    if content is None:
        (tmp_path / "cache").write_bytes(b"")
    else:
        claim(str(tmp_path / "cache"), "pages")
        (tmp_path / "cache" / "data.mdb").write_bytes(content)
    assert _open_table(storage, tmp_path / "cache").scan("n = 2").count() == 1


def test_directories_need_not_have_names_in_unicode(tmp_path):
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    cache = PageCache(directory, BYTES_MAX)
    cache.put(b"key", b"page")
    assert cache.get(b"key") == b"page"
    with LmdbStore(f"{directory}/keys", durable=False).begin(write=True) as view:
        view.put(b"key", b"row")


def test_mapped_files_are_allocated_before_use_so_that_a_full_disk_crashes_no_process(
    tmp_path, monkeypatch
):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", fail)
        assert PageCache(str(tmp_path), BYTES_MAX)._env is None
    assert sorted(os.listdir(tmp_path)) == ["mdt-store", "turn"]
    cache = PageCache(str(tmp_path), BYTES_MAX)
    status = (tmp_path / "lock.mdb").stat()
    assert cache._env is not None and 512 * status.st_blocks > status.st_size - 4096


def test_deleting_the_files_of_an_open_cache_does_not_stop_reads(storage, tmp_path):
    table = _open_table(storage, tmp_path / "cache")
    for file in (tmp_path / "cache").iterdir():
        file.unlink()
    assert table.scan("n = 2").count() == 1
    assert _open_table(storage, tmp_path / "cache").scan("n = 3").count() == 1


def test_the_oldest_pages_are_removed_to_make_room(tmp_path):
    cache = PageCache(str(tmp_path), BYTES_MAX)
    for n in range(100):
        cache.put(b"%d" % n, bytes([n]) * 50_000)
        assert cache.get(b"%d" % n) == bytes([n]) * 50_000
    cached = [n for n in range(100) if cache.get(b"%d" % n) is not None]
    assert (
        cached == list(range(cached[0], 100)) and BYTES_MAX // 2 < 50_000 * len(cached) <= BYTES_MAX
    )
    assert (tmp_path / "data.mdb").stat().st_size <= 20 * BYTES_MAX
    cache.put(b"huge", bytes(BYTES_MAX))
    assert cache.get(b"huge") is None


def _read(directory, key, answer):
    answer.send(open_page_cache(directory, BYTES_MAX).get(key))


@pytest.mark.parametrize("how", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_share_the_cache(how, tmp_path):
    open_page_cache(str(tmp_path), BYTES_MAX).put(b"key", b"page")
    context = multiprocessing.get_context(how)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(str(tmp_path), b"key", sender))
    process.start()
    # LMDB refuses to open a file twice in a process, and a forked child counts as the same process:
    # it does without the cache.
    assert receiver.poll(30) and receiver.recv() in (
        (b"page",) if how == "spawn" else (b"page", None)
    )
    process.join()


def _read_all(directory):
    """Read the rest of a truncated cache and key store, and write more to the cache."""
    cache = PageCache(directory, BYTES_MAX)
    for n in range(60):
        cache.get(b"%d" % n)  # the caller verifies the page
        cache.put(b"more%d" % n, b"x" * 3000)
    with suppress(StoreFailed):
        keys = LmdbStore(directory + "/keys", durable=False)
        for write in (False, True):
            with suppress(StoreFailed), keys.begin(write=write) as view:
                view.items(b"")


def _fill(directory):
    cache = PageCache(directory, BYTES_MAX)
    with LmdbStore(directory + "/keys", durable=False).begin(write=True) as view:
        for n in range(60):
            cache.put(b"%d" % n, bytes([n]) * 3000)
            view.put(b"%d" % n, bytes([n]) * 3000)


def _exit_code(act, directory):
    process = multiprocessing.get_context("spawn").Process(target=act, args=(str(directory),))
    process.start()
    process.join()
    return process.exitcode


def test_a_truncated_cache_crashes_no_process_and_gives_no_wrong_rows(storage, tmp_path):
    assert _exit_code(_fill, tmp_path) == 0
    files = tmp_path / "data.mdb", tmp_path / "keys" / "data.mdb"
    contents = [file.read_bytes() for file in files]
    for rest in (0.1, 0.5, 0.9):
        for file, data in zip(files, contents, strict=True):
            file.write_bytes(data[: int(rest * len(data))])
        assert _exit_code(_read_all, tmp_path) == 0
    assert bag(_open_table(storage, tmp_path).scan("n >= 1").to_arrow()) == bag(_rows(1, 2, 3))


class _Damaged:
    """An environment whose roots are damaged."""

    def open_db(self, name):
        raise lmdb.CorruptedError(f"{name!r} cannot be found")

    def close(self):
        return


def test_a_cache_whose_databases_cannot_be_opened_is_off(tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb_file, "_fill_up", lambda *_: None)
    monkeypatch.setattr(lmdb, "open", lambda *_, **__: _Damaged())
    cache = PageCache(str(tmp_path), BYTES_MAX)
    cache.put(b"one", b"1")
    assert cache.get(b"one") is None


def _keep(directory):
    cache = PageCache(directory, BYTES_MAX)
    cache.put(b"new", b"page")
    assert cache.get(b"new") == b"page"


def _find(directory):
    assert PageCache(directory, BYTES_MAX).get(b"new") == b"page"


def test_a_cache_that_is_not_a_database_is_rebuilt_while_processes_use_the_old_file(
    tmp_path,
):
    old = PageCache(str(tmp_path), BYTES_MAX)
    old.put(b"old", b"page")
    (tmp_path / "other").write_bytes(b"not a database" * 1000)
    (tmp_path / "other").replace(tmp_path / "data.mdb")
    assert _exit_code(_keep, tmp_path) == 0
    old.put(b"older", b"page")
    assert old.get(b"old") == old.get(b"older") == b"page"
    assert _exit_code(_find, tmp_path) == 0


@pytest.mark.parametrize("page", [2, 4, 8])
def test_a_cache_with_damaged_pages_is_rebuilt_after_a_process_has_read_it(page, tmp_path):
    assert _exit_code(_fill, tmp_path) == 0
    with (tmp_path / "data.mdb").open("r+b") as file:
        rest = len(file.read()) - file.seek(page * 4096)
        file.write(bytes(rest))
    assert _exit_code(_read_all, tmp_path) == 0
    assert _exit_code(_keep, tmp_path) == 0 and _exit_code(_find, tmp_path) == 0


def test_a_damaged_cache_is_not_removed_while_another_process_opens_it(tmp_path):
    claim(str(tmp_path), "pages")
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with lmdb_file.opening_lock(str(tmp_path), "pages"):
        assert _exit_code(_keep, tmp_path) == 1
        assert (tmp_path / "data.mdb").read_bytes().startswith(b"not a database")
    assert _exit_code(_keep, tmp_path) == 0
