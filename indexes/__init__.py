"""Pure index structures: Arrow values in, bytes out; bytes in, verdicts out.

Public modules:

- ``base``: the contracts for skipping indexes and key indexes. Read it first.
- ``predicate``: tests of column values.
- ``registry``: lookup of index classes by name, and the syntax of index specifications.
- ``testing``, ``key_testing``: conformance suites. They need the extra ``testing``.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["base", "key_testing", "predicate", "registry", "testing"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> ModuleType:
    """Import a public module on first access."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
