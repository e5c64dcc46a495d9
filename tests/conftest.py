"""What all tests share: seeded hypothesis profiles, and one Spark session for those that ask for it."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["counting"]

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", parent=settings.get_profile("quick"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Pages of remote tables are kept in a temporary folder, not in the cache of whoever runs the tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def example_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What an installer leaves behind of tests/example_index, on the path of this process: its entry points."""
    source = Path(__file__).resolve().parent / "example_index"
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("site")
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items()) for group, points in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, example_package: Path) -> Iterator[SparkSession]:
    """A local session of two threads that tries a failed task again, far from UTC, its files in a temporary folder."""
    from pyspark.sql import SparkSession

    # Spark's Python workers are new processes: they need this interpreter, and its paths to mdt and to the tests.
    tests = Path(__file__).resolve().parent
    os.environ["PYSPARK_PYTHON"] = sys.executable
    ours = [str(tests.parent), str(tests), str(tests / "example_index"), str(example_package)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*ours, os.environ.get("PYTHONPATH", "")])
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("mdt tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.session.timeZone", "America/Los_Angeles")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
