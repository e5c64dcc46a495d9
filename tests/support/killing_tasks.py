"""A task that kills its executor. A separate module, because Spark's workers import it by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Rows = Iterable[Any]


@dataclass(frozen=True)
class Killing:
    """``function``, whose very first call kills the executor after it has yielded everything: its
    files are written, but the driver does not get the result.
    """

    function: Callable[[Rows], Rows]
    flag: str

    def __call__(self, rows):
        yield from self.function(rows)
        try:
            Path(self.flag).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(_executor(), signal.SIGKILL)
        time.sleep(600)  # until Spark ends this process, too


def _executor():
    """Return the process id of the executor, an ancestor of the daemon that forked this process."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "no executor above this process"
    return pid


class Phases:
    """Counts the stages that run mdt's code in tasks, and lets one of them kill an executor."""

    def __init__(self, folder):
        self.folder, self.count, self.kills = folder, 0, -1

    def counted(self, made):
        """Return ``made``, which makes the rows of a stage from other rows and a function, as a
        function that counts each call as a phase.
        """

        def phase(rows, function, *more):
            number, self.count = self.count, self.count + 1
            kills = number == self.kills
            flag = str(self.folder / f"killed-{time.monotonic_ns()}")
            return made(rows, Killing(function, flag) if kills else function, *more)

        return phase
