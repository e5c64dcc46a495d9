"""Hudi's own engine in a process with an environment of its own, called from tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare_states import OPERATION

from benchmarks.spark.environments import ENVIRONMENTS, Missing

FOLDER = Path(__file__).resolve().parent
HUDI = ENVIRONMENTS["hudi"]
NEWEST = HUDI.artifacts[0].rpartition(":")[2]
RELEASE = os.environ.get("MDT_HUDI_RELEASE", NEWEST)
"""Release of Hudi that tests use by default."""


class Refused(Exception):
    """Hudi raised an error. The text is that of Hudi."""


def command(script: str, release: str = RELEASE) -> list[str]:
    """Return the command for a script of this folder in Hudi's environment, with the JAR of a
    release of Hudi.

    Makes the environment in ``.spark-engines`` if it does not exist. Skips the test if that fails.
    """
    artifact = HUDI.artifacts[0].replace(NEWEST, release)
    try:
        engine = replace(HUDI, artifacts=(artifact,))
        python, jars = engine.installed(FOLDER.parents[1] / ".spark-engines")
    except Missing as error:
        pytest.skip(f"Hudi's engine cannot be installed: {error}")
    return [python, str(FOLDER / script), *jars]


def environment() -> dict[str, str]:
    """Return the environment variables without the paths of our packages and our PySpark."""
    names = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in names}


class _Ended(Exception):
    """Hudi's process has ended."""


class HudiSession:
    """A session of Spark with Hudi, which carries out methods of :class:`hudi_table.HudiTable`.

    >>> with HudiSession(folder) as hudi:
    ...     hudi.create(path, version=9, kind="MERGE_ON_READ", options={})
    ...     hudi.call(path, "upsert", [1, 2], 10)
    ...     hudi.rows(path)
    """

    def __init__(self, folder: Path, zone: str = "UTC", release: str = RELEASE) -> None:
        """Start the process.

        Args:
            folder: For temporary files and the output of the process.
            zone: Time zone of the process.
            release: Release of Hudi.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._zone, self.release = folder, zone, release
        self._tables: dict[str, list[object]] = {}
        self._columns: dict[str, list[tuple[object, ...]]] = {}
        self._output = (folder / "output").open("w")
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [*command("hudi_server.py", self.release), str(self.folder), self._zone],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env=environment(),
            text=True,
            start_new_session=True,  # so that killing it kills the JVM
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._output.close()

    def create(
        self, path: Path, version: int, kind: str, options: Mapping[str, str | None]
    ) -> None:
        """Prepare to write a table. If it does not exist, its first write creates it."""
        self._tables[str(path)] = [version, kind, dict(options)]
        self._request(path=str(path), create=self._tables[str(path)])

    @contextmanager
    def killed(self, seconds: float | None) -> Iterator[None]:
        """Context that kills the process after some seconds, and starts it again at the end. None
        does not kill it.
        """
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, os.killpg, (self._process.pid, signal.SIGKILL))
        timer.start()
        try:
            yield
        except (_Ended, BrokenPipeError):
            pass
        finally:
            timer.join()
            self._process.wait(60)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
            self._start()
            for path, about in self._tables.items():
                self._request(path=path, create=about)
                for arguments in self._columns.get(path, ()):
                    self._request(path=path, method="set_column", arguments=arguments, named={})

    def call(self, path: Path, method: str, *arguments: object, **named: object) -> Any:
        """Call a method of the table at ``path`` and return its text or number, if any.

        Raises Refused if Hudi raises an error.
        """
        if method == "set_column":
            self._columns.setdefault(str(path), []).append(arguments)
        return self._request(path=str(path), method=method, arguments=arguments, named=named)

    def rows(self, path: Path, **options: str) -> pa.Table:
        """Return the rows that Hudi reads, with its five meta columns.

        Args:
            options: Options of the read.
        """
        file = self.folder / "rows.parquet"
        self.call(path, "write_rows", str(file), **options)
        rows = pq.read_table(file)
        file.unlink()
        return rows.drop_columns([name for name in rows.column_names if name == OPERATION])

    def _request(self, **request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            output = (self.folder / "output").read_text()
            raise _Ended(f"Hudi's process has ended: {output[-2000:]}")
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        return reply["value"]
