"""The choice of an engine for the objects of a caller.

Only this module lists engines, by the packages whose objects they recognise.  Each is loaded when
it is given such an object; everything else is for the calling thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from mdt.engines.engine import Engine, Given

DOORS = {"pyspark": "mdt.engines.spark.given"}
"""Package of callers' objects -> module with three functions for them.

``given(data, known)``: rows as :class:`mdt.engines.engine.Given`, None for other objects;
``engine_of(session)``: the engine of a session, Invalid or Unsupported for other objects;
``schema(schema)``: a schema as one of Arrow, other objects as they are.
"""


def _door(value: object) -> Any:
    """Return the module for an object, None if no engine recognises it."""
    for kind in type(value).__mro__:
        name = DOORS.get(kind.__module__.partition(".")[0])
        if name is not None:
            return import_module(name)
    return None


def given(data: Any, known: Sequence[str]) -> Given[Any] | None:
    """Return ``data`` as rows of the engine that holds them, None if the calling thread takes them.

    ``known``: names of the table's columns.  Columns of ``data`` take these names.
    """
    door = _door(data)
    found: Given[Any] | None = None if door is None else door.given(data, known)
    return found


def engine_of(spark: Any) -> Engine[Any] | None:
    """Return the engine of a session that a caller gave as ``spark``, None for the calling thread.

    Raises Invalid and Unsupported for objects that are not a session.
    """
    if spark is None:
        return None
    door = _door(spark) or import_module(DOORS["pyspark"])
    found: Engine[Any] = door.engine_of(spark)
    return found


def name_of(engine: Engine[Any] | None) -> str:
    """Return the name of an engine in results; ``None`` is the calling thread."""
    return "arrow" if engine is None else engine.name


def arrow_schema(schema: Any) -> Any:
    """Return the schema of an engine's rows as one of Arrow, and any other object as it is."""
    door = _door(schema)
    return schema if door is None else door.schema(schema)
