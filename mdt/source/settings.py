"""Settings of a Spark session for all its tables: ``spark.mdt.*`` of its SparkConf or of ``SET``.
Options of a call have precedence.

``spark.mdt.x`` is the option ``mdt.x``. ``spark.mdt.table_type``, ``key_index``, ``scope`` and
``indexes`` apply to new tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mdt import given_options, late
from mdt.arguments import nearest
from mdt.config import CALL_OPTIONS, IN_KEY_INDEX, OPTIONS, canonical
from mdt.errors import Invalid
from mdt.source.option_keywords import METADATA, SourceOptions
from mdt.spark_settings import SPARK_SETTINGS, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.mdt."
NEW_TABLE_OPTIONS = ("table_type", "key_index", "scope", "indexes")
"""Options of new tables. Existing tables keep their own."""

_KEY_INDEX = ("key_index", "scope")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session.

    table, create_options: Arguments and options for new tables.
    options: Options of all tables.
    metadata: Metadata of commits.
    reads: Settings that are not table options, such as read settings.
    """

    table: Mapping[str, Any] = field(default_factory=dict)
    create_options: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    reads: SparkSettings = field(default_factory=SparkSettings)

    def apply_defaults(self, call: SourceOptions) -> SourceOptions:
        """Return ``call`` with the session's settings as defaults."""
        call_options = canonical(call.options)
        table, made = dict(self.table), dict(self.create_options)
        if not call_options.keys().isdisjoint(IN_KEY_INDEX):
            _drop(table, _KEY_INDEX)
            _drop(made, IN_KEY_INDEX)
        if not call.table.keys().isdisjoint(_KEY_INDEX):
            _drop(made, IN_KEY_INDEX)
        options = {**self.options, **call_options}
        return replace(
            call,
            create_arguments=table | call.table,
            create_options=made | options,
            options=options,
            metadata={**self.metadata, **call.metadata},
        )

    def merge_options(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return options for an existing table, with the session's options as defaults."""
        if not self.options:
            return options
        given = given_options.read(options)
        return {**self.options, **canonical(given.own), **given.described}


def _drop(settings: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        settings.pop(name, None)


def settings_of(spark: SparkSession) -> Settings:
    """Return the settings of a session. Raises Invalid for an unknown setting, with the nearest
    name as a hint, and for invalid values.
    """
    return parse(late.spark_session.settings(spark, PREFIX))


def parse(texts: Mapping[str, str]) -> Settings:
    """Parse the settings in ``texts``; see :func:`settings_of`.

    >>> settings = parse(
    ...     {
    ...         "spark.mdt.indexes": "bitmap(city)",
    ...         "spark.mdt.hive.style": "false",
    ...         "spark.mdt.compression": "zstd",
    ...     }
    ... )
    >>> settings.table, settings.create_options, settings.options
    ({'indexes': ('bitmap(city)',)}, {'mdt.hive.style': 'false'}, {'mdt.compression': 'zstd'})
    """
    table: dict[str, Any] = {}
    options: dict[str, str] = {}
    session_values: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for name, text in texts.items():
        word = name.removeprefix(PREFIX)
        if word in NEW_TABLE_OPTIONS:
            table[word] = CALL_OPTIONS.find(word).parse(text, name)
        elif name in SPARK_SETTINGS:
            session_values[name] = text
        elif word.startswith(METADATA):
            metadata[word.removeprefix(METADATA)] = text
        elif f"mdt.{word}" in OPTIONS:
            options[f"mdt.{word}"] = text
        else:
            raise Invalid(f"unknown setting {name!r}", hint=nearest(name, setting_names()))
    read = SPARK_SETTINGS.read(session_values)
    read.pop("explain", None)  # validated here, read by the JVM when it plans a query
    if read.get("indexes_auto"):
        read["indexes_build"] = "background"
        options["mdt.usage.counts"] = "true"
    options = canonical(options)
    made = {}
    for name in list(options):
        if OPTIONS.find(name).fixed:
            made[name] = options.pop(name)
    return Settings(table, made, options, metadata, SparkSettings(**read))


def setting_names() -> list[str]:
    """Return the names of all settings."""
    of_options = ["spark." + declared.name for declared in OPTIONS.options.values()]
    return [*(PREFIX + word for word in NEW_TABLE_OPTIONS), *SPARK_SETTINGS, *of_options]
