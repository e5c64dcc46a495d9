"""The workload `trips`: taxi rides with a key, and the truth about them.

Key `id` is ``id_%012d`` of a number, or the number itself; `ts` grows with every change; `city` (100 values), `rider` (about a tenth of the
rows, at most 100,000), `status` (8 values, skewed), `fare` and `distance` (double), `age` 0..99, `note` (six words of a
vocabulary of 5,000, some frequent, most rare).  Only the key is clustered.  Fares are multiples of 1/4, so that their sum is exact in any order
of addition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = npt.NDArray[np.int64]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        ("city", pa.string()),
        ("rider", pa.string()),
        ("status", pa.string()),
        ("fare", pa.float64()),
        ("distance", pa.float64()),
        ("age", pa.int64()),
        ("note", pa.string()),
    ]
)
Key = str | int
FILES = 64
BATCH_ROWS = 50_000
WORDS = 5_000
STATUSES = ("completed", "paid", "cancelled", "driving", "waiting", "disputed", "refunded", "lost")
STATUS_SHARES = (0.6, 0.2, 0.1, 0.05, 0.03, 0.01, 0.007, 0.003)
NEWEST_SHARE = 0.02


class WrongAnswer(AssertionError):
    """A peer returned other rows than were written."""


def keys_of(numbers: Int64Array) -> pa.Array:
    """Return record keys for key numbers -> string[n]."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    return pc.binary_join_element_wise(pa.scalar("id_"), digits, pa.scalar(""))


