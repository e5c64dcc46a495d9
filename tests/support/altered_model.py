"""The model of :mod:`model` for tables whose columns are altered: every alteration changes each row
of the dictionary, too.
"""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from model import TableAgainstDictionary
from strategies import rows, shapes

from mdt.errors import Invalid

FLOATS = (0.5, -2.25, 16777216.0, float("nan"), None)
DATES = (date(2026, 1, 1), date(1969, 12, 31), None)
TYPES = {
    "int32": (pa.int32(), (-1, 0, 7, None)),
    "int64": (pa.int64(), (-(2**40), 0, 7, None)),
    "float": (pa.float32(), FLOATS),
    "double": (pa.float64(), (*FLOATS, 0.1)),
    "text": (pa.string(), ("", "a", "7", None)),
    "decimal(6, 2)": (pa.decimal128(6, 2), (Decimal("1.25"), Decimal("-7.00"), None)),
    "decimal(20, 2)": (pa.decimal128(20, 2), (Decimal("1.25"), Decimal("123456789012.50"), None)),
    "date": (pa.date32(), DATES),
    "time": (pa.timestamp("us"), (datetime(2026, 1, 1), datetime(2026, 1, 1, 12), None)),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        ({"a": 1, "b": "x"}, {"a": None, "b": None}, None),
    ),
}
"""Kind of a column -> its type and values."""
WIDER = {
    "int32": ("int64", "double"),
    "int64": ("double",),
    "float": ("double",),
    "decimal(6, 2)": ("decimal(20, 2)",),
    "date": ("time",),
}


def without_formats(shape):
    """Return a shape without other formats, which would refuse most alterations."""
    return replace(shape, formats=())


def as_wider(value, kind):
    """Return a value of a column that was widened to ``kind``."""
    if value is None or kind.startswith("decimal"):
        return value
    if kind == "time":
        return datetime(value.year, value.month, value.day)
    return float(value) if kind == "double" else value


