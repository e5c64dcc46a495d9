"""What all tests share: seeded hypothesis profiles, and one Spark session for those that ask for
it.
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
    ],  # a mutant dies ten times as fast
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("inner", parent=settings.get_profile("quick"), max_examples=8)
settings.register_profile(
    "nightly", parent=settings.get_profile("quick"), max_examples=300, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -Xmn400m"
"""For a Java process that lives for minutes: compiling for speed, and collecting in parallel, costs
more than it gains.  The code of some thousand queries does not fit into the 48 MB that go with it,
and the JVM then sweeps them without end: an eighth of its time.
"""


@pytest.fixture(scope="session", autouse=True)
def _disk() -> Iterator[None]:
    """No test waits for the disk: none cuts the power, and those that count the flushes put in a
    function of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Pages of remote tables are kept in a temporary folder, not in the cache of whoever runs the
    tests.
    """
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def records_decoded_once() -> Iterator[None]:
    """Commit records of equal bytes are decoded, and judged, once: for campaigns whose thousand
    tables begin alike.
    """
    from mdt.metadata.log import commit_log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "decode", lru_cache(1000)(commit_log.decode))
        yield


_site = tempfile.TemporaryDirectory(prefix="mdt-site-")
"""What an installer leaves behind of tests/example_index: on the path before any module is
collected, since some ask for indexes.
"""


WITH_SPARK = (
    "tests/engines/spark/",
    "tests/campaigns/test_sql_differential.py",
    "tests/foreign/",
    "tests/house/test_documents.py::test_every_block_runs",
)
"""Where the tests stand that ask for Spark, but for a few."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one of several workers all tests of Spark, so that there is one session, and the others
    to whoever is free.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "Spark" if nodeid.startswith(WITH_SPARK) else nodeid

    return OneSession(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that `make quick` or `make test` leave out, and put those of Spark first, because
    they take longest.
    """
    seconds = tiers.recorded(tiers.RECORDED.read_text())
    for item in items:
        tier = tiers.tier(item.nodeid, seconds, uses_spark=_asks_for_spark(item))
        if tier != "quick":
            item.add_marker("slow")
        if tier == "nightly":
            item.add_marker("long")
    items.sort(key=lambda item: not _asks_for_spark(item))


def _asks_for_spark(item: pytest.Item) -> bool:
    """Return whether a test needs the session, or may: pages of documentation ask for it if one of
    their blocks does.
    """
    return "spark" in getattr(item, "fixturenames", ()) or item.name.startswith(
        "test_every_block_runs"
    )


GC_OBJECTS = 100_000
"""New objects between two collections of cycles.  At Python's 700 a sixth of the time of the suite
went into going through the thousands of tests, syntax trees and histories that live for long
anyhow.
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
    """Take it from the path again."""
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
    """A local session of two threads that tries a failed task again, far from UTC, its files in a
    temporary folder.
    """
    from pyspark.sql import SparkSession

    # Spark's Python workers are new processes: they need this interpreter, and its paths to mdt and
    # to the tests.
    tests = Path(__file__).resolve().parent
    os.environ["PYSPARK_PYTHON"] = sys.executable
    ours = [tests.parent, tests, tests / "support", tests / "example_index", example_package]
    known = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, ours), known])
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
