"""mdt keeps a table open while Hudi writes at random. It reads Hudi's rows after each step.

MDT_HUDI_HISTORIES is the number of histories for each version, by default 4. A longer campaign has
40 and takes three hours.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from counting import count
from follower import Follower, replayable
from hudi_session import HudiSession, Refused
from random_steps import RandomSteps

HISTORIES = int(os.environ.get("MDT_HUDI_HISTORIES", "4"))
STEPS = 15
REFUSED_MAX = 0.4
"""Share of the steps that Hudi may refuse."""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("version", [6, 9])
def test_open_table_has_the_rows_of_hudi_after_each_random_step(version, seed, tmp_path, request):
    with (
        replayable(f"MDT_HUDI_HISTORIES={seed + 1}", request) as done,
        HudiSession(tmp_path / "session") as hudi,
    ):
        follow(hudi, tmp_path / "followed", RandomSteps(seed, version), done)


def follow(hudi: HudiSession, path: Path, steps: RandomSteps, done: list[str]) -> None:
    """Let Hudi carry out random steps, and compare the table after each.

    Args:
        done: List to which the names of the steps are appended, even if a comparison fails.
    """
    hudi.create(path, steps.version, steps.kind, steps.options)
    name, step = steps.first()
    done += [f"{steps.kind} {steps.options}", name]
    step(hudi, path)
    follower = Follower(hudi, path, name)
    refused, has_cleaned = 0, False
    for _ in range(STEPS):
        name, step = steps.next()
        done.append(name)
        try:
            step(hudi, path)
        except Refused as error:
            refused += 1
            done[-1] += f" -- refused: {str(error)[:300]}"
        has_cleaned |= "clean" in name
        follower.look(may_expire=has_cleaned)
    count("steps of Hudi that an open table followed", STEPS)
    count("steps that Hudi refused", refused)
    assert refused <= REFUSED_MAX * STEPS
