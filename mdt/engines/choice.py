"""The choice of an engine for a caller's object.

Only this module lists engines, by the packages of the objects that they accept. An engine's module
is imported on first use. The calling thread handles all other objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from mdt.engines.engine import Engine, EngineInput

ENGINE_MODULES = {"pyspark": "mdt.engines.spark.frame_input"}
"""Package of a caller's object -> module with three functions for such objects.

``engine_input(data, table_columns)``: rows as a :class:`mdt.engines.engine.EngineInput`, or None
    for other objects.
``engine_of(session)``: the engine of a session. Raises Invalid or Unsupported for other objects.
``schema(schema)``: a schema as an Arrow schema. Other objects are returned unchanged.
"""


def _engine_module(value: object) -> Any:
    """Return the module that accepts an object, or None if no engine does."""
    for kind in type(value).__mro__:
        name = ENGINE_MODULES.get(kind.__module__.partition(".")[0])
        if name is not None:
            return import_module(name)
    return None


def engine_input(data: Any, table_columns: Sequence[str]) -> EngineInput[Any] | None:
    """Return ``data`` as rows of the engine that holds them, or None if the calling thread reads
    them.

    ``table_columns``: the table's column names. Matching columns of ``data`` are renamed to them.
    """
    module = _engine_module(data)
    rows: EngineInput[Any] | None = (
        None if module is None else module.engine_input(data, table_columns)
    )
    return rows


def engine_of(spark: Any) -> Engine[Any] | None:
    """Return the engine of a session passed as ``spark``, or None for the calling thread.

    Raises Invalid or Unsupported if ``spark`` is not a session.
    """
    if spark is None:
        return None
    module = _engine_module(spark) or import_module(ENGINE_MODULES["pyspark"])
    engine: Engine[Any] = module.engine_of(spark)
    return engine


def name_of(engine: Engine[Any] | None) -> str:
    """Return the name of an engine in results. ``None`` is the calling thread."""
    return "arrow" if engine is None else engine.name


def arrow_schema(schema: Any) -> Any:
    """Convert an engine's schema to an Arrow schema. Other objects are returned unchanged."""
    module = _engine_module(schema)
    return schema if module is None else module.schema(schema)
