"""Pure index structures: bytes in, verdict out.  See :mod:`indexes.base`.

The public modules: ``base`` (the contracts), ``predicate`` (the tests that an index is asked),
``registry`` (how an index is found), ``testing`` and ``key_testing`` (what an index must pass; they
need the extra ``testing``).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["base", "key_testing", "predicate", "registry", "testing"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> ModuleType:
    """Load a public module when it is first asked for."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
