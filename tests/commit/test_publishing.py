"""What a commit publishes of those before it, where they have no instant of their own."""

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

    def told(storage, record, *rest):
        seen.append(record.seq)
        original(storage, record, *rest)

    monkeypatch.setattr(publish, "publish", told)
    return seen


def test_each_of_many_tags_in_a_row_is_published_once(published):
    table = mdt.open(filled(MOR, "record"))
    first = table.snapshot().seq + 1
    published.clear()
    for number in range(12):
        table.tag(f"t{number}")
    table.upsert(rows([1], 9, 9.0))
    assert published == list(range(first, first + 13))


def test_a_savepoint_whose_writer_has_not_got_to_publish_it_is_published_by_the_next_one(
    monkeypatch,
):
    table = mdt.open(filled(MOR, "record"))
    saved = table.snapshot()
    with monkeypatch.context() as patched:
        patched.setattr(transaction, "finish", lambda *arguments: ())
        table.savepoint("kept")
    assert savepoints(table) == []
    run_beside(table, "other")
    assert savepoints(table) == [saved.last_instant]


def savepoints(table):
    """Return the times of the savepoints that Hudi sees."""
    names = [info.path.rpartition("/")[2] for info in table.storage.list_dir(".hoodie")]
    return [name.partition(".")[0] for name in names if name.endswith(".savepoint")]


def run_beside(table, name):
    """Tag the newest state as a writer does that looked for crashed ones before the others
    committed.
    """
    other = mdt.open(table.storage)
    metadata = other._metadata
    transaction.run(metadata, AddTag(metadata, name, other.snapshot().seq, None, "tag"))
