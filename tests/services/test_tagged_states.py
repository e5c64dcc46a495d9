"""Tagged states are kept after cleaning has removed the states before and after them."""

import pytest
from aging import ARCHIVE_RECORDS, assert_kept, grown, names, upsert
from worlds import COW, MOR, as_state, assert_clean, meanwhile

import mdt
from mdt.errors import Conflict, Corrupt, Expired, Invalid
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.snapshot.checkpoints import Checkpoints
from mdt.services.history.tagging import AddTag
from mdt.services.reclaiming import cleaning


@pytest.fixture(autouse=True)
def _archived_early(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", ARCHIVE_RECORDS)


def table_with_tag(table_type=MOR, save="tag", **options):
    """Return a table with a tag "kept" and many later commits, compactions and a clustering, its rows
    by seq, and the seq of the tag.
    """
    table, past = grown(7, table_type, **options)
    seq = getattr(table, save)("kept")
    past[seq] = past[max(past)]
    for n in range(12):
        upsert(table, past, range(n % 7, n % 7 + 3), 100 + n)
        if n % 4 == 3:
            past[(table.cluster(["ts"]) if n == 7 else table.compact()).seq] = past[max(past)]
    return table, past, seq


@pytest.mark.parametrize("save", ["tag", "savepoint"])
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_tagged_state_stays_readable_after_its_neighbours_were_cleaned(table_type, save):
    table, past, seq = table_with_tag(table_type, save)
    table.clean(retain_commits=2)
    assert table.snapshot().retention.first > seq + 1, "records around it were archived"
    assert_kept(table, past)
    for reader in (mdt.open(table.storage), mdt.open(table.storage, as_of="kept")):
        assert as_state(reader.scan(as_of=seq).to_arrow()) == past[seq]
        assert reader.scan("ts >= 5", as_of=seq).count() == sum(
            row[0] >= 5 for row in past[seq].values()
        )
        rows = reader.get(["k1", "k77"], as_of=seq).to_pylist()
        assert [row["ts"] for row in rows] == [past[seq]["k1"][0], None]
    with pytest.raises(Expired, match="a tag retains only the snapshot"):
        table.changes("kept").to_arrow()
    assert table.tags()["instant"].to_pylist() == [
        mdt.open(table.storage).history()["instant"][seq].as_py()
    ]


def test_cleaning_after_untag_deletes_files_that_only_the_tag_needed():
    table, past, seq = table_with_tag()
    other = mdt.open(table.storage.copy())
    other.untag("kept")
    for each in (other, table):
        upsert(each, dict(past), range(4), 500)
        each.metadata.compact()
        each.clean(retain_commits=1)
    assert len(names(other)) < len(names(table))
    table.untag("kept")
    table.clean(retain_commits=1)
    table.metadata.compact()
    table.clean(retain_commits=1)
    assert not [path for path in names(table) if paths.checkpoint_of(path) == seq]
    assert len([p for p in names(table) if ".hoodie" not in p]) == len(
        [p for p in names(other) if ".hoodie" not in p]
    )
    with pytest.raises(Invalid):
        table.scan(as_of="kept")
    with pytest.raises(Expired):
        table.scan(as_of=seq)
    assert_clean(table.storage)


def test_a_damaged_checkpoint_of_a_tag_is_rewritten_from_the_log_or_stops_cleaning():
    table, past, seq = table_with_tag()
    table.metadata.write_checkpoint(table.metadata.state(seq))
    path = paths.checkpoint_manifest(seq)
    table.storage.replace(path, table.storage.read(path)[:-3])
    table.clean(retain_commits=2)
    assert_kept(table, past)
    table.storage.replace(path, table.storage.read(path)[:-3])
    table = mdt.open(table.storage)
    with pytest.raises(Corrupt):
        table.scan(as_of="kept")
    data = [path for path in names(table) if ".hoodie" not in path]
    with pytest.raises(Corrupt):
        table.clean(retain_commits=1)
    assert data == [path for path in names(table) if ".hoodie" not in path]
    assert [path in problem.path for problem in table.check().problems] == [True]
    table.untag("kept")
    table.clean(retain_commits=1)
    assert_clean(table.storage)


def test_tagging_a_state_whose_only_tag_is_removed_meanwhile_is_refused():
    table, _, seq = table_with_tag()
    table.clean(retain_commits=1)
    other = mdt.open(table.storage)
    with pytest.raises((Expired, Conflict)), meanwhile(AddTag, lambda: other.untag("kept")):
        table.tag("second", at=seq)
    assert not table.tags().num_rows


def test_references_of_tagged_states_are_not_read_again_by_the_next_cleaning(
    monkeypatch,
):
    table, past = grown(7)
    for n in range(8):
        table.tag(f"tag {n}")
        upsert(table, past, range(n % 5, n % 5 + 3), 200 + n)
    table.clean(retain_commits=1)
    seqs = table.snapshot().tags.before(table.snapshot().retention.horizon)
    read, columns = list[int](), Checkpoints.columns
    monkeypatch.setattr(
        Checkpoints,
        "columns",
        lambda self, seq, **more: read.append(seq) or columns(self, seq, **more),
    )
    upsert(table, past, range(3), 300)
    table.clean(retain_commits=1)
    assert len(seqs) == 8 and not set(read) & set(seqs[:-1]), (
        "they were read when their records were archived"
    )
    assert_clean(table.storage)


def test_key_parts_in_the_checkpoint_of_a_tagged_state_are_kept(
    monkeypatch,
):
    """The writer of that checkpoint has merged key parts, so the state made from records has other
    parts.
    """
    monkeypatch.setattr("mdt.metadata.metadata.INLINE_SUMMARY_BYTES_MAX", 0)
    table, past = grown(7, **{"mdt.index.type": "RECORD_INDEX"})
    seq = table.tag("kept")
    for n in range(4):
        upsert(table, past, range(n, n + 3), 200 + n)
    # before that checkpoint exists
    references.garbage_after(table.metadata, table.snapshot(), table.snapshot().seq)
    other = mdt.open(table.storage).metadata
    other.write_checkpoint(other.state(seq), whole=True)
    table.clean(retain_commits=1)
    tagged_state = table.metadata.checkpoints.open(seq).snapshot
    parts = {part.stored.path for part in tagged_state.key_parts if part.stored is not None}
    assert parts and seq in table.snapshot().tags.before(table.snapshot().retention.horizon)
    assert parts <= set(references.all_paths(table.metadata, table.snapshot()).to_pylist())


def test_the_number_of_checkpoint_listings_does_not_depend_on_the_number_of_tags(
    monkeypatch,
):
    listings = []
    real_listed = Checkpoints.listed
    monkeypatch.setattr(Checkpoints, "listed", lambda self: listings.append(1) or real_listed(self))
    counts = []
    for tags in (4, 24):
        table, past = grown(3, MOR, **{"mdt.metadata.compact.records": 2})
        for n in range(tags):
            upsert(table, past, range(n % 7, n % 7 + 3), 100 + n)
            past[table.tag(f"t{n}")] = past[max(past)]
        storage = table.storage
        table.compact()
        reopened = mdt.open(storage)
        for work in (
            lambda t=reopened: t.clean(retain_commits=1),
            lambda t=reopened: assert_clean(t.storage),
        ):
            listings.clear()
            work()
            counts.append(len(listings))
        assert_kept(reopened, past)
    assert counts[:2] == counts[2:]
