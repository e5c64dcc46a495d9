"""Encoders of the bodies of instants and of archived instants, each imported when first used.

Only writers need them, and they need the packages ``fastavro`` and ``pyarrow.parquet``.
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
        commit_body,
        compaction_plan,
        history_files,
        index_plan,
        restore_metadata,
        savepoint_metadata,
    )


def __getattr__(name: str) -> ModuleType:
    """Import ``mdt.hudi.<name>``."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"mdt.hudi.{name}")
