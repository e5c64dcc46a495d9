"""What mdt tells Python's ``logging``: the loggers below ``mdt``, and one line for each commit and
each run of a service.

========================  ==========================================================================
``mdt.commit``            INFO: each commit of this process; WARNING: conflicts that are tried
                          again, what a commit left undone
``mdt.service``           INFO: each run of compaction, of an index build, of check
``mdt.recovery``          INFO: what dead writers left and was published or removed; WARNING: claims
                          that make no sense
``mdt.plan``              DEBUG: what each plan reads and what each index did; WARNING, once:
                          indexes that are damaged or not installed
``mdt.metadata``          INFO: each checkpoint; WARNING: compacted metadata that are damaged, and
                          were made again from the log
========================  ==========================================================================

A line is ``table: operation name=value …``; the values are also in the attribute ``mdt`` of the
record, a dict.  No handler but a NullHandler is installed, and with a logger switched off nothing
is computed.  Neither rows nor secrets are logged.
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
    "ended",
    "service",
    "started",
    "warn_once",
]

COMMIT, SERVICE, RECOVERY, PLAN, METADATA = (
    logging.getLogger(f"mdt.{name}")
    for name in ("commit", "service", "recovery", "plan", "metadata")
)

logging.getLogger("mdt").addHandler(logging.NullHandler())


def started(logger: logging.Logger, storage: Storage) -> int:
    """Return the time in microseconds for :func:`ended`; 0, without a look at the clock, if
    ``logger`` does not tell it.
    """
    return storage.now_us() if logger.isEnabledFor(logging.INFO) else 0


def ended(
    logger: logging.Logger,
    storage: Storage,
    table: str,
    operation: str,
    facts: Mapping[str, object],
    since: int,
) -> None:
    """Log one line about what began at ``since``, as :func:`started` returned it."""
    if not since:
        return
    told: dict[str, Any] = {**facts, "ms": (storage.now_us() - since) // 1000}
    line = " ".join(f"{name}={value}" for name, value in told.items())
    logger.info(
        "%s: %s %s",
        table,
        operation,
        line,
        extra={"mdt": {"table": table, "operation": operation, **told}},
    )


@contextmanager
def service(storage: Storage, table: str, operation: str) -> Iterator[dict[str, object]]:
    """Log one line about a service when the block has ended well, with the facts that it puts into
    the dict.
    """
    since = started(SERVICE, storage)
    facts: dict[str, object] = {}
    yield facts
    ended(SERVICE, storage, table, operation, facts, since)


def warn_once(logger: logging.Logger, said: set[str], key: str, text: str, *values: object) -> None:
    """Log a warning unless ``key`` is among those that were ``said``."""
    if key not in said:
        said.add(key)
        logger.warning(text, *values)
