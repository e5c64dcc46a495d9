"""Leases: a reader's request to keep a past snapshot until a given time.

Cleaning keeps leased snapshots.  Each lease is an object of its own.  Readers without write access
hold no lease and get Expired if their snapshot is cleaned.
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
"""The longest lease.  A reader that dies with a lease holds up cleaning for at most 30 days."""

_MICROSECONDS = 1_000_000


def take(storage: Storage, seq: int, seconds: float) -> str:
    """Keep the snapshot after commit ``seq`` for ``seconds``, at most LEASE_SECONDS_MAX.

    Return the path of the lease, for :func:`give_back`.  Raises Invalid unless ``seconds`` is a
    positive number.
    """
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise Invalid(
            f"a lease of {shown(seconds)} seconds is not possible",
            hint="use a number above 0, e.g. seconds=600",
        )
    path = paths.lease(storage.random_hex(16))
    until = storage.now_us() + int(min(seconds, LEASE_SECONDS_MAX) * _MICROSECONDS)
    storage.create(path, json.dumps({"seq": seq, "until_us": until}).encode())
    return path


def give_back(storage: Storage, path: str) -> None:
    """End a lease."""
    storage.delete(path)


def active_leases(storage: Storage) -> tuple[list[int], list[str]]:
    """Return the seqs of the active leases and the paths of the expired leases.

    Unreadable leases and leases beyond LEASE_SECONDS_MAX are ignored.
    """
    now = storage.now_us()
    seqs, expired = list[int](), list[str]()
    lease_paths = [info.path for info in storage.list_dir(paths.LEASES_DIR)]
    for path, lease in zip(
        lease_paths,
        storage.each(partial(_read, storage, path) for path in lease_paths),
        strict=True,
    ):
        if lease is None:
            continue
        seq, until = lease
        if until <= now:
            expired.append(path)
        elif until <= now + LEASE_SECONDS_MAX * _MICROSECONDS:
            seqs.append(seq)
    return seqs, expired


def _read(storage: Storage, path: str) -> tuple[int, int] | None:
    """Return (seq, end in microseconds since 1970) of a lease, or None if it is missing or
    unreadable.
    """
    with suppress(Corrupt):
        data = storage.read_if_exists(path, LEASE_BYTES_MAX)
        lease = None if data is None else codec.parse_json(data, path=path)
        if isinstance(lease, dict):
            seq, until = lease.get("seq"), lease.get("until_us")
            if type(seq) is int and seq >= 0 and isinstance(until, int):
                return seq, until
    return None
