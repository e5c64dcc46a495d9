"""The batches of streams that are written once: which ones are in the table, told by the records of
their commits.

A writer that begins again does not know whether its last batch was committed. The table does.

Batches with numbers come in rising order: a stream has one newest number, and smaller ones count as
written.  Batches with text ids come in any order: each id is remembered by itself, the newest
``STREAM_IDS_MAX`` of all streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mdt.limits import COUNT_MAX, NAME_BYTES_MAX, STREAM_ID_BYTES_MAX, STREAM_IDS_MAX, STREAMS_MAX
from mdt.metadata.log import trusted_names as names


@dataclass(frozen=True, slots=True)
class Streams:
    """The batches that the table remembers.

    ``batches``: stream -> its newest number, and seq of the commit that has it; of the STREAMS_MAX
    that wrote last. ``ids``: stream -> text id -> seq of the commit that has it; STREAM_IDS_MAX in
    all.
    """

    batches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def has(self, stream: str, batch: int | str) -> bool:
        """Return whether a batch is in the table, or has a number that is not above the newest one
        of its stream.
        """
        if isinstance(batch, str):
            return batch in self.ids.get(stream, ())
        return stream in self.batches and self.batches[stream][0] >= batch

    def followed_by(self, header: Mapping[str, Any], seq: int) -> Streams:
        """Return the streams after the record ``seq`` with this header."""
        told = header.get("stream")
        if told is None:
            return self
        name, batch = told["name"], told["batch"]
        if isinstance(batch, str):
            ids = {**self.ids, name: {**self.ids.get(name, {}), batch: seq}}
            forgotten = self.forgets(name)
            if forgotten is not None:
                stream, oldest = forgotten
                ids[stream] = {text: at for text, at in ids[stream].items() if text != oldest}
            return Streams(self.batches, {stream: known for stream, known in ids.items() if known})
        batches = {**self.batches, name: (batch, seq)}
        if len(batches) > STREAMS_MAX:
            batches.pop(min(batches, key=lambda stream: batches[stream][1]))
        return Streams(batches, self.ids)

    def forgets(self, stream: str) -> tuple[str, str] | None:
        """Return the stream and the text id that the table forgets for a new id of ``stream``: the
        oldest of the stream with the most.
        """
        if sum(map(len, self.ids.values())) < STREAM_IDS_MAX:
            return None
        largest = max(self.ids, key=lambda name: (len(self.ids[name]), name == stream))
        known = self.ids[largest]
        return largest, min(known, key=lambda text: known[text])

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the fields of a checkpoint that :func:`streams_of` reads."""
        return {
            "streams": {name: list(numbers) for name, numbers in self.batches.items()},
            "stream_ids": {name: dict(known) for name, known in self.ids.items()},
        }


def is_stream(value: Any) -> bool:
    """Return whether ``value`` may name a stream: printable text."""
    return (
        isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= NAME_BYTES_MAX
    )


def is_text_id(value: Any) -> bool:
    """Return whether ``value`` may be the id of a batch that is no number: short printable text."""
    return is_stream(value) and len(value.encode()) <= STREAM_ID_BYTES_MAX


def is_batch(value: Any) -> bool:
    """Return whether ``value`` says in a record which batch of which stream it has."""
    return (
        isinstance(value, dict)
        and value.keys() == {"name", "batch"}
        and is_stream(value["name"])
        and (is_text_id(value["batch"]) or names.is_number(value["batch"], 0, COUNT_MAX))
    )


def streams_of(header: Mapping[str, Any]) -> Streams:
    """Return what the header of a checkpoint says.  Raises ValueError if it makes no sense."""
    told, ids = header.get("streams", {}), header.get("stream_ids", {})
    if not isinstance(told, dict) or len(told) > STREAMS_MAX or not isinstance(ids, dict):
        raise ValueError("the streams make no sense")
    for name, numbers in told.items():
        if not (is_stream(name) and isinstance(numbers, list) and len(numbers) == 2):
            raise ValueError("the streams make no sense")
        if not (
            names.is_number(numbers[0], 0, COUNT_MAX)
            and names.is_number(numbers[1], 0, header["seq"])
        ):
            raise ValueError("the streams make no sense")
    for name, known in ids.items():
        if not (is_stream(name) and isinstance(known, dict) and known):
            raise ValueError("the ids of streams make no sense")
        if not all(
            is_text_id(text) and names.is_number(at, 0, header["seq"]) for text, at in known.items()
        ):
            raise ValueError("the ids of streams make no sense")
    if sum(map(len, ids.values())) > STREAM_IDS_MAX:
        raise ValueError("the ids of streams make no sense")
    return Streams({name: (batch, seq) for name, (batch, seq) in told.items()}, ids)