@dataclass
class Trips:
    """A generator of loads and batches that remembers what the table must now hold.

    ``rows``: rows of the load; ``seed``: of every random choice; ``shuffled``: whether keys arrive in random order; ``integers``: whether they
    are numbers instead of text.
    """

    rows: int
    seed: int = 7
    shuffled: bool = False
    integers: bool = False
    fare: npt.NDArray[np.float64] = field(init=False, repr=False)
    ts: Int64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._words = self._vocabulary()
        self.fare, self.ts = np.empty(0), np.empty(0, np.int64)
        self._round = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns: SCHEMA, with the key's type."""
        return SCHEMA.set(0, pa.field("id", pa.int64(), nullable=False)) if self.integers else SCHEMA

    def keys_of(self, numbers: Int64Array) -> pa.Array:
        """Return record keys for key numbers -> string[n] or int64[n]."""
        return pa.array(numbers, pa.int64()) if self.integers else keys_of(numbers)

    @property
    def batch_rows(self) -> int:
        """Rows of one upsert: 50,000, or a twentieth of a small table."""
        return min(BATCH_ROWS, max(10, self.rows // 20))

    @property
    def riders(self) -> int:
        """How many riders there are."""
        return min(100_000, max(10, self.rows // 10))

    def rare_words(self, count: int, letters_min: int) -> list[str]:
        """Return the rarest words of the vocabulary with so many letters that no other word holds."""
        words: list[str] = self._words.to_pylist()
        rare = [word for word in words[-count:] if len(word) >= letters_min]
        everything = " ".join(words)
        return [word for word in rare if everything.count(word) == 1]

    def load(self) -> pa.Table:
        """Return the rows of the bulk load: SCHEMA, ``rows`` rows."""
        numbers = np.arange(self.rows, dtype=np.int64)
        return self._remember(self._random.permutation(numbers) if self.shuffled else numbers)

    def uniform(self) -> pa.Table:
        """Return a batch: 90 % updates spread over all keys, 10 % inserts (W2)."""
        return self._batch(0)

    def small(self, rows: int) -> pa.Table:
        """Return a batch of so many rows: nine in ten updates spread over all keys, the others inserts."""
        live, fresh = len(self.fare), -(-rows // 10)
        updated = self._random.choice(live, rows - fresh, replace=False)
        return self._remember(np.concatenate([updated, np.arange(live, live + fresh)]))

    def of(self, numbers: Int64Array) -> pa.Table:
        """Return new rows for these key numbers, old or new ones, int64[n]."""
        return self._remember(numbers)

    def newest(self) -> pa.Table:
        """Return a batch: 90 % updates of the newest 2 % of the keys (each at most once), 10 % inserts (W3)."""
        return self._batch(int(len(self.fare) * (1 - NEWEST_SHARE)))

    def some_keys(self, count: int) -> list[Key]:
        """Return ``count`` random keys that exist."""
        keys: list[Key] = self.keys_of(self._random.choice(len(self.fare), count, replace=False)).to_pylist()
        return keys

    def check(self, found: pa.Table, keys: list[Key] | None = None) -> None:
        """Raise WrongAnswer unless ``found`` holds all rows, or those of ``keys``, as last written."""
        numbers = (
            np.arange(len(self.fare)) if keys is None else np.array([int(str(key).removeprefix("id_")) for key in keys])
        )
        expected = (len(numbers), float(self.fare[numbers].sum()), int(self.ts[numbers].sum()))
        got = (found.num_rows, pc.sum(found["fare"]).as_py(), pc.sum(found["ts"]).as_py())
        if expected != got or (keys is not None and sorted(found["id"].to_pylist()) != sorted(keys)):
            raise WrongAnswer(f"expected (rows, sum of fare, sum of ts) {expected}, got {got}")
        if found.num_columns != len(SCHEMA):
            raise WrongAnswer(f"expected columns {SCHEMA.names}, got {found.column_names}")

    def _batch(self, first: int) -> pa.Table:
        live = len(self.fare)
        updates = min(self.batch_rows * 9 // 10, live - first)
        updated = first + self._random.choice(live - first, updates, replace=False)
        return self._remember(np.concatenate([updated, np.arange(live, live + self.batch_rows // 10)]))

    def _remember(self, numbers: Int64Array) -> pa.Table:
        table = self._make(numbers.astype(np.int64))
        grown = max(int(numbers.max()) + 1, len(self.fare))
        self.fare = np.concatenate([self.fare, np.zeros(grown - len(self.fare))])
        self.ts = np.concatenate([self.ts, np.zeros(grown - len(self.ts), np.int64)])
        self.fare[numbers], self.ts[numbers] = table["fare"].to_numpy(), table["ts"].to_numpy()
        return table

    def _make(self, numbers: Int64Array) -> pa.Table:
        draw, n = self._random, len(numbers)
        self._round += 1
        columns = [
            self.keys_of(numbers),
            1_700_000_000_000 + self._round * 10_000_000_000 + draw.integers(0, 10_000_000_000, n),
            self._named("city_", 100, n),
            self._named("rider_", self.riders, n),
            pa.array(STATUSES).take(pa.array(draw.choice(len(STATUSES), n, p=STATUS_SHARES))),
            draw.integers(0, 40_000, n) / 4,
            np.round(draw.gamma(2.0, 3.0, n), 3),
            draw.integers(0, 100, n),
            pc.binary_join_element_wise(*(self._words.take(self._ranks(n)) for _ in range(6)), pa.scalar(" ")),
        ]
        return pa.table([pa.array(column) for column in columns], schema=self.schema)

    def _named(self, prefix: str, values: int, n: int) -> pa.Array:
        names = pa.array([f"{prefix}{value}" for value in range(values)])
        return names.take(self._any(values, n))

    def _any(self, values: int, n: int) -> pa.Array:
        return pa.array(self._random.integers(0, values, n))

    def _ranks(self, n: int) -> pa.Array:
        """Return ranks of words: the first words are frequent, the last ones rare, as in natural language."""
        return pa.array((WORDS * self._random.random(n) ** 4).astype(np.int64))

    def _vocabulary(self) -> pa.Array:
        letters = self._random.integers(97, 123, (WORDS, 8)).astype(np.uint8)
        lengths = self._random.integers(4, 9, WORDS)
        return pa.array([bytes(word[:length]).decode() for word, length in zip(letters, lengths, strict=True)])
