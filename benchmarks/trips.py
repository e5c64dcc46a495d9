"""The workload `trips`: taxi rides with a key, and the truth about them.

Key `id` is ``id_%012d`` of a number, or the number itself; `ts` grows with every change; `city`
(100 values), `rider` (about a tenth of the rows, at most 100,000), `status` (8 values, skewed),
`fare` and `distance` (double), `age` 0..99, `note` (six words of a vocabulary of 5,000, some
frequent, most rare).  Only the key is clustered.  Fares are multiples of 1/4, so that their sum is
exact in any order of addition.

Beside these flat columns there are a nested, a nullable and a wide one: `geo` (a struct of `lat`,
`lon` and `zone`), `tip` (a third of them null) and `detail` (some 120 characters).  With ``--flat``
(the environment variable ``TRIPS_FLAT``) they are left out, and the other columns have the same
values.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property

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
MORE = pa.schema(
    [
        ("geo", pa.struct([("lat", pa.float64()), ("lon", pa.float64()), ("zone", pa.int64())])),
        ("tip", pa.float64()),
        ("detail", pa.string()),
    ]
)
"""The nested, the nullable and the wide column."""
FLAT = "TRIPS_FLAT"
"""Environment variable without these; the processes of all peers inherit it."""
MORE_BYTES = 140
"""What they take of a row, compressed."""
ZONES = 1_000_003
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


def _zones(numbers: Int64Array) -> Int64Array:
    """Return the zone of each key number."""
    return numbers * 7919 % ZONES


def _check_more(found: pa.Table) -> None:
    """Raise WrongAnswer unless the nested, the nullable and the wide column are those of the
    keys.
    """
    ids = found["id"].cast(pa.string())
    numbers = pc.replace_substring(ids, "id_", "").cast(pa.int64()).to_numpy()
    zone = _zones(numbers)
    got = pc.struct_field(found["geo"], "zone").to_numpy(), found["tip"].fill_null(-1).to_numpy()
    begin = pc.list_element(
        pc.split_pattern(found["detail"].cast(pa.string()), " ", max_splits=1), 0
    )
    right = [zone, np.where(zone % 3 == 0, -1, zone / 8), zone]
    for name, one, other in zip(
        MORE.names, right, [*got, begin.cast(pa.int64()).to_numpy()], strict=True
    ):
        if not np.array_equal(one, other):
            raise WrongAnswer(
                f"{int((one != other).sum())} rows have another {name} than their keys"
            )


@dataclass
class Trips:
    """A generator of loads and batches that remembers what the table must now hold.

    ``rows``: rows of the load; ``seed``: of every random choice; ``shuffled``: whether keys arrive
    in random order; ``integers``: whether they are numbers instead of text.
    """

    rows: int
    seed: int = 7
    shuffled: bool = False
    integers: bool = False
    fare: npt.NDArray[np.float64] = field(init=False, repr=False)
    ts: Int64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random, self._more = (
            np.random.default_rng(self.seed),
            np.random.default_rng([self.seed, 1]),
        )
        self._words = self._vocabulary()
        self.fare, self.ts = np.empty(0), np.empty(0, np.int64)
        self._round = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns: SCHEMA with the key's type, and MORE unless the workload is flat."""
        fields = [*SCHEMA, *(() if FLAT in os.environ else MORE)]
        if self.integers:
            fields[0] = pa.field("id", pa.int64(), nullable=False)
        return pa.schema(fields)

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
        """Return the rarest words of the vocabulary with so many letters that no other word
        holds.
        """
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
        """Return a batch of so many rows: nine in ten updates spread over all keys, the others
        inserts.
        """
        live, fresh = len(self.fare), -(-rows // 10)
        updated = self._random.choice(live, rows - fresh, replace=False)
        return self._remember(np.concatenate([updated, np.arange(live, live + fresh)]))

    def of(self, numbers: Int64Array) -> pa.Table:
        """Return new rows for these key numbers, old or new ones, int64[n]."""
        return self._remember(numbers)

    def newest(self) -> pa.Table:
        """Return a batch: 90 % updates of the newest 2 % of the keys (each at most once), 10 %
        inserts (W3).
        """
        return self._batch(int(len(self.fare) * (1 - NEWEST_SHARE)))

    def some_keys(self, count: int) -> list[Key]:
        """Return ``count`` random keys that exist."""
        keys: list[Key] = self.keys_of(
            self._random.choice(len(self.fare), count, replace=False)
        ).to_pylist()
        return keys

    def check(self, found: pa.Table, keys: list[Key] | None = None) -> None:
        """Raise WrongAnswer unless ``found`` holds all rows, or those of ``keys``, as last
        written.
        """
        numbers = (
            np.arange(len(self.fare))
            if keys is None
            else np.array([int(str(key).removeprefix("id_")) for key in keys])
        )
        expected = (len(numbers), float(self.fare[numbers].sum()), int(self.ts[numbers].sum()))
        got = (found.num_rows, pc.sum(found["fare"]).as_py(), pc.sum(found["ts"]).as_py())
        if expected != got or (
            keys is not None and sorted(found["id"].to_pylist()) != sorted(keys)
        ):
            raise WrongAnswer(f"expected (rows, sum of fare, sum of ts) {expected}, got {got}")
        if found.num_columns != len(self.schema):
            raise WrongAnswer(f"expected columns {self.schema.names}, got {found.column_names}")
        if "geo" in self.schema.names:
            _check_more(found)

    def _batch(self, first: int) -> pa.Table:
        live = len(self.fare)
        updates = min(self.batch_rows * 9 // 10, live - first)
        updated = first + self._random.choice(live - first, updates, replace=False)
        return self._remember(
            np.concatenate([updated, np.arange(live, live + self.batch_rows // 10)])
        )

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
            pc.binary_join_element_wise(
                *(self._words.take(self._ranks(n)) for _ in range(6)), pa.scalar(" ")
            ),
        ]
        more = [] if FLAT in os.environ else self._make_more(numbers)
        return pa.table([*map(pa.array, columns), *more], schema=self.schema)

    def _make_more(self, numbers: Int64Array) -> list[pa.Array]:
        """Return the columns MORE; zone, and with it tip and the begin of detail, follow from the
        key.
        """
        draw, zone = self._more, _zones(numbers)
        lat, lon = draw.uniform(-90, 90, len(zone)), draw.uniform(-180, 180, len(zone))
        geo = pa.StructArray.from_arrays([lat, lon, zone], fields=list(MORE.field("geo").type))
        texts = self._texts.take(pa.array(draw.integers(0, len(self._texts), len(zone))))
        detail = pc.binary_join_element_wise(
            pa.array(zone).cast(pa.string()), texts, pa.scalar(" ")
        )
        return [geo, pa.array(zone / 8, mask=zone % 3 == 0), detail]

    @cached_property
    def _texts(self) -> pa.Array:
        """A thousand texts of 16 words."""
        words = self._words.take(pa.array(self._more.integers(0, WORDS, 16_000)))
        return pc.binary_join(
            pa.ListArray.from_arrays(np.arange(0, 16_001, 16, dtype=np.int32), words), " "
        )

    def _named(self, prefix: str, values: int, n: int) -> pa.Array:
        names = pa.array([f"{prefix}{value}" for value in range(values)])
        return names.take(self._any(values, n))

    def _any(self, values: int, n: int) -> pa.Array:
        return pa.array(self._random.integers(0, values, n))

    def _ranks(self, n: int) -> pa.Array:
        """Return ranks of words: the first words are frequent, the last ones rare, as in natural
        language.
        """
        return pa.array((WORDS * self._random.random(n) ** 4).astype(np.int64))

    def _vocabulary(self) -> pa.Array:
        letters = self._random.integers(97, 123, (WORDS, 8)).astype(np.uint8)
        lengths = self._random.integers(4, 9, WORDS)
        return pa.array(
            [bytes(word[:length]).decode() for word, length in zip(letters, lengths, strict=True)]
        )
