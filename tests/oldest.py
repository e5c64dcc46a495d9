"""Print pip constraints that pin every dependency of the project, including extras, to the oldest
release that the project allows.

``x>=1.2`` becomes ``x==1.2.*``.  The Makefile installs the environment of ``make oldest`` with
them.
"""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def pins() -> list[str]:
    """Return one constraint per dependency. Dependencies without a lower bound are left out."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    requirements = chain(project["dependencies"], *project["optional-dependencies"].values())
    bounds = (
        re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement) for requirement in requirements
    )
    return sorted({f"{match[1]}=={match[2]}.*" for match in bounds if match})


if __name__ == "__main__":
    print("\n".join(pins()))
