"""Scratch files for data that does not fit into memory.

A scratch file has no name, so it disappears when its process ends for any reason. A temporary
directory, for files that other code opens by name, remains if the process is killed.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import threading
import weakref

import pyarrow as pa

from mdt.errors import Invalid, Unavailable


class Scratch:
    """Bytes on a local disk, freed with the last reference to this object. Thread-safe.

    >>> scratch = Scratch()
    >>> at = scratch.append(b"abc")
    >>> scratch.read(at, 3).to_pybytes()
    b'abc'
    """

    def __init__(self, directory: str = "") -> None:
        """Create a file in ``directory``, or in the temporary directory if it is empty.

        Raises Invalid if the file cannot be created.
        """
        folder = os.path.abspath(os.path.expanduser(directory) or tempfile.gettempdir())
        try:
            number, path = tempfile.mkstemp(prefix="mdt-", dir=folder)
            os.unlink(path)
        except OSError as error:
            raise Invalid(
                f"a scratch file cannot be created in {folder}: {error.strerror}",
                hint="set mdt.write.spill.dir to another directory",
            ) from error
        self._file = number
        self._where = folder
        self._lock = threading.Lock()
        self._end = 0
        self.close = weakref.finalize(self, os.close, number)
        """Free the space. Reads fail afterwards."""

    def append(self, data: bytes | pa.Buffer) -> int:
        """Append ``data`` and return its offset. Raises Unavailable if the disk is full."""
        start = self.reserve(len(data))
        self.put(start, data)
        return start

    def reserve(self, size: int) -> int:
        """Reserve ``size`` bytes, to be written by :meth:`put`, and return their offset."""
        with self._lock:
            start, self._end = self._end, self._end + size
        return start

    def put(self, at: int, data: bytes | memoryview | pa.Buffer) -> None:
        """Write ``data`` at a reserved offset. Raises Unavailable if the disk is full."""
        # after Arrow has shrunk a buffer, its view keeps the old size
        remaining = memoryview(data)[: len(data)]
        while len(remaining):
            try:
                written = os.pwrite(self._file, remaining, at)
            except OSError as error:
                raise Unavailable(
                    f"rows cannot be written to a scratch file in {self._where}: {error.strerror}",
                    hint=(
                        "nothing was committed; set mdt.write.spill.dir to a directory with more"
                        " space"
                    ),
                ) from error
            remaining, at = remaining[written:], at + written

    def read(self, start: int, size: int) -> pa.Buffer:
        """Return ``size`` written bytes from ``start``."""
        data = os.pread(self._file, size, start)
        while len(data) < size:
            chunk = os.pread(self._file, size - len(data), start + len(data))
            assert chunk, "a scratch file contains all appended bytes"
            data += chunk
        return pa.py_buffer(data)

    def mapped(self, *, to_change: bool = False) -> pa.Buffer:
        """Return all bytes as a memory-mapped buffer, which outlives this object.

        Args:
            to_change: True for a writable buffer, which keeps the file open. Otherwise the file is
                not kept open on systems with /proc.

        Raises Unavailable if mapping fails.

        >>> scratch = Scratch()
        >>> at = scratch.append(b"abc")
        >>> scratch.mapped().to_pybytes()
        b'abc'
        """
        if not self._end:
            return pa.py_buffer(b"")
        name = f"/proc/self/fd/{self._file}"
        try:
            if to_change or not os.path.exists(name):
                return pa.py_buffer(mmap.mmap(self._file, self._end))
            with pa.memory_map(name) as file:
                return file.read_buffer()
        except OSError as error:
            raise Unavailable(
                f"a scratch file in {self._where} cannot be mapped: {error}",
                hint=(
                    "nothing was committed; there may be too little memory, or too many open files"
                    " (ulimit -n)"
                ),
            ) from error


class Sink:
    """A writable file object that appends to a scratch file without other writers."""

    closed = False

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch

    def write(self, data: bytes | pa.Buffer) -> int:
        """Append ``data``."""
        self._scratch.append(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing; writes are not buffered."""

    def close(self) -> None:
        """Do nothing; the scratch file stays open."""


def temporary_folder(owner: object) -> str:
    """Create a directory that only this user can read. It is removed with ``owner``.

    Raises Invalid if it cannot be created.
    """
    try:
        folder = tempfile.mkdtemp(prefix="mdt-")
    except OSError as error:
        raise Invalid(
            f"a temporary directory cannot be created: {error.strerror}",
            hint="set TMPDIR to another directory",
        ) from error
    weakref.finalize(owner, _remove_folder, folder, os.getpid())
    return folder


def _remove_folder(folder: str, process: int) -> None:
    """Remove a directory, but not in a forked child of its owner."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
