"""The options of ``format("mdt")``, with mdt's and Hudi's names, validated.

The catalog stores the options of a table's creation and passes all of them to readers and writers.
Both therefore share a set of options (:class:`mdt.config.CallOptions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mdt import hudi_options
from mdt.config import CALL_OPTIONS, OPTIONS, CallOptions
from mdt.errors import Invalid, Unsupported
from mdt.given_options import BLANK_IF_UNSET
from mdt.option import suggestion
from mdt.stores.storage import hadoop_path

INCREMENTAL = "incremental"

IGNORED = ("path", "serialization.format", "checkpointlocation", "queryname")
"""Options that Spark adds."""

_CLUSTERING = "__clustering_columns"
"""Spark's option for ``clusterBy``."""

METADATA = "commit.metadata."
"""Prefix of commit metadata options: ``commit.metadata.run``."""
STORAGE = "storage."
"""Prefix of store options: ``storage.region``."""


@dataclass(slots=True, kw_only=True)
class SourceOptions(CallOptions):
    """The options of one read or write by name, and of its table.

    options: Options as in :class:`mdt.config.Options`.
    described: Options of Hudi that describe the table (:func:`mdt.given_options.require`).
    storage: Options of the store.
    metadata: Metadata of commits.
    create_arguments, create_options: ``table`` and ``options`` for a new table, including those of
        the session (:mod:`mdt.source.settings`).
    """

    path: str
    options: dict[str, str] = field(default_factory=dict)
    described: dict[str, str] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    create_arguments: dict[str, Any] = field(default_factory=dict)
    create_options: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> dict[str, Any]:
        """The options that describe the table, as arguments of :func:`mdt.create`."""
        arguments = {}
        for name, declared in CALL_OPTIONS.options.items():
            value = getattr(self, name)
            if declared.fixed and value is not None:
                arguments[name] = value
        return arguments


def parse_options(texts: Mapping[str, str]) -> SourceOptions:
    """Parse the options in ``texts``. Names are case-insensitive.

    Raises Invalid for an unknown option, with the nearest name as a hint, for an option given under
    two names with different values, and for invalid values. Raises Unsupported for values of Hudi's
    options that contradict what mdt does. Options without effect are ignored, with a warning.

    >>> parsed = parse_options({"path": "trips", "KEY": "id", "mdt.compression": "zstd"})
    >>> parsed.path, parsed.table, parsed.options
    ('trips', {'key': ('id',)}, {'mdt.compression': 'zstd'})
    """
    options = {name.lower(): text for name, text in texts.items()}
    if "path" not in options:
        raise Invalid(
            "the path of the table is missing",
            hint='name one table: .load("trips"), or the option path',
        )
    parsed = SourceOptions(path=hadoop_path(options["path"]))
    of_call: dict[str, str] = {}
    for name, text in options.items():
        if name in CALL_OPTIONS:
            if text.strip() or CALL_OPTIONS.find(name).member not in BLANK_IF_UNSET:
                of_call[name] = text
        elif name.startswith(STORAGE):
            parsed.storage[name.removeprefix(STORAGE)] = text
        elif name.startswith(METADATA):
            parsed.metadata[name.removeprefix(METADATA)] = text
        elif name in OPTIONS:
            parsed.options[name] = text
        elif name == _CLUSTERING:
            raise Unsupported(
                "clusterBy is not supported for mdt tables",
                hint="t.cluster(by), or CALL mdt.cluster(table => …, by => …), sorts existing rows",
            )
        elif name not in IGNORED:
            _read_hudi_option(parsed, name, text)
    for member, value in CALL_OPTIONS.read(of_call).items():
        setattr(parsed, member, value)
    parsed.create_arguments, parsed.create_options = parsed.table, dict(parsed.options)
    return parsed


def _read_hudi_option(parsed: SourceOptions, name: str, text: str) -> None:
    known = hudi_options.find(name)
    if known is None:
        hint = suggestion(name, [*CALL_OPTIONS, *OPTIONS, *hudi_options.names()])
        raise Invalid(f"unknown option {name!r}", hint=hint)
    if text.strip():
        known.check(name, text)
        if known.agreeing is not None and known.is_compared_on_spark:
            parsed.described[name] = text


def machine_options(names: Iterable[str]) -> list[str]:
    """Return the options among ``names`` with machine scope (:data:`mdt.option.Scope`)."""
    machine_names = []
    for name in names:
        if name.lower() in OPTIONS and OPTIONS.find(name.lower()).scope == "machine":
            machine_names.append(name)
    return machine_names
