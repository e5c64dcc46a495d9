"""A rekey beside other writers and services, through every interleaving of their phases."""

from __future__ import annotations

import pytest
from schedules import Actor, alter, clustering, compaction, delete, rekey, upsert
from test_schedules import explored
from worlds import COW, MOR

import mdt

pytestmark = pytest.mark.usefixtures("records_decoded_once")


@pytest.mark.parametrize("kind", [(MOR, "record"), (COW, "bloom"), (MOR, "memory")], ids="-".join)
@pytest.mark.parametrize(
    "other",
    [upsert([0, 20], 3, 3.0), delete([0, 3]), compaction(), clustering(), rekey()],
    ids=lambda other: other.name,
)
def test_a_rekey_and_company_end_as_one_after_the_other(
    kind: tuple[str, str], other: Actor
) -> None:
    runs = explored(kind, rekey(), other)
    for run in runs:
        if other.name != "rekey":
            assert run.ended[0].attempts == 1, "a rekey makes up for what others commit meanwhile"
        table = mdt.open(run.storage)
        rows = table.scan().to_arrow()
        assert table.get(rows.select(["id", "city"])).to_pylist() == rows.to_pylist()
    assert max(run.conflicts for run in runs) <= 1


def test_a_rekey_beside_an_alter_and_an_upsert_ends_as_one_after_the_other() -> None:
    explored(
        (MOR, "bloom"), rekey(), upsert([0, 20], 3, 3.0), upsert([1, 20], 4, 4.0), preemptions=2
    )
    explored((MOR, "record"), rekey(), alter(), is_beyond_hudi=True)
