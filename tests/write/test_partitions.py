"""Every value of a partition column is read back equal, by mdt and by hudi-rs, or is refused.
Nothing is written outside the table.
"""

import pyarrow as pa
import pytest
import trees
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import columns, rows_of

import mdt
from mdt import Invalid
from mdt.hudi.partitions import NULL_PARTITION, escape, unescape

SCHEMA = columns("id string, p string, v int64")
VALID = {
    "climbing out": "../x",
    "a slash": "a/b",
    "an absolute path": "/etc/passwd",
    "a percent sign": "%2F",
    "a lone percent sign": "100%",
    "null": None,
    "a dot": ".",
    "two dots": "..",
    "Hudi's directory": ".hoodie",
    "an equals sign": "a=b",
    "unicode": "Köln 東京 🚲",
    "combining characters": "e\u0301",
    "spaces": "  two  words ",
    "control characters": "a\x01\x1fb\x7f",
    "a newline": "a\nb\r\n",
    "a tab": "a\tb",
    "a backslash": "a\\b",
    "a colon": "12:30",
    "quotes": "'\"`",
    "brackets": "[a]{b}^*?#",
    "a plus and an ampersand": "a+b&c",
    "a semicolon and a comma": "a;b,c",
    "the null word in small letters": "__hive_default_partition__",
    "the word null": "null",
    "a tilde": "~",
    "the longest name": "x" * 253,
}
INVALID = {
    "nothing": ("", "is empty"),
    "the null word": (NULL_PARTITION, "reads as null"),
    "300 bytes": ("x" * 300, "over 255 bytes"),
    "100 characters of 3 bytes": ("東" * 100, "over 255 bytes"),
    "100 escaped characters": ("/" * 100, "over 255 bytes"),
}


def rows(values, v, ids="k"):
    return pa.table(
        {"id": [f"{ids}{i}" for i in range(len(values))], "p": values, "v": [v] * len(values)},
        SCHEMA,
    )


def expected(values, v):
    return trees.ordered(rows(values, v))


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
def test_unusual_partition_values_survive_updates_deletes_and_compaction(table_type, tmp_path):
    path, values = tmp_path / "root" / "t", list(VALID.values())
    table = trees.create(path, SCHEMA, partition_by=["p"], table_type=table_type)
    table.upsert(rows(values, 1))
    assert trees.assert_readers_agree(table, path) == expected(values, 1)
    assert table.upsert(rows(values, 2)).updated == len(values)
    assert trees.assert_readers_agree(table, path) == expected(values, 2)
    assert table.delete(rows(values, 0).slice(0, 8)).deleted == 8
    remaining = trees.ordered(rows(values, 2).slice(8))
    assert trees.assert_readers_agree(table, path) == remaining
    table.compact()
    assert trees.assert_readers_agree(table, path) == remaining
    assert trees.ordered(mdt.open(path).scan().to_arrow()) == remaining
    # One directory for each value, directly below the table, and nothing beside the table.
    assert [p.name for p in (tmp_path / "root").iterdir()] == ["t"]
    assert [p.name for p in tmp_path.iterdir()] == ["root"]
    folders = {p.name for p in path.iterdir()} - {".hoodie"}
    assert folders == {
        f"p={NULL_PARTITION if value is None else escape(value)}" for value in values
    }
    assert all(file.is_file() for folder in folders for file in (path / folder).iterdir())


@pytest.mark.parametrize("value, reason", INVALID.values(), ids=INVALID.keys())
def test_a_value_that_cannot_be_a_directory_name_is_refused_by_every_write(value, reason, tmp_path):
    table = trees.create(tmp_path / "t", SCHEMA, partition_by=["p"])
    table.upsert(rows(["fine"], 1))
    before = trees.tree(tmp_path)
    for change in (table.upsert, table.insert, table.bulk_insert, table.delete):
        with pytest.raises(Invalid, match=reason) as error:
            change(rows(["fine", value], 2))
        assert "'p'" in error.value.message
        assert error.value.hint
    assert trees.tree(tmp_path) == before


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80))
def test_escaping_is_reversible_and_adds_no_directory_level(value):
    name = escape(value)
    assert unescape(name) == value
    assert "/" not in name and "\\" not in name and "=" not in name and "\0" not in name


def test_partition_values_of_any_text_are_read_back_equal(tmp_path_factory):
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)

    @settings(max_examples=6)
    @given(st.lists(st.one_of(st.none(), text), min_size=5, max_size=15, unique=True))
    def reads_back_equal(values):
        path = tmp_path_factory.mktemp("any") / "t"
        table = trees.create(path, SCHEMA, partition_by=["p"])
        try:
            table.upsert(rows(values, 1))
        except Invalid:
            assert any(
                v is not None and len(f"p={escape(v)}".encode()) > 255 or v == NULL_PARTITION
                for v in values
            )
            return
        assert trees.assert_readers_agree(table, path) == expected(values, 1)
        assert [p.name for p in path.parent.iterdir()] == ["t"]

    reads_back_equal()


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
def test_partition_levels_of_several_types_are_read_back_equal(table_type, tmp_path):
    schema = columns("id int64, day date32, n int32, b bool, s string")
    rows = (
        "1 2024-01-01 -5 true a/b",
        "2 1969-12-31 0 false ..",
        "3 - 7 true -",
        "4 2024-01-01 - - =",
    )
    data, path = rows_of(schema, *rows), tmp_path / "t"
    table = trees.create(path, schema, partition_by=["day", "n", "b", "s"], table_type=table_type)
    table.upsert(data)
    table.upsert(data)
    assert trees.assert_readers_agree(table, path) == trees.ordered(data)
    assert "day=2024-01-01/n=-5/b=true/s=a%2Fb" in table.files()["partition"].to_pylist()
    assert table.delete(data.slice(2)).deleted == 2
    table.compact()
    assert trees.assert_readers_agree(table, path) == trees.ordered(data.slice(0, 2))


COMPOSITE = columns("a string, b string, v int64")


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
def test_composite_keys_with_commas_and_colons_stay_distinct(table_type, tmp_path):
    pairs = ("x y", "x,y z", "x y,z", "x:b :", "x,b :y", ", ,", "a:1 b:2", "x,c: d")
    data = rows_of(COMPOSITE, *(f"{pair} {n}" for n, pair in enumerate(pairs)))
    path = tmp_path / "t"
    table = trees.create(path, COMPOSITE, ["a", "b"], table_type=table_type)
    assert table.upsert(data).inserted == len(pairs)
    assert table.upsert(data.slice(3)).updated == len(pairs) - 3
    assert trees.assert_readers_agree(table, path) == trees.ordered(data)
    keys = table.scan(columns=["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"].to_pylist()
    expected = [f"a:{row['a']},b:{row['b']}" for row in data.to_pylist()]
    assert sorted(keys) == sorted(expected)
    assert table.delete(data.slice(0, 3)).deleted == 3
    assert trees.assert_readers_agree(table, path) == trees.ordered(data.slice(3))


def test_a_composite_key_whose_text_is_ambiguous_is_refused(tmp_path):
    table = trees.create(tmp_path / "t", COMPOSITE, ["a", "b"])
    before = trees.tree(tmp_path)
    with pytest.raises(Invalid, match="'a' contains the name of the next key field") as error:
        table.upsert(rows_of(COMPOSITE, "fine z 1", "x,b:y z 2"))
    assert "row 1" in error.value.message
    assert trees.tree(tmp_path) == before
