"""Files from which code is loaded are trusted only if nobody but the user can have written them."""

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
    """The user's cache directory, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kept(root):
    """The path of a stored file with DATA."""
    FILES.put(NAME, DATA)
    return root / "mdt" / "jars" / NAME


def test_a_stored_file_is_private_and_readable_whatever_the_umask_is(root):
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
    assert os.listdir(folder) == [NAME], "an unfinished file is left"


@pytest.mark.parametrize("given", [None, "", "relative"])
def test_without_the_variable_the_cache_is_in_the_home_directory(given, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    FILES.put(NAME, DATA)
    assert (tmp_path / ".cache" / "mdt" / "jars" / NAME).is_file()
    assert FILES.get(NAME) == DATA


@pytest.mark.parametrize("place", ["/dev/null", "/nowhere/at/all"])
def test_if_the_directory_cannot_be_created_nothing_is_stored_and_nothing_raises(
    place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) is None
    assert not os.listdir(tmp_path)


def failing(*args, **keywords):
    raise OSError(28, "No space left on device")


def test_files_on_a_read_only_disk_can_be_read(kept, monkeypatch):
    for name in ("mkdir", "rename", "unlink", "utime"):
        monkeypatch.setattr(os, name, failing)
    assert FILES.get(NAME) == DATA
    FILES.put("two.jar", DATA)
    assert FILES.get("two.jar") is None


def damage(file):
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)


def replace_by_file_of_another_name(file):
    FILES.put("two.jar", b"classes of another release")
    os.replace(file.with_name("two.jar"), file)


def replace_by_link(file):
    os.rename(file, file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def replace_by_pipe(file):
    file.unlink()
    os.mkfifo(file, 0o600)


def replace_by_folder(file):
    file.unlink()
    file.mkdir(0o700)


REPLACED = {
    "cut": lambda file: os.truncate(file, len(file.read_bytes()) - 1),
    "emptied": lambda file: file.write_bytes(b""),
    "damaged": damage,
    "of another name": replace_by_file_of_another_name,
    "linked": replace_by_link,
    "a pipe": replace_by_pipe,
    "written by a group": lambda file: file.chmod(0o660),
}
FOLDERS = {
    "in an open folder": lambda file: file.parent.chmod(0o770),
    "in a linked folder": lambda file: replace_by_link(file.parent),
    "below a linked folder": lambda file: replace_by_link(file.parents[1]),
}
OTHERS = {
    "huge": lambda file: os.truncate(file, 1 << 40),
    "a folder": replace_by_folder,
    "read by all": lambda file: file.chmod(0o604),
}
CHANGES = REPLACED | FOLDERS | OTHERS


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_others_may_have_written_is_ignored_and_replaced_if_possible(change, kept):
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
def test_files_and_folders_of_another_user_are_ignored(kept, depth, monkeypatch):
    foreign = [kept, *kept.parents][depth].stat().st_ino
    original_fstat = os.fstat

    def fstat(descriptor):
        status = original_fstat(descriptor)
        if status.st_ino != foreign:
            return status
        return os.stat_result([*status[:4], status.st_uid + 1, *status[5:]])

    monkeypatch.setattr(os, "fstat", fstat)
    assert FILES.get(NAME) is None
    FILES.put("two.jar", DATA)
    assert (kept.parent / "two.jar").exists() == (depth == 0)


def test_replacing_the_folder_after_it_was_opened_does_not_change_the_file_that_is_read(
    kept, monkeypatch
):
    original_open = os.open

    def open_and_replace_folder(path, *args, **keywords):
        descriptor = original_open(path, *args, **keywords)
        if path == "jars":  # the folder is open, so its name may lead elsewhere now
            os.rename(kept.parent, kept.parent.with_name("moved"))
            kept.parent.mkdir(0o777)
            kept.write_bytes(b"foreign")
        return descriptor

    monkeypatch.setattr(os, "open", open_and_replace_folder)
    assert FILES.get(NAME) == DATA


@pytest.mark.parametrize("is_future", [False, True])
def test_the_most_recently_used_and_the_newest_files_are_kept(root, is_future):
    for number in range(3):
        FILES.put(f"{number}.jar", DATA)
        when = 1 << 40 if is_future else number
        os.utime(root / "mdt" / "jars" / f"{number}.jar", (when, when))
    assert FILES.get("0.jar") == DATA, "reading it makes it recently used"
    FILES.put("3.jar", DATA)
    names = sorted(os.listdir(root / "mdt" / "jars"))
    assert len(names) == 3 and "3.jar" in names
    assert is_future or names == ["0.jar", "2.jar", "3.jar"]


def test_old_unfinished_files_are_deleted_and_recent_ones_are_kept(kept):
    for name, seconds in ((".unfinished-1", 0), (".unfinished-2", None), (".other", 0)):
        kept.with_name(name).write_bytes(b"half")
        if seconds is not None:
            os.utime(kept.with_name(name), (seconds, seconds))
    FILES.put(NAME, DATA)
    assert sorted(os.listdir(kept.parent)) == [".other", ".unfinished-2", NAME]


def test_a_full_disk_leaves_no_unfinished_file(root, monkeypatch):
    FILES.put("0.jar", DATA)
    monkeypatch.setattr(os, "rename", failing)
    FILES.put(NAME, DATA)
    assert os.listdir(root / "mdt" / "jars") == ["0.jar"]


def test_a_file_that_is_too_large_is_not_stored(monkeypatch):
    monkeypatch.setattr(trusted_cache, "OWN_FILE_BYTES_MAX", 100)
    FILES.put(NAME, bytes(69))
    assert FILES.get(NAME) is None
    FILES.put(NAME, bytes(68))
    assert FILES.get(NAME) == bytes(68)


def _put_and_get(number):
    for _ in range(50):
        FILES.put(NAME, DATA + bytes([number]))
        data = FILES.get(NAME)
        if data is None or data[:-1] != DATA:
            return False
    return True


def test_processes_write_and_read_at_the_same_time(root):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(pool.map(_put_and_get, range(4)))
    assert os.listdir(root / "mdt" / "jars") == [NAME]


def test_a_dropped_file_is_deleted_and_can_be_stored_again(kept):
    FILES.drop(NAME)
    FILES.drop(NAME)
    assert FILES.get(NAME) is None and not kept.exists()
    FILES.put(NAME, DATA)
    assert FILES.get(NAME) == DATA


def test_no_directory_is_created_in_the_home_of_another_user(root, monkeypatch):
    user_id = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user_id + 1)
    FILES.put(NAME, DATA)
    assert not root.exists()
