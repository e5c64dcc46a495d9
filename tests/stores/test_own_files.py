"""Files of which code is made are believed only where nobody but the user can have written them."""

import multiprocessing
import os
import stat

import pytest

from mdt.stores import trusted_cache
from mdt.stores.trusted_cache import OwnFiles

NAME, DATA = "one.jar", b"classes" * 1000
FILES = OwnFiles("jars", 3)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The user's cache directory, which nobody has made yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kept(root):
    """The file that holds DATA."""
    FILES.put(NAME, DATA)
    return root / "mdt" / "jars" / NAME


def test_what_was_put_is_got_by_a_user_whose_umask_hides_nothing(root):
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
def test_the_directory_is_found_without_the_variable(given, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    FILES.put(NAME, DATA)
    assert (tmp_path / ".cache" / "mdt" / "jars" / NAME).is_file()
    assert FILES.get(NAME) == DATA


@pytest.mark.parametrize("place", ["/dev/null", "/nowhere/at/all"])
def test_without_a_directory_nothing_is_kept_and_nothing_fails(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) is None
    assert not os.listdir(tmp_path)


def failing(*args, **more):
    raise OSError(28, "No space left on device")


def test_a_disk_that_cannot_be_written_is_read(kept, monkeypatch):
    for name in ("mkdir", "rename", "unlink", "utime"):
        monkeypatch.setattr(os, name, failing)
    assert FILES.get(NAME) == DATA
    FILES.put("two.jar", DATA)
    assert FILES.get("two.jar") is None


def damaged(file):
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)


def of_another_name(file):
    FILES.put("two.jar", b"classes of another release")
    os.replace(file.with_name("two.jar"), file)


def linked(file):
    os.rename(file, file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def a_pipe(file):
    file.unlink()
    os.mkfifo(file, 0o600)


def a_folder(file):
    file.unlink()
    file.mkdir(0o700)


REPLACED = {
    "cut": lambda file: os.truncate(file, len(file.read_bytes()) - 1),
    "emptied": lambda file: file.write_bytes(b""),
    "damaged": damaged,
    "of another name": of_another_name,
    "linked": linked,
    "a pipe": a_pipe,
    "written by a group": lambda file: file.chmod(0o660),
}
FOLDERS = {
    "in an open folder": lambda file: file.parent.chmod(0o770),
    "in a linked folder": lambda file: linked(file.parent),
    "below a linked folder": lambda file: linked(file.parents[1]),
}
OTHERS = {
    "huge": lambda file: os.truncate(file, 1 << 40),
    "a folder": a_folder,
    "read by all": lambda file: file.chmod(0o604),
}
CHANGES = REPLACED | FOLDERS | OTHERS


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_sure_to_be_the_users_is_not_there_and_is_replaced_where_it_can_be(
    change, kept
):
    assert FILES.get(NAME) == DATA
    CHANGES[change](kept)
    assert FILES.get(NAME) is None
    if change in REPLACED:
        FILES.put(NAME, DATA)
        assert FILES.get(NAME) == DATA
        assert kept.is_file() and not kept.is_symlink()
    if change in FOLDERS:
        FILES.put("two.jar", DATA)
        assert not (kept.parent / "two.jar").exists()


@pytest.mark.parametrize("depth", [0, 1, 2, 3], ids=["file", "folder", "mdt", "root"])
def test_what_another_user_owns_is_not_there(kept, depth, monkeypatch):
    foreign = [kept, *kept.parents][depth].stat().st_ino
    told = os.fstat

    def fstat(descriptor):
        found = told(descriptor)
        if found.st_ino != foreign:
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    monkeypatch.setattr(os, "fstat", fstat)
    assert FILES.get(NAME) is None
    FILES.put("two.jar", DATA)
    assert (kept.parent / "two.jar").exists() == (depth == 0)


def test_a_file_that_was_swapped_after_it_was_opened_is_not_the_one_that_is_read(kept, monkeypatch):
    opened = os.open

    def swapped(path, *args, **more):
        descriptor = opened(path, *args, **more)
        if path == "jars":  # the folder is open: from here on its name may lead anywhere
            os.rename(kept.parent, kept.parent.with_name("moved"))
            kept.parent.mkdir(0o777)
            kept.write_bytes(b"foreign")
        return descriptor

    monkeypatch.setattr(os, "open", swapped)
    assert FILES.get(NAME) == DATA


@pytest.mark.parametrize("is_future", [False, True])
def test_files_that_were_used_last_and_the_newest_stay(root, is_future):
    for number in range(3):
        FILES.put(f"{number}.jar", DATA)
        when = 1 << 40 if is_future else number
        os.utime(root / "mdt" / "jars" / f"{number}.jar", (when, when))
    assert FILES.get("0.jar") == DATA, "now it is used"
    FILES.put("3.jar", DATA)
    left = sorted(os.listdir(root / "mdt" / "jars"))
    assert len(left) == 3 and "3.jar" in left
    assert is_future or left == ["0.jar", "2.jar", "3.jar"]


def test_what_a_dead_process_left_goes_and_what_another_writes_stays(kept):
    for name, seconds in ((".unfinished-1", 0), (".unfinished-2", None), (".other", 0)):
        kept.with_name(name).write_bytes(b"half")
        if seconds is not None:
            os.utime(kept.with_name(name), (seconds, seconds))
    FILES.put(NAME, DATA)
    assert sorted(os.listdir(kept.parent)) == [".other", ".unfinished-2", NAME]


def test_a_full_disk_leaves_nothing(root, monkeypatch):
    FILES.put("0.jar", DATA)
    monkeypatch.setattr(os, "rename", failing)
    FILES.put(NAME, DATA)
    assert os.listdir(root / "mdt" / "jars") == ["0.jar"]


def test_what_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(trusted_cache, "OWN_FILE_BYTES_MAX", 100)
    FILES.put(NAME, bytes(69))
    assert FILES.get(NAME) is None
    FILES.put(NAME, bytes(68))
    assert FILES.get(NAME) == bytes(68)


def _put_and_get(number):
    for _ in range(50):
        FILES.put(NAME, DATA + bytes([number]))
        found = FILES.get(NAME)
        if found is None or found[:-1] != DATA:
            return False
    return True


def test_processes_write_and_read_at_the_same_time(root):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(pool.map(_put_and_get, range(4)))
    assert os.listdir(root / "mdt" / "jars") == [NAME]


def test_what_is_dropped_is_gone_and_may_be_put_again(kept):
    FILES.drop(NAME)
    FILES.drop(NAME)
    assert FILES.get(NAME) is None and not kept.exists()
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) == DATA


def test_no_directory_is_made_in_somebody_elses_home(root, monkeypatch):
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    FILES.put(NAME, DATA)
    assert not root.exists()
