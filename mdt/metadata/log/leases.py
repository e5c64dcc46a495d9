"""Leases: readers who need a past state for a while say so, and cleaning leaves it to them until
the time that they name.

A lease is an object of its own; who cannot write leaves none, and is told with Expired if the state
goes meanwhile.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial

from mdt.arguments import shown
from mdt.errors import Corrupt, Invalid
from mdt.limits import LEASE_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.log import codec
from mdt.stores.storage import Storage

LEASE_SECONDS_MAX = 30 * 86_400
"""No lease holds longer: who dies with one holds up cleaning for a month at most."""

_MICROSECONDS = 1_000_000


def take(storage: Storage, seq: int, seconds: float) -> str:
    """Keep the state after commit ``seq`` for ``seconds``; return the lease's path, for
    :func:`give_back`.  Raises Invalid for what is no time.
    """
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise Invalid(
            f"a lease of {shown(seconds)} seconds",
            hint="give a number above 0, such as seconds=600",
        )
    path = paths.lease(storage.random_hex(16))
    until = storage.now_us() + int(min(seconds, LEASE_SECONDS_MAX) * _MICROSECONDS)
    storage.create(path, json.dumps({"seq": seq, "until_us": until}).encode())
    return path


def give_back(storage: Storage, path: str) -> None:
    """End a lease."""
    storage.delete(path)


def leased(storage: Storage) -> tuple[list[int], list[str]]:
    """Return the states that leases name which have not ended, and the paths of those that have.
    What makes no sense keeps nothing.
    """
    now = storage.now_us()
    found, ended = list[int](), list[str]()
    listed = [info.path for info in storage.list_dir(paths.leases_dir())]
    for path, lease in zip(
        listed, storage.each(partial(_read, storage, path) for path in listed), strict=True
    ):
        if lease is None:
            continue
        seq, until = lease
        if until <= now:
            ended.append(path)
        elif until <= now + LEASE_SECONDS_MAX * _MICROSECONDS:
            found.append(seq)
    return found, ended


def _read(storage: Storage, path: str) -> tuple[int, int] | None:
    """Return the state that a lease keeps and until when; None for what makes no sense."""
    with suppress(Corrupt):
        data = storage.read_if_exists(path, LEASE_BYTES_MAX)
        lease = None if data is None else codec.parse_json(data, path=path)
        if isinstance(lease, dict):
            seq, until = lease.get("seq"), lease.get("until_us")
            if isinstance(seq, int) and isinstance(until, int):
                return seq, until
    return None
