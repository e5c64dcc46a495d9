"""Text and HTML for notebooks and prompts.

Names, values and paths are untrusted input. They are shown as text, never as markup, without
control characters and cut to a readable length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import pyarrow as pa

TEXT_CHARACTERS_MAX = 200
"""Characters of a value that are shown. A filter may have megabytes."""
CELL_CHARACTERS_MAX = 80
"""Characters of a value in a preview of rows."""
ROWS_MAX = 100
"""Rows of an HTML table. Notebooks store their output."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_UNSEEN = "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
"""Control characters, zero-width characters and marks that change the direction of text."""


def visible(value: object, characters: int = TEXT_CHARACTERS_MAX) -> str:
    r"""Return ``value`` as a single line without control characters, cut after ``characters``.

    >>> visible("a\nb\x1b[31m")
    'a\\x0ab\\x1b[31m'
    """
    text = str(value)
    cut = text if len(text) <= characters else f"{text[:characters]}…"
    return re.sub(
        _UNSEEN,
        lambda found: (
            f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}"
        ),
        cut,
    )


def size_text(size: int) -> str:
    """Return a number of bytes in a binary unit, as the options of sizes are documented.

    >>> size_text(999), size_text(1024), size_text(5_000_000)
    ('999 B', '1.0 KiB', '4.8 MiB')
    """
    value, unit = float(size), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table of the first ROWS_MAX ``rows``, escaped."""
    remaining = iter(rows)
    cells = [
        "".join(f"<td>{escaped(cell)}</td>" for cell in row) for row in islice(remaining, ROWS_MAX)
    ]
    hidden_rows = sum(1 for _ in remaining)
    if hidden_rows:
        cells.append(f'<td colspan="{len(header)}">… and {hidden_rows:,} more</td>')
    head = "".join(f"<th>{escaped(name)}</th>" for name in header)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    caption = f"<caption>{escaped(caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_facts(caption: str, facts: Mapping[str, object]) -> str:
    """Return an HTML table of names and values, escaped."""
    body = "".join(
        f"<tr><th>{escaped(name)}</th><td>{escaped(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escaped(caption)}</caption><tbody>{body}</tbody></table>"


def html_columns(schema: pa.Schema) -> str:
    """Return the names and types of ``schema`` as an HTML table."""
    rows = ((field.name, field.type, "" if field.nullable else "not null") for field in schema)
    return html_table("columns", ("name", "type", ""), rows)


def html_preview(caption: str, schema: pa.Schema, rows: Iterable[Mapping[str, object]]) -> str:
    """Return rows as an HTML table with the name and type of each column, escaped.

    Long values are cut. Nulls are shown as ``null``.
    """
    head = "".join(f"<th>{_cell(name)}</th>" for name in schema.names)
    types = "".join(f"<td>{_cell(type)}</td>" for type in schema.types)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in schema.names) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{escaped(caption)}</caption><thead><tr>{head}</tr><tr>{types}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    return escaped("null" if value is None else value, CELL_CHARACTERS_MAX)


def escaped(value: object, characters: int = TEXT_CHARACTERS_MAX) -> str:
    """Return :func:`visible` text, escaped for HTML and XML."""
    # loading its tables of entities would add a millisecond to every import of mdt
    from html import escape

    return escape(visible(value, characters), quote=True)
