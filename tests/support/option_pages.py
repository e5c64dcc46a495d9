"""The tables at the end of the pages of options."""

from __future__ import annotations

from collections.abc import Iterable

from mdt.config import CALL_OPTIONS, OPTIONS
from mdt.hudi_options import TABLE, HudiOption
from mdt.option import Option
from mdt.option_lists import options_table
from mdt.spark_settings import SPARK_SETTINGS


def options_reference() -> str:
    """Return the tables at the end of docs/options.md."""
    return (
        f"{options_table()}\n## Options of Spark's readers and writers\n\n"
        f"{options_table(CALL_OPTIONS)}\n## Settings of a Spark session\n\n"
        f"{options_table(SPARK_SETTINGS)}"
    )


def hudi_options_reference() -> str:
    """Return the tables at the end of docs/hudi-options.md."""
    equal = ["| Hudi | mdt | meaning |", "|---|---|---|"]
    for table in (OPTIONS, CALL_OPTIONS):
        equal += filter(None, map(_equal_row, table.options.values()))
    certain = ["| Hudi | values | mdt |", "|---|---|---|"]
    no_effect = ["| Hudi | mdt |", "|---|---|"]
    for entry in TABLE:
        names = _code(f"{name}*" if name.endswith(".") else name for name in entry.names)
        if entry.accepted is None and entry.agreeing is None:
            no_effect.append(f"| {names} | {entry.here} |")
        else:
            certain.append(f"| {names} | {_values(entry)} | {entry.here} |")
    return (
        "\n".join(["## Options with an equal here", "", *equal])
        + "\n\n"
        + "\n".join(["## Options that must have certain values", "", *certain])
        + "\n\n"
        + "\n".join(["## Options without effect", "", *no_effect])
        + "\n"
    )


def _equal_row(declared: Option) -> str:
    names = [name for name in declared.hudi if name.startswith(("hoodie.", "as.of."))]
    if not names:
        return ""
    return f"| {_code(names)} | `{declared.name}` | {declared.doc} |"


def _values(entry: HudiOption) -> str:
    values = _code(entry.accepted or ())
    if entry.agreeing is None:
        return values or "none"
    return f"as the table<br>{values}".removesuffix("<br>")


def _code(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names)
