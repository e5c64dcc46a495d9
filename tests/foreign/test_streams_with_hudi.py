"""A stream of Hudi and mdt write to a table in turns. The stream runs table services in its
commits.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hudi_session import HudiSession
from test_default_options_with_hudi import CHOSEN, require_same_rows, shared

from mdt import Table

TURNS = 10
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
INLINE = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "4",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_adopted", [True, False])
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_mdt_read_the_same_rows_after_turns_of_a_stream_and_mdt(
    kind, version, is_adopted, tmp_path
):
    draw = random.Random(f"{kind} {version} {is_adopted}")
    path = tmp_path / "t"
    with HudiSession(tmp_path / "session") as hudi:
        ours = shared(hudi, path, kind, version, is_adopted)
        services = INLINE
        if kind == "MERGE_ON_READ":  # streams of Hudi cannot compact copy-on-write tables
            services = INLINE | COMPACTING
        hudi.create(path, version, kind, CHOSEN | services)
        for turn in range(TURNS):
            numbers, add = draw.sample(range(60), 8), 1000 * (turn + 1)
            hudi.call(path, "stream", numbers, 2 * turn + 11, add)
            rows = ours.scan().to_arrow().to_pylist()
            values = {row["id"]: row["v"] for row in rows}
            assert {f"k{n:03}": n + add for n in numbers}.items() <= values.items()
            take_a_turn(ours, draw, [{**row, "ts": 2 * turn + 12} for row in rows])
            require_same_rows(hudi, path)


def take_a_turn(ours: Table, draw: random.Random, rows: list[dict[str, object]]) -> None:
    """Carry out a random step of mdt.

    Args:
        rows: The newest rows of the table, with higher ordering values.
    """
    sample = draw.sample(rows, 6)
    match draw.choice(["upsert", "upsert", "delete", "compact", "cluster", "clean"]):
        case "upsert":
            ours.upsert(pa.Table.from_pylist(sample, ours.schema))
        case "delete":
            ours.delete([{"id": row["id"], "city": row["city"]} for row in sample])
        case "compact":
            ours.compact()
        case "cluster":
            ours.cluster(by=["v"])
        case _:
            ours.clean(retain_commits=2)
