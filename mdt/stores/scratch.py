"""A file for what does not fit into memory: it has no name, so that nothing of it is left when its
process ends, however it ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref

import pyarrow as pa

from mdt.errors import Invalid, Unavailable


class Scratch:
    """Bytes on a local disk, which go with the last reference to this object; safe to use from many
    threads.

    >>> scratch = Scratch()
    >>> at = scratch.append(b"abc")
    >>> scratch.read(at, 3).to_pybytes()
    b'abc'
    """

    def __init__(self, directory: str = "") -> None:
        """Make a file in ``directory``; empty: in the temporary folder of the process.  Raises
        Invalid where none can be made.
        """
        where = os.path.abspath(directory or tempfile.gettempdir())
        try:
            number, path = tempfile.mkstemp(prefix="mdt-", dir=where)
            os.unlink(path)
        except OSError as error:
            raise Invalid(
                f"no scratch file can be made in {where}: {error.strerror}",
                hint="mdt.write.spill.dir names another directory",
            ) from error
        self._file = number
        self._where = where
        self._lock = threading.Lock()
        self._end = 0
        self.close = weakref.finalize(self, os.close, number)
        """Give the space back; nothing can be read from then on."""

    def append(self, data: bytes | pa.Buffer) -> int:
        """Write ``data`` at the end; return where they begin.  Raises Unavailable if the disk is
        full.
        """
        start = self.reserve(len(data))
        self.put(start, data)
        return start

    def reserve(self, size: int) -> int:
        """Return where ``size`` bytes begin which are written later, by :meth:`put`."""
        with self._lock:
            start, self._end = self._end, self._end + size
        return start

    def put(self, at: int, data: bytes | memoryview | pa.Buffer) -> None:
        """Write ``data`` at a place that was reserved.  Raises Unavailable if the disk is full."""
        # of a buffer that Arrow has made smaller the view is as large as it was
        rest = memoryview(data)[: len(data)]
        while len(rest):
            try:
                done = os.pwrite(self._file, rest, at)
            except OSError as error:
                raise Unavailable(
                    f"rows cannot be put aside in {self._where}: {error.strerror}",
                    hint=(
                        "nothing was committed; mdt.write.spill.dir names a directory with more"
                        " space"
                    ),
                ) from error
            rest, at = rest[done:], at + done

    def read(self, start: int, size: int) -> pa.Buffer:
        """Return ``size`` bytes that were written."""
        data = os.pread(self._file, size, start)
        while len(data) < size:
            more = os.pread(self._file, size - len(data), start + len(data))
            assert more, "a scratch file holds what was appended to it"
            data += more
        return pa.py_buffer(data)

    def mapped(self, *, to_change: bool = False) -> pa.Buffer:
        """Return all bytes; they stay as long as the buffer, and are memory that the system may
        take back.  Raises Unavailable if that cannot be.

        ``to_change``: they may be changed in place, and the buffer keeps the file open; else it
        does not, where the system has names for open files.

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
    """A file object for what writes bytes one after the other: they go to the end of a scratch
    file, of which nobody else has a part.
    """

    closed = False

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch

    def write(self, data: bytes | pa.Buffer) -> int:
        """Write ``data`` behind those before."""
        self._scratch.append(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing waits."""

    def close(self) -> None:
        """Do nothing: the scratch file stays."""
