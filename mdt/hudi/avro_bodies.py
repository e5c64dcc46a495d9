"""Encoders of the Avro bodies of instants, each imported when first used.

Only writers need them, and they need the package ``fastavro``.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdt.hudi import (
        archived_timeline,
        clean_metadata,
        clustering_plan,
        compaction_plan,
        index_plan,
        restore_metadata,
        savepoint_metadata,
    )


def __getattr__(name: str) -> ModuleType:
    """Import ``mdt.hudi.<name>``."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"mdt.hudi.{name}")
