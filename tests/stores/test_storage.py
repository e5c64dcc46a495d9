"""The contract of ``Storage`` for every storage, and special properties of each."""

import errno
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore
from refusals import refused

from mdt import errors
from mdt.stores import safe_open
from mdt.stores.storage import LocalStorage, MemoryStorage, ObjectStorage, open_storage
from mdt.testing.faulty import Crash, FaultyStorage

KINDS = {
    "local": LocalStorage,
    "memory": lambda _: MemoryStorage(),
    "object": lambda _: ObjectStorage("memory:///"),
    "faulty": lambda _: FaultyStorage(MemoryStorage()),
}


@pytest.fixture(params=sorted(KINDS))
def storage(request, tmp_path):
    return KINDS[request.param](tmp_path / "table")


def paths(infos):
    return [info.path for info in infos]


def test_a_created_object_is_read_back_whole_and_in_ranges(storage):
    path, content = "a/b=c d%2F/é.bin", b"hello big world"
    storage.create(path, [b"hello ", pa.py_buffer(b"big "), memoryview(b"world"), b""])
    assert storage.read(path) == content and storage.size(path) == 15
    for offset, length in ((6, 3), (10, None), (15, 0)):
        end = None if length is None else offset + length
        assert storage.read(path, offset, length) == content[offset:end]
    assert paths(storage.list("")) == [path]


@pytest.mark.parametrize(("offset", "length"), [(3, 3), (6, 1), (6, None)])
def test_a_read_beyond_the_end_is_corrupt_not_short(storage, offset, length):
    storage.create("x", b"12345")
    refused("too short", storage.read, "x", offset, length, kind=errors.Corrupt)


def test_absent_objects_are_missing_none_or_ignored(storage):
    for path in ("nothing", "no/where/at.all"):
        for read in (storage.read, storage.open, lambda p: storage.read(p, 1, 2)):
            refused(path, read, path, kind=errors.Missing)
        assert storage.read_if_exists(path) is None
        assert storage.size(path) is None
        storage.delete(path)
    storage.delete_many(["nothing", "neither"])
    storage.delete_many([])
    assert storage.list("nowhere") == storage.list_dir("nowhere") == []


def test_put_if_absent_keeps_the_first_object(storage):
    assert storage.put_if_absent("log/0", b"first")
    assert not storage.put_if_absent("log/0", b"second")
    assert storage.read("log/0") == b"first"
    assert paths(storage.list("log")) == ["log/0"]


def test_one_of_many_threads_wins_each_put(storage):
    barrier = Barrier(4)

    def race(writer):
        barrier.wait()
        return [
            n for n in range(20) if storage.put_if_absent(f"log/{n}", str(writer).encode() * 1000)
        ]

    with ThreadPoolExecutor(4) as pool:
        wins = list(pool.map(race, range(4)))
    assert sorted(n for numbers in wins for n in numbers) == list(range(20))
    for writer, numbers in enumerate(wins):
        assert all(storage.read(f"log/{n}") == str(writer).encode() * 1000 for n in numbers)


def test_creating_an_object_twice_is_an_internal_error(storage):
    storage.create("x", b"1")
    refused("already exists", storage.create, "x", b"2", kind=errors.Internal)
    assert storage.read("x") == b"1"


def test_replace_and_delete(storage):
    storage.replace("hint", b"1")
    storage.replace("hint", [b"2", b"3"])
    assert storage.read("hint") == b"23"
    storage.create("other", b"")
    assert storage.read("other") == b""
    storage.delete_many(["hint", "other", "absent"])
    assert storage.list("") == []


def test_listings_are_sorted_by_whole_components_and_hide_temporary_names(storage):
    for name in ("b/2", "b/1", "b/c/3", "bb/4", "0", "b/.x.log.1_0", "b/.y.00.mdt-tmp"):
        storage.create(name, b"123")
    below = ["b/.x.log.1_0", "b/1", "b/2", "b/c/3"]
    assert paths(storage.list("")) == ["0", *below, "bb/4"]
    assert paths(storage.list("b")) == paths(storage.list("b/")) == below
    assert paths(storage.list_dir("b")) == ["b/.x.log.1_0", "b/1", "b/2"]
    assert paths(storage.list_dir("")) == ["0"]
    assert paths(storage.list_dir("b", skip={"b/1"})) == ["b/.x.log.1_0", "b/2"], (
        "paths in skip are left out"
    )
    assert all(
        info.size == 3 and info.modified_us > 1_600_000_000_000_000 for info in storage.list("")
    )


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a\0b"]
)
def test_paths_that_could_leave_the_root_are_refused(storage, path):
    for act in (storage.read, storage.open, storage.delete, storage.size):
        refused("", act, path)
    refused("", storage.create, path, b"")
    if path not in ("", "a/"):
        refused("", storage.list, path)


