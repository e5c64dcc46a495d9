"""Claims: the objects in ``.hoodie/.mdt/pending/`` that describe running transactions.

A later writer uses the claim of a crashed transaction to publish its commit or to remove its files.
A torn or forged claim could make it delete files that are in use. An invalid claim is therefore
*set aside*: it stays in place, is not trusted, and does not block any writer.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from mdt.errors import Corrupt
from mdt.limits import CLAIM_BYTES_MAX, CLAIM_CLOCK_AHEAD_SECONDS, COUNT_MAX
from mdt.metadata.files import paths
from mdt.metadata.log import codec
from mdt.metadata.log import trusted_names as names
from mdt.stores.storage import ObjectInfo, Storage

_HINT = "no transaction depends on it: find out what created it, then delete it"


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """The claim of a transaction on its instant.

    Attributes:
        token: Middle number of the write token in all file names of the transaction.
        begun_at: Seq of its first snapshot.
        started_us: Start time, UTC microseconds by the writer's clock.
        partitions: Paths of the partitions that may contain its data files.
    """

    instant: str
    txn: str
    action: str
    operation: str
    token: int
    begun_at: int
    started_us: int
    partitions: tuple[str, ...]

    def encode(self) -> bytes:
        """Return the claim as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()


def decode(data: bytes, *, path: str) -> PendingClaim:
    """Return the claim that was read from ``path``. Raises Corrupt if it is invalid."""
    fields = codec.parse_json(data, path=path)
    if not isinstance(fields, dict):
        raise _invalid(path, "a JSON object", type(fields).__name__)
    for name, is_valid in _FIELDS.items():
        if name not in fields or not is_valid(fields[name]):
            raise _invalid(path, f"a valid field {name}", repr(fields.get(name))[:80])
    claim = PendingClaim(
        **{name: fields[name] for name in _FIELDS if name != "partitions"},
        partitions=tuple(fields["partitions"]),
    )
    if path != paths.pending(claim.instant):
        raise _invalid(path, "the instant in its name", claim.instant)
    return claim


def _are_partitions(value: Any) -> bool:
    return isinstance(value, list) and all(map(names.is_partition, value))


_FIELDS = {
    "instant": names.is_instant,
    "txn": names.is_txn,
    "action": lambda value: isinstance(value, str) and value in names.ACTIONS - {"create"},
    "operation": names.is_word,
    "token": names.is_token,
    "begun_at": lambda value: names.is_number(value, 0, COUNT_MAX),
    "started_us": lambda value: names.is_number(value, 0, COUNT_MAX),
    "partitions": _are_partitions,
}


def _invalid(path: str, expected: str, actual: str) -> Corrupt:
    return Corrupt("invalid claim", path=path, offset=0, expected=expected, got=actual, hint=_HINT)


def put(storage: Storage, claim: PendingClaim) -> bool:
    """Put ``claim`` if its instant is free. Return True if the claim is there now.

    A store that retries after a lost reply finds its own claim.
    """
    path, data = paths.pending(claim.instant), claim.encode()
    if storage.put_if_absent(path, data):
        return True
    with suppress(Corrupt):
        return storage.read_if_exists(path, CLAIM_BYTES_MAX) == data
    return False


Claims = tuple[list[PendingClaim], list[Corrupt]]
"""Valid claims, oldest first, and the errors of invalid claims."""


def read_all(storage: Storage) -> Claims:
    """Return the valid claims, oldest first, and the errors of invalid claims. Lists the directory
    once.
    """
    valid, invalid = [], []
    infos = storage.list_dir(paths.PENDING_DIR)
    latest_us = storage.now_us() + CLAIM_CLOCK_AHEAD_SECONDS * 1_000_000 if infos else 0
    for entry in storage.together(*(partial(_read, storage, info, latest_us) for info in infos)):
        if isinstance(entry, PendingClaim):
            valid.append(entry)
        elif entry is not None:
            invalid.append(entry)
    return sorted(valid, key=lambda claim: claim.instant), invalid


def _read(storage: Storage, info: ObjectInfo, latest_us: int) -> PendingClaim | Corrupt | None:
    """Return the claim, its error, or None if it is gone.

    A start time after ``latest_us`` would block cleaning until then. The modification time of the
    object replaces it.
    """
    try:
        data = storage.read_if_exists(info.path, CLAIM_BYTES_MAX)
        claim = None if data is None else decode(data, path=info.path)
        if claim is not None and claim.started_us > latest_us:
            return replace(claim, started_us=min(claim.started_us, info.modified_us))
        return claim
    except Corrupt as error:
        error.hint = _HINT
        return error


def stolen_claim(claim: PendingClaim) -> Corrupt:
    """Return the error for a claim with the instant or the token of another, committed
    transaction.
    """
    return _invalid(
        paths.pending(claim.instant),
        "a unique instant and token",
        f"{claim.instant}, {claim.token}",
    )
