"""Forged commit records and manifests of checkpoints with valid checksums lead to rows or mdt errors,
whatever they contain.

A forger can compute a CRC, so the checks of :mod:`mdt.trusted` must hold for every value of every
field. Each case changes an object of a valid table in one to three places and then uses it: open,
scan, look up, write, compact, check. ``pytest tests/campaigns/test_forged.py --hypothesis-seed=N``
replays a run. A failing case prints its drawn values.
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from random_tables import examples
from texts import columns
from worlds import OPTIONS, copied

import mdt
from mdt.errors import Corrupt, MdtError
from mdt.metadata.files import paths
from mdt.metadata.log import codec, commit_log
from mdt.metadata.snapshot.checkpoints import MANIFEST, VERSION
from mdt.schema.versions import first_version
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, p string, ts int64, v int64, s string")


def rows(numbers, ts):
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


@copied
def good(table_type="MERGE_ON_READ"):
    """Return a table with five records: create, rows, updates, deletes, a savepoint."""
    table = mdt.create(
        MemoryStorage(),
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
    return table.storage


@copied
def clustered(table_type="MERGE_ON_READ"):
    """Return a table with six records: those of :func:`good`, more rows, and a clustering."""
    table = mdt.open(good(table_type))
    table.bulk_insert(rows(range(40, 60), 1))
    table.cluster(["s", "v"], curve="zorder")
    return table.storage


@copied
def overwritten(table_type="MERGE_ON_READ"):
    """Return a table with six records: those of :func:`good`, and an overwrite of one partition."""
    table = mdt.open(good(table_type))
    table.insert_overwrite(rows(range(0, 60, 2), 1))
    return table.storage


SEQS = {good: range(5), clustered: (6,), overwritten: (5,)}
ACTS = [
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
"""Operations of users on a table."""


def use_table(storage):
    """Use a table as users do. mdt errors are accepted, other exceptions are raised."""
    table = None
    for act in ACTS:
        try:
            table = mdt.open(storage) if table is None else table
            act(table)
        except MdtError:
            count("errors of ours on forged records")


def forge(
    storage,
    seq,
    change,
):
    """Change the header and tables of a record, and store it with valid lengths and checksums. Return
    its bytes.
    """
    return forge_object(storage, paths.commit(seq), commit_log.KIND, 1, change)


def forge_object(storage, path, kind, version, change):
    """Change an object that consists of a header and tables; see :func:`forge`."""
    header, sections = codec.unpack(
        codec.unframe(storage.read(path), kind, path=path, version_max=9), path=path
    )
    tables = {
        name: codec.decode_ipc(section, None, path=path) for name, section in sections.items()
    }
    change(header, tables)
    sections = {name: codec.encode_ipc(table) for name, table in tables.items()}
    data = codec.frame(kind, version, codec.pack(header, sections))
    storage.replace(path, data)
    return data


def with_column(table, name, values):
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    return table.set_column(at, field, pa.array(values, field.type))


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


IDS = [
    [0, 1, 2, 3],
    [0, 1, 2, 3, 4, 5],
    [4, 3, 2, 1, 0],
    [0, 1, 2, 3, 3],
    [0, 1, 2, 3, 9],
    [0, 1, 2, 3, 2**40],
    [-1],
]
SCHEMAS = {
    name: value
    for name, value in first_version(SCHEMA, SCHEMA).to_json().items()
    if name != "since"
} | {"defaults": "", "declared": "AAAA"}


@st.composite
def values_of(draw, type):
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


def draw_table(data, tables):
    """Draw a table with rows. Return its name, the table, the name of a column, and its values."""
    name = data.draw(st.sampled_from([name for name in sorted(tables) if len(tables[name])]))
    column = data.draw(st.sampled_from(tables[name].column_names))
    return name, tables[name], column, tables[name][column].to_pylist()


def change_a_value(data, header, tables):
    name, table, column, values = draw_table(data, tables)
    new_value = data.draw(values_of(table.schema.field(column).type))
    everywhere, at = data.draw(st.booleans()), data.draw(st.integers(0, len(values) - 1))
    values[at] = new_value
    tables[name] = with_column(table, column, [new_value] * len(values) if everywhere else values)


def change_by_a_little(data, header, tables):
    """Change a number by a little, or take the value of another row. A format check cannot detect this."""
    name, table, column, values = draw_table(data, tables)
    at, other = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
    values[at] = values[other]
    if type(values[at]) is int:
        values[at] += data.draw(st.sampled_from([-1, 1, 8]))
    tables[name] = with_column(table, column, values)


OPTIONAL = [
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


def change_the_header(data, header, tables):
    name = data.draw(st.sampled_from(sorted(header) + OPTIONAL))
    header[name] = data.draw(st.sampled_from(JSON))
    if name == "schema" and data.draw(st.booleans()):
        name_changed = data.draw(st.sampled_from(sorted(SCHEMAS)))
        header[name] = SCHEMAS | {name_changed: data.draw(st.sampled_from(JSON + IDS))}
    if data.draw(st.integers(0, 4)) == 0:
        header.pop(name)


def change_the_definition(data, header, tables):
    definition = header.get("definition")
    if definition:
        name = data.draw(st.sampled_from(sorted(definition)))
        definition[name] = data.draw(st.sampled_from(JSON))


def change_the_rows(data, header, tables):
    name, table, _, _ = draw_table(data, tables)
    order = st.lists(st.integers(0, len(table) - 1), max_size=2 * len(table))
    tables[name] = table.take(pa.array(data.draw(order), pa.int64()))


def change_the_schema(data, header, tables):
    name = data.draw(st.sampled_from(sorted(tables)))
    table = tables[name]
    at = data.draw(st.integers(0, table.num_columns - 1))
    type, column = table.column(at).type, pa.nulls(len(table))
    if not (pa.types.is_nested(type) or pa.types.is_binary(type) or pa.types.is_large_binary(type)):
        texts = table.column(at).cast(pa.string(), safe=False).dictionary_encode()
        column = data.draw(st.sampled_from([column, texts]))
    tables[name] = table.set_column(at, table.column_names[at], column)


def swap_sections(data, header, tables):
    first, other = (data.draw(st.sampled_from(sorted(tables))) for _ in range(2))
    tables[first], tables[other] = tables[other], tables[first]
    if data.draw(st.booleans()):
        tables.pop(first)


CHANGES = [
    change_a_value,
    change_by_a_little,
    change_by_a_little,
    change_the_header,
    change_the_rows,
    change_the_schema,
    swap_sections,
]


@given(data=st.data())
@examples(60, 3000)
def test_a_forged_record_gives_rows_or_an_mdt_error(data):
    make = data.draw(st.sampled_from([good, clustered, overwritten]))
    storage = make(data.draw(st.sampled_from(["MERGE_ON_READ", "COPY_ON_WRITE"])))
    seq = data.draw(st.sampled_from(SEQS[make]))
    for _ in range(data.draw(st.integers(1, 3))):
        change = data.draw(
            st.sampled_from(CHANGES if seq else [change_the_header, change_the_definition])
        )

        def apply(header, tables, change=change):
            if any(map(len, tables.values())) or not seq:
                change(data, header, tables)

        try:
            forge(storage, seq, apply)
        except (Corrupt, ValueError, TypeError, OverflowError, pa.ArrowException):
            break  # the record can no longer be encoded
    use_table(storage)
    count("forged commit records, no foreign error")


@copied
def compacted(table_type="MERGE_ON_READ"):
    """Return the table of :func:`good` with a checkpoint of its newest state."""
    table = mdt.open(good(table_type))
    table.metadata.compact()
    return table.storage


@given(data=st.data())
@examples(60, 3000)
def test_a_forged_manifest_gives_rows_or_an_mdt_error(data):
    storage = compacted(data.draw(st.sampled_from(["MERGE_ON_READ", "COPY_ON_WRITE"])))
    changes = [*CHANGES, change_the_header, change_the_definition]
    for _ in range(data.draw(st.integers(1, 3))):
        change = partial(data.draw(st.sampled_from(changes)), data)
        try:
            forge_object(storage, paths.checkpoint_manifest(4), MANIFEST, VERSION, change)
        except (Corrupt, ValueError, TypeError, OverflowError, pa.ArrowException):
            break  # the manifest can no longer be encoded
    use_table(storage)
    count("forged manifests, no foreign error")


@pytest.mark.parametrize("what", ["name", "key_map_path"])
def test_a_record_that_lists_its_own_files_as_left_out_is_refused(what):
    """A process that publishes the record would delete these files."""
    storage = good()

    def leave_out(header, tables):
        file = tables["files"].to_pylist()[0]
        header["operation"] = "log_compact"
        header["left_out"] = [
            f"{file['partition']}/{file['name']}" if what == "name" else file[what]
        ]

    forge(storage, 1, leave_out)
    with pytest.raises(Corrupt, match="leaves out a file that it refers to"):
        mdt.open(storage).scan().to_arrow()


def test_a_record_that_leaves_out_files_must_be_a_compaction_or_a_clustering():
    storage = good()

    def leave_out(header, tables):
        header["left_out"] = [
            f"{paths.attachments_of(header['instant'])}/{header['token']}.attached"
        ]

    forge(storage, 1, leave_out)
    with pytest.raises(Corrupt, match="only compactions and clusterings leave out files"):
        mdt.open(storage).scan().to_arrow()


def test_a_definition_without_a_format_is_refused():
    storage = good()
    forge(storage, 0, lambda header, tables: header["definition"].pop("format"))
    with pytest.raises(Corrupt, match="no valid format version"):
        mdt.open(storage)


def test_a_record_with_files_from_before_an_alter_is_refused():
    storage = good()
    table = mdt.open(storage)
    table.alter(reorder=["v"])
    table.upsert(rows(range(3), 9))
    seq = table.snapshot().seq
    forge(storage, seq, lambda header, tables: header.update(begun_at=seq - 2))
    with pytest.raises(Corrupt, match="files with a schema from before an alter"):
        mdt.open(storage)


def rename_a_field(header):
    slices = header["clustering_plan"][0]["slices"][0]
    slices["x"] = slices.pop("partitionPath")


def plan_without(name):
    return lambda header: header["clustering_plan"][0].pop(name)


def updated_section(section, **fields):
    return lambda header: header[section].update(fields)


def restore_first(storage):
    mdt.open(storage).restore(1)


def start_index_build(storage):
    mdt.open(storage).create_index("table_stats(v)", mode="async")


def leave_unchanged(storage):
    pass


TAGGED = good, leave_unchanged, 4, "tag|savepoint|field"
CLUSTERED = clustered, leave_unchanged, 6, None
RESTORED = good, restore_first, 5, "restore records|restored"
INDEXED = good, start_index_build, 5, "indexing|field|build"
DELETED = good, leave_unchanged, 3, "forgets_deletes"
LATER = "29990101000000000"
REFUSED = {
    "a clustering that": {
        "ends another file group than it plans": (
            CLUSTERED,
            lambda h: h["replaced"]["p=p0"].append("x-0"),
        ),
        "plans for nothing that ends": (CLUSTERED, lambda h: h.pop("replaced")),
        "lacks a field of its plan": (
            CLUSTERED,
            lambda h: h["clustering_plan"][0]["slices"][0].pop("dataFilePath"),
        ),
        "has an unknown field in the place of one that it lacks": (CLUSTERED, rename_a_field),
        "has a unit without outputs": (CLUSTERED, plan_without("outputs")),
        "ends groups outside the table": (
            CLUSTERED,
            updated_section("replaced", **{"../x": ["x-0"]}),
        ),
        "ends what is no name": (CLUSTERED, updated_section("replaced", **{"p=p0": [7]})),
    },
    "a tag that": {
        "names a state that is not there": (TAGGED, updated_section("tags", add={"kept": 9})),
        "gives a number for a name": (TAGGED, updated_section("tags", add={"12": 1})),
        "gives a time for a name": (TAGGED, updated_section("tags", add={"2026-02-28": 1})),
        "gives what is no seq": (TAGGED, updated_section("tags", add={"kept": "1"})),
        "drops what is no name": (TAGGED, updated_section("tags", drop=[7])),
        "has a savepoint of another name": (TAGGED, updated_section("savepoint", name="other")),
        "has a savepoint at no instant": (TAGGED, updated_section("savepoint", time="../x")),
        "is none": (TAGGED, lambda h: h.pop("tags")),
        "is of another action": (TAGGED, lambda h: h.update(action="index")),
    },
    "a restore": {
        "of no instant": (RESTORED, lambda h: h.update(restored="../x")),
        "of a state after it": (RESTORED, lambda h: h.update(restored=LATER)),
        "of itself": (RESTORED, lambda h: h.update(restored=h["instant"])),
        "of another operation": (RESTORED, lambda h: h.update(operation="upsert")),
    },
    "indexing that": {
        "ends a build that is newer": (
            INDEXED,
            updated_section("indexing", done={LATER: ["bitmap/1(n)"]}),
        ),
        "ends one at no instant": (INDEXED, updated_section("indexing", done={"../../x": []})),
        "drops one at no instant": (INDEXED, updated_section("indexing", dropped=["x"])),
        "plans what is no list": (INDEXED, updated_section("indexing", plan="bitmap/1(n)")),
        "is of another action": (INDEXED, lambda h: h.update(action="rollback")),
    },
    "deletes that are forgotten": {
        repr(value): (DELETED, lambda h, value=value: h.update(forgets_deletes=value))
        for value in (False, 1, "true", {})
    },
}
CASES = [
    pytest.param(*case, id=f"{what} {wrong}")
    for what, cases in REFUSED.items()
    for wrong, case in cases.items()
]


@pytest.mark.parametrize(("record", "change"), CASES)
def test_a_record_with_contradicting_content_is_refused(record, change):
    make, prepare, seq, reason = record
    storage = make()
    prepare(storage)
    forge(storage, seq, lambda header, tables: change(header))
    with pytest.raises(Corrupt, match=reason):
        mdt.open(storage).scan().to_arrow()
    use_table(storage)


@pytest.mark.parametrize("wrong", ["falls", "repeats", "lacks a hash"])
def test_tombstones_with_invalid_keys_are_refused(wrong):
    storage = good()

    def forge_tombstones(header, tables):
        section = tables["tombstones"]
        order = list(range(len(section)))
        orders = {"falls": order[::-1], "repeats": [0, *order]}
        tables["tombstones"] = section.take(pa.array(orders.get(wrong, order), pa.int64()))
        if wrong == "lacks a hash":
            tables["tombstones"] = with_column(section, "lo", [None] * len(section))

    forge(storage, 3, forge_tombstones)
    with pytest.raises(Corrupt, match="section tombstones"):
        mdt.open(storage).scan().to_arrow()
