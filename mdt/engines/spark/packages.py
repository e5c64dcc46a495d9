"""Packages with indexes for a job: executors must have the same versions as the driver, which is
verified at the start.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import SparkSession

from indexes.registry import ENTRY_POINT_GROUP
from mdt.engines.spark.engine import SparkEngine
from mdt.errors import Invalid, Unsupported
from mdt.session import Guarded, for_life

_TASKS_A_PROCESSOR = 2
"""Spark does not choose the executor of a task. With this many tasks each executor gets at least
one.
"""
_HINT = (
    "ship an environment with the package: spark.archives=environment.tar.gz#environment,"
    " PYSPARK_PYTHON=./environment/bin/python"
)


@for_life
def _verified_packages() -> Guarded[WeakKeyDictionary[SparkContext, set[tuple[str, ...]]]]:
    """Return the verified packages of each context."""
    return Guarded(WeakKeyDictionary())


def require(spark: SparkSession, packages: Sequence[str]) -> None:
    """Verify once per context that driver and executors have these distributions with indexes, and
    load them.

    Raises Invalid if the driver lacks a distribution or if it registers no index. Raises
    Unsupported if an executor lacks it, has another version, or cannot load it.
    """
    names = tuple(sorted(set(packages)))
    verified = _verified_packages()
    with verified.lock:
        if not names or names in verified.value.get(spark.sparkContext, ()):
            return
        versions = _versions_here(names)
        engine = SparkEngine(spark)
        engine.map_shares(
            partial(_compare, versions), range(_TASKS_A_PROCESSOR * engine.processors)
        )
        verified.value.setdefault(spark.sparkContext, set()).add(names)


def _versions_here(names: Sequence[str]) -> Mapping[str, str]:
    """Return the version of each distribution."""
    versions = {}
    for name in names:
        try:
            versions[name] = _load(name)
        except PackageNotFoundError:
            hint = "spark.mdt.indexes.packages takes names of pip packages, separated by commas"
            raise Invalid(f"the package {name!r} is not installed", hint=hint) from None
    return versions


def _load(name: str) -> str:
    """Load the indexes of a distribution; return its version. Raises PackageNotFoundError, Invalid,
    and errors of the loaded code.
    """
    package = distribution(name)
    announced = package.entry_points.select(group=ENTRY_POINT_GROUP)
    if not announced:
        raise Invalid(
            f"the package {name!r} registers no index",
            hint=f"the package needs entry points in the group {ENTRY_POINT_GROUP}",
        )
    for entry_point in announced:
        entry_point.load()
    return package.version


def _compare(expected: Mapping[str, str], share: int, attempt: int) -> None:
    """Raise Unsupported, in a task, if a distribution differs from the driver's."""
    place = f"the Python of an executor on {socket.gethostname()}"
    for name, version in expected.items():
        try:
            installed = _load(name)
        except PackageNotFoundError:
            raise Unsupported(f"{place} lacks the package {name!r}", hint=_HINT) from None
        except Exception as error:  # any error of third-party code
            raise Unsupported(
                f"{place} cannot load {name!r}: {type(error).__name__}: {error}", hint=_HINT
            ) from error
        if installed != version:
            raise Unsupported(
                f"{place} has {name!r} {installed}, but the driver has {version}", hint=_HINT
            )
