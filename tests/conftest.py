"""Setup of all tests: hypothesis profiles, the order and tiers of tests, and shared fixtures such
as the Spark session.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tiers
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["counting", "sql_tables"]

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,
    derandomize=True,
    print_blob=True,
    phases=[
        phase for phase in Phase if phase is not Phase.explain
    ],  # without it, mutants are detected ten times as fast
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("inner", parent=settings.get_profile("quick"), max_examples=8)
settings.register_profile(
    "nightly", parent=settings.get_profile("quick"), max_examples=300, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -Xmn400m"
"""Options for Java processes that run for minutes. The optimizing compiler and the parallel garbage
collector would cost more than they gain. This compiler level has a code cache of 48 MB by default.
The code of some thousand queries does not fit, and the JVM would spend an eighth of its time
sweeping the cache.
"""


@pytest.fixture(scope="session", autouse=True)
def _disk() -> Iterator[None]:
    """Replace fsync by a function that does nothing, so that no test waits for the disk.

    No test cuts the power. Tests that count flushes patch in a function of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cache pages of remote tables in a temporary folder, not in the cache of the user who runs the
    tests.
    """
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def records_decoded_once() -> Iterator[None]:
    """Decode and validate commit records with equal bytes only once, for campaigns with a thousand
    tables whose logs begin with the same records.
    """
    from mdt.metadata.log import commit_log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "decode", lru_cache(1000)(commit_log.decode))
        yield


_site = tempfile.TemporaryDirectory(prefix="mdt-site-")
"""The metadata that an installer would write for tests/example_index. It is on the path before any
test module is collected, because some modules look up indexes when they are imported.
"""


WITH_SPARK = (
    "tests/engines/spark/",
    "tests/campaigns/test_sql_differential.py",
    "tests/foreign/",
    "tests/house/test_documents.py::test_every_block_runs",
)
"""Prefixes of the ids of nearly all tests that use Spark."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run all Spark tests on a single worker, so that there is one session. All other tests run on
    any free worker.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "Spark" if nodeid.startswith(WITH_SPARK) else nodeid

    return OneSession(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make quick` or `make test` leave out, and run Spark tests first because
    they take longest.
    """
    seconds = tiers.recorded(tiers.RECORDED.read_text())
    for item in items:
        tier = tiers.tier(item.nodeid, seconds, uses_spark=_may_use_spark(item))
        if tier != "quick":
            item.add_marker("slow")
        if tier == "nightly":
            item.add_marker("long")
    items.sort(key=lambda item: not _may_use_spark(item))


def _may_use_spark(item: pytest.Item) -> bool:
    """Return True if a test uses the Spark session, or may use it.

    A documentation page requests the session only if one of its blocks uses Spark.
    """
    return "spark" in getattr(item, "fixturenames", ()) or item.name.startswith(
        "test_every_block_runs"
    )


GC_OBJECTS = 100_000
"""Number of new objects between two garbage collections. With Python's default of 700, the suite
would spend a sixth of its time traversing thousands of long-lived tests, syntax trees and
histories.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Put the entry points of tests/example_index on the path of this process."""
    gc.set_threshold(GC_OBJECTS)
    source = Path(__file__).resolve().parent / "example_index"
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    info = Path(_site.name) / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
        for group, points in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path.append(_site.name)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the entry points from the path."""
    sys.path.remove(_site.name)
    _site.cleanup()


@pytest.fixture(scope="session")
def example_package() -> Path:
    """The folder with the entry points of tests/example_index."""
    return Path(_site.name)


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, example_package: Path
) -> Iterator[SparkSession]:
    """A local session with two threads that retries a failed task. Its time zone is far from UTC,
    and its files are in a temporary folder.
    """
    from pyspark.sql import SparkSession

    # Spark's Python workers are new processes. They need this interpreter and its paths to mdt and
    # the tests.
    tests = Path(__file__).resolve().parent
    os.environ["PYSPARK_PYTHON"] = sys.executable
    project_paths = [
        tests.parent,
        tests,
        tests / "support",
        tests / "example_index",
        example_package,
    ]
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, project_paths), inherited])
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
        .config("spark.python.daemon.module", "spark_workers")
        .config("spark.driver.extraJavaOptions", JVM)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.session.timeZone", "America/Los_Angeles")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
