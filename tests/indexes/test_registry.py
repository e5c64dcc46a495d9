"""Index names are looked up without importing modules. Invalid specifications have clear errors."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import registry
from indexes.base import KeyIndex
from indexes.bitmap import BitmapIndex
from indexes.column_bloom import ColumnBloom
from indexes.keys.bloom import BloomKeyIndex
from indexes.keys.record import RecordKeyIndex
from indexes.registry import IndexSpec, Registry, Unknown, parse_spec
from indexes.text import TextIndex


@pytest.mark.parametrize(
    ("find", "name", "index"),
    [
        (registry.find, "bloom", ColumnBloom),
        (registry.find, "bitmap", BitmapIndex),
        (registry.find, "text", TextIndex),
        (registry.find_key_index, "bloom", BloomKeyIndex),
        (registry.find_key_index, "record", RecordKeyIndex),
    ],
)
def test_an_index_is_found_by_its_short_and_by_its_versioned_name(find, name, index):
    assert find(name) is find(f"{name}/1") is index
    assert {"bloom/1", "column_stats/1"} <= set(registry.names()) - {"record/1"}
    assert {"bloom/1", "record/1"} <= set(registry.key_index_names()) - {"column_stats/1"}
    for other_find, other_name in (
        (registry.find, "record"),
        (registry.find_key_index, "column_stats"),
    ):
        assert isinstance(other_find(other_name), Unknown)
    assert "no_such_module" in Registry(("no_such_module",)).find("x/1").reason


@pytest.mark.parametrize(
    "name", ["", "/", "os", "os/1", "bloom/2", "indexes.keys.bloom/1", "../bloom/1", "this/1"]
)
def test_an_unknown_name_gives_a_reason_and_imports_nothing(name):
    registry.names()
    before = set(sys.modules)
    for unknown in (registry.find(name), registry.find_key_index(name)):
        assert isinstance(unknown, Unknown) and unknown.name == name
        assert "bloom/1" in unknown.reason and repr(name) in unknown.reason
    assert set(sys.modules) == before


class Newer(RecordKeyIndex):
    name = "record/12"


@pytest.mark.parametrize("index", [ColumnBloom, BloomKeyIndex, RecordKeyIndex])
def test_a_name_belongs_to_one_class_of_each_contract(index):
    new_registry = Registry(())
    for other in (ColumnBloom, BloomKeyIndex, RecordKeyIndex):
        assert new_registry.register(other) is new_registry.register(other) is other
    owner = f"{index.name}.*belongs to {index.__module__}.{index.__name__}"
    with pytest.raises(ValueError, match=owner):
        new_registry.register(type("Twin", (index,), {}))
    assert new_registry.find_key_index("record/1") is RecordKeyIndex


def test_a_short_name_means_the_newest_version():
    new_registry = Registry(())
    for index in (Newer, RecordKeyIndex):
        new_registry.register(index)
    assert new_registry.find_key_index("record") is Newer
    assert new_registry.find_key_index("record/1") is RecordKeyIndex


@pytest.mark.parametrize("name", ["record", "Record/1", "record/0", "record/x", "a b/1", None, 7])
def test_a_name_without_a_valid_version_is_refused(name):
    with pytest.raises(ValueError, match="form 'bitmap/1'"):
        Registry(()).register(type("Bad", (RecordKeyIndex,), {"name": name}))


@pytest.mark.parametrize("index", [KeyIndex, int, BloomKeyIndex()])
def test_an_incomplete_index_class_is_refused(index):
    with pytest.raises(ValueError, match="complete"):
        Registry(()).register(index)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("bloom", IndexSpec("bloom")),
        ("record()", IndexSpec("record")),
        ("bloom(fpp=0.001)", IndexSpec("bloom", (), {"fpp": "0.001"})),
        (" bitmap/1 ( a.b ) ", IndexSpec("bitmap/1", ("a.b",))),
        (
            "text('my, (note)', a=\"it's\", b='it''s', c=-1.5)",
            IndexSpec("text", ("my, (note)",), {"a": "it's", "b": "it's", "c": "-1.5"}),
        ),
        (
            "grid(Straße, 'the lon', side='5')",
            IndexSpec("grid", ("Straße", "the lon"), {"side": "5"}),
        ),
    ],
)
def test_a_specification_is_parsed_and_formatted(text, spec):
    assert parse_spec(text) == parse_spec(str(spec)) == spec
    assert hash(parse_spec(text)) == hash(spec)


@given(
    st.lists(st.text(min_size=1, max_size=8), max_size=3, unique=True).map(tuple),
    st.dictionaries(st.from_regex("[a-z][a-z_]{0,4}", fullmatch=True), st.text(max_size=8)),
)
def test_any_specification_is_parsed_back_from_its_text(columns, options):
    spec = IndexSpec("text", columns, options)
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "kind"),
        ("(a)", 0, "kind"),
        ("Bit-map(a)", 0, "kind"),
        ("bitmap(a", 8, r"'\)'"),
        ("bitmap a", 7, r"'\('"),
        ("bitmap(a) b", 10, "the end"),
        ("grid(a, b, a)", 11, "another column"),
        ("bitmap(x=1, a)", 12, "name=value"),
        ("bitmap(a, )", 10, "a column or an option"),
        ("bitmap(a, x=)", 12, "the value of x"),
        ("bitmap(a, x=1, x=2)", 15, "name of another option"),
        ("bitmap(a, X!=1)", 10, "name of another option"),
        ("bitmap('a)", 7, "closing quote"),
        ("bitmap('')", 7, "column"),
    ],
)
def test_a_mistake_in_a_specification_is_reported_with_its_position(text, position, expected):
    with pytest.raises(ValueError, match=rf"expected .*{expected}.* at position {position};"):
        parse_spec(text)


@given(st.text(max_size=30) | st.text("ab(),='\" \n", max_size=12).map("bitmap".__add__))
def test_any_text_is_a_specification_or_raises_value_error(text):
    try:
        assert isinstance(parse_spec(text), IndexSpec)
    except ValueError as error:
        assert "position" in str(error)
