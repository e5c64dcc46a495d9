"""SQL procedures: ``CALL mdt.compact(table => 't', budget_bytes => 1000000)`` is
``t.compact(budget_bytes=1_000_000)``.

The answer is one row with a column for each field of the result, of that field's type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa

from mdt.arguments import listed, one_of
from mdt.errors import Invalid
from mdt.option import FLAG, PARTITIONS, POINT, SPECS
from mdt.services.adoption.adopting import AdoptionPlan
from mdt.services.checking.problems import CheckReport
from mdt.services.indexing.index_builder import BuildResult
from mdt.services.indexing.statistics import STATISTICS
from mdt.services.layout.cluster_table import ClusterResult
from mdt.services.reclaiming.cleaning import CleanReport
from mdt.source import write_frame
from mdt.source.option_keywords import SourceOptions
from mdt.table import Table, adopt, release
from mdt.write.result import WriteResult

_Parser = Callable[[str], Any]

_flag, _specs, _point = FLAG.parse, SPECS.parse, POINT.parse
_RETAINED: Mapping[str, _Parser] = {
    "retain_commits": int,
    "retain_hours": int,
    "retain_versions": int,
}
_DRY: Mapping[str, _Parser] = {"dry_run": _flag}
PROCEDURES: Mapping[str, Mapping[str, _Parser]] = {
    "compact": {"strategy": str, "partitions": listed, "budget_bytes": int, "spark": _flag, **_DRY},
    "cluster": {"by": listed, "curve": str, "partitions": listed, "spark": _flag, **_DRY},
    "clean": {**_RETAINED, **_DRY},
    "restore": {"to": _point, **_DRY},
    "rollback": {"commit": _point, **_DRY},
    "tag": {"name": str, "at": _point, **_DRY},
    "savepoint": {"name": str, "at": _point, "comment": str, **_DRY},
    "untag": {"name": str, **_DRY},
    "adopt": {"key_index": str, "scope": str, "indexes": _specs, "compact": _flag, **_DRY},
    "refresh": {},
    "release": {},
    "upgrade": {"version": int, **_DRY},
    "check": {},
    "delete_partition": {
        "partitions": PARTITIONS.parse,
        **_DRY,
    },
    "truncate": _DRY,
    "create_index": {"specs": _specs, "mode": str, "spark": _flag, **_DRY},
    "drop_index": {"specs": _specs, **_DRY},
    "rebuild_index": {"specs": _specs, "mode": str, "spark": _flag, **_DRY},
    "build_indexes": {"specs": _specs, "spark": _flag, **_DRY},
    "analyze": {"columns": listed, "spark": _flag},
}
"""Methods of a table -> their parameters after the table, in order, each with a parser for its
text.
"""


_SEQ = pa.schema([("seq", pa.int64())])
_RESULTS: Mapping[str, type | pa.Schema] = {
    "cluster": ClusterResult,
    "clean": CleanReport,
    "check": CheckReport,
    "adopt": AdoptionPlan,
    "refresh": pa.schema([("imports", pa.int64())]),
    "release": pa.schema([]),
    "tag": _SEQ,
    "savepoint": _SEQ,
    "untag": pa.schema([]),
    "drop_index": pa.schema([]),
    "create_index": BuildResult,
    "rebuild_index": BuildResult,
    "build_indexes": BuildResult,
    "analyze": STATISTICS,
}
"""Results of procedures: a dataclass, or the columns of a table. All others return a
WriteResult.
"""
_TYPES: Mapping[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def columns(name: str) -> pa.Schema:
    """Return the columns of a procedure's answer. Raises Invalid for an unknown procedure."""
    kind = _RESULTS.get(_procedure_name(name), WriteResult)
    if isinstance(kind, pa.Schema):
        return kind
    hints = get_type_hints(kind)
    return pa.schema([(field.name, _type(hints[field.name])) for field in dataclasses.fields(kind)])


