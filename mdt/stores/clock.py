"""The clock of this machine, for callers without a storage."""

import time


def now_us() -> int:
    """Return the current time in microseconds since the Unix epoch (UTC)."""
    return time.time_ns() // 1000