class AlteredAgainstDictionary(TableAgainstDictionary):
    """A model whose columns are altered.

    Attributes:
        made: Columns that are as the table was created with.
        kinds: Kinds of the other columns.
        beyond: Whether this history has changes that Hudi's readers do not understand.
        asked: Whether Hudi's readers understand the newest rows and are compared.
    """

    @initialize(shape=shapes().map(without_formats), beyond=st.booleans())
    def create(self, shape, beyond):
        super().create(shape)
        self.made = set(shape.schema.names)
        self.kinds = {}
        self.dropped = []
        self.beyond = beyond
        self.asked = True
        self.named = 0
        self.known = {}

    @rule(data=st.data(), kind=st.sampled_from(sorted(TYPES)))
    def add(self, data, kind):
        dropped = sorted(set(self.dropped).difference(self.schema.names)) if self.beyond else []
        is_restored = bool(dropped) and data.draw(st.booleans(), label="comes back")
        name = data.draw(st.sampled_from(dropped)) if is_restored else f"c{self.named}"
        self.named += 1
        type, values = TYPES[kind]
        default = (
            data.draw(st.sampled_from(values), label="default")
            if self.beyond and kind != "struct"
            else None
        )
        self.kinds[name] = kind
        self._alter(
            data,
            lambda row: {**row, name: default},
            is_beyond=is_restored or default is not None,
            add={name: type},
            defaults={} if default is None else {name: default},
        )

    @rule(data=st.data())
    def drop(self, data):
        free = self._free()
        if not free:
            return
        name = data.draw(st.sampled_from(free))
        self.dropped.append(name)
        self._forget(name)
        self._alter(
            data, lambda row: {key: value for key, value in row.items() if key != name}, drop=[name]
        )

    @rule(data=st.data())
    def rename(self, data):
        free = self._free()
        if not free or not self.beyond:
            return
        old, new = data.draw(st.sampled_from(free)), f"c{self.named}"
        self.named += 1
        kinds = {"x": "double", "note": "text"}
        self.kinds[new] = self.kinds.get(old) or kinds[old]
        self._forget(old)
        self.dropped.append(old)
        change = lambda row: {new if key == old else key: value for key, value in row.items()}
        self._alter(data, change, is_beyond=True, rename={old: new})

    @rule(data=st.data())
    def widen(self, data):
        free = [
            name
            for name, kind in self.kinds.items()
            if kind in WIDER and (self.beyond or kind != "date")
        ]
        if not free:
            return
        name = data.draw(st.sampled_from(free))
        before = self.kinds[name]
        kind = data.draw(st.sampled_from(WIDER[before]))
        self.kinds[name] = kind
        change = lambda row: {**row, name: as_wider(row[name], kind)}
        self._alter(data, change, is_beyond=before == "date", widen={name: TYPES[kind][0]})

    @rule(data=st.data())
    def reorder(self, data):
        names = data.draw(st.permutations(self.schema.names))
        self._alter(data, lambda row: row, reorder=names[: data.draw(st.integers(1, len(names)))])

    def _alter(
        self,
        data,
        change,
        *,
        is_beyond=False,
        **changes,
    ):
        writer = self._writer(data)
        rewrites = data.draw(st.integers(0, 3), label="rewrites") == 3
        try:
            result = writer.alter(**changes, beyond_hudi=self.beyond, rewrite=rewrites)
        except Invalid as error:
            assert "there are log files that lack" in str(error)
            count("alters in the model that log files stand in the way of")
            writer.compact()
            result = writer.alter(**changes, beyond_hudi=self.beyond)
        if rewrites and result.instant:
            self.asked = True
            count("alters in the model that write all rows again")
        else:
            self.asked = self.asked and not is_beyond
        self.schema = self.table.schema
        if result.instant:
            self.alters.append((result.seq, change))
            self.model = {identity: change(row) for identity, row in self.model.items()}
            count("alters in the model")
        self._compare_pruned(data)
        self._compare_look_ups(data)

    def _remember(self, seq):
        self.known[seq] = (dict(self.kinds), set(self.made), self.asked)

    def _have_columns_again(self, seq, before):
        now = self.table.snapshot().definition
        if (
            now.version is before.version
            or now.version.ids == before.version.ids
            and now.schema.equals(before.schema)
        ):
            return
        count("restores in the model of what had other columns")
        self.schema = self.table.schema
        self.kinds, self.made, self.asked = self.known[seq]
        self.kinds, self.made = dict(self.kinds), set(self.made)
        was = {column.id: column.field.name for column in before.version.columns}
        names = {column.field.name: was.get(column.id) for column in now.version.columns}
        for name, known in self.kinds.items():
            now = self.schema.field(name).type
            self.kinds[name] = next(
                (kind for kind, (type, _) in TYPES.items() if type == now), known
            )
        self.model = {identity: self._as_now(row) for identity, row in self.model.items()}
        self.alters.append(
            (
                self.table.snapshot().seq,
                lambda row: {new: None if old is None else row[old] for new, old in names.items()},
            )
        )

    def _as_now(self, row):
        """Return a row of an older state with the values of columns that are wider now."""
        converted = {}
        for field in self.schema:
            value = row[field.name]
            if (
                isinstance(value, date)
                and not isinstance(value, datetime)
                and pa.types.is_timestamp(field.type)
            ):
                value, self.asked = as_wider(value, "time"), False
            converted[field.name] = (
                float(value)
                if isinstance(value, int) and pa.types.is_float64(field.type)
                else value
            )
        return converted

    def _free(self):
        """Return the columns that may be altered."""
        return [name for name in self.schema.names if name in self.kinds or name in ("x", "note")]

    def _forget(self, name):
        self.kinds.pop(name, None)
        self.made.discard(name)

    def _rows(self, **sizes):
        extra = {name: st.sampled_from(TYPES[kind][1]) for name, kind in self.kinds.items()}

        def filled(batch):
            more = st.lists(st.fixed_dictionaries(extra), min_size=len(batch), max_size=len(batch))
            return more.map(
                lambda given: [
                    {name: ({**row, **one})[name] for name in self.schema.names}
                    for row, one in zip(batch, given, strict=True)
                ]
            )

        return rows(self.shape, **sizes).map(self._in_known_partitions).flatmap(filled)

    def _is_as_made(self, name):
        return name in self.made

    def _hudi_knows(self, *seqs):
        newest = self.alters[-1][0] if self.alters else 0
        return self.asked and all(seq >= newest for seq in seqs)
