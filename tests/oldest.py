"""Print constraints for pip that pin every dependency of the project, extras too, to the oldest
release that it asks for.

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
    """Return one constraint a dependency; those without a lower bound are left out."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    asked = chain(project["dependencies"], *project["optional-dependencies"].values())
    bounds = (re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", text) for text in asked)
    return sorted({f"{found[1]}=={found[2]}.*" for found in bounds if found})


if __name__ == "__main__":
    print("\n".join(pins()))
