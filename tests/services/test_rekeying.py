"""``rekey`` gives a table another key hash and leaves earlier states unchanged."""

import pytest
from old_tables import A, B, old_table
from texts import columns

import mdt
from indexes.key_hash import MultilinearHash
from mdt.stores.storage import LocalStorage, MemoryStorage

SCHEMA = columns("id string, city string, v string, ts int64")
KEY_INDEXES = ["record", "bloom", "simple", "bucket(buckets='2')", "memory", "lmdb"]


def row(key, value, ts=1):
    return {"id": key, "city": "Oslo" if ord(key[-1]) % 2 else "Rome", "v": value, "ts": ts}


def rows(numbers, value, ts=1):
    return [row(f"k{n:03}", value, ts) for n in numbers]


def values_by_id(table, **arguments):
    return {item["id"]: item["v"] for item in table.scan(**arguments).to_arrow().to_pylist()}


def table_with_history(create, location, **settings):
    """Return a table with base and log files, deleted rows, and a checkpoint before the last writes."""
    table = create(location, SCHEMA, key=["id"], **settings)
    table.upsert(rows(range(100), "one"))
    table.upsert(rows(range(50, 120), "two", 2))
    table.metadata.compact()
    table.delete([{"id": f"k{n:03}", "city": row(f"k{n:03}", "")["city"]} for n in range(10)])
    table.upsert(rows(range(20, 30), "three", 3))
    return table


@pytest.mark.parametrize("key_index", KEY_INDEXES)
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("create", [mdt.create, old_table])
def test_every_key_can_be_looked_up_after_a_rekey(tmp_path, key_index, table_type, create):
    options = {"mdt.key.store.dir": str(tmp_path / "keys")} if key_index == "lmdb" else {}
    table = table_with_history(
        create,
        tmp_path / "t",
        key_index=key_index,
        table_type=table_type,
        partition_by=["city"],
        ordering="ts",
        options=options,
    )
    before, files = values_by_id(table), table.files().num_rows
    old = table.definition.key_hash
    assert table.rekey().seq == table.snapshot().seq
    for reader in (table, mdt.open(tmp_path / "t", options)):
        definition = reader.definition
        assert isinstance(definition.key_hash, MultilinearHash) and definition.key_hash != old
        assert values_by_id(reader) == before and reader.files().num_rows == files
        assert [reader.get(key)["v"] for key in ("k015", "k025", "k119")] == ["one", "three", "two"]
        assert reader.get("k005") is None
        assert reader.check().ok, reader.check()
    result = table.upsert([*rows(range(110, 130), "four", 4), *rows(range(15, 16), "late", 0)])
    assert (result.inserted, result.updated, result.late) == (10, 10, 1)
    assert table.delete([{"id": "k129", "city": row("k129", "")["city"]}]).deleted == 1
    table.metadata.compact()
    table.compact()
    assert mdt.open(tmp_path / "t", options).check().ok
    assert table.history()["operation"].to_pylist().count("rekey") == 1


def test_an_old_table_distinguishes_keys_with_one_hash_after_a_rekey():
    table = table_with_history(old_table, MemoryStorage(), key_index="simple")
    table.upsert([row(A, "a1")])
    assert table.upsert([row(B, "b0")]).updated == 1, (
        "the hash of B equals that of A before the rekey"
    )
    table.upsert([row(A, "a1")])
    table.rekey()
    assert table.upsert([row(B, "b1")]).inserted == 1
    assert [table.get(key)["v"] for key in (A, B)] == ["a1", "b1"] and table.check().ok


@pytest.mark.parametrize("create", [mdt.create, old_table])
def test_states_before_a_rekey_are_unchanged(create):
    storage = MemoryStorage()
    table = table_with_history(create, storage, ordering="ts")
    seq, before = table.snapshot().seq, values_by_id(table)
    table.rekey()
    after = table.upsert(rows(range(20, 40), "four", 4)).seq
    table.rekey()
    for reader in (table, mdt.open(storage)):
        assert values_by_id(reader, as_of=seq) == before
        assert reader.get(["k025", "k005", "k119"], as_of=seq)["v"].to_pylist() == [
            "three",
            None,
            "two",
        ]
        assert reader.get(["k025", "k119"], as_of=seq + 1)["v"].to_pylist() == ["three", "two"]
        assert reader.get("k025")["v"] == "four"
        assert sorted(reader.changes(since=seq, until=after).to_arrow()["id"].to_pylist())[:2] == [
            "k020",
            "k020",
        ]
        assert reader.check().ok
    table.metadata.compact()
    assert mdt.open(storage).get("k025", as_of=seq)["v"] == "three"


@pytest.mark.parametrize("create", [mdt.create, old_table])
def test_a_state_before_a_rekey_can_be_restored(create):
    table = table_with_history(create, MemoryStorage())
    seq, before = table.snapshot().seq, values_by_id(table)
    table.rekey()
    key_hash = table.definition.key_hash
    table.upsert(rows(range(200), "four"))
    table.restore(seq)
    assert values_by_id(table) == before and table.definition.key_hash == key_hash
    assert table.check().ok and table.upsert(rows(range(200), "five")).inserted == 200 - len(before)


def test_cleaning_states_before_a_rekey_deletes_their_key_maps(tmp_path):
    table = table_with_history(old_table, LocalStorage(tmp_path, durable=False))
    table.rekey()
    table.upsert(rows(range(20, 30), "four", 4))
    table.clean(retain_commits=1)
    table.metadata.compact()
    instants_left = {path.parent.name for path in tmp_path.glob(".hoodie/.mdt/attachments/*/*")}
    assert instants_left == {table.history()["instant"][seq].as_py() for seq in (5, 6)}, (
        "the instants of the rekey and of the later upsert"
    )
    assert mdt.open(tmp_path).check().ok and values_by_id(table)["k020"] == "four"


@pytest.mark.parametrize("forget", [False, True])
def test_a_rekey_is_refused_unless_stored_deletes_may_be_forgotten(forget):
    table = old_table(
        MemoryStorage(),
        SCHEMA,
        key=["id"],
        ordering="ts",
        options={"mdt.delete.keeps.ordering": True},
    )
    table.upsert(rows(range(10), "one", 5))
    table.delete([{"id": "k001", "ts": 9}])
    if not forget:
        with pytest.raises(mdt.Invalid, match="keeps 1 deletes"):
            table.rekey()
        return
    table.rekey(forget_deletes=True)
    assert table.upsert(rows(range(1, 2), "again", 5)).inserted == 1 and table.check().ok
