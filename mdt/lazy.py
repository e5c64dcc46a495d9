"""Modules that are loaded when they are first used.

A process that only reads pays neither for writing nor for table services, one without SQL filters not for the SQL parser:
together they take twice as long to load as everything that an open and a plan need.  What is named here is named for type
checkers, and for the rules of layers, by an ordinary import under ``if TYPE_CHECKING`` beside it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Module:
    """Stands for a module; loads it when an attribute is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


class Callable:
    """Stands for a function or class of a module; loads the module when it is called."""

    def __init__(self, module: str, attribute: str) -> None:
        self._module = module
        self._attribute = attribute

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return getattr(import_module(self._module), self._attribute)(*arguments, **named)
