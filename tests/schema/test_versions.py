"""Rules for the succession of schema versions, which readers rely on."""

import json
import operator
from dataclasses import replace

import pyarrow as pa
import pytest
from refusals import refused
from texts import columns

import mdt
from mdt.limits import SCHEMA_VERSIONS_MAX
from mdt.schema import versions
from mdt.schema.alter import Alteration, apply_alteration
from mdt.schema.older_files import form_between, widen
from mdt.schema.versions import (
    SchemaVersion,
    check_succession,
    first_version,
    from_json,
    statistics_names,
    version_of,
)
from mdt.stores.storage import MemoryStorage

STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("s", STRUCT)])
FIRST = first_version(SCHEMA, SCHEMA)


def version(since, ids, *fields):
    columns = pa.schema(list(fields))
    return SchemaVersion(since, columns, columns, tuple(ids))


ID, N, S = ("id", pa.string()), ("n", pa.int32()), ("s", STRUCT)
REQUIRED = pa.field("n", pa.int32(), nullable=False)


def chain_of(count):
    """Return ``count`` versions of the same columns."""
    return (FIRST, *(version(since, range(5), ID, N, S) for since in range(1, count)))


WRONG = {
    "no later": (version(0, range(5), ID, N, S), "begins before its predecessor"),
    "narrower": (version(1, (0, 1), ID, ("n", pa.bool_())), "int32 cannot be read as bool"),
    "other digits": (version(1, (0, 1), ID, ("n", pa.decimal128(9, 0))), "cannot be read as"),
    "a struct": (version(1, (0, 1, 5, 6), ID, ("n", STRUCT)), "cannot be read as"),
    "no struct": (version(1, (0, 2), ID, ("s", pa.int32())), "cannot be read as"),
    "moved out": (version(1, (0, 3), ID, ("a", pa.int32())), "moved to another column"),
    "moved in": (version(1, (0, 2, 1, 4), ID, S), "moved to another column"),
    "required": (version(1, (0, 1), ID, REQUIRED), "became required"),
    "another key": (
        version(1, (1, 0, 2, 3, 4), N, ("key", pa.string()), S),
        "key, partition or ordering column",
    ),
    "a key of another id": (version(1, (5,), ID), "key, partition or ordering column"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_version_that_cannot_follow_its_predecessor_is_refused(name):
    new, reason = WRONG[name]
    with pytest.raises(ValueError, match=reason):
        check_succession((FIRST, new), ("id",))


def test_a_table_may_have_up_to_the_limit_of_schema_versions():
    chain = chain_of(SCHEMA_VERSIONS_MAX + 1)
    check_succession(chain[:-1], ("id",))
    with pytest.raises(ValueError, match=f"more than {SCHEMA_VERSIONS_MAX} schema versions"):
        check_succession(chain, ("id",))


def test_a_succession_is_checked_once_and_a_further_version_is_checked_alone(
    monkeypatch,
):
    checked = []
    original = versions._check_follows

    def record_check(new, *older):
        checked.append(new.id)
        original(new, *older)

    monkeypatch.setattr(versions, "_check_follows", record_check)
    chain = chain_of(101)
    check_succession(chain[:-1], ("id",))
    assert len(checked) == 5 * 99
    check_succession(chain[:-1], ("id",))
    check_succession(chain, ("id",))
    assert len(checked) == 5 * 100


def test_ids_of_dropped_columns_are_not_used_again():
    dropped, added = version(1, (0, 2, 3, 4), ID, S), version(2, (0, 2, 3, 4, 1), ID, S, N)
    check_succession((FIRST, dropped, added), ("id",))  # the same column, after a restore
    another_type = version(2, (0, 2, 3, 4, 1), ID, S, ("n", pa.string()))
    with pytest.raises(ValueError, match="int32 cannot be read as string"):
        check_succession((FIRST, dropped, another_type), ("id",))
    gap = version(1, (0, 2, 3, 4, 9), ID, S, N)
    reused = version(2, (0, 2, 3, 4, 7), ID, S, ("x", pa.int32()))
    with pytest.raises(ValueError, match="used before"):
        check_succession((FIRST, gap, reused), ("id",))


DAMAGE = {
    "too few ids": lambda value: value["ids"].pop(),
    "too many ids": lambda value: value["ids"].append(9),
    "an id twice": lambda value: value.update(ids=[0, 1, 1, 3, 4]),
    "no number": lambda value: value.update(ids=[0, 1, True, 3, 4]),
    "a large id": lambda value: value.update(ids=[0, 1, 2, 3, 2**31]),
    "no list": lambda value: value.update(ids="01234"),
    "no seq": lambda value: value.update(since=-1),
    "no schema": lambda value: value.update(schema="AAAA"),
    "no base64": lambda value: value.update(schema="é"),
    "defaults of nobody": lambda value: value.update(defaults="AAAA"),
    "null as declared": lambda value: value.update(declared=None),
    "null as defaults": lambda value: value.update(defaults=None),
    "nothing": lambda value: value.clear(),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_an_invalid_version_is_refused(name):
    value = FIRST.to_json()
    assert from_json(value).ids == FIRST.ids
    DAMAGE[name](value)
    with pytest.raises((ValueError, TypeError, KeyError, OSError, pa.ArrowException)):
        from_json(value)


def test_versions_decoded_twice_are_the_same_objects():
    texts = [json.dumps(version.to_json()) for version in chain_of(3)]
    first, again = ([from_json(json.loads(text)) for text in texts] for _ in range(2))
    assert all(map(operator.is_, first, again)) and len(set(first)) == 3
    assert from_json(json.loads(texts[0]), 1) is first[1]


def test_statistics_names_of_one_more_version_cost_only_that_version(
    monkeypatch,
):
    versions_read, paths = [], SchemaVersion.paths
    monkeypatch.setattr(
        SchemaVersion, "paths", lambda self: versions_read.append(self.since) or paths(self)
    )
    chain = chain_of(100)
    for count in range(1, 101):
        statistics_names(chain[:count])
    assert versions_read == list(range(100))


def test_the_version_of_a_segment_is_that_of_its_commit():
    schema_versions = (FIRST, version(3, (0,), ID), version(7, (0,), ID))
    for seq, since in ((0, 0), (2, 0), (3, 3), (6, 3), (7, 7), (99, 7)):
        assert version_of(schema_versions, seq << 20 | 5).since == since


def test_statistics_keep_their_name_while_the_column_is_renamed_or_widened_compatibly():
    renamed = pa.struct([("z", pa.int32()), ("b", pa.string())])
    second = version(1, FIRST.ids, ID, ("n", pa.int64()), ("s", renamed))
    third = version(2, (0, 1, 5), ID, ("n", pa.float64()), ("s", pa.int32()))
    *before, last = statistics_names((FIRST, second, third))
    assert before[-1] == {"id": "id", "n": "n", "s": "s", "s.z": "s.a", "s.b": "s.b"}
    assert last == {"id": "id", "n": "n@1.2", "s": "s@5.2"}
    assert tuple(before) == tuple(statistics_names((FIRST, second)))


def test_a_file_without_any_of_the_columns_still_has_its_rows():
    newest = version(1, (0, 5), ID, ("x", pa.int32()))
    form = form_between(FIRST, newest, columns("x int32"))
    assert form is not None and form.stored.names == ["_hoodie_commit_time"]
    rows = form.convert(pa.table({"_hoodie_commit_time": ["1", "2"]}))
    assert rows.to_pylist() == [{"x": None}, {"x": None}]


def test_unchanged_columns_are_read_without_conversion():
    newest = version(1, (0, 2, 3, 4), ID, S)
    assert form_between(FIRST, newest, SCHEMA.remove(1)) is None
    assert form_between(FIRST, FIRST, SCHEMA) is None


def test_widened_floats_have_the_value_of_their_decimal_text():
    floats = pa.array(
        [-1e30, -0.1, -0.0, 0.0, 1e-45, 0.1, 1464095.25, float("inf"), float("nan"), None],
        pa.float32(),
    )
    wide = widen(floats, pa.float64())
    assert wide.to_pylist()[:2] == [-1e30, -0.1]
    assert str(wide[8]) == "nan" and wide[9].as_py() is None
    assert wide.cast(pa.float32()).slice(0, 8) == floats.slice(0, 8)


def test_an_alteration_beyond_the_largest_column_id_is_refused():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    last = replace(table.definition.version, since=1, given=versions.ID_MAX)
    definition = replace(table.definition, versions=(last,))
    one_column, two_columns = (
        Alteration(add={name: pa.field(name, pa.int32()) for name in names})
        for names in ("x", "xy")
    )
    assert apply_alteration(definition, one_column, 2).ids[-1] == versions.ID_MAX
    refused("no id left for a new column", apply_alteration, definition, two_columns, 2)
