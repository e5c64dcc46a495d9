"""Loggers below ``mdt`` in Python's ``logging``, with a line for each commit and each run of a
service.

========================  ==========================================================================
``mdt.commit``            INFO: each commit of this process; WARNING: conflicts that are retried,
                          steps that a commit left undone
``mdt.service``           INFO: each run of compaction, of an index build, of check
``mdt.recovery``          INFO: published or removed files of crashed writers; WARNING: claims
                          that cannot be read
``mdt.plan``              DEBUG: files that each plan reads, the effect of each index, and
                          questions of Spark's optimizer that failed; WARNING, once: damaged or
                          missing indexes
``mdt.metadata``          INFO: each checkpoint; WARNING: damaged checkpoints that were rebuilt
                          from the log; options without effect
========================  ==========================================================================

A line is ``table: operation name=value …``. The attribute ``mdt`` of the log record has the same
values as a dict. The only handler is a NullHandler, and disabled loggers cost nothing. Rows and
secrets are never logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import DEBUG
from typing import Any

from mdt.stores.storage import Storage

__all__ = [
    "COMMIT",
    "DEBUG",
    "METADATA",
    "PLAN",
    "RECOVERY",
    "SERVICE",
    "log_end",
    "service",
    "start_time",
    "warn_once",
]

COMMIT, SERVICE, RECOVERY, PLAN, METADATA = (
    logging.getLogger(f"mdt.{name}")
    for name in ("commit", "service", "recovery", "plan", "metadata")
)

logging.getLogger("mdt").addHandler(logging.NullHandler())


def start_time(logger: logging.Logger, storage: Storage) -> int:
    """Return the start time in microseconds for :func:`log_end`, or 0 if ``logger`` is disabled."""
    return storage.now_us() if logger.isEnabledFor(logging.INFO) else 0


def log_end(
    logger: logging.Logger,
    storage: Storage,
    table: str,
    operation: str,
    facts: Mapping[str, object],
    since: int,
) -> None:
    """Log a line about an operation that began at ``since``, the result of :func:`start_time`."""
    if not since:
        return
    values: dict[str, Any] = {**facts, "ms": (storage.now_us() - since) // 1000}
    line = " ".join(f"{name}={value}" for name, value in values.items())
    logger.info(
        "%s: %s %s",
        table,
        operation,
        line,
        extra={"mdt": {"table": table, "operation": operation, **values}},
    )


@contextmanager
def service(storage: Storage, table: str, operation: str) -> Iterator[dict[str, object]]:
    """Log a line about a service after the block has succeeded, with the facts that the block puts
    into the dict.
    """
    since = start_time(SERVICE, storage)
    facts: dict[str, object] = {}
    yield facts
    log_end(SERVICE, storage, table, operation, facts, since)


def warn_once(
    logger: logging.Logger, logged: set[str], key: str, text: str, *values: object
) -> None:
    """Log a warning unless ``logged`` contains ``key``, then add it."""
    if key not in logged:
        logged.add(key)
        logger.warning(text, *values)
