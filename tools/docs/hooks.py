"""Hooks of MkDocs: pages that are not in docs/, and links that work in the tree and on the site.

Pages at the top of the tree (FORMAT.md and others) stay there and appear on the site under the
names of ``TOP``.  The reference of the command line is made from the Typer application.  A link
between two pages is rewritten for the site; a link to a file that is not on the site, such as a
test, becomes plain text.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from mdt.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
TOP = {
    "ARCHITECTURE.md": "inside/architecture.md",
    "CHANGELOG.md": "inside/changelog.md",
    "CONTRIBUTING.md": "inside/contributing.md",
    "FORMAT.md": "reference/format.md",
    "README.md": "index.md",
    "RELIABILITY.md": "evidence/reliability.md",
}
"""Pages at the top of the tree -> their names on the site.  README.md has docs/index.md instead."""
COMMAND_LINE = "reference/command-line.md"
INTRODUCTION = """This page is made from `mdt --help`.
[Operations](../operations.md#the-command-line) shows the commands in use."""
_FENCED = re.compile(r"(^ {0,3}```[^\n]*\n.*?^ {0,3}```[ ]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of ``TOP`` and the reference of the command line."""
    for name, uri in TOP.items():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, COMMAND_LINE, content=command_line()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, fenced blocks and code spans aside."""
    names = {uri: name for name, uri in TOP.items() if uri != "index.md"}
    uri = page.file.src_uri
    source = names.get(uri, f"docs/{uri}")
    parts = _FENCED.split(markdown)
    parts[::2] = [rewritten(text, source, uri, files) for text in parts[::2]]
    return "".join(parts)


def rewritten(text: str, source: str, uri: str, files: Files) -> str:
    """Return text of the page ``source`` with links for its place ``uri`` on the site."""
    code = [(span.start(), span.end()) for span in _CODE_SPAN.finditer(text)]

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        inside = any(start < match.start() and match.end() < end for start, end in code)
        if inside or re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match[0]
        path, _, anchor = target.partition("#")
        there = os.path.normpath(Path(source).parent / path).replace(os.sep, "/")
        place = TOP.get(there) or there.removeprefix("docs/")
        if files.get_file_from_path(place) is None:
            return label if (ROOT / there).exists() else match[0]
        relative = os.path.relpath(place, Path(uri).parent).replace(os.sep, "/")
        return f"{image}[{label}]({relative}{'#' * bool(anchor)}{anchor})"

    return _LINK.sub(link, text)


# The command line


def command_line() -> str:
    """Return the page of all commands and their options."""
    root = typer.main.get_command(app)
    parts = [
        "# The command line",
        INTRODUCTION,
    ]
    for name, command in commands("mdt", root):
        parts += [f"## {name}", *described(name, command)]
    return "\n\n".join(parts) + "\n"


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command below ``command`` with its full name, in alphabetical order."""
    for child, inner in sorted(getattr(command, "commands", {}).items()):
        if getattr(inner, "commands", None):
            yield from commands(f"{name} {child}", inner)
        else:
            yield f"{name} {child}", inner


def described(name: str, command: Any) -> Iterator[str]:
    """Yield the text, the usage and the table of options of one command."""
    yield (command.help or "").strip()
    arguments = [metavar(one) for one in command.params if one.param_type_name == "argument"]
    yield "```text\n" + " ".join([name, *arguments, "[OPTIONS]"]) + "\n```"
    rows = [table_row(one) for one in command.params if one.name != "help"]
    yield "\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows])


def metavar(argument: Any) -> str:
    """Return an argument as usage lines show it: ``PATH``, or ``FILES...`` for several."""
    return argument.name.upper() + "..." * (argument.nargs != 1)


def table_row(parameter: Any) -> str:
    """Return the row of a parameter: its names, its default, its meaning."""
    is_argument = parameter.param_type_name == "argument"
    names = [*parameter.opts, *parameter.secondary_opts]
    if is_argument:
        names = [metavar(parameter)]
    default = getattr(parameter.default, "value", parameter.default)
    shown = ""
    if default not in (None, False, (), [], "") and not callable(default):
        shown = f"`{default}`"
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {', '.join(f'`{name}`' for name in names)} | {shown} | {text} |"
