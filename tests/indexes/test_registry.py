"""Names are looked up and never imported; requests for indexes are read with helpful errors."""

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
def test_an_index_of_either_contract_is_found_by_its_short_and_by_its_persisted_name(
    find, name, index
):
    assert find(name) is find(f"{name}/1") is index
    assert {"bloom/1", "column_stats/1"} <= set(registry.names()) - {"record/1"}
    assert {"bloom/1", "record/1"} <= set(registry.key_index_names()) - {"column_stats/1"}
    for other, asked in ((registry.find, "record"), (registry.find_key_index, "column_stats")):
        assert isinstance(other(asked), Unknown)
    assert "no_such_module" in Registry(("no_such_module",)).find("x/1").reason


@pytest.mark.parametrize(
    "name", ["", "/", "os", "os/1", "bloom/2", "indexes.keys.bloom/1", "../bloom/1", "this/1"]
)
def test_an_unknown_name_gives_a_reason_and_imports_nothing(name):
    registry.names()
    before = set(sys.modules)
    for found in (registry.find(name), registry.find_key_index(name)):
        assert isinstance(found, Unknown) and found.name == name
        assert "bloom/1" in found.reason and repr(name) in found.reason
    assert set(sys.modules) == before


class Newer(RecordKeyIndex):
    name = "record/12"


@pytest.mark.parametrize("index", [ColumnBloom, BloomKeyIndex, RecordKeyIndex])
def test_a_name_belongs_to_one_class_of_each_contract(index):
    own = Registry(())
    for other in (ColumnBloom, BloomKeyIndex, RecordKeyIndex):
        assert own.register(other) is own.register(other) is other
    owner = f"{index.name}.*belongs to {index.__module__}.{index.__name__}"
    with pytest.raises(ValueError, match=owner):
        own.register(type("Twin", (index,), {}))
    assert own.find_key_index("record/1") is RecordKeyIndex


def test_a_short_name_means_the_newest_version():
    own = Registry(())
    for index in (Newer, RecordKeyIndex):
        own.register(index)
    assert own.find_key_index("record") is Newer
    assert own.find_key_index("record/1") is RecordKeyIndex


@pytest.mark.parametrize("name", ["record", "Record/1", "record/0", "record/x", "a b/1", None, 7])
def test_a_name_without_a_version_is_refused(name):
    with pytest.raises(ValueError, match="form 'bitmap/1'"):
        Registry(()).register(type("Bad", (RecordKeyIndex,), {"name": name}))


@pytest.mark.parametrize("index", [KeyIndex, int, BloomKeyIndex()])
def test_what_is_no_complete_index_class_is_refused(index):
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
def test_a_request_is_read_and_written_again(text, spec):
    assert parse_spec(text) == parse_spec(str(spec)) == spec
    assert hash(parse_spec(text)) == hash(spec)


@given(
    st.lists(st.text(min_size=1, max_size=8), max_size=3, unique=True).map(tuple),
    st.dictionaries(st.from_regex("[a-z][a-z_]{0,4}", fullmatch=True), st.text(max_size=8)),
)
def test_a_spec_survives_its_own_text(columns, options):
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
def test_a_mistake_in_a_request_is_shown_with_its_position(text, position, expected):
    with pytest.raises(ValueError, match=rf"expected .*{expected}.* at position {position};"):
        parse_spec(text)


@given(st.text(max_size=30) | st.text("ab(),='\" \n", max_size=12).map("bitmap".__add__))
def test_any_text_is_a_spec_or_a_value_error(text):
    try:
        assert isinstance(parse_spec(text), IndexSpec)
    except ValueError as error:
        assert "position" in str(error)
