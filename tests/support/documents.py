"""The project's Markdown pages as tests see them: blocks of code, links, headings.

The convention for every page: each fenced block names its language. ``python`` blocks run in their
order in one namespace, in an empty directory. ``sh`` blocks run between them, line by line: ``mdt``
commands are run, the target of ``make`` is looked up, ``pip install`` must name the project and its
extras, ``python -m pytest`` collects its tests, another ``python -m`` must name a module, and
``spark-submit`` must have settings of mdt. Blocks that only show something are ``text`` or
``json``.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mdt.source.settings import PREFIX, parse

ROOT = Path(__file__).resolve().parents[2]
SHOWN_ONLY = frozenset(("text", "json"))
"""Languages of blocks that are not run."""
SECONDS_MAX = 120
"""Longest time that a command of a page may take."""

_FENCE = re.compile(r"^ {0,3}(```+)[ ]*(\S*)[ ]*$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)|!\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w.,-]+)\])?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the number of its first line of code, its language and its code."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages():
    """Return the Markdown pages of the project."""
    below = [page for top in ("docs", "tests", "benchmarks") for page in (ROOT / top).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *below])


def blocks(page, text):
    """Return the fenced blocks of a page. Raises ValueError for a fence without an end."""
    fenced = []
    lines = []
    opened = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence is not None:
                opened, lines = (fence[1], fence[2], number + 1), []
        elif fence is not None and fence[1].startswith(opened[0]) and not fence[2]:
            fenced.append(Block(page, opened[2], opened[1], "\n".join(lines)))
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[2] - 1}: a block is never closed")
    return fenced


def prose(text):
    """Return a page without its fenced blocks and code spans."""
    text_lines, inside = [], False
    for line in text.splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            text_lines.append(re.sub(r"`[^`]*`", "", line))
    return "\n".join(text_lines)


def links(text):
    """Return the targets of a page's links and images that are not addresses on the network."""
    targets = [link[1] or link[2] for link in _LINK.finditer(prose(text))]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(text):
    """Return the anchors that a page's headings make, spelled as Git forges do."""
    outside = "\n".join("" if line.startswith("```") else line for line in text.splitlines())
    titles = [re.sub(r"[`*]", "", title).lower() for title in _HEADING.findall(outside)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def dead_links(page):
    """Yield the links of a page whose target does not exist."""
    text = page.read_text(encoding="utf-8")
    for target in links(text):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (
            anchor and anchor not in anchors(file.read_text(encoding="utf-8"))
        ):
            yield target


def run_python(block, namespace):
    """Run a block in ``namespace`` and return its output. Its line numbers are those of the page.
    The level of mdt's loggers is restored.
    """
    code = compile("\n" * (block.line - 1) + block.code, block.page, "exec", dont_inherit=True)
    level = logging.getLogger("mdt").level
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            exec(code, namespace)
    finally:
        logging.getLogger("mdt").setLevel(level)
    return printed.getvalue()


def run_shell(block, folder):
    """Run every command of a block in ``folder``. Raises AssertionError for a command that fails or
    that cannot be checked.
    """
    for line in block.code.replace("\\\n", " ").splitlines():
        words = [
            word for word in shlex.split(line, comments=True) if not _ASSIGNMENT.fullmatch(word)
        ]
        if words:
            assert words[0] in COMMANDS, (
                f"{block}: no check for {words[0]!r}; add it to tests/support/documents.py"
            )
            COMMANDS[words[0]](line, words, folder)


def _try_pip(line, words, folder):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert words[1] == "install", line
    for word in words[2:]:
        requirement = _REQUIREMENT.fullmatch(word)
        assert requirement is not None and requirement[1] == project["name"], (
            f"{line}: not this project"
        )
        unknown = set((requirement[2] or "").split(",")) - {"", *project["optional-dependencies"]}
        assert not unknown, f"{line}: pyproject.toml has no extra {unknown}"


def _try_spark_submit(line, words, folder):
    settings = [word.partition("=")[::2] for word in words if word.startswith(PREFIX)]
    assert settings and parse(dict(settings)), f"{line}: no settings of mdt"


def _try_make(line, words, folder):
    process = ran(["make", "-n", *words[1:]], ROOT)
    assert process.returncode == 0, f"{line}: {process.stderr}"


def _try_python(line, words, folder):
    if words[1] != "-m":
        assert (ROOT / words[1]).is_file(), f"{line}: no such file"
        return
    assert find_spec(words[2]) is not None, f"{line}: no such module"
    if words[2] == "pytest":
        process = ran([sys.executable, *words[1:], "--collect-only", "-q"], ROOT)
        assert process.returncode == 0, f"{line}: {process.stdout}"


def _run_mdt(line, words, folder):
    """Run the line in a shell that finds this tree's ``mdt``, so that pipes work."""
    function = f'mdt() {{ {shlex.quote(sys.executable)} -m mdt "$@"; }}'
    process = ran(["bash", "-c", f"{function}\nset -e -o pipefail\n{line}"], folder)
    assert process.returncode == 0, f"{line}: {process.stderr}"


def ran(command, folder, packages=ROOT):
    """Run a command in ``folder`` and return the completed process. Python finds the packages of
    ``packages`` first.
    """
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


COMMANDS = {
    "pip": _try_pip,
    "make": _try_make,
    "mdt": _run_mdt,
    "python": _try_python,
    "spark-submit": _try_spark_submit,
}
"""First word of a command -> the function that checks it."""
