"""Packages with indexes that a job names: the Python of the executors must have what the driver's
has, and it is asked at once.
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
"""Spark says of no task on which executor it runs; of so many each executor gets one or more."""
_HINT = (
    "ship an environment that has it: spark.archives=environment.tar.gz#environment,"
    " PYSPARK_PYTHON=./environment/bin/python"
)


@for_life
def _verified() -> Guarded[WeakKeyDictionary[SparkContext, set[tuple[str, ...]]]]:
    """Return the packages that driver and executors of each context have."""
    return Guarded(WeakKeyDictionary())


def require(spark: SparkSession, packages: Sequence[str]) -> None:
    """Ask driver and executors, once for each context, for distributions that announce indexes, and
    load these.

    Raises Invalid if the driver has no such distribution, or if it announces no index; Unsupported
    if an executor lacks it, has another version, or cannot load it.
    """
    names = tuple(sorted(set(packages)))
    with _verified() as verified:
        if not names or names in verified.get(spark.sparkContext, ()):
            return
        here = _versions_here(names)
        engine = SparkEngine(spark)
        engine.each(partial(_compare, here), range(_TASKS_A_PROCESSOR * engine.processors))
        verified.setdefault(spark.sparkContext, set()).add(names)


def _versions_here(names: Sequence[str]) -> Mapping[str, str]:
    """Return the version of each distribution."""
    found = {}
    for name in names:
        try:
            found[name] = _loaded(name)
        except PackageNotFoundError:
            hint = (
                "spark.mdt.indexes.packages takes names as pip installs them, separated by commas"
            )
            raise Invalid(f"the package {name!r} is not installed", hint=hint) from None
    return found


def _loaded(name: str) -> str:
    """Load the indexes that a distribution announces, and return its version.  Raises
    PackageNotFoundError, Invalid, and what loading raises.
    """
    found = distribution(name)
    announced = found.entry_points.select(group=ENTRY_POINT_GROUP)
    if not announced:
        raise Invalid(
            f"the package {name!r} announces no index",
            hint=f"its entry points need a group {ENTRY_POINT_GROUP}",
        )
    for one in announced:
        one.load()
    return found.version


def _compare(expected: Mapping[str, str], share: int, attempt: int) -> None:
    """Raise Unsupported, in a task, if a distribution is not here as the driver has it."""
    here = f"the Python of an executor on {socket.gethostname()}"
    for name, version in expected.items():
        try:
            found = _loaded(name)
        except PackageNotFoundError:
            raise Unsupported(f"{here} has no package {name!r}", hint=_HINT) from None
        except Exception as error:  # whatever code of others raises when it is loaded
            raise Unsupported(
                f"{here} cannot load {name!r}: {type(error).__name__}: {error}", hint=_HINT
            ) from error
        if found != version:
            raise Unsupported(f"{here} has {name!r} {found}, the driver {version}", hint=_HINT)
