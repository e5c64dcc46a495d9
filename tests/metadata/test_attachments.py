"""Attachments of large commits: objects of limited size, stored while the commit is still writing
files, and readable by every range they are referenced by.
"""

import pytest
from trees import TABLE_TYPES
from worlds import make, rows

import mdt
from mdt.metadata.files import attachments, paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.stores.memory import MemoryStorage

SEVEN = "attachments/20240229120000123/7.attached"


def test_an_attachment_is_stored_as_soon_as_it_reaches_the_minimum_size(
    monkeypatch,
):
    monkeypatch.setattr(attachments, "ATTACHED_BYTES_MIN", 24)
    storage, stored = MemoryStorage(), list[str]()

    def store(path, parts):
        stored.append(path)
        storage.create(path, parts)  # type: ignore[arg-type]

    writer, contents = AttachmentWriter(SEVEN, store), [b"a" * 9, b"b", b"c" * 40, b"d", b"e"]
    ranges = []
    for content in contents:
        ranges.append(writer.add(content))
        writer.settle()
    first, (second, third) = SEVEN, (SEVEN.replace("7.", f"7--{number}.") for number in (1, 2))
    assert [object_range.path for object_range in ranges] == [first, first, second, third, third]
    assert stored == [first, second]
    writer.write(storage)
    assert [
        storage.read(object_range.path, object_range.offset, object_range.length)
        for object_range in ranges
    ] == contents


def test_without_a_store_function_all_contents_are_in_one_object(
    monkeypatch,
):
    monkeypatch.setattr(attachments, "ATTACHED_BYTES_MIN", 1)
    writer = AttachmentWriter(SEVEN)
    for _ in range(3):
        assert writer.add(b"x" * 9).path == SEVEN
        writer.settle()


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_table_with_one_object_per_attachment_is_read_purged_and_written(table_type, monkeypatch):
    monkeypatch.setattr(attachments, "ATTACHED_BYTES_MIN", 1)
    storage = MemoryStorage()
    table = make(storage, table_type, "record", **{"mdt.row.group.rows": 5})
    table.create_index("bitmap(fare)")
    table.upsert(rows(range(400), 1, 1.0))
    table.upsert(rows(range(0, 400, 3), 2, 2.0))
    folders = [info.path.rpartition("/")[0] for info in storage.list(paths.ATTACHMENTS_DIR)]
    assert len(folders) > len(set(folders))
    opened = mdt.open(storage)
    assert opened.scan("fare = 2.0").count() == 134 and opened.check().ok
    opened.clean()
    opened.purge()
    assert opened.upsert(rows(range(3), 3, 3.0)).updated == 3 and opened.check().ok
