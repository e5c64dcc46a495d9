"""Claims: what a transaction that is under way says of itself in ``.hoodie/.mdt/pending/``.

A claim tells a later writer what to finish or to remove, so a forged or torn one could tell it to
remove what others need. One that makes no sense is *set aside*: it stays where it is, nobody
believes it, and it is in nobody's way.
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

_WHAT_TO_DO = "nothing depends on it: look who made it, then delete it"


@dataclass(frozen=True, slots=True)
class Pending:
    """The claim of a transaction on its instant: what a later writer needs to finish or to remove
    it.

    ``token``: the middle number of the write token in every file name of the transaction.
    ``partitions``: where it may have written data files.  ``begun_at``: seq of its snapshot.
    ``started_us``: UTC microseconds by its writer's clock.
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


def decode(data: bytes, *, path: str) -> Pending:
    """Return the claim in ``data``, which stands at ``path``.  Raises Corrupt if it makes no
    sense.
    """
    found = codec.parse_json(data, path=path)
    if not isinstance(found, dict):
        raise _senseless(path, "a JSON object", type(found).__name__)
    for name, holds in _FIELDS.items():
        if name not in found or not holds(found[name]):
            raise _senseless(path, f"a field {name} by its grammar", repr(found.get(name))[:80])
    claim = Pending(
        **{name: found[name] for name in _FIELDS if name != "partitions"},
        partitions=tuple(found["partitions"]),
    )
    if path != paths.pending(claim.instant):
        raise _senseless(path, "the instant of its name", claim.instant)
    return claim


def _are_partitions(value: Any) -> bool:
    return isinstance(value, list) and all(map(names.is_partition, value))


_FIELDS = {
    "instant": names.is_instant,
    "txn": names.is_txn,
    "action": lambda value: (
        value in names.ACTIONS - {"create"} if isinstance(value, str) else False
    ),
    "operation": names.is_word,
    "token": names.is_token,
    "begun_at": lambda value: names.is_number(value, 0, COUNT_MAX),
    "started_us": lambda value: names.is_number(value, 0, COUNT_MAX),
    "partitions": _are_partitions,
}


def _senseless(path: str, expected: str, got: str) -> Corrupt:
    return Corrupt(
        "a claim makes no sense", path=path, offset=0, expected=expected, got=got, hint=_WHAT_TO_DO
    )


def put(storage: Storage, claim: Pending) -> bool:
    """Put ``claim`` if its instant is free; True if it is there now: a store whose reply is lost
    tries again by itself, and meets it.
    """
    path, data = paths.pending(claim.instant), claim.encode()
    if storage.put_if_absent(path, data):
        return True
    with suppress(Corrupt):
        return storage.read_if_exists(path, CLAIM_BYTES_MAX) == data
    return False


Claims = tuple[list[Pending], list[Corrupt]]
"""Those that make sense, oldest first, and what is wrong with the others."""


def read_all(storage: Storage) -> Claims:
    """Return the claims that make sense, oldest first, and what is wrong with the others.  One
    listing.
    """
    found, aside = [], []
    listed = storage.list_dir(paths.pending_dir())
    latest_us = storage.now_us() + CLAIM_CLOCK_AHEAD_SECONDS * 1_000_000 if listed else 0
    for one in storage.together(*(partial(_read, storage, info, latest_us) for info in listed)):
        if isinstance(one, Pending):
            found.append(one)
        elif one is not None:
            aside.append(one)
    return sorted(found, key=lambda claim: claim.instant), aside


def _read(storage: Storage, info: ObjectInfo, latest_us: int) -> Pending | Corrupt | None:
    """Return a claim.  One that says it begins after ``latest_us`` began when it was put, or it
    would hold back cleaning until then.
    """
    try:
        data = storage.read_if_exists(info.path, CLAIM_BYTES_MAX)
        claim = None if data is None else decode(data, path=info.path)
        if claim is not None and claim.started_us > latest_us:
            return replace(claim, started_us=min(claim.started_us, info.modified_us))
        return claim
    except Corrupt as error:
        error.hint = _WHAT_TO_DO
        return error


def usurped(claim: Pending) -> Corrupt:
    """Return the error for a claim that names the instant or the token of a transaction that has
    committed.
    """
    return _senseless(
        paths.pending(claim.instant),
        "an instant and a token of its own",
        f"{claim.instant}, {claim.token}",
    )
