"""An environment for each peer on Spark: a Python with the PySpark that it runs on, and its JARs
from Maven Central.

They are made once, below a folder that stays: ``python`` with pip, and Maven's ``mvn`` on the path.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Missing(Exception):
    """What a peer needs cannot be had here; the text says why."""


@dataclass(frozen=True)
class Environment:
    """What a peer is installed from: a requirement of pip and artifacts of Maven
    (group:artifact:version).
    """

    pyspark: str
    artifacts: tuple[str, ...]

    def installed(self, folder: Path) -> tuple[str, list[str]]:
        """Return the interpreter and the JARs, installed below ``folder`` if they are not there.
        Raises Missing.
        """
        python = folder / self.pyspark / "bin" / "python"
        if not python.exists():
            make(python, self.pyspark)
        return str(python), [
            str(_fetched(artifact, folder / "jars")) for artifact in self.artifacts
        ]


ENVIRONMENTS: Mapping[str, Environment] = {
    "delta": Environment(
        "pyspark==4.1.*", ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
    ),
    "iceberg": Environment(
        "pyspark==4.1.*", ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
    ),
    "hudi": Environment("pyspark==3.5.*", ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",)),
}
"""Engines that do not run in the environment of this benchmark."""


def interpreter(engine: str, folder: Path) -> tuple[str, list[str]]:
    """Return the Python of an engine and its JARs.  Raises Missing."""
    found = ENVIRONMENTS.get(engine)
    return (sys.executable, []) if found is None else found.installed(folder)


def make(python: Path, *requirements: str) -> None:
    """Make the environment of the interpreter ``python`` with these requirements.  Raises Missing,
    and leaves nothing then.
    """
    home = python.parents[1]
    try:
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        shutil.rmtree(home, ignore_errors=True)
        raise Missing(f"{', '.join(requirements)} cannot be installed: {error}") from error


def _fetched(artifact: str, folder: Path) -> Path:
    _, name, version = artifact.split(":")
    jar = folder / f"{name}-{version}.jar"
    if jar.exists():
        return jar
    if shutil.which("mvn") is None:
        raise Missing(f"Maven (mvn) fetches {artifact}, and is not on the path")
    call = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy",
        f"-Dartifact={artifact}",
        f"-DoutputDirectory={folder}",
    ]
    try:
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        raise Missing(f"Maven does not find {artifact}: {error}") from error
    return jar
