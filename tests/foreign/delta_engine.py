"""Engines that read Delta tables, each in a process with an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi_session import FOLDER, Refused, environment

from benchmarks.spark.environments import ENVIRONMENTS, Missing, make

ENGINES = FOLDER.parents[1] / ".spark-engines"
_PACKAGES = {
    "duckdb": (
        "duckdb==1.5.5",
        "duckdb-extension-avro==1.5.5",
        "duckdb-extension-delta==1.5.5",
        "duckdb-extension-iceberg==1.5.5",
    ),
    "clickhouse": ("chdb==4.4.0",),
    "sail": ("pysail==0.7.2", "pyspark-client==4.0.4"),
}
"""Engine without a JVM -> its packages."""
_ENVIRONMENTS = {"spark": "delta", "iceberg": "iceberg"}
"""Engine on Spark -> its environment."""
_SOURCES = {
    "duckdb": "delta_scan('{}')",
    "clickhouse": "deltaLakeLocal('{}')",
    "sail": "delta.`{}`",
    "spark": "delta.`{}`",
}
"""Engine -> how its SQL names a table."""
_CLICKHOUSE_VERSION = " settings delta_lake_snapshot_version = {}"


def _command(engine: str) -> list[str]:
    """Return the command of an engine. Makes its environment if it does not exist, and skips the
    test if that fails.
    """
    try:
        if engine in _ENVIRONMENTS:
            python, jars = ENVIRONMENTS[_ENVIRONMENTS[engine]].installed(ENGINES)
            return [python, str(FOLDER / "delta_server.py"), engine, *jars]
        own = ENGINES / f"{engine}-readers" / "bin" / "python"
        if not own.exists():
            make(own, *_PACKAGES[engine])
        return [str(own), str(FOLDER / "delta_server.py"), engine]
    except Missing as error:
        pytest.skip(f"{engine} cannot be installed: {error}")


class DeltaEngine:
    """A process that reads Delta tables: ``spark``, ``duckdb``, ``clickhouse`` or ``sail``."""

    def __init__(self, name: str, folder: Path) -> None:
        """Start the process. ``folder`` is for temporary files."""
        self.name, self._folder, self._count = name, folder, 0
        self.has_versions = name != "duckdb"
        self._output = (folder / "output").open("w")
        self._process = subprocess.Popen(
            _command(name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env=environment(),
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=60)
        self._output.close()

    def run(self, sql: str, out: str | None = None) -> None:
        """Carry out a statement. Raises Refused with the text of an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([sql, out]), file=self._process.stdin, flush=True)
        reply = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise Refused(reply["error"])

    def source(self, path: Path) -> str:
        """Return the name of a table in the SQL of the engine."""
        return _SOURCES[self.name].format(path)

    def rows(
        self, path: Path, columns: str = "*", version: int | None = None, where: str = "true"
    ) -> pa.Table:
        """Return columns of the rows of a table. None is its newest version."""
        source, settings = self.source(path), ""
        if version is not None and self.name == "clickhouse":
            settings = _CLICKHOUSE_VERSION.format(version)
        elif version is not None:
            source += f" version as of {version}"
        return self.result(f"select {columns} from {source} where {where}{settings}")

    def result(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        self._count += 1
        out = str(self._folder / f"rows{self._count}")
        self.run(query, out)
        return pq.read_table(out)
