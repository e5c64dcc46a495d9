"""The directories of mdt's own stores are private and marked. Directories of other programs are
left alone.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from mdt.stores.key_store import open_key_store
from mdt.stores.own_directory import MARK, NotOurs, claim, store_directory
from mdt.stores.page_cache import open_page_cache
from mdt.stores.scratch import Scratch
from mdt.stores.table_folder import open_folder


def test_a_claimed_directory_is_private_and_marked_and_can_be_claimed_again(
    tmp_path,
):
    directory = tmp_path / "a" / "b"
    for _ in range(2):
        claim(str(directory), "pages")
    assert (
        directory.stat().st_mode & 0o777 == 0o700
        and (directory / MARK).read_text() == "mdt store 1: pages\n"
    )


@pytest.mark.parametrize("rest", ["", "mdt st", "mdt store 1: pages"])
def test_a_mark_that_a_crashed_process_wrote_in_part_is_completed(rest, tmp_path):
    (tmp_path / MARK).write_text(rest)
    (tmp_path / MARK).chmod(0o600)
    claim(str(tmp_path), "pages")
    assert (tmp_path / MARK).read_text() == "mdt store 1: pages\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.mdb", "theirs", "files of another program"),
        (MARK, "mdt store 1: keys\n", "not from this store"),
        (MARK, "mdt store 1: pages and more\n", "not from this store"),
    ],
)
def test_a_directory_with_other_files_or_another_mark_is_refused_and_not_changed(
    name, content, message, tmp_path
):
    (tmp_path / name).write_text(content)
    (tmp_path / name).chmod(0o600)
    with pytest.raises(NotOurs, match=message):
        claim(str(tmp_path), "pages")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, content)]


def test_directories_that_other_users_can_read_and_symbolic_links_are_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(NotOurs, match="chmod 700"):
        claim(str(tmp_path / "open"), "pages")
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    with pytest.raises(NotOurs, match="symbolic link"):
        claim(str(tmp_path / "link"), "pages")
    assert not list((tmp_path / "ours").iterdir())


@pytest.mark.parametrize("how", ["symlink", "hard link", "open to all"])
def test_a_mark_that_is_a_link_or_writable_by_all_is_refused_and_not_written(how, tmp_path):
    (tmp_path / "other").write_text("")
    (tmp_path / "store").mkdir(mode=0o700)
    mark = tmp_path / "store" / MARK
    if how == "symlink":
        mark.symlink_to(tmp_path / "other")
    elif how == "hard link":
        mark.hardlink_to(tmp_path / "other")
    else:
        mark.write_text("")
        mark.chmod(0o666)
    with pytest.raises(NotOurs):
        claim(str(tmp_path / "store"), "pages")
    assert (tmp_path / "other").read_text() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_directories_of_other_users_are_refused(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(NotOurs, match="belongs to another user"):
        claim(str(tmp_path / "theirs"), "pages")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "theirs"))
    with pytest.raises(NotOurs, match="set XDG_CACHE_HOME"):
        claim(store_directory("", "pages-2"), "pages")
    assert not list((tmp_path / "theirs").iterdir())


def test_without_a_home_directory_nothing_is_created_in_the_working_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "relative")
    assert "no home directory" in open_page_cache("", 1 << 20).refusal
    assert not os.listdir()


def test_a_tilde_in_a_path_stands_for_the_home_directory(tmp_path, monkeypatch):
    (tmp_path / "home" / "rows").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    open_page_cache("~/pages", 1 << 20).put(b"key", b"page")
    open_key_store("~/keys", durable=False)
    assert open_folder("~/pages", 1 << 20, "name", create=True) is not None
    assert Scratch("~/rows").append(b"row") == 0
    assert sorted(os.listdir("../home")) == ["keys", "pages", "pages-tables", "rows"]
    assert not os.listdir()


def test_threads_that_claim_a_directory_at_the_same_time_all_succeed(tmp_path):
    barrier = Barrier(4)

    def act(me):
        for n in range(20):
            barrier.wait(30)
            claim(str(tmp_path / str(n)), "keys")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, range(4)))
    assert len(list(tmp_path.iterdir())) == 20