def test_open_gives_parquet_random_access(storage):
    table = pa.table({"a": range(1000), "b": map(str, range(1000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=100)
    storage.create("t.parquet", sink.getvalue())
    with storage.open("t.parquet") as file, pq.ParquetFile(file) as parquet:
        assert parquet.read_row_group(7, columns=["b"]).equals(table.slice(700, 100).select(["b"]))
        assert parquet.read().equals(table)
    storage.create("empty", b"")
    with storage.open("empty") as file:
        assert file.read() == b""


def test_the_clock_goes_forward_and_random_text_has_the_requested_length(storage):
    first = storage.now_us()
    storage.sleep(0.002)
    assert storage.now_us() - first >= 2000
    assert len(storage.random_hex(8)) == 16
    assert storage.random_hex(8) != storage.random_hex(8)
    storage.require_conditional_put()


def test_a_local_storage_leaves_nothing_but_the_objects(tmp_path):
    storage = LocalStorage(tmp_path / "t")
    storage.put_if_absent("a/x", b"1")
    storage.put_if_absent("a/x", b"2")
    storage.replace("a/y", b"3")
    assert sorted(os.listdir(tmp_path / "t" / "a")) == ["x", "y"]
    assert storage.local_path("a/x") == str(tmp_path / "t/a/x")
    assert storage.uri("a/x") == f"file://{tmp_path}/t/a/x"


def test_without_hard_links_put_if_absent_is_still_exclusive(tmp_path, monkeypatch):
    def no_link(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_link)
    storage = LocalStorage(tmp_path)
    assert storage.put_if_absent("x", b"1")
    assert not storage.put_if_absent("x", b"2")
    assert os.listdir(tmp_path) == ["x"]


def test_put_if_absent_succeeds_if_the_reply_to_its_hard_link_was_lost(tmp_path, monkeypatch):
    link = os.link

    def link_twice(source, target, **directories):
        link(source, target, **directories)
        link(source, target, **directories)

    monkeypatch.setattr(os, "link", link_twice)
    assert LocalStorage(tmp_path).put_if_absent("x", b"1")


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (errno.ENOSPC, True),
        (errno.EIO, True),
        (errno.EACCES, False),
        (errno.EPERM, False),
        (errno.EROFS, False),
    ],
)
def test_a_failing_disk_is_unavailable_with_a_hint_and_leaves_no_partial_file(
    tmp_path, monkeypatch, code, retryable
):
    def fail(_):
        raise OSError(code, os.strerror(code))

    storage = LocalStorage(tmp_path)
    storage.create("before", b"")
    monkeypatch.setattr(os, "fsync", fail)
    for act in (storage.create, storage.put_if_absent, storage.replace):
        error = refused("hint: ", act, "x", b"data", kind=errors.Unavailable)
        assert error.retryable == retryable
    assert os.listdir(tmp_path) == ["before"]


def test_a_name_that_is_too_long_is_invalid(tmp_path):
    refused("too long … by shorter values", LocalStorage(tmp_path).create, "x" * 300, b"")
    table = LocalStorage(tmp_path / ("x" * 300))
    refused("too long … shorten the path of the table", table.size, "hint")


def test_a_relative_path_needs_a_working_directory(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refused("working directory was deleted … absolute path", open_storage, "trips")
    assert open_storage(tmp_path).size("hint") is None


def test_every_new_object_and_directory_is_flushed(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.readlink(f"/proc/self/fd/{fd}")))
    storage = LocalStorage(tmp_path / "t")
    storage.create("a/b/x", b"1")
    names = [os.path.relpath(name, tmp_path) for name in flushed]
    assert names == [".", "t", "t/a", "t/a/b/x", "t/a/b"]
    storage.create("a/b/y", b"1")
    assert len(flushed) == 7
    LocalStorage(tmp_path / "t", durable=False).put_if_absent("a/b/z", b"1")
    assert len(flushed) == 7


@pytest.fixture(params=["kernel", "walk"])
def opening(request, monkeypatch):
    """Open paths by one system call if the kernel has it, or component by component."""
    if request.param == "walk":
        monkeypatch.setattr(safe_open, "_kernel_call", lambda: None)
    return str(request.param)


def _socket(at):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(at))


