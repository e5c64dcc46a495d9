"""Forged commit records and manifests, with right checksums: whatever they say, the answer is rows
or an error of ours.

A forger can compute a CRC, so the checks of :mod:`mdt.trusted` must hold for every value of every
field.  Each case changes a record of a good table in one to three places and then lives on with it:
open, scan, look up, write, compact, check. ``pytest tests/campaigns/test_forged.py
--hypothesis-seed=N`` replays a run; a failing case prints its object range.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from worlds import OPTIONS

import mdt
from mdt.errors import Corrupt, MdtError
from mdt.metadata.files import paths
from mdt.metadata.log import codec, commit_log
from mdt.schema.versions import first_version
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("p", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
        ("s", pa.string()),
    ]
)
FOREVER = 2**40


def rows(numbers: range, ts: int) -> pa.Table:
    n = list(numbers)
    return pa.table(
        [
            [f"k{i}" for i in n],
            [f"p{i % 2}" for i in n],
            [ts] * len(n),
            n,
            [f"word{i % 5} x" for i in n],
        ],
        schema=SCHEMA,
    )


@cache
def _good(table_type: str) -> MemoryStorage:
    storage = MemoryStorage()
    table = mdt.create(
        storage,
        SCHEMA,
        key=["id"],
        partition_by=["p"],
        ordering="ts",
        table_type=table_type,
        indexes=["bitmap(v)", "text(s)", "bloom(s)"],
        options=OPTIONS | {"mdt.delete.keeps.ordering": True},
    )
    table.upsert(rows(range(40), 1))
    table.upsert(rows(range(5, 25), 2))
    table.delete(rows(range(8), 3))
    table.savepoint("kept", at=2)
    return storage


def good(table_type: str = "MERGE_ON_READ") -> MemoryStorage:
    """Return a table of five records: create, rows, updates, deletes, a savepoint."""
    return _good(table_type).copy()


@cache
def _clustered(table_type: str) -> MemoryStorage:
    storage = good(table_type)
    table = mdt.open(storage)
    table.bulk_insert(rows(range(40, 60), 1))
    table.cluster(["s", "v"], curve="zorder")
    return storage


def clustered(table_type: str = "MERGE_ON_READ") -> MemoryStorage:
    """Return a table of six records: those of :func:`good`, more rows, and a clustering."""
    return _clustered(table_type).copy()


@cache
def _overwritten(table_type: str) -> MemoryStorage:
    storage = good(table_type)
    mdt.open(storage).insert_overwrite(rows(range(0, 60, 2), 1))
    return storage


def overwritten(table_type: str = "MERGE_ON_READ") -> MemoryStorage:
    """Return a table of six records: those of :func:`good`, and an overwrite of one of its
    partitions.
    """
    return _overwritten(table_type).copy()


SEQS = {good: range(5), clustered: (6,), overwritten: (5,)}
ACTS: list[Callable[[mdt.Table], object]] = [
    lambda t: t.scan().to_arrow(),
    lambda t: t.scan("v = 7 and s like '%x'").to_arrow(),
    lambda t: t.scan("match(s, 'word3') or v > 30").count(),
    lambda t: t.scan("id = 'k9'").to_arrow(),
    lambda t: t.get(["k1", "k30"]),
    lambda t: t.scan("v > 7", as_of=2).to_arrow(),
    lambda t: t.changes(0, mode="all", where="v > 3").to_arrow(),
    lambda t: t.changes(1).to_arrow(),
    lambda t: t.scan("v between 3 and 20").explain(),
    lambda t: t.history(),
    lambda t: t.tags(),
    lambda t: t.scan(as_of="kept").count(),
    lambda t: t.indexes(),
    lambda t: t.upsert(rows(range(3, 12), 9)),
    lambda t: t.delete(rows(range(2), 9)),
    lambda t: t.cluster(["v"], curve="sort"),
    lambda t: t.compact(),
    lambda t: t.metadata.compact(),
    lambda t: t.clean(retain_commits=2),
    lambda t: t.check(),
    lambda t: t.untag("kept"),
    lambda t: t.abort(),
]
"""What users do with a table."""


def live(storage: MemoryStorage) -> None:
    """Do with a table what users do; errors of ours are fine, others are raised."""
    table: mdt.Table | None = None
    for act in ACTS:
        try:
            table = mdt.open(storage) if table is None else table
            act(table)
        except MdtError:
            count("errors of ours on forged records")


def forge(
    storage: MemoryStorage,
    seq: int,
    change: Callable[[dict[str, Any], dict[str, pa.Table]], object],
) -> bytes:
    """Change header and tables of a record and store it with right lengths and checksums; return
    its bytes.
    """
    path = paths.commit(seq)
    header, sections = codec.unpack(
        codec.unframe(storage.read(path), commit_log.KIND, path=path, version_max=9), path=path
    )
    tables = {
        name: codec.decode_ipc(section, None, path=path) for name, section in sections.items()
    }
    change(header, tables)
    data = codec.frame(
        commit_log.KIND,
        1,
        codec.pack(header, {name: codec.encode_ipc(t) for name, t in tables.items()}),
    )
    storage.replace(path, data)
    return data


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(
        at, table.schema.field(at), pa.array(values, table.schema.field(at).type)
    )


NUMBERS = [
    -1,
    0,
    1,
    2,
    3,
    7,
    255,
    4096,
    2**20,
    2**20 + 1,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**31),
    -(2**63),
]
TEXTS = [
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a\0b",
    ".hoodie",
    "p=p0",
    "p=p0/x",
    "x" * 5000,
    "20200101000000000",
    ".hoodie/.mdt/log/00000000000000000001",
    "bitmap/1(v)",
    "bitmap/1(nothing)",
    "text/1(v)",
    "nope/1(v)",
    "é\u2028",
    "v",
    "id",
]
BYTES = [
    b"",
    b"\0",
    b"\xff" * 9,
    b";0\0\0\x01\0\0\xff\xff\x01\0\0\0\xff\xff",
    BitMap([0, 1]).serialize(),
    BitMap([2**32 - 1]).serialize(),
    BitMap(range(100)).serialize(),
    b":0\0\0\x01\0\0\0\0\0\xff\x1f" + bytes(9000),
]
JSON = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    "",
    "x",
    "../x",
    [],
    [None],
    ["x"],
    {},
    {"x": 1},
    [[[]]],
    {"add": ["bitmap/1(v)"], "drop": [7]},
]


IDS: list[Any] = [
    [0, 1, 2, 3],
    [0, 1, 2, 3, 4, 5],
    [4, 3, 2, 1, 0],
    [0, 1, 2, 3, 3],
    [0, 1, 2, 3, 9],
    [0, 1, 2, 3, 2**40],
    [-1],
]
SCHEMAS: dict[str, Any] = {
    name: value
    for name, value in first_version(SCHEMA, SCHEMA).to_json().items()
    if name != "since"
} | {"defaults": "", "declared": "AAAA"}


@st.composite
def values_of(draw: st.DrawFn, type: pa.DataType) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return None
    if pa.types.is_integer(type):
        low, high = np.iinfo(type.to_pandas_dtype()).min, np.iinfo(type.to_pandas_dtype()).max
        return draw(
            st.sampled_from([n for n in NUMBERS if low <= n <= high])
            | st.integers(int(low), int(high))
        )
    if pa.types.is_string(type):
        return draw(st.sampled_from(TEXTS))
    if pa.types.is_list(type):
        return draw(st.lists(values_of(type.value_type), max_size=3))
    if pa.types.is_boolean(type):
        return draw(st.booleans())
    return draw(st.sampled_from(BYTES) | st.binary(max_size=40))


def change_a_value(
    data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    name = data.draw(st.sampled_from([name for name in sorted(tables) if len(tables[name])]))
    table = tables[name]
    column = data.draw(st.sampled_from(table.column_names))
    values = table[column].to_pylist()
    wrong = data.draw(values_of(table.schema.field(column).type))
    rows_ = (
        range(len(values))
        if data.draw(st.booleans())
        else [data.draw(st.integers(0, len(values) - 1))]
    )
    tables[name] = with_column(
        table, column, [wrong if i in rows_ else value for i, value in enumerate(values)]
    )


def change_by_a_little(
    data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    """Tell a number that is nearly right, or the value of another row: what a grammar cannot
    notice.
    """
    name = data.draw(st.sampled_from([name for name in sorted(tables) if len(tables[name])]))
    table = tables[name]
    column = data.draw(st.sampled_from(table.column_names))
    values = table[column].to_pylist()
    at, other = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
    value = values[other]
    values[at] = value + data.draw(st.sampled_from([-1, 1, 8])) if type(value) is int else value
    tables[name] = with_column(table, column, values)


def change_the_header(
    data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    name = data.draw(
        st.sampled_from(
            sorted(header)
            + [
                "left_out",
                "compaction_plan",
                "replaced",
                "clustering_plan",
                "tags",
                "savepoint",
                "unsaved",
                "indexes",
                "dead",
                "rolled_back",
                "definition",
                "schema",
                "forgets_deletes",
            ]
        )
    )
    header[name] = data.draw(st.sampled_from(JSON))
    if name == "schema" and data.draw(st.booleans()):
        header[name] = {
            **SCHEMAS,
            data.draw(st.sampled_from(sorted(SCHEMAS))): data.draw(st.sampled_from(JSON + IDS)),
        }
    if data.draw(st.integers(0, 4)) == 0:
        header.pop(name)


def change_the_definition(
    data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    definition = header.get("definition", {})
    if definition:
        definition[data.draw(st.sampled_from(sorted(definition)))] = data.draw(
            st.sampled_from(JSON)
        )


def change_the_rows(
    data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    name = data.draw(st.sampled_from([name for name in sorted(tables) if len(tables[name])]))
    order = data.draw(
        st.lists(st.integers(0, len(tables[name]) - 1), max_size=2 * len(tables[name]))
    )
    tables[name] = tables[name].take(pa.array(order, pa.int64()))


def change_the_schema(
    data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    name = data.draw(st.sampled_from(sorted(tables)))
    table = tables[name]
    at = data.draw(st.integers(0, table.num_columns - 1))
    column = data.draw(
        st.sampled_from(
            [
                pa.nulls(len(table)),
                table.column(at).cast(pa.string(), safe=False).dictionary_encode(),
            ]
        )
        if not pa.types.is_nested(table.column(at).type)
        and not pa.types.is_binary(table.column(at).type)
        and not pa.types.is_large_binary(table.column(at).type)
        else st.just(pa.nulls(len(table)))
    )
    tables[name] = table.set_column(at, table.column_names[at], column)


def swap_sections(data: st.DataObject, header: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    one, other = (data.draw(st.sampled_from(sorted(tables))) for _ in range(2))
    tables[one], tables[other] = tables[other], tables[one]
    if data.draw(st.booleans()):
        tables.pop(one)


CHANGES = [
    change_a_value,
    change_by_a_little,
    change_by_a_little,
    change_the_header,
    change_the_rows,
    change_the_schema,
    swap_sections,
]


def forged(data: st.DataObject) -> None:
    make = data.draw(st.sampled_from([good, clustered, overwritten]))
    storage = make(data.draw(st.sampled_from(["MERGE_ON_READ", "COPY_ON_WRITE"])))
    seq = data.draw(st.sampled_from(SEQS[make]))
    for _ in range(data.draw(st.integers(1, 3))):
        change = data.draw(
            st.sampled_from(CHANGES if seq else [change_the_header, change_the_definition])
        )

        def apply(
            header: dict[str, Any], tables: dict[str, pa.Table], change: Any = change
        ) -> None:
            if any(map(len, tables.values())) or not seq:
                change(data, header, tables)

        try:
            forge(storage, seq, apply)
        except (Corrupt, ValueError, TypeError, pa.ArrowException):
            break  # the changes so far are no record of any schema
    live(storage)
    count("forged commit records, no foreign error")


CLUSTERINGS: dict[str, Callable[[dict[str, Any]], object]] = {
    "ends another file group than it plans": lambda h: h["replaced"]["p=p0"].append("x-0"),
    "plans for nothing that ends": lambda h: h.pop("replaced"),
    "has a plan that lacks a field": (
        lambda h: h["clustering_plan"][0]["slices"][0].pop("dataFilePath")
    ),
    "has an unknown field in the place of one that it lacks": (
        lambda h: h["clustering_plan"][0]["slices"][0].update(
            x=h["clustering_plan"][0]["slices"][0].pop("partitionPath")
        )
    ),
    "has a unit without outputs": lambda h: h["clustering_plan"][0].pop("outputs"),
    "ends groups of a place outside the table": lambda h: h["replaced"].update({"../x": ["x-0"]}),
    "ends what is no name": lambda h: h["replaced"].update({"p=p0": [7]}),
}


@pytest.mark.parametrize("wrong", CLUSTERINGS)
def test_a_clustering_is_refused_that(wrong: str) -> None:
    storage = clustered()
    forge(storage, 6, lambda header, tables: CLUSTERINGS[wrong](header))
    with pytest.raises(Corrupt):
        mdt.open(storage).scan().to_arrow()


@pytest.mark.parametrize("what", ["name", "key_map_path"])
def test_a_record_is_refused_that_leaves_out_what_it_refers_to(what: str) -> None:
    """Whoever publishes it would delete that."""
    storage = good()

    def leave_out(header: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        file = tables["files"].to_pylist()[0]
        header["left_out"] = [
            f"{file['partition']}/{file['name']}" if what == "name" else file[what]
        ]

    forge(storage, 1, leave_out)
    with pytest.raises(Corrupt, match="leaves out what it refers to"):
        mdt.open(storage).scan().to_arrow()


def test_files_of_a_record_that_did_not_know_of_an_alter_are_refused() -> None:
    storage = good()
    table = mdt.open(storage)
    table.alter(reorder=["v"])
    table.upsert(rows(range(3), 9))
    seq = table.snapshot().seq
    forge(storage, seq, lambda header, tables: header.update(begun_at=seq - 2))
    with pytest.raises(Corrupt, match="files of a schema that was altered before it"):
        mdt.open(storage)


@pytest.mark.parametrize("wrong", ["falls", "repeats", "lacks a hash"])
def test_tombstones_are_refused_where_a_key(wrong: str) -> None:
    storage = good()

    def forge_them(header: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        found = tables["tombstones"]
        order = {"falls": range(len(found))[::-1], "repeats": [0, *range(len(found))]}.get(
            wrong, range(len(found))
        )
        tables["tombstones"] = found.take(pa.array(list(order), pa.int64()))
        if wrong == "lacks a hash":
            tables["tombstones"] = with_column(found, "lo", [None] * len(found))

    forge(storage, 3, forge_them)
    with pytest.raises(Corrupt, match="section tombstones"):
        mdt.open(storage).scan().to_arrow()


@pytest.mark.parametrize("value", [False, 1, "true", {}])
def test_a_record_forgets_deletes_or_says_nothing_of_it(value: Any) -> None:
    storage = good()
    forge(storage, 3, lambda header, tables: header.update(forgets_deletes=value))
    with pytest.raises(Corrupt, match="forgets_deletes"):
        mdt.open(storage).scan().to_arrow()


QUICK = settings(
    max_examples=60,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))


@given(data=st.data())
@QUICK
def test_a_forged_record_gives_rows_or_an_error_of_ours(data: st.DataObject) -> None:
    forged(data)


@pytest.mark.nightly
@given(data=st.data())
@LONG
def test_many_forged_records_give_rows_or_an_error_of_ours(data: st.DataObject) -> None:
    forged(data)


TAGS: dict[str, Callable[[dict[str, Any]], object]] = {
    "names a state that is not there": lambda h: h["tags"]["add"].update({"kept": 9}),
    "gives a number for a name": lambda h: h["tags"]["add"].update({"12": 1}),
    "gives a time for a name": lambda h: h["tags"]["add"].update({"2026-02-28": 1}),
    "gives what is no seq": lambda h: h["tags"]["add"].update({"kept": "1"}),
    "drops what is no name": lambda h: h["tags"].update({"drop": [7]}),
    "has a savepoint of another name": lambda h: h["savepoint"].update({"name": "other"}),
    "has a savepoint at no instant": lambda h: h["savepoint"].update({"time": "../x"}),
    "has no tags": lambda h: h.pop("tags"),
    "is of another action": lambda h: h.update({"action": "index"}),
}


@pytest.mark.parametrize("wrong", list(TAGS))
def test_a_tag_is_refused_that(wrong: str) -> None:
    storage = good()
    forge(storage, 4, lambda header, tables: TAGS[wrong](header))
    with pytest.raises(Corrupt, match="tag|savepoint|field"):
        mdt.open(storage)
    live(storage)


RESTORES: dict[str, Callable[[dict[str, Any]], object]] = {
    "restores no instant": lambda h: h.update({"restored": "../x"}),
    "restores a state after it": lambda h: h.update({"restored": "29990101000000000"}),
    "restores itself": lambda h: h.update({"restored": h["instant"]}),
    "is of another operation": lambda h: h.update({"operation": "upsert"}),
}


@pytest.mark.parametrize("wrong", list(RESTORES))
def test_a_record_of_a_restore_is_refused_that(wrong: str) -> None:
    storage = good()
    table = mdt.open(storage)
    table.restore(1)
    forge(storage, table.snapshot().seq, lambda header, tables: RESTORES[wrong](header))
    with pytest.raises(Corrupt, match="restores|restored"):
        mdt.open(storage)


INDEXING: dict[str, Callable[[dict[str, Any]], object]] = {
    "ends a build that is newer": (
        lambda h: h["indexing"].update({"done": {"29990101000000000": ["bitmap/1(n)"]}})
    ),
    "ends one at no instant": lambda h: h["indexing"].update({"done": {"../../x": []}}),
    "drops one at no instant": lambda h: h["indexing"].update({"dropped": ["x"]}),
    "plans what is no list": lambda h: h["indexing"].update({"plan": "bitmap/1(n)"}),
    "is of another action": lambda h: h.update({"action": "rollback"}),
}


@pytest.mark.parametrize("wrong", list(INDEXING))
def test_a_record_of_indexing_is_refused_that(wrong: str) -> None:
    storage = good()
    table = mdt.open(storage)
    table.create_index("table_stats(v)", mode="async")
    forge(storage, table.snapshot().seq, lambda header, tables: INDEXING[wrong](header))
    with pytest.raises(Corrupt, match="indexing|field|build"):
        mdt.open(storage)
