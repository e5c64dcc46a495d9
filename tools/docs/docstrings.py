"""An extension of griffe that turns this project's docstrings into Markdown.

Roles such as ``:func:`mdt.open``` become links, doctests become blocks of code, and paragraphs of
arguments, ``name: text`` with further lines indented, become lists.
"""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([\w.]+)`")
_DOCTEST = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\w+(?:, \w+)*): (?=\S)")


def link(match: re.Match[str]) -> str:
    """Return the link of a role.  A name without a page stays code."""
    name = match[1]
    return f'<autoref identifier="{name}" optional><code>{name}</code></autoref>'


def listed(paragraph: str) -> str:
    r"""Return a paragraph of arguments as a list, and any other paragraph as it is.

    >>> print(listed("path: A local path,\n    or a URL.\nkey: A column."))
    - **path**: A local path,
        or a URL.
    - **key**: A column.
    """
    lines = paragraph.splitlines()
    is_argument = [_ARGUMENT.match(line) is not None for line in lines]
    if not is_argument[0]:
        return paragraph
    if not all(
        new or line.startswith("    ") for new, line in zip(is_argument, lines, strict=True)
    ):
        return paragraph
    return "\n".join(_ARGUMENT.sub(r"- **\1**: ", line, count=1) for line in lines)


def markdown(text: str) -> str:
    r"""Return a docstring as Markdown.

    >>> print(markdown("Like :func:`mdt.open`."))
    Like <autoref identifier="mdt.open" optional><code>mdt.open</code></autoref>.
    >>> markdown(">>> 1 + 1\n2")
    '```pycon\n>>> 1 + 1\n2\n```\n'
    """
    text = "\n\n".join(listed(part) if part.strip() else part for part in text.split("\n\n"))
    text = _DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
    return _ROLE.sub(link, text)


class Docstrings(griffe.Extension):
    """Applies :func:`markdown` to every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object that griffe has loaded."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