STRANGE = {
    "a link": lambda at: at.symlink_to(at.parents[2] / "outside/precious"),
    "a dangling link": lambda at: at.symlink_to(at.parents[2] / "outside/nothing"),
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a device": lambda at: at.symlink_to("/dev/zero"),
    "a socket": _socket,
}
"""Functions that create something other than a file at a path."""


@pytest.mark.usefixtures("opening")
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE.keys())
def test_entries_other_than_files_are_neither_read_listed_written_through_nor_deleted(
    strange, tmp_path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    storage = LocalStorage(tmp_path / "t")
    storage.create("a/file", b"1")
    strange(tmp_path / "t/a/x")
    for act in (storage.read, storage.open, storage.size, storage.read_if_exists):
        refused("a/x … hint: ", act, "a/x", kind=errors.Corrupt)
    assert paths(storage.list("")) == paths(storage.list_dir("a")) == ["a/file"]
    assert not storage.put_if_absent("a/x", b"mine")
    refused("a/x", storage.create, "a/x", b"mine", kind=errors.Internal)
    storage.delete("a/x")
    assert os.path.lexists(tmp_path / "t/a/x")
    assert os.listdir(outside) == ["precious"]
    assert (outside / "precious").read_bytes() == b"precious"


@pytest.mark.usefixtures("opening")
def test_a_symbolic_link_in_place_of_a_directory_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/x").write_bytes(b"precious")
    storage = LocalStorage(tmp_path / "t")
    storage.create("file", b"1")
    (tmp_path / "t/a").symlink_to(outside)
    for path in ("a/deep/x", "a/deep"):
        for read in (storage.read, storage.open, storage.size):
            refused("symbolic link", read, path, kind=errors.Corrupt)
        for write in (storage.create, storage.replace, storage.put_if_absent):
            refused("symbolic link", write, path, b"mine", kind=errors.Corrupt)
    storage.delete_many(["a/deep/x", "a/deep"])
    assert paths(storage.list("")) == ["file"]
    assert storage.list("a") == storage.list("a/deep") == storage.list_dir("a") == []
    assert (outside / "deep/x").read_bytes() == b"precious"
    assert sorted(os.listdir(outside)) == ["deep"]


@pytest.mark.usefixtures("opening")
def test_the_root_may_be_a_symbolic_link_or_have_one_in_its_path(tmp_path):
    (tmp_path / "real/tables").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "table").symlink_to(tmp_path / "real/tables")
    through_link, at_link = LocalStorage(tmp_path / "link/tables"), LocalStorage(tmp_path / "table")
    through_link.create("a/x", b"1")
    assert at_link.read("a/x") == b"1"
    assert at_link.put_if_absent("a/y", b"2")
    at_link.replace("a/x", b"3")
    assert through_link.read("a/x") == b"3"
    with through_link.open("a/y") as file:
        assert file.read() == b"2"
    at_link.delete("a/y")
    assert paths(through_link.list("")) == ["a/x"]


def test_a_file_that_is_replaced_by_another_while_it_is_opened_is_not_read(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path / "t")
    storage.create("x", b"mine")
    (tmp_path / "other").write_bytes(b"other")
    memory_map = pa.memory_map

    def map_after_replacing(name):
        os.unlink(name)
        os.symlink(tmp_path / "other", name)
        return memory_map(name)

    monkeypatch.setattr(pa, "memory_map", map_after_replacing)
    refused("replaced while", storage.open, "x", kind=errors.Corrupt)


def test_drop_directories_deletes_empty_directories_before_a_name_and_no_objects(storage):
    for path in ("d/1/x", "d/2/x", "d/3/x", "d/file"):
        storage.create(path, b"1")
    storage.delete_many(["d/1/x", "d/3/x"])
    storage.drop_directories("d/", "3")
    storage.drop_directories("absent", "3")
    assert paths(storage.list("")) == ["d/2/x", "d/file"]
    local = storage.local_path("d")
    assert local is None or sorted(os.listdir(local)) == ["2", "3", "file"], (
        "only directories before 3 are deleted"
    )
    storage.create("d/1/x", b"2")
    assert storage.read("d/1/x") == b"2"


