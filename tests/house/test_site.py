"""The documentation site: all pages are in the navigation and short, and pictures are up to date.

`make docs` builds the site and checks its links. Tests that do not need MkDocs are here.
"""

import re
import sys

import documents
import pytest

import indexes
import mdt

DOCS = documents.ROOT / "docs"
SHORT = [
    DOCS / f"{name}.md"
    for name in ("filters", "index", "operations", "past", "schema", "services", "storage")
]
SHORT += [
    page
    for folder in (
        "concepts",
        "filters",
        "past",
        "reference",
        "schema",
        "services",
        "spark",
        "start",
        "tasks",
        "writing",
    )
    for page in sorted((DOCS / folder).glob("*.md"))
]
"""Pages with short paragraphs. Older pages will be added when they are rewritten."""
COLUMNS_MAX = 120
PARAGRAPH_LINES_MAX = 6
PAGE_LINES_MAX = 150


def test_the_navigation_lists_every_page():
    nav = (documents.ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"[ :]([\w/.-]+\.md)$", nav, re.MULTILINE)
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert not pages - set(listed)


def too_long(text):
    """Yield the numbers of lines that are too long, or that make a paragraph too long.

    Rows of tables may have any length. An item of a list is a paragraph.
    """
    is_code, lines = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if len(line) > COLUMNS_MAX and not line.startswith("|"):
            yield number
        if is_code or is_fence or not line or line.startswith(("|", "#")):
            lines = 0
        elif re.match(r" *(-|\d+\.) ", line):
            lines = 1
        else:
            lines += 1
        if lines == PARAGRAPH_LINES_MAX + 1:
            yield number


@pytest.mark.parametrize("page", SHORT, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_pages_and_their_paragraphs_are_short(page):
    text = page.read_text(encoding="utf-8")
    assert not list(too_long(text))
    assert len(text.splitlines()) <= PAGE_LINES_MAX


def test_long_lines_and_paragraphs_are_reported():
    text = "x" * 121 + "\n\n| " + "x" * 121 + " |\n\n" + "line\n" * 7 + "\n- item\n" * 7
    assert list(too_long(text)) == [1, 11]


def test_pictures_are_up_to_date_with_their_sources():
    completed = documents.ran([sys.executable, "tools/docs/pictures.py", "--check"], documents.ROOT)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_the_reference_has_every_public_name():
    folder = DOCS / "reference"
    listed = re.findall(
        r"^::: (.+)$",
        "\n".join(page.read_text("utf-8") for page in folder.glob("*.md")),
        re.MULTILINE,
    )
    names = {f"mdt.{name}" for name in mdt.__all__} | {f"indexes.{n}" for n in indexes.__all__}
    errors = {f"mdt.{name}" for name in mdt.__all__ if hasattr(mdt.errors, name)}
    assert not names - set(listed) - errors
    assert "mdt.errors" in listed
