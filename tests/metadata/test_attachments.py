"""Attachments of large commits: objects of a bounded size, stored while files are still made, and
found wherever they stand.
"""

import pytest
from trees import TABLE_TYPES
from worlds import make, rows

import mdt
from mdt.metadata.files import attachments, paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.stores.memory import MemoryStorage

SEVEN = "attachments/20240229120000123/7.attached"


def test_an_object_that_is_large_enough_is_stored_while_others_are_collected(
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
    assert [one.path for one in ranges] == [first, first, second, third, third]
    assert stored == [first, second]
    writer.write(storage)
    assert [storage.read(one.path, one.offset, one.length) for one in ranges] == contents


def test_without_somebody_who_stores_all_go_into_one_object(
    monkeypatch,
):
    monkeypatch.setattr(attachments, "ATTACHED_BYTES_MIN", 1)
    writer = AttachmentWriter(SEVEN)
    for _ in range(3):
        assert writer.add(b"x" * 9).path == SEVEN
        writer.settle()


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_table_whose_attachments_are_an_object_each(table_type, monkeypatch):
    monkeypatch.setattr(attachments, "ATTACHED_BYTES_MIN", 1)
    storage = MemoryStorage()
    table = make(storage, table_type, "record", **{"mdt.row.group.rows": 5})
    table.create_index("bitmap(fare)")
    table.upsert(rows(range(400), 1, 1.0))
    table.upsert(rows(range(0, 400, 3), 2, 2.0))
    folders = [info.path.rpartition("/")[0] for info in storage.list(paths.attachments_dir())]
    assert len(folders) > len(set(folders))
    opened = mdt.open(storage)
    assert opened.scan("fare = 2.0").count() == 134 and opened.check().ok
    opened.clean()
    opened.purge()
    assert opened.upsert(rows(range(3), 3, 3.0)).updated == 3 and opened.check().ok