@pytest.mark.parametrize("prefix", ["", "d/"])
def test_a_dropped_directory_is_removed_from_the_known_directories(tmp_path, prefix):
    storage = LocalStorage(tmp_path)
    storage.create(f"{prefix}a/x", b"1")
    storage.delete(f"{prefix}a/x")
    storage.drop_directories(prefix, "b")
    assert not (tmp_path / prefix / "a").exists() and f"{prefix}a" not in storage._directories


def test_a_directory_that_was_removed_is_created_again(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.create("a/x", b"1")
    storage.delete("a/x")
    (tmp_path / "a").rmdir()
    storage.create("a/y", b"1")
    assert paths(storage.list("")) == ["a/y"]


def test_memory_storages_are_deterministic_and_copies_are_independent():
    first, second = MemoryStorage(), MemoryStorage()
    assert [first.now_us(), first.random_hex(4)] == [second.now_us(), second.random_hex(4)]
    first.create("x", b"1")
    copy = first.copy()
    copy.replace("x", b"2")
    assert first.read("x") == b"1"
    assert [copy.now_us(), copy.random_hex(4)] == [first.now_us(), first.random_hex(4)]
    assert MemoryStorage(seed=1).random_hex(8) != MemoryStorage(seed=2).random_hex(8)


def changes(storage):
    storage.create("c", b"create")
    storage.put_if_absent("p", b"put-if")
    storage.replace("r", b"replace")
    storage.delete("c")


C, P, R = {"c": b"create"}, {"p": b"put-if"}, {"r": b"replace"}
STATES = [{}, C, C | P, C | P | R, P | R]
"""The objects after each change."""


@pytest.mark.parametrize("mode", ["before", "torn", "after"])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_crash_at_the_kth_change_leaves_the_state_that_its_mode_requires(mode, k):
    inner = MemoryStorage()
    faulty = FaultyStorage(inner, k, mode)
    with pytest.raises(Crash):
        changes(faulty)
    expected = STATES[k if mode == "after" else k - 1]
    if (mode, k) == ("torn", 1):
        expected = {"c": b"cre"}
    assert {info.path: inner.read(info.path) for info in inner.list("")} == expected
    for act in (faulty.now_us, lambda: faulty.list(""), lambda: faulty.replace("x", b"")):
        with pytest.raises(Crash, match="died"):
            act()
    assert len(faulty.operations) == k


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_lost_reply_is_unavailable_and_the_change_is_made(k):
    inner = MemoryStorage()
    faulty = FaultyStorage(inner, k, "lost_reply")
    refused("lost", changes, faulty, kind=errors.Unavailable)
    faulty.replace("later", b"")
    assert len(faulty.operations) == k + 1
    assert inner.size("c") == (None if k == 4 else 6)


def test_library_code_cannot_swallow_a_crash():
    assert not issubclass(Crash, Exception)


def test_a_store_that_ignores_conditions_of_puts_is_refused(monkeypatch):
    storage = ObjectStorage("s3://bucket/table", MemoryStore())
    assert storage.conditional_put
    assert ObjectStorage("s3://bucket/table", storage._store).conditional_put
    ignorant = ObjectStorage("s3://bucket/table", MemoryStore())
    put = ignorant._put
    monkeypatch.setattr(ignorant, "_put", lambda path, data, mode: put(path, data, "overwrite"))
    message = "overwrite each other … hint: "
    refused(message, ignorant.require_conditional_put, kind=errors.Unsupported)
    assert storage.uri("a/b") == "s3a://bucket/table/a/b"


def test_open_storage_distinguishes_paths_from_urls(tmp_path):
    for location in (str(tmp_path), tmp_path, tmp_path.as_uri(), f"file:{tmp_path}"):
        storage = open_storage(location)
        assert isinstance(storage, LocalStorage)
        assert storage.local_path("x") == f"{tmp_path}/x"
    odd = LocalStorage(tmp_path / "a b%20#")
    assert open_storage(odd.url).local_path("") == odd.local_path("")
    assert isinstance(open_storage("memory:///"), ObjectStorage)
    assert open_storage("s3a://bucket/t").url == "s3://bucket/t"
    refused("hdfs", open_storage, "hdfs://name/t", kind=errors.Unsupported)
    for bad in ("", "file://elsewhere/t"):
        refused("", open_storage, bad)
