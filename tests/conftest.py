"""What all tests share: seeded hypothesis profiles, and one Spark session for those that ask for
it.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["counting", "sql_tables"]

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,
    print_blob=True,
    phases=[
        phase for phase in Phase if phase is not Phase.explain
    ],  # a mutant dies ten times as fast
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("inner", parent=settings.get_profile("quick"), max_examples=8)
settings.register_profile("nightly", parent=settings.get_profile("quick"), max_examples=300)
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
    from mdt.metadata import commit_log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "decode", lru_cache(1000)(commit_log.decode))
        yield


_site = tempfile.TemporaryDirectory(prefix="mdt-site-")
"""What an installer leaves behind of tests/example_index: on the path before any module is
collected, since some ask for indexes.
"""


SLOW_FOLDERS = ("campaigns/", "engines/", "foreign/", "golden/", "house/")
SLOW_MODULES = (
    "test_alter.py",
    "test_api.py",
    "test_as_of.py",
    "test_claims.py",
    "test_cleaned_readers.py",
    "test_cleaning.py",
    "test_cli_services.py",
    "test_clustering.py",
    "test_conditional.py",
    "test_example_geo.py",
    "test_filter_fuzz.py",
    "test_foreign.py",
    "test_index_timeline.py",
    "test_indexing.py",
    "test_keys.py",
    "test_log_compaction.py",
    "test_many_files.py",
    "test_metadata_scale.py",
    "test_mutants_bitmap.py",
    "test_mutants_skipping.py",
    "test_own_functions.py",
    "test_page_reads.py",
    "test_purge.py",
    "test_repair.py",
    "test_restoring.py",
    "test_restoring_columns.py",
    "test_s3.py",
    "test_shards.py",
    "test_small_files.py",
    "test_tagged_states.py",
    "test_text.py",
    "test_tokenizers.py",
)
SLOW_TESTS = (
    "test_a_bar_is_shown_on_a_terminal",
    "test_a_change_within_the_tick_of_the_clock",
    "test_a_closed_pipe_is_no_error",
    "test_a_crash_while_what_is_begun_last",
    "test_a_damaged_store_is_made_again",
    "test_a_deleted_key_returns_to_its_file_group",
    "test_a_mutant_that_loses_rows",
    "test_a_no_is_a_proof",
    "test_a_pipe_that_nobody_reads",
    "test_a_plan_by_runs_is_the_plan_by_files",
    "test_a_pruned_scan_",
    "test_a_range_of_integer_keys_reads",
    "test_a_small_part_of_a_file_is_in_memory",
    "test_a_table_on_s3_is_opened",
    "test_after_a_crash_at_any_change",
    "test_ctrl_c_ends_a_watch",
    "test_forms_of_a_test_lose_no_rows",
    "test_frequent_and_rare_terms",
    "test_get_returns_what_a_scan_finds",
    "test_keys_of_a_megabyte",
    "test_many_commits_leave_few_runs",
    "test_no_package_of_frames_is_imported",
    "test_no_row_that_matches_is_left_out",
    "test_odd_values_survive_",
    "test_processes_share_the_cache",
    "test_scans_with_functions_and_row_group_verdicts",
    "test_small_columns_of_every_type_are_counted",
    "test_spawned_processes_",
    "test_tasks_of_an_engine_overwrite",
    "test_the_best_rows_of_an_ordered_table",
    "test_the_bytes_of_an_index_",
    "test_the_first_rows_in_an_order",
    "test_the_stream_reads_as_it_is_read",
    "test_the_suite_kills_the_mutant",
    "test_what_is_proved_is_true_of_the_rows",
    "test_what_was_created_is_what_a_scan_returns",
    "test_words_and_ngrams_are_those",
)
"""What `make quick` leaves out, and whatever asks for Spark: by where it stands under tests, or how
its name begins.  All of it is marked ``slow``; the rules of the house are not.
"""


WITH_SPARK = (
    "tests/engines/spark/",
    "tests/campaigns/test_sql_differential.py",
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


IN_EVERY_PART = (
    "tests/campaigns/test_model.py",
    "tests/campaigns/test_pruning.py",
    "tests/golden/",
    "tests/foreign/",
)
"""Slow tests that no part of a run leaves out: who else reads what we wrote, and whether a row is
lost.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run take a part of what is slow."""
    parser.addoption(
        "--part",
        metavar="K/N",
        help="of the slow tests only the Kth of N parts (all together: each test once)",
    )


def part_of(nodeid: str, parts: int) -> int:
    """Return in which of ``parts`` parts, from 1, a slow test stands: always in the same, whichever
    others there are.
    """
    return zlib.crc32(nodeid.encode()) % parts + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow, leave out its other parts, and put what asks for Spark first, because it
    takes longest.
    """
    _mark_what_is_slow(items)
    if config.option.part:
        part, parts = _part(config.option.part)
        left_out = [
            item for item in items if _may_be_left_out(item) and part_of(item.nodeid, parts) != part
        ]
        config.hook.pytest_deselected(items=left_out)
        without = set(left_out)
        items[:] = [item for item in items if item not in without]
    items.sort(key=lambda item: not _asks_for_spark(item))


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise pytest.UsageError(f"--part {text}: K/N with 1 <= K <= N is needed, such as 2/3")
    return int(match[1]), int(match[2])


def _may_be_left_out(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None and not item.nodeid.startswith(IN_EVERY_PART)


def _mark_what_is_slow(items: list[pytest.Item]) -> None:
    tests = Path(__file__).resolve().parent
    for item in items:
        place = item.path.relative_to(tests).as_posix() if item.path.is_relative_to(tests) else ""
        is_slow = (
            _asks_for_spark(item)
            or place.startswith(SLOW_FOLDERS)
            or item.path.name in SLOW_MODULES
            or item.name.startswith(SLOW_TESTS)
        )
        if is_slow and item.path.name != "test_tidy.py":
            item.add_marker("slow")


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
