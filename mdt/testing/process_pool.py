"""An engine on processes of this machine, which tests that engines need only
:class:`mdt.engines.engine.Engine`.

Tasks see the table only through storage, as on a cluster.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from mdt.testing.local_engine import LocalEngine


def process_engine(processes: int = 2) -> LocalEngine:
    """Return an engine on new processes. The caller shuts its executor down."""
    executor = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    return LocalEngine(executor, processes, "processes")
