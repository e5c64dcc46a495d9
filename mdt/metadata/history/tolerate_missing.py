"""Work on a table that others clean meanwhile: what it looks for may go between two of its steps,
which is no damage.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from mdt.errors import Missing

T = TypeVar("T")

_ATTEMPTS_MAX = 3


def begun_again(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, which takes the newest snapshot itself and may be repeated; it
    begins again where something is gone.

    Raises Missing if something is gone each time: then it is damage.
    """
    for _ in range(_ATTEMPTS_MAX - 1):
        with suppress(Missing):
            return work()
    return work()
