"""Retries for work on a table that other processes clean meanwhile.

Objects may be deleted between two steps of the work, which is not damage.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from mdt.errors import Missing

T = TypeVar("T")

_ATTEMPTS_MAX = 3


def retry_missing(attempt: Callable[[], T]) -> T:
    """Run ``attempt`` and return its result, up to three times while an object is missing.

    ``attempt`` takes the newest snapshot itself and is repeatable.  Raises Missing if the last
    attempt does; then it is damage.
    """
    for _ in range(_ATTEMPTS_MAX - 1):
        with suppress(Missing):
            return attempt()
    return attempt()