def call(
    options: SourceOptions, name: str, pairs: Sequence[tuple[str, str | None]], spark: Any
) -> tuple[Table, pa.Table]:
    """Call a procedure on the table of ``options``; return the table and the answer with the
    columns of :func:`columns`.

    ``pairs``: (name, value) of each argument. The name is empty for a positional argument. A null
    value counts as omitted. ``spark``: the session, for procedures that run in its tasks on
    request. Raises Invalid for unknown procedures and wrong arguments, and the errors of the
    method.
    """
    write_frame.require_newest(options)
    parameters = PROCEDURES[_procedure_name(name)]
    arguments = _arguments(name, parameters, pairs)
    if "spark" in parameters:
        arguments["spark"] = spark if arguments.get("spark") else None
    if name == "adopt":
        return _adopt(options, arguments)
    if name == "release":
        release(options.path, storage_options=options.storage or None)
        return write_frame.open_for_writing(options), columns(name).empty_table()
    table = write_frame.open_for_writing(options)
    method = getattr(table, name)
    _require_all(name, method, arguments)
    return table, _answer(columns(name), method(**arguments))


def _adopt(options: SourceOptions, arguments: Mapping[str, Any]) -> tuple[Table, pa.Table]:
    """Adopt the table of another writer, or only plan it. The answer is the plan."""
    given = {name: value for name, value in arguments.items() if name != "dry_run"}
    run = partial(
        adopt,
        options.path,
        options=options.options,
        storage_options=options.storage or None,
        **given,
    )
    plan = run(dry_run=True)
    if not arguments.get("dry_run"):
        run()
    table = write_frame.open_for_writing(options)
    return table, _answer(columns("adopt"), plan)


def _procedure_name(name: str) -> str:
    return one_of("the procedure", name, tuple(PROCEDURES))


def _require_all(name: str, method: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise Invalid for a missing argument without a default."""
    needed = [
        word
        for word, parameter in signature(method).parameters.items()
        if parameter.default is parameter.empty and word not in arguments
    ]
    if needed:
        raise Invalid(
            f"mdt.{name} requires {' and '.join(needed)}",
            hint=f"CALL mdt.{name}('table', {needed[0]} => …)",
        )


def _arguments(
    name: str, parameters: Mapping[str, _Parser], pairs: Sequence[tuple[str, str | None]]
) -> dict[str, Any]:
    words, arguments = list(parameters), dict[str, Any]()
    for place, (keyword, text) in enumerate(pairs):
        if not keyword and place >= len(words):
            raise Invalid(
                f"mdt.{name} takes {len(words) + 1} arguments", hint=f"table, {', '.join(words)}"
            )
        word = one_of(f"an argument of mdt.{name}", keyword, words) if keyword else words[place]
        if word in arguments:
            raise Invalid(f"mdt.{name}: {word} is given twice")
        if text is not None:
            try:
                arguments[word] = parameters[word](text)
            except ValueError as error:
                raise Invalid(f"mdt.{name}: {word} => {text!r}: {error}") from error
    return arguments


def _type(hint: Any) -> pa.DataType:
    """Return the column type for the annotation of a field. Types without an Arrow equivalent
    become text.
    """
    members = [member for member in get_args(hint) if member not in (NoneType, Ellipsis)]
    if get_origin(hint) is tuple:
        return pa.list_(_type(members[0]))
    if get_origin(hint) is Mapping:
        return pa.map_(_type(members[0]), _type(members[1]))
    if NoneType in get_args(hint):
        return _type(members[0])
    return _TYPES.get(hint, pa.string())


def _answer(schema: pa.Schema, result: Any) -> pa.Table:
    if isinstance(result, pa.Table):
        return result
    if not dataclasses.is_dataclass(result):
        if not len(schema):
            return schema.empty_table()
        return pa.Table.from_pylist([{schema.names[0]: result}], schema)
    row = {field.name: _value(getattr(result, field.name), field.type) for field in schema}
    return pa.Table.from_pylist([row], schema)


def _value(value: Any, type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(type):
        return [
            (_value(key, type.key_type), _value(item, type.item_type))
            for key, item in value.items()
        ]
    if pa.types.is_list(type):
        return [_value(item, type.value_type) for item in value]
    if pa.types.is_string(type):
        return str(value)
    return value
