"""Tags and savepoints name states for readers, for cleaning, and for Hudi's services."""

import io

import fastavro
import pytest
from reader import agreed
from texts import columns
from worlds import BASE_STATE, MOR, as_state, assert_clean, filled, meanwhile, rows

import mdt
from mdt.commit.transaction import run
from mdt.errors import Conflict, Invalid
from mdt.metadata.log import tags
from mdt.services.history.tagging import AddTag
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string")


@pytest.fixture
def table():
    return mdt.open(filled(MOR, "record"))


def test_a_tag_names_a_state_for_every_reader(table):
    assert table.tag("before migration") == 2
    assert table.tag("first", at=1) == 1
    table.upsert(rows(range(5), 9, 9.0))
    assert as_state(table.scan(as_of="before migration").to_arrow()) == BASE_STATE
    assert table.changes("first", "before migration").count() == table.changes(1, 2).count()
    assert mdt.open(table.storage, as_of="first").snapshot().seq == 1
    tags_listed = table.tags().to_pylist()
    assert [(tag["name"], tag["seq"], tag["savepoint"]) for tag in tags_listed] == [
        ("first", 1, False),
        ("before migration", 2, False),
    ]
    assert tags_listed[0]["instant"] == table.history()["instant"][1].as_py()
    assert_clean(table.storage)


def test_tags_are_stored_in_checkpoints_and_removed_by_untag(table):
    table.tag("a")
    table.tag("b", at=1)
    table.metadata.compact()
    reopened = mdt.open(table.storage)
    assert reopened.snapshot().checkpoint.seq == 4 and reopened.snapshot().tags.seqs == {
        "a": 2,
        "b": 1,
    }
    reopened.untag("a")
    assert mdt.open(table.storage).snapshot().tags.seqs == {"b": 1}
    with pytest.raises(Invalid, match="is not a tag, instant or time"):
        table.scan(as_of="a")
    with pytest.raises(Invalid, match=r"there is no tag 'a'(.|\n)*tags: b"):
        table.untag("a")
    table.tag("a", at=0)
    assert table.snapshot("a").seq == 0


@pytest.mark.parametrize(
    "name", ["", "7", "20260228", "2026-02-28", " a", "a\n", "x" * 5000, 5, None, ["a"], "\ud800"]
)
def test_names_that_are_empty_numbers_times_or_not_text_are_refused(table, name):
    with pytest.raises(Invalid):
        table.tag(name)
    assert table.snapshot().seq == 2, "nothing was committed"


def test_a_tag_needs_an_unused_name_and_an_existing_state(table):
    table.tag("a", at=1)
    with pytest.raises(Invalid, match="the tag 'a' already names commit 1"):
        table.tag("a")
    with pytest.raises(Invalid, match="no commit 9"):
        table.tag("b", at=9)


def test_of_two_writers_that_add_the_same_tag_the_second_is_refused(table):
    other = mdt.open(table.storage)
    with (
        pytest.raises(Invalid, match="already names commit 1"),
        meanwhile(AddTag, lambda: table.tag("a", at=1)),
    ):
        other.tag("a")
    assert table.snapshot().tags.seqs == {"a": 1}
    with pytest.raises(Conflict), meanwhile(AddTag, lambda: table.tag("b", at=1)):
        run(other.metadata, AddTag(other.metadata, "b", 2), attempts=1)
    assert_clean(table.storage)


def savepoint_of(folder, instant):
    (content,) = fastavro.reader(
        io.BytesIO((folder / ".hoodie" / f"{instant}.savepoint").read_bytes())
    )
    return content


def test_a_savepoint_is_on_hudis_timeline_until_its_tag_is_removed(tmp_path):
    folder = tmp_path / "t"
    table = mdt.create(folder, SCHEMA, ["id"], partition_by=["city"])
    table.upsert([{"id": "a", "city": "x"}, {"id": "b", "city": "y"}])
    table.upsert([{"id": "a", "city": "x"}])
    instants = table.history()["instant"].to_pylist()
    names = sorted(table.files()["name"].to_pylist())
    table.create_index("bitmap(city)", mode="async")
    assert table.savepoint("kept", comment="before the migration") == 3
    savepoint = savepoint_of(folder, instants[2])
    assert (savepoint["savepointedBy"], savepoint["comments"]) == ("mdt", "before the migration")
    parts = savepoint["partitionMetadata"]
    assert sorted(parts) == ["city=x", "city=y"] and all(
        part == parts[part]["partitionPath"] for part in parts
    )
    assert sorted(name for part in parts.values() for name in part["savepointDataFile"]) == names
    assert (folder / ".hoodie" / f"{instants[2]}.savepoint.inflight").read_bytes() == b""
    table.upsert([{"id": "c", "city": "y"}])
    agreed(table)
    with pytest.raises(Invalid, match="the savepoint 'kept' already names that commit"):
        table.savepoint("again", at=2)
    table.tag("again", at=2)
    table.metadata.compact()
    mdt.open(folder).untag("kept")
    assert not list((folder / ".hoodie").glob("*.savepoint*"))
    assert table.check().ok
    table.savepoint("again 2", at=3)
    assert savepoint_of(folder, instants[2])["comments"] == ""


def test_a_table_opened_as_of_a_commit_is_read_only_and_shows_the_tags_of_that_time(table):
    table.tag("a")
    past = mdt.open(MemoryStorage.copy(table.storage), as_of=2)  # type: ignore[arg-type]
    assert not len(past.tags())
    with pytest.raises(Invalid, match="read-only"):
        past.tag("b")


def test_tags_and_comments_that_are_too_long_are_refused(tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], partition_by=["city"])
    table.upsert([{"id": "a", "city": "x"}])
    for text, size in (("x" * 4097, "4,097"), ("ü" * 2049, "4,098")):
        with pytest.raises(Invalid, match=f"the comment has {size} bytes, more than 4,096"):
            table.savepoint("long", comment=text)
        with pytest.raises(Invalid, match=f"the tag has {size} bytes, more than 4,096"):
            table.tag(text)
    assert table.tag("ü" * 2048) == 1
    assert table.savepoint("long", comment="ü" * 2048) == 2 and table.check().ok


def test_a_longer_tag_of_an_older_version_that_counted_characters_is_accepted():
    name = "ü" * 4096
    assert tags.are_changes({"add": {name: 1}}, 1)
    assert tags.tags_of({"seq": 1, "tags": {"seqs": {name: 1}, "savepoints": {}}}).seqs == {name: 1}
