"""Idempotent batches: the newest batches of each stream that are committed to the table.

A writer that restarts does not know whether its last batch was committed.  The table does.

Numbered batches arrive in ascending order.  The table keeps the newest number of each stream, and
smaller numbers count as written.  Batches with text ids arrive in any order.  The table keeps the
newest ``STREAM_IDS_MAX`` ids of all streams together.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from mdt.limits import COUNT_MAX, NAME_BYTES_MAX, STREAM_ID_BYTES_MAX, STREAM_IDS_MAX, STREAMS_MAX
from mdt.metadata.log import trusted_names as names


@dataclass(frozen=True, slots=True)
class Streams:
    """The committed batches that the table remembers.

    ``batches`` maps a stream to its newest number and the seq of that commit, for the STREAMS_MAX
    streams that wrote last.  ``ids`` maps a stream to text ids and the seqs of their commits, at
    most STREAM_IDS_MAX in all.
    """

    batches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def has(self, stream: str, batch: int | str) -> bool:
        """Return True if a batch was committed, or if its number is not above the newest of its
        stream.
        """
        if isinstance(batch, str):
            return batch in self.ids.get(stream, ())
        return stream in self.batches and self.batches[stream][0] >= batch

    def followed_by(self, header: Mapping[str, Any], seq: int) -> Streams:
        """Return the streams after the record ``seq`` with this header."""
        change = header.get("stream")
        if change is None:
            return self
        name, batch = change["name"], change["batch"]
        if isinstance(batch, str):
            ids = {**self.ids, name: {**self.ids.get(name, {}), batch: seq}}
            evicted = self.next_evicted(name)
            if evicted is not None:
                stream, oldest = evicted
                ids[stream] = {text: at for text, at in ids[stream].items() if text != oldest}
            return Streams(self.batches, {stream: texts for stream, texts in ids.items() if texts})
        batches = {**self.batches, name: (batch, seq)}
        if len(batches) > STREAMS_MAX:
            batches.pop(min(batches, key=lambda stream: batches[stream][1]))
        return Streams(batches, self.ids)

    def without(self, seqs: AbstractSet[int]) -> Streams:
        """Return the streams without the batches of the commits ``seqs``, which were rolled back.

        A number gives way to the number below, so that older batches still count as written.
        """
        batches, ids = dict[str, tuple[int, int]](), dict[str, dict[str, int]]()
        for name, (number, seq) in self.batches.items():
            if seq not in seqs:
                batches[name] = number, seq
            elif number:
                batches[name] = number - 1, seq
        for name, texts in self.ids.items():
            ids[name] = {text: seq for text, seq in texts.items() if seq not in seqs}
        return Streams(batches, {name: texts for name, texts in ids.items() if texts})

    def next_evicted(self, stream: str) -> tuple[str, str] | None:
        """Return the (stream, text id) to evict before adding an id to ``stream``, or None if there
        is room.

        This is the oldest id of the stream with the most ids.
        """
        if sum(map(len, self.ids.values())) < STREAM_IDS_MAX:
            return None
        largest = max(self.ids, key=lambda name: (len(self.ids[name]), name == stream))
        texts = self.ids[largest]
        return largest, min(texts, key=lambda text: texts[text])

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the header fields of a checkpoint that :func:`streams_of` reads."""
        return {
            "streams": {name: list(numbers) for name, numbers in self.batches.items()},
            "stream_ids": {name: dict(texts) for name, texts in self.ids.items()},
        }


def is_stream(value: Any) -> bool:
    """Return True if ``value`` may name a stream: printable text of at most NAME_BYTES_MAX
    bytes.
    """
    return (
        isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= NAME_BYTES_MAX
    )


def is_text_id(value: Any) -> bool:
    """Return True if ``value`` may be a text id of a batch: printable, at most STREAM_ID_BYTES_MAX
    bytes.
    """
    return is_stream(value) and len(value.encode()) <= STREAM_ID_BYTES_MAX


def is_batch(value: Any) -> bool:
    """Return True if ``value`` is a valid ``stream`` field of a record: the stream's name and a
    batch.
    """
    return (
        isinstance(value, dict)
        and value.keys() == {"name", "batch"}
        and is_stream(value["name"])
        and (is_text_id(value["batch"]) or names.is_number(value["batch"], 0, COUNT_MAX))
    )


def streams_of(header: Mapping[str, Any]) -> Streams:
    """Return the streams in the header of a checkpoint.  Raises ValueError if they are
    malformed.
    """
    batches, ids = header.get("streams", {}), header.get("stream_ids", {})
    if not isinstance(batches, dict) or len(batches) > STREAMS_MAX or not isinstance(ids, dict):
        raise ValueError("the streams are malformed")
    for name, numbers in batches.items():
        if not (is_stream(name) and isinstance(numbers, list) and len(numbers) == 2):
            raise ValueError("the streams are malformed")
        if not (
            names.is_number(numbers[0], 0, COUNT_MAX)
            and names.is_number(numbers[1], 0, header["seq"])
        ):
            raise ValueError("the streams are malformed")
    for name, texts in ids.items():
        if not (is_stream(name) and isinstance(texts, dict) and texts):
            raise ValueError("the ids of streams are malformed")
        if not all(
            is_text_id(text) and names.is_number(at, 0, header["seq"]) for text, at in texts.items()
        ):
            raise ValueError("the ids of streams are malformed")
    if sum(map(len, ids.values())) > STREAM_IDS_MAX:
        raise ValueError("the ids of streams are malformed")
    return Streams({name: (batch, seq) for name, (batch, seq) in batches.items()}, ids)
