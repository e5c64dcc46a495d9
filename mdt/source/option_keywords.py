"""The options of ``format("mdt")``, with mdt's and Hudi's names, validated.

The catalog stores the options of a table's creation and passes all of them to readers and writers.
Both therefore share a set of options (:class:`mdt.config.CallOptions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mdt.config import CALL_OPTIONS, OPTIONS, CallOptions
from mdt.errors import Invalid, Unsupported
from mdt.option import suggestion
from mdt.stores.storage import hadoop_path

INCREMENTAL = "incremental"

IGNORED = (
    "path",
    "serialization.format",
    "checkpointlocation",
    "queryname",
    "hoodie.metadata.enable",
    "hoodie.embed.timeline.server",
    "hoodie.upsert.shuffle.parallelism",
    "hoodie.insert.shuffle.parallelism",
    "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.delete.shuffle.parallelism",
    "hoodie.datasource.write.row.writer.enable",
)
"""Options that are accepted and ignored: added by Spark, or usual in Hudi jobs and without effect
on rows.
"""

METADATA = "commit.metadata."
"""Prefix of commit metadata options: ``commit.metadata.run``."""
STORAGE = "storage."
"""Prefix of store options: ``storage.region``."""

_BLANK_IF_UNSET = ("name", "key", "ordering", "required")
"""Options that count as omitted if their text is blank."""
_KEY_GENERATORS = (
    "simplekeygenerator",
    "complexkeygenerator",
    "nonpartitionedkeygenerator",
    "timestampbasedkeygenerator",
)


@dataclass(slots=True, kw_only=True)
class SourceOptions(CallOptions):
    """The options of one read or write by name, and of its table.

    options: Options as in :class:`mdt.config.Options`.
    storage: Options of the store.
    metadata: Metadata of commits.
    create_arguments, create_options: ``table`` and ``options`` for a new table, including those of
        the session (:mod:`mdt.source.settings`).
    """

    path: str
    options: dict[str, str] = field(default_factory=dict)
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
    two names with different values, and for invalid values. Raises Unsupported for features of
    Hudi's own writers and readers.

    >>> parsed = parse_options({"path": "trips", "KEY": "id", "mdt.compression": "zstd"})
    >>> parsed.path, parsed.table, parsed.options
    ('trips', {'key': ('id',)}, {'mdt.compression': 'zstd'})
    """
    options = {name.lower(): text for name, text in texts.items()}
    if "path" not in options:
        hint = 'set it with .load("trips") or the option path'
        if "paths" in options:
            hint = "load one table at a time"
        raise Invalid("the path of the table is missing", hint=hint)
    parsed = SourceOptions(path=hadoop_path(options["path"]))
    of_call: dict[str, str] = {}
    for name, text in options.items():
        if name in CALL_OPTIONS:
            if text.strip() or CALL_OPTIONS.find(name).member not in _BLANK_IF_UNSET:
                of_call[name] = text
        elif name.startswith(STORAGE):
            parsed.storage[name.removeprefix(STORAGE)] = text
        elif name.startswith(METADATA):
            parsed.metadata[name.removeprefix(METADATA)] = text
        elif name in OPTIONS:
            parsed.options[name] = text
        elif name in _CHECKS:
            _CHECKS[name](name, text)
        elif name not in IGNORED:
            hint = suggestion(name, [*CALL_OPTIONS, *OPTIONS, *_CHECKS])
            raise Invalid(f"unknown option {name!r}", hint=hint)
    for member, value in CALL_OPTIONS.read(of_call).items():
        setattr(parsed, member, value)
    parsed.create_arguments, parsed.create_options = parsed.table, dict(parsed.options)
    return parsed


def machine_options(names: Iterable[str]) -> list[str]:
    """Return the options among ``names`` with machine scope (:data:`mdt.option.Scope`)."""
    machine_names = []
    for name in names:
        if name.lower() in OPTIONS and OPTIONS.find(name.lower()).scope == "machine":
            machine_names.append(name)
    return machine_names


def _refuse_change_files(name: str, text: str) -> None:
    if text.lower() not in ("false", "latest_state"):
        raise Unsupported(
            f"{name} = {text} is not supported: Hudi's CDC files are not written or read",
            hint="read changes with the options since and changes (net or all)",
        )


def _refuse_key_generator(name: str, text: str) -> None:
    if not text.lower().endswith(_KEY_GENERATORS):
        raise Unsupported(
            f"{name} = {text} is not supported",
            hint="remove it: it follows from key, partition_by and mdt.partition.time.*",
        )


_CHECKS: Mapping[str, Callable[[str, str], None]] = {
    "hoodie.table.cdc.enabled": _refuse_change_files,
    "hoodie.datasource.query.incremental.format": _refuse_change_files,
    "hoodie.datasource.write.keygenerator.class": _refuse_key_generator,
    "hoodie.table.keygenerator.class": _refuse_key_generator,
}
"""Hudi options that are validated and otherwise ignored."""
