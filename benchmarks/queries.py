"""The selective queries W6 on `trips`, and the truth about them.

combo: three equalities, some 15 rows of 5 M; rider: one equality, some 50; note: rows with a rare
word, some 1,500; fare: a narrow range, some 3,600.  Literals change from query to query, so that no
cache of answers helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.trips import Trips, WrongAnswer

KINDS = ("combo", "fare", "rider", "note")
FARE_STEPS = 29
WORD_LETTERS_MIN = 6
_RARE_WORDS = 500


@dataclass(frozen=True)
class Query:
    """One query: ``kind`` is one of KINDS; ``values``: its literals."""

    kind: str
    values: tuple[object, ...]

    def sql(self, word: str = "contains(note, '{}')") -> str:
        """Return the filter as SQL; ``word``: how a peer asks for rows with a word."""
        if self.kind == "combo":
            return "status = '{}' and age = {} and city = '{}'".format(*self.values)
        if self.kind == "fare":
            return "fare >= {} and fare < {}".format(*self.values)
        if self.kind == "rider":
            return "rider = '{}'".format(*self.values)
        return word.format(*self.values)


class Truth:
    """The rows that the table must hold, in memory."""

    def __init__(self, trips: Trips, rows: pa.Table) -> None:
        self._trips = trips
        self._rows = rows
        self._random = np.random.default_rng(trips.seed + 1)

    def upsert(self, batch: pa.Table) -> None:
        """Replace the rows whose keys occur in ``batch``."""
        kept = self._rows.filter(
            pc.invert(pc.is_in(self._rows["id"], batch["id"].combine_chunks()))
        )
        self._rows = pa.concat_tables([kept, batch])

    def queries(self, kind: str, count: int) -> Iterator[Query]:
        """Yield ``count`` queries with other literals each."""
        draw = self._random
        words = self._trips.rare_words(_RARE_WORDS, WORD_LETTERS_MIN)
        for _ in range(count):
            if kind == "combo":
                yield Query(
                    kind, ("waiting", int(draw.integers(100)), f"city_{draw.integers(100)}")
                )
            elif kind == "fare":
                low = float(draw.integers(0, 39_000)) / 4
                yield Query(kind, (low, low + FARE_STEPS / 4))
            elif kind == "rider":
                yield Query(kind, (f"rider_{draw.integers(self._trips.riders)}",))
            else:
                yield Query(kind, (words[int(draw.integers(len(words)))],))

    def check(self, query: Query, found: pa.Table) -> None:
        """Raise WrongAnswer unless ``found`` has the rows of ``query``."""
        rows = self._rows.filter(self._mask(query))
        expected = (len(rows), pc.sum(rows["fare"]).as_py(), pc.sum(rows["ts"]).as_py())
        got = (found.num_rows, pc.sum(found["fare"]).as_py(), pc.sum(found["ts"]).as_py())
        if expected != got or found.num_columns != self._rows.num_columns:
            raise WrongAnswer(
                f"{query}: expected (rows, sum of fare, sum of ts) {expected}, got {got}"
            )

    def _mask(self, query: Query) -> pa.ChunkedArray:
        rows, values = self._rows, query.values
        if query.kind == "combo":
            tests = zip(("status", "age", "city"), values, strict=True)
            masks = [pc.equal(rows[name], value) for name, value in tests]
            return pc.and_(pc.and_(masks[0], masks[1]), masks[2])
        if query.kind == "fare":
            return pc.and_(
                pc.greater_equal(rows["fare"], values[0]), pc.less(rows["fare"], values[1])
            )
        if query.kind == "rider":
            return pc.equal(rows["rider"], values[0])
        return pc.match_substring(rows["note"], str(values[0]))
