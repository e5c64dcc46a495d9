"""Files of which code is made are believed only where nobody but the user can have written them."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mdt.stores import trusted_cache
from mdt.stores.trusted_cache import OwnFiles

NAME, DATA = "one.jar", b"classes" * 1000
FILES = OwnFiles("jars", 3)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory, which nobody has made yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kept(root: Path) -> Path:
    """The file that holds DATA."""
    FILES.put(NAME, DATA)
    return root / "mdt" / "jars" / NAME


def test_what_was_put_is_got_by_a_user_whose_umask_hides_nothing(root: Path) -> None:
    before = os.umask(0)
    try:
        FILES.put(NAME, DATA)
    finally:
        os.umask(before)
    assert FILES.get(NAME) == DATA
    assert FILES.get("other.jar") is None
    folder = root / "mdt" / "jars"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    assert os.listdir(folder) == [NAME], "nothing unfinished"


@pytest.mark.parametrize("given", [None, "", "relative"])
def test_the_directory_is_found_without_the_variable(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    FILES.put(NAME, DATA)
    assert (tmp_path / ".cache" / "mdt" / "jars" / NAME).is_file()
    assert FILES.get(NAME) == DATA


@pytest.mark.parametrize("place", ["/dev/null", "/nowhere/at/all"])
def test_without_a_directory_nothing_is_kept_and_nothing_fails(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) is None
    assert not os.listdir(tmp_path)


def test_a_disk_that_cannot_be_written_is_read(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("mkdir", "rename", "unlink", "utime"):
        monkeypatch.setattr(os, name, refused)
    assert FILES.get(NAME) == DATA
    FILES.put("two.jar", DATA)
    assert FILES.get("two.jar") is None


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def damaged(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)


def of_another_name(file: Path) -> None:
    FILES.put("two.jar", b"classes of another release")
    os.replace(file.with_name("two.jar"), file)


def huge(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(1 << 40)


def linked(file: Path) -> None:
    os.rename(file, file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir(0o700)


def written_by_a_group(file: Path) -> None:
    file.chmod(0o660)


def read_by_all(file: Path) -> None:
    file.chmod(0o604)


def in_an_open_folder(file: Path) -> None:
    file.parent.chmod(0o770)


def in_a_linked_folder(file: Path) -> None:
    os.rename(file.parent, file.parent.with_name("elsewhere"))
    file.parent.symlink_to("elsewhere")


def below_a_linked_folder(file: Path) -> None:
    above = file.parent.parent
    os.rename(above, above.with_name("elsewhere"))
    above.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "done",
    [
        cut,
        emptied,
        damaged,
        of_another_name,
        huge,
        linked,
        a_pipe,
        a_folder,
        written_by_a_group,
        read_by_all,
        in_an_open_folder,
        in_a_linked_folder,
        below_a_linked_folder,
    ],
)
def test_what_is_not_sure_to_be_the_users_is_not_there(
    done: Callable[[Path], None], kept: Path
) -> None:
    assert FILES.get(NAME) == DATA
    done(kept)
    assert FILES.get(NAME) is None


@pytest.mark.parametrize(
    "done", [cut, emptied, damaged, of_another_name, linked, a_pipe, written_by_a_group]
)
def test_a_file_that_is_not_believed_is_replaced(done: Callable[[Path], None], kept: Path) -> None:
    done(kept)
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) == DATA
    assert kept.is_file()
    assert not kept.is_symlink()


@pytest.mark.parametrize("done", [in_an_open_folder, in_a_linked_folder, below_a_linked_folder])
def test_nothing_is_put_into_a_folder_that_is_not_the_users_alone(
    done: Callable[[Path], None], kept: Path
) -> None:
    done(kept)
    FILES.put("two.jar", DATA)
    assert not (kept.parent / "two.jar").exists()


@pytest.mark.parametrize("depth", [0, 1, 2, 3], ids=["file", "folder", "mdt", "root"])
def test_what_another_user_owns_is_not_there(
    kept: Path, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = [kept, *kept.parents][depth].stat().st_ino
    told = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        found = told(descriptor)
        if found.st_ino != foreign:
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    monkeypatch.setattr(os, "fstat", fstat)
    assert FILES.get(NAME) is None
    FILES.put("two.jar", DATA)
    assert (kept.parent / "two.jar").exists() == (depth == 0)


def test_a_file_that_was_swapped_after_it_was_opened_is_not_the_one_that_is_read(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def swapped(path: str, *args: int, **more: int) -> int:
        descriptor = opened(path, *args, **more)
        if path == "jars":  # the folder is open: from here on its name may lead anywhere
            os.rename(kept.parent, kept.parent.with_name("moved"))
            kept.parent.mkdir(0o777)
            kept.write_bytes(b"foreign")
        return descriptor

    monkeypatch.setattr(os, "open", swapped)
    assert FILES.get(NAME) == DATA


def test_files_that_were_used_last_stay(root: Path) -> None:
    for number in range(3):
        FILES.put(f"{number}.jar", DATA)
        os.utime(root / "mdt" / "jars" / f"{number}.jar", (number, number))
    assert FILES.get("0.jar") == DATA, "now it is used"
    FILES.put("3.jar", DATA)
    assert sorted(os.listdir(root / "mdt" / "jars")) == ["0.jar", "2.jar", "3.jar"]


def test_the_newest_file_stays_where_others_come_from_the_future(root: Path) -> None:
    for number in range(3):
        FILES.put(f"{number}.jar", DATA)
        os.utime(root / "mdt" / "jars" / f"{number}.jar", (1 << 40, 1 << 40))
    FILES.put("3.jar", DATA)
    assert FILES.get("3.jar") == DATA
    assert len(os.listdir(root / "mdt" / "jars")) == 3


def test_what_a_dead_process_left_goes_and_what_another_writes_stays(kept: Path) -> None:
    left, running, other = (
        kept.with_name(name) for name in (".unfinished-1", ".unfinished-2", ".other")
    )
    for file in (left, running, other):
        file.write_bytes(b"half")
    os.utime(left, (0, 0))
    os.utime(other, (0, 0))
    FILES.put(NAME, DATA)
    assert sorted(os.listdir(kept.parent)) == [".other", ".unfinished-2", NAME]


def test_a_full_disk_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FILES.put("0.jar", DATA)

    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    FILES.put(NAME, DATA)
    assert os.listdir(root / "mdt" / "jars") == ["0.jar"]


def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted_cache, "OWN_FILE_BYTES_MAX", 100)
    FILES.put(NAME, bytes(69))
    assert FILES.get(NAME) is None
    FILES.put(NAME, bytes(68))
    assert FILES.get(NAME) == bytes(68)


def _put_and_get(number: int) -> bool:
    for _ in range(50):
        FILES.put(NAME, DATA + bytes([number]))
        found = FILES.get(NAME)
        if found is None or found[:-1] != DATA:
            return False
    return True


def test_processes_write_and_read_at_the_same_time(root: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(pool.map(_put_and_get, range(4)))
    assert os.listdir(root / "mdt" / "jars") == [NAME]


def test_what_is_dropped_is_gone_and_may_be_put_again(kept: Path) -> None:
    FILES.drop(NAME)
    FILES.drop(NAME)
    assert FILES.get(NAME) is None and not kept.exists()
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) == DATA


def test_no_directory_is_made_in_somebody_elses_home(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    FILES.put(NAME, DATA)
    assert not root.exists()
