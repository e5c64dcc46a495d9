"""Hints of errors, with commands and their options in place of Python calls and arguments."""

from __future__ import annotations

import re
from collections.abc import Callable

_COMMANDS = {
    "abort": "abort PATH",
    "refresh": "refresh PATH",
    "advise": "index advise PATH",
    "alter": "alter PATH",
    "analyze": "index create PATH 'table_stats(COLUMN)'",
    "build_indexes": "index build PATH",
    "changes": "changes PATH",
    "check": "check PATH",
    "clean": "clean PATH",
    "cluster": "cluster PATH",
    "compact": "compact PATH",
    "create_index": "index create PATH",
    "delete": "delete PATH",
    "delete_partition": "delete-partition PATH",
    "delete_where": "delete PATH --where …",
    "drop_index": "index drop PATH",
    "history": "history PATH",
    "insert_overwrite": "overwrite PATH",
    "purge": "purge PATH",
    "rebuild_index": "index rebuild PATH",
    "rekey": "rekey PATH",
    "repair": "repair PATH",
    "restore": "restore PATH",
    "rollback": "rollback PATH",
    "stats": "stats PATH",
    "tag": "tag PATH",
    "tags": "tags PATH",
    "truncate": "truncate PATH",
    "untag": "untag PATH",
    "update_where": "update PATH",
    "upgrade": "upgrade PATH",
    "upsert": "upsert PATH",
}
"""Methods of a table -> commands."""
_OPTIONS = (
    "as_of|before|by|columns|curve|dry_run|key|key_index|limit|mode|order_by|ordering"
    "|partition_by|scope|since|until|where"
)
"""Arguments with an option of the same name, as a pattern."""
_METHOD = "|".join(_COMMANDS)
_ENTRY = r"\{'(?P<name>[\w.]+)': '?(?P<value>[^',}]*)'?[^}]*\}"
"""A dict of Python."""
_VALUE = r"(?:['\"](?P<text>[^'\"]*)['\"]|\['?(?P<list>[^\]]*?)'?\]|(?P<plain>[\w…]+))"
"""A text, a list of texts, or another value of Python."""
_BEFORE_ARGUMENT = "(?P<before>with|without|in|check)"
"""Words before the name of an argument. Elsewhere the name may be that of a column."""


def _command(match: re.Match[str]) -> str:
    return f"mdt {_COMMANDS[match['method']]}"


def _option(match: re.Match[str]) -> str:
    name = match["name"].replace("_", "-")
    value = (match["text"] or match["list"] or match["plain"] or "").replace("', '", ",")
    if value == "True":
        return f"--{name}"
    if re.search(r"[^\w,…]", value):
        value = f"'{value}'"
    return f"--{name} {value}"


_Replacement = str | Callable[[re.Match[str]], str]
_RULES: tuple[tuple[str, _Replacement], ...] = (
    (r", in SQL CALL [^,]*, ", " "),
    (r", in SQL .*", ""),
    (r"mdt\.create\(path, schema, key=\[[^\]]*\]\)", "mdt create PATH --like FILE --key NAME"),
    (r"mdt\.open\(path, \{'(?P<option>[^']+)': …\}\)", r"--option \g<option>=…"),
    (r"(the argument as_of\? )?mdt\.open\(path, as_of=…\)", "--as-of"),
    (r"mdt\.open\(path\)\.scan\(\)", "mdt scan PATH"),
    (r"mdt\.open\(path\) opens it", "mdt info PATH shows it"),
    (r"mdt\.open\(path\)", "mdt info PATH"),
    (r"mdt\.repair(\(path\))?", "mdt repair PATH"),
    (r"mdt\.adopt\(path\)", "mdt adopt PATH"),
    (r"mdt\.release\(path\)", "mdt release PATH"),
    (r"mdt\.option_lists\.options_table\(\)", "mdt options"),
    (r"\w+=True \((?P<option>--[a-z-]+)\)", r"\g<option>"),
    (r"\b(?P<call>\w+\()\w+=True\) \((?P<option>--[a-z-]+)\)", r"\g<call>) \g<option>"),
    (rf"\bt\.(?P<method>{_METHOD})\b(\([^()]*\))?", _command),
    (rf"(?<![\w.])(?P<method>{_METHOD})\(\)", _command),
    (rf"storage_options={_ENTRY}", r"--storage-option \g<name>=\g<value>"),
    (rf"\boptions={_ENTRY}", r"--option \g<name>=\g<value>"),
    (r" or order_by=\[.*\]", ""),
    (rf"\b(?P<name>{_OPTIONS})={_VALUE}", _option),
    (rf"\b{_BEFORE_ARGUMENT} storage_options\b", r"\g<before> --storage-option"),
    (rf"\b{_BEFORE_ARGUMENT} as_of\b", r"\g<before> --as-of"),
    (r"\bas_of(?= for a snapshot| for a state)", "--as-of"),
)


def for_command_line(hint: str) -> str:
    """Return a hint with commands in place of Python.

    >>> for_command_line("mdt.open(path) opens it"), for_command_line("name it: key=['id']")
    ('mdt info PATH shows it', 'name it: --key id')
    """
    for pattern, replacement in _RULES:
        hint = re.sub(pattern, replacement, hint)
    return hint
