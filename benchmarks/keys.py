"""Key indexes at scale, by simulation of what a table keeps of its keys: no data files, only key
parts, and look-ups in them.

Tables of 100, 1,000 and 10,000 file groups with keys in order, so that ranges of groups are apart,
or in random order, so that every range holds every key.  100,000 keys that are there are looked for
by the Bloom index in each of its ways, by the record index, and by a join with all keys, as the
simple index does; then one key alone.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes import bloom as filters
from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex
from indexes.keys import bloom
from indexes.keys.bloom import BloomKeyIndex
from indexes.keys.record import RecordKeyIndex

GROUPS = (100, 1_000, 10_000)
ASKED = 100_000
RANDOM_PAIRS_MAX = 10_000_000
"""A look-up that would compare more pairs of a key and a filter is made for fewer keys."""
_WAYS = {
    "tree": {},
    "tree, nothing kept": {"caching": "false"},
    "list": {"ranges": "list"},
    "no ranges": {"ranges": "none"},
    "tree, 2 threads": {"threads": "2"},
    "tree, 100,000 pairs a pass": {"pairs": "100000"},
}


@dataclass(frozen=True, slots=True)
class Line:
    """A figure.  ``asked``: keys of a look-up; ``pairs``: candidates that it gave."""

    index: str
    order: str
    groups: int
    keys: int
    asked: int
    milliseconds: float
    cpu_milliseconds: float
    pairs: int
    bytes_per_key: float
    peak_megabytes: float


def hashes_of(numbers: Int64Array) -> KeyHashes:
    """Return two random words for each number, the same ones at each call."""
    return KeyHashes(_mixed(numbers.astype(np.uint64)), _mixed(~numbers.astype(np.uint64)))


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def text_of(numbers: Int64Array) -> pa.Array:
    """Return keys as texts, in the order of the numbers."""
    return pa.array([f"k{number:015d}" for number in numbers.tolist()])


def group_of(numbers: Int64Array, groups: int, keys: int, *, is_ordered: bool) -> Int64Array:
    """Return the file group of each key."""
    if is_ordered:
        return numbers * groups // keys
    return (_mixed(numbers.astype(np.uint64) ^ np.uint64(0x5555)) % np.uint64(groups)).astype(
        np.int64
    )


def bloom_part(groups: int, keys: int, fpp: float, *, is_ordered: bool) -> bytes:
    """Return a key part of the Bloom index, made a million keys at a time where keys are in
    order.
    """
    made, blocks = [], []
    share = groups if not is_ordered else max(1, min(groups, 1_000_000 * groups // keys))
    for first in range(0, groups, share):
        stop = min(groups, first + share)
        numbers = np.arange(-(-first * keys // groups), -(-stop * keys // groups))
        owner = group_of(numbers, groups, keys, is_ordered=is_ordered) - first
        data, sizes = filters.build_many(hashes_of(numbers), owner, stop - first, fpp)
        made.append(np.frombuffer(data, np.uint8))
        blocks.append(sizes)
    edges = np.arange(groups + 1) * keys // groups
    bounds = text_of(
        np.concatenate([edges[:-1], edges[1:] - 1])
        if is_ordered
        else np.array([0, keys - 1]).repeat(groups)
    )
    ends = [text.encode() for text in bounds.to_pylist()]
    part = bloom._KeyPart(
        groups,
        np.arange(groups),
        np.concatenate(blocks),
        ends[:groups],
        ends[groups:],
        np.concatenate(made),
    )
    return bloom._encode(part)


def record_part(groups: int, keys: int, *, is_ordered: bool) -> bytes:
    """Return a key part of the record index."""
    numbers = np.arange(keys)
    group = group_of(numbers, groups, keys, is_ordered=is_ordered)
    return RecordKeyIndex().build(pa.nulls(keys), hashes_of(numbers), group, groups)


def run(total: int, seed: int, times: int, emit: Callable[[str], None]) -> None:
    """Measure tables of up to ``total`` keys, a hundredth and a tenth of them in the smaller ones;
    one line of JSON a figure.
    """
    for groups in GROUPS:
        keys = total * groups // GROUPS[-1]
        for is_ordered in (True, False):
            for line in measured(groups, keys, seed, times, is_ordered=is_ordered):
                emit(
                    json.dumps(
                        {
                            k: round(v, 4) if isinstance(v, float) else v
                            for k, v in asdict(line).items()
                        }
                    )
                )


def measured(groups: int, keys: int, seed: int, times: int, *, is_ordered: bool) -> Iterator[Line]:
    """Yield the figures of one table.  Every answer is compared with where the keys are."""
    order = "ordered" if is_ordered else "random"
    draw = np.random.default_rng(seed)
    asked = draw.choice(keys, min(ASKED, keys // 2), replace=False)
    texts, hashes = text_of(asked), hashes_of(asked)
    truth = group_of(asked, groups, keys, is_ordered=is_ordered)

    def figure(name: str, data: bytes, index: KeyIndex, count: int) -> Line:
        part = index.opened(memoryview(data))

        def look_up() -> Candidates:
            return index.locate(part, texts.slice(0, count), hashes.take(np.arange(count)))

        found = look_up()
        right = np.zeros(count, np.bool_)
        right[found.key[truth[found.key] == found.group]] = True
        assert right.all(), f"{name} misses keys"
        wall, cpu = _timed(look_up, times)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Line(
            name, order, groups, keys, count, wall, cpu, len(found.key), len(data) / keys, peak
        )

    data = bloom_part(groups, keys, 0.01, is_ordered=is_ordered)
    for way, options in _WAYS.items():
        compares_all = not is_ordered or options.get("ranges") == "none"
        count = min(len(asked), max(1, RANDOM_PAIRS_MAX // groups)) if compares_all else len(asked)
        yield figure(f"bloom, {way}", data, BloomKeyIndex(**options), count)
    yield figure("bloom, one key", data, BloomKeyIndex(), 1)
    del data
    data = record_part(groups, keys, is_ordered=is_ordered)
    yield figure("record", data, RecordKeyIndex(), len(asked))
    yield figure("record, one key", data, RecordKeyIndex(), 1)
    stored = hashes_of(np.arange(keys)).hi
    wanted = np.sort(hashes.hi)
    wall, cpu = _timed(lambda: _joined(stored, wanted), 1)
    yield Line(
        "join with all keys", order, groups, keys, len(asked), wall, cpu, len(asked), 0.0, 0.0
    )


def _joined(stored: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> int:
    """Return how many of the stored keys are wanted."""
    at = np.minimum(np.searchsorted(wanted, stored), len(wanted) - 1)
    return int((wanted[at] == stored).sum())


def _timed(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Return milliseconds, wall and CPU, of the fastest of some runs."""
    laps = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        laps.append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
    return min(laps)
