"""Records without instants of their own, e.g. tags and savepoints, are published once, by their
writer or by a later commit.
"""

from __future__ import annotations

import pytest
from worlds import MOR, filled, rows

import mdt
from mdt.commit import publish, transaction
from mdt.services.history.tagging import AddTag


@pytest.fixture
def published(monkeypatch):
    """Return the seqs of records, in the order in which they are published from now on."""
    seen: list[int] = []
    original = publish.publish

    def record_and_publish(storage, record, *rest):
        seen.append(record.seq)
        original(storage, record, *rest)

    monkeypatch.setattr(publish, "publish", record_and_publish)
    return seen


def test_each_of_many_consecutive_tags_is_published_once(published):
    table = mdt.open(filled(MOR, "record"))
    first = table.snapshot().seq + 1
    published.clear()
    for number in range(12):
        table.tag(f"t{number}")
    table.upsert(rows([1], 9, 9.0))
    assert published == list(range(first, first + 13))


def test_a_savepoint_that_its_writer_did_not_publish_is_published_by_the_next_writer(
    monkeypatch,
):
    table = mdt.open(filled(MOR, "record"))
    saved = table.snapshot()
    with monkeypatch.context() as patched:
        patched.setattr(transaction, "finish", lambda *arguments: ())
        table.savepoint("kept")
    assert savepoints(table) == []
    tag_without_recovery(table, "other")
    assert savepoints(table) == [saved.last_instant]


def savepoints(table):
    """Return the times of the savepoints that Hudi sees."""
    names = [info.path.rpartition("/")[2] for info in table.storage.list_dir(".hoodie")]
    return [name.partition(".")[0] for name in names if name.endswith(".savepoint")]


def tag_without_recovery(table, name):
    """Commit a tag as a writer does that looked for crashed writers before the others committed."""
    other = mdt.open(table.storage)
    metadata = other._metadata
    transaction.run(metadata, AddTag(metadata, name, other.snapshot().seq, None, "tag"))
