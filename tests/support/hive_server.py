"""A Hive metastore in a process of its own, from the JARs of PySpark."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

START_SECONDS = 120
_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
}


@contextmanager
def metastore(folder: Path) -> Iterator[str]:
    """Start a metastore with an empty database, and return its address.

    Args:
        folder: Folder of its output and warehouse.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jars = Path(pyspark.__file__).parent / "jars"
    settings = {**_SETTINGS, "hive.metastore.warehouse.dir": str(folder / "warehouse")}
    command = [
        str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java",
        "-cp",
        f"{jars}/*",
        "org.apache.hadoop.hive.metastore.HiveMetaStore",
        "-p",
        str(port),
    ]
    for name, value in settings.items():
        command += ["--hiveconf", f"{name}={value}"]
    output = folder / "metastore.log"
    with output.open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            until = time.monotonic() + START_SECONDS
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"the metastore does not start: {output.read_text()[-2000:]}")
                time.sleep(0.2)
            yield f"thrift://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
