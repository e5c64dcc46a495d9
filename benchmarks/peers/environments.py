"""Environments of peers that cannot stand in that of mdt: another release of a package that both
have, or of Arrow.

They are made once by pip, below a folder that stays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.spark.environments import Missing, make

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "ducklake": ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "pyarrow", "numpy"),
    "pypaimon": ("pypaimon==2.1.0",),
}
"""Peers with an environment of their own, and what is installed there."""


def interpreter(peer: str, folder: Path) -> str:
    """Return the Python that runs a peer, whose environment is made below ``folder`` if it is not
    there.  Raises Missing.
    """
    requirements = REQUIREMENTS.get(peer)
    if requirements is None:
        return sys.executable
    python = folder / peer / "bin" / "python"
    if not python.exists():
        make(python, *requirements)
    return str(python)


__all__ = ["REQUIREMENTS", "Missing", "interpreter"]
