"""What a Spark session says to all tables that it names: ``spark.mdt.*`` of its SparkConf or of
``SET``, below the options of a call.

``spark.mdt.x`` is the option ``mdt.x``; ``spark.mdt.table_type``, ``key_index``, ``scope`` and
``indexes`` are words for tables that are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt.arguments import nearest, one_of
from mdt.config import canonical, declaration, options_list
from mdt.engines.reads import OPTIMIZES, Reads
from mdt.errors import Invalid
from mdt.limits import COUNT_MAX
from mdt.source.words import METADATA, Words, columns_of, flag_of, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.mdt."
OF_NEW_TABLES = ("table_type", "key_index", "scope", "indexes")
"""Words for tables that are made; those that are there keep their own."""

_CREATION = ("mdt.index.type", "mdt.bucket.count", "mdt.bucket.fields")
"""Options that say of new tables what words say, too, and that tables which are there must agree
with.
"""
_KEY_INDEX = ("key_index", "scope")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a session says.

    ``table``, ``made``: words and options of tables that are made; ``options``: of all.
    ``builds``: whether what indexes do not cover is built in the background after each write;
    ``advised``: whether indexes are created that queries want, too.  ``packages``: distributions
    with indexes, which the Python of the executors must have.  ``reads``: how tables are read.
    ``metadata``: what commits carry.
    """

    table: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    builds: bool = False
    advised: bool = False
    packages: tuple[str, ...] = ()
    reads: Reads = field(default_factory=Reads)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def under(self, asked: Words) -> Words:
        """Return ``asked`` with what the session says where it says nothing itself."""
        given = canonical(asked.options)
        table, made = dict(self.table), dict(self.made)
        if given.keys() & set(_CREATION):
            table = {word: value for word, value in table.items() if word not in _KEY_INDEX}
        if given.keys() & set(_CREATION) or asked.table.keys() & set(_KEY_INDEX):
            made = {name: text for name, text in made.items() if name not in _CREATION}
        options = {**self.options, **given}
        metadata = {**self.metadata, **asked.metadata}
        return replace(
            asked,
            made_as={**table, **asked.table},
            made_with={**made, **options},
            options=options,
            metadata=metadata,
        )

    def over(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return options for a table that is there, with those of the session below them."""
        return {**self.options, **canonical(options)} if self.options else options


def settings_of(spark: SparkSession) -> Settings:
    """Return what a session says.  Raises Invalid for an unknown setting, naming the nearest, and
    for values that mean nothing.
    """
    return parse(late.spark_session.settings(spark, PREFIX))


def parse(given: Mapping[str, str]) -> Settings:
    """Return what settings say; see :func:`settings_of`.

    >>> found = parse(
    ...     {
    ...         "spark.mdt.indexes": "bitmap(city)",
    ...         "spark.mdt.hive.style": "false",
    ...         "spark.mdt.compression": "zstd",
    ...     }
    ... )
    >>> found.table, found.made, found.options
    ({'indexes': ('bitmap(city)',)}, {'mdt.hive.style': 'false'}, {'mdt.compression': 'zstd'})
    """
    table: dict[str, Any] = {}
    options: dict[str, str] = {}
    own: dict[str, Any] = {}
    reads: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    for name, text in given.items():
        word = name.removeprefix(PREFIX)
        if word in OF_NEW_TABLES:
            table[word] = value_of(word, name, text)
        elif word in _OWN:
            member, parser = _OWN[word]
            own[member] = parser(name, text)
        elif word in _READS:
            member, parser = _READS[word]
            reads[member] = parser(name, text)
        elif word.startswith(METADATA):
            metadata[word.removeprefix(METADATA)] = text
        elif f"mdt.{word}" in _options():
            options[f"mdt.{word}"] = text
        else:
            raise Invalid(f"unknown setting {name!r}", hint=nearest(word, known(), PREFIX))
    options = canonical(options)
    made = {name: text for name, text in options.items() if declaration(name).fixed}
    if own.get("advised"):
        own["builds"] = True
        options["mdt.usage.counts"] = "true"
    return Settings(
        table,
        made,
        {name: text for name, text in options.items() if name not in made},
        reads=Reads(**reads),
        metadata=metadata,
        **own,
    )


def known() -> list[str]:
    """Return all settings, without what all begin with."""
    return [*OF_NEW_TABLES, *_OWN, *_READS, *(name.removeprefix("mdt.") for name in _options())]


@cache
def _options() -> frozenset[str]:
    """Return the name of each option."""
    return frozenset(option["name"] for option in options_list())


def _is(value: str, choices: tuple[str, ...], name: str, text: str) -> bool:
    return one_of(name, text.strip().lower(), choices) == value


def _explained(name: str, text: str) -> bool:
    """Check who is told of plans, one of them, or several by commas; the JVM reads the setting when
    a query is planned.
    """
    return all(
        one_of(name, part.strip().lower(), ("off", "log", "metrics")) for part in text.split(",")
    )


def _optimized(name: str, text: str) -> tuple[str, ...]:
    """Return what is done of OPTIMIZES: all, none, or some by commas."""
    asked = [
        one_of(name, part.strip().lower(), ("all", "none", *OPTIMIZES)) for part in text.split(",")
    ]
    return (
        OPTIMIZES if "all" in asked else tuple(dict.fromkeys(one for one in asked if one != "none"))
    )


def _bytes(name: str, text: str) -> int:
    """Return a number of bytes from 0 on."""
    if not text.strip().isdecimal():
        raise Invalid(
            f"{name} = {text!r} is no number of bytes", hint=f"{name}=67108864; 0 for none"
        )
    return min(int(text), COUNT_MAX)


_OWN: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "indexes.build": ("builds", partial(_is, "background", ("off", "background"))),
    "indexes.auto": ("advised", flag_of),
    "indexes.packages": ("packages", columns_of),
}
"""Settings that are no options: the member of Settings, and what a text becomes."""

_READS: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "explain": ("explains", _explained),
    "affinity": (
        "affinity",
        lambda name, text: one_of(name, text.strip().lower(), ("auto", "on", "off")),
    ),
    "optimize": ("optimizes", _optimized),
    "footers.bytes": ("footer_bytes", _bytes),
    "vectors.bytes": ("vector_bytes", _bytes),
}
"""Settings that say how tables are read: the member of Reads, and what a text becomes."""
