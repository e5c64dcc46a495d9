"""Streams of batches that are written once: of each the newest batch that is in the table, told by the record of its commit.

A writer that begins again does not know whether its last batch was committed; the table does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mdt.limits import COUNT_MAX, NAME_BYTES_MAX, STREAMS_MAX
from mdt.metadata import trusted_names as names


@dataclass(frozen=True, slots=True)
class Streams:
    """Name of a stream -> number of its newest batch, and seq of the commit that has it; of the STREAMS_MAX that wrote last."""

    batches: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def has(self, stream: str, batch: int) -> bool:
        """Return whether a batch, or a later one of its stream, is in the table."""
        return stream in self.batches and self.batches[stream][0] >= batch

    def followed_by(self, header: Mapping[str, Any], seq: int) -> Streams:
        """Return the streams after the record ``seq`` with this header."""
        told = header.get("stream")
        if told is None:
            return self
        found = {**self.batches, told["name"]: (told["batch"], seq)}
        if len(found) > STREAMS_MAX:
            found.pop(min(found, key=lambda name: found[name][1]))
        return Streams(found)

    def to_json(self) -> dict[str, list[int]]:
        """Return the streams as checkpoints hold them."""
        return {name: list(numbers) for name, numbers in self.batches.items()}


def is_stream(value: Any) -> bool:
    """Return whether ``value`` may name a stream: printable text."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= NAME_BYTES_MAX


def is_batch(value: Any) -> bool:
    """Return whether ``value`` says in a record which batch of which stream it has."""
    return (
        isinstance(value, dict)
        and value.keys() == {"name", "batch"}
        and is_stream(value["name"])
        and names.is_number(value["batch"], 0, COUNT_MAX)
    )


def streams_of(header: Mapping[str, Any]) -> Streams:
    """Return what the header of a checkpoint says.  Raises ValueError if it makes no sense."""
    told = header.get("streams", {})
    if not isinstance(told, dict) or len(told) > STREAMS_MAX:
        raise ValueError("the streams make no sense")
    for name, numbers in told.items():
        if not (is_stream(name) and isinstance(numbers, list) and len(numbers) == 2):
            raise ValueError("the streams make no sense")
        if not (names.is_number(numbers[0], 0, COUNT_MAX) and names.is_number(numbers[1], 0, header["seq"])):
            raise ValueError("the streams make no sense")
    return Streams({name: (batch, seq) for name, (batch, seq) in told.items()})
