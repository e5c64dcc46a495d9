"""In tables of format 3, whose key hash can be made to collide on purpose, key texts are compared
when rows are returned or checked.
"""

import pytest
from old_tables import A, B, old_table
from test_colliding_keys import SCHEMA, row

import mdt
from mdt.metadata.keys import locate


def test_get_returns_no_row_of_another_key(tmp_path):
    table = old_table(tmp_path, SCHEMA, key=["id"])
    table.upsert([row("k", "x"), row(A, "a1")])
    assert table.get(B) is None and table.get(B, columns=["v"]) is None
    assert table.get([B, "k", A]).column("v").to_pylist() == [None, "x", "a1"]
    assert table.get([B, "k"], missing="skip").column("v").to_pylist() == ["x"]
    with pytest.raises(mdt.Invalid, match="1 keys are not in the table"):
        table.get([B, "k"], missing="error")
    assert table.scan(f"id = '{B}'").count() == 0


def table_with_both_keys(path):
    """Return a table with both keys. The ranges of the Bloom index keep them from being compared."""
    table = old_table(
        path, SCHEMA, key=["id"], key_index="bloom", options={"mdt.small.file.bytes": 0}
    )
    table.upsert([row(A, "a1")])
    table.upsert([row(B, "b1")])
    assert table.scan().count() == 2
    return table


def test_check_names_two_keys_with_one_hash(tmp_path):
    [problem] = table_with_both_keys(tmp_path).check().problems
    assert (
        repr(A) in str(problem)
        and repr(B) in str(problem)
        and "have the same hash; rekey()" in str(problem)
    )


@pytest.mark.parametrize("create", [mdt.create, old_table])
def test_check_names_a_key_that_exists_twice(tmp_path, monkeypatch, create):
    table = create(tmp_path, SCHEMA, key=["id"], options={"mdt.small.file.bytes": 0})
    table.upsert([row("j", "x"), row("k", "a1")])
    with monkeypatch.context() as patched:
        patched.setattr(locate, "_look_up", lambda *_: [])
        table.upsert([row("k", "a2")])
    problems = [str(problem) for problem in table.check().problems]
    assert any(
        "1 keys are live more than once in their scope, such as ['k']" in text for text in problems
    )


def test_get_distinguishes_two_keys_with_one_hash(tmp_path):
    table = table_with_both_keys(tmp_path)
    assert [table.get(key)["v"] for key in (A, B)] == ["a1", "b1"]
    assert table.get([B, A]).column("v").to_pylist() == ["b1", "a1"]


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_a_batch_with_two_keys_that_share_a_hash_is_refused(tmp_path, operation):
    table = old_table(tmp_path, SCHEMA, key=["id"], ordering="ts")
    with pytest.raises(mdt.Invalid, match="two different keys have the same hash"):
        getattr(table, operation)([row(A, "a1"), row(B, "b1")])
    assert table.upsert([row("k", "1"), row("k", "2")]).inserted == 1


def test_old_tables_keep_their_hash_and_format(tmp_path):
    old_table(tmp_path, SCHEMA, key=["id"]).upsert([row(A, "a1")])
    definition = mdt.open(tmp_path).definition.to_json()
    assert (
        definition["format"] == 3 and definition["hash_seed"] == 7 and "key_hash" not in definition
    )
