"""An extension of griffe that turns this project's docstrings into Markdown.

Roles such as ``:func:`mdt.open``` become links, doctests become blocks of code, and double
backticks become code spans.
"""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([\w.]+)`")
_DOCTEST = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)


def link(match: re.Match[str]) -> str:
    """Return the link of a role.  A name without a page stays code."""
    name = match[1]
    return f'<autoref identifier="{name}" optional><code>{name}</code></autoref>'


def markdown(text: str) -> str:
    r"""Return a docstring as Markdown.

    >>> print(markdown("Like :func:`mdt.open`."))
    Like <autoref identifier="mdt.open" optional><code>mdt.open</code></autoref>.
    >>> markdown(">>> 1 + 1\n2")
    '```pycon\n>>> 1 + 1\n2\n```\n'
    """
    text = _DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
    return _ROLE.sub(link, text)


class Docstrings(griffe.Extension):
    """Applies :func:`markdown` to every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object that griffe has loaded."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
