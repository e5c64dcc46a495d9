"""Trino in a process of its own, which reads tables on a mock of S3."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
import s3

import mdt
from mdt.catalogs.entry import Entry, entry_of
from mdt.catalogs.hive_entries import hive_type
from mdt.hudi.partitions import NULL_PARTITION, escape

FOLDER = Path(__file__).resolve().parent
ENGINES = FOLDER.parents[1] / ".spark-engines"
JAVA_VERSION = 25
JVM = [
    "-Xmx2g",
    "-Duser.timezone=UTC",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
]
MICROSECONDS_LENGTH = len("2024-01-01 12:00:00.123456")


class Refused(Exception):
    """Trino raised an error. The text is that of Trino."""


def java() -> str:
    """Return the path of a Java that runs Trino. Skips the test if there is none.

    Looks in MDT_JAVA_25, in JAVA_HOME and in the folders below /usr/lib/jvm.
    """
    homes = [os.environ.get("MDT_JAVA_25", ""), os.environ.get("JAVA_HOME", "")]
    homes += sorted(map(str, Path("/usr/lib/jvm").glob("*")), reverse=True)
    for home in filter(None, homes):
        release = Path(home, "release")
        if release.exists() and f'JAVA_VERSION="{JAVA_VERSION}' in release.read_text():
            return str(Path(home, "bin", "java"))
    pytest.skip(f"Trino needs Java {JAVA_VERSION}: set MDT_JAVA_25 to its directory")


def class_path() -> str:
    """Return the class path of Trino. Maven fetches it once. Skips the test if that fails."""
    file = ENGINES / "trino.classpath"
    if not file.exists():
        if shutil.which("mvn") is None:
            pytest.skip("Maven (mvn) fetches Trino, and is not on the path")
        call = ["mvn", "-q", "-B", "-f", str(FOLDER / "trino" / "pom.xml")]
        call += ["dependency:build-classpath", f"-Dmdep.outputFile={file}"]
        try:
            subprocess.run(call, check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"Trino cannot be fetched: {error.stdout[-500:]!r}")
    return file.read_text()


class TrinoSession:
    """A session of Trino.

    >>> with s3.mock_server() as endpoint, TrinoSession(folder, endpoint) as trino:
    ...     trino.rows(trino.enter(table), table.schema)
    """

    def __init__(self, folder: Path, endpoint: str) -> None:
        """Start the process.

        Args:
            folder: For the output of the process.
            endpoint: Of the mock of S3.
        """
        self._output = (folder / "output").open("w")
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [
                *(java(), *JVM, "-cp", class_path(), str(FOLDER / "trino" / "TrinoServer.java")),
                *(endpoint, s3.BUCKET, s3.KEY, s3.SECRET),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()  # it has no state to store
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._output.close()

    def enter_hudi(self, table: mdt.Table) -> str:
        """Register a table in the catalog of Hudi, and return its new name there."""
        name = f"hudi.default.t{next(self._numbers)}"
        entry = entry_of(table.snapshot(), table.path)
        columns = [[field.name, hive_type(field.type)] for field in entry.columns]
        split = len(columns) - len(entry.partition_by)
        self._request(
            table={
                "name": name.rpartition(".")[2],
                "location": entry.url,
                "columns": columns[:split],
                "partitioned_by": columns[split:],
                "partitions": _partitions(entry),
            }
        )
        return name

    def enter_iceberg(self, table: mdt.Table) -> str:
        """Register the newest version in the catalog of Iceberg, and return its new name there."""
        name = f"t{next(self._numbers)}"
        self.sql(f"call iceberg.system.register_table('default', '{name}', '{table.path}')")
        return f"iceberg.default.{name}"

    def rows(self, name: str, schema: pa.Schema, where: str = "true") -> list[dict[str, Any]]:
        """Return the rows of a table, with the values of pyarrow.

        Args:
            schema: The columns.
            where: A condition in Trino's SQL.
        """
        columns = ", ".join(f'"{column}"' for column in schema.names)
        answer = self.sql(f"select {columns} from {name} where {where}")
        return [
            {field.name: _value(text, field.type) for field, text in zip(schema, row, strict=True)}
            for row in answer
        ]

    def sql(self, query: str) -> list[list[Any]]:
        """Return the rows of a query in Trino's SQL, with values as TrinoServer.java writes them.

        Raises Refused if Trino raises an error.
        """
        rows: list[list[Any]] = self._request(sql=query).get("rows", [])
        return rows

    def _request(self, **request: object) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"Trino has ended, see {self._output.name}"
        reply: Mapping[str, Any] = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        return reply


def _partitions(entry: Entry) -> Sequence[Mapping[str, Any]]:
    """Return the partitions of a table in the form of a Hive metastore."""
    partitions = []
    for path, values in zip(entry.partitions, entry.values, strict=True):
        texts = [NULL_PARTITION if value is None else value for value in values]
        pairs = zip(entry.partition_by, map(escape, texts), strict=True)
        name = "/".join(f"{column}={text}" for column, text in pairs)
        partitions.append({"name": name, "location": f"{entry.url}/{path}", "values": texts})
    return partitions


def _value(text: Any, type: pa.DataType) -> Any:
    """Return a value of Trino as a Python value for a type of Arrow."""
    if text is None:
        return None
    if pa.types.is_struct(type):
        return {field.name: _value(t, field.type) for field, t in zip(type, text, strict=True)}
    if pa.types.is_map(type):
        return [(_value(key, type.key_type), _value(item, type.item_type)) for key, item in text]
    if pa.types.is_list(type):
        return [_value(element, type.value_type) for element in text]
    if pa.types.is_timestamp(type):
        time = datetime.fromisoformat(text.removesuffix(" UTC")[:MICROSECONDS_LENGTH])
        return time.replace(tzinfo=UTC) if type.tz else time
    of_type: Mapping[Callable[[pa.DataType], bool], Callable[[str], Any]] = {
        pa.types.is_float64: lambda bits: struct.unpack(">d", bytes.fromhex(bits))[0],
        pa.types.is_float32: lambda bits: struct.unpack(">f", bytes.fromhex(bits))[0],
        pa.types.is_fixed_size_binary: base64.b64decode,
        pa.types.is_binary: base64.b64decode,
        pa.types.is_boolean: lambda word: word == "true",
    }
    for is_of, parse in of_type.items():
        if is_of(type):
            return parse(text)
    return pa.array([text]).cast(type)[0].as_py()
