"""Lists of all options, for the command line and the documentation."""

from __future__ import annotations

from typing import Any

from mdt.config import ALTERABLE, OPTIONS
from mdt.option import OptionTable


def options_list(table: OptionTable = OPTIONS) -> list[dict[str, Any]]:
    """Return every option of ``table`` as a dict: name, aliases, default (text), allowed, scope,
    fixed (at creation), meaning.
    """
    return [
        {
            "name": declared.name,
            "aliases": list(declared.hudi),
            "default": declared.default_text(),
            "allowed": declared.kind.allowed,
            "scope": declared.scope,
            "fixed": declared.fixed and declared.name not in ALTERABLE,
            "meaning": declared.doc,
        }
        for declared in table.options.values()
    ]


def options_table(table: OptionTable = OPTIONS) -> str:
    """Return every option of ``table`` as a Markdown table."""
    lines = ["| option | default | allowed | scope | meaning |", "|---|---|---|---|---|"]
    for row in options_list(table):
        names = "<br>".join(f"`{name}`" for name in (row["name"], *row["aliases"]))
        default = row["default"] or "(empty)"
        scope = row["scope"] + ", fixed" * row["fixed"]
        lines.append(f"| {names} | `{default}` | {row['allowed']} | {scope} | {row['meaning']} |")
    return "\n".join(lines) + "\n"
