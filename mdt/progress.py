"""How far a long call has come: a callback, or a bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mdt.errors import Invalid

Progress = Callable[[int, int], None]
"""Called in the calling thread with the number of things (files, tasks) that are done and of all.
What it raises ends the call: a write is then rolled back.
"""
ProgressOption = Progress | bool | None
"""What ``progress=`` takes: a :data:`Progress`, True for a bar on stderr if that is a terminal,
None or False for neither.
"""

T = TypeVar("T")


@contextmanager
def shown(progress: ProgressOption, text: str) -> Iterator[Progress | None]:
    """Give the callback that ``progress`` means while the block runs.  Raises Invalid for anything
    else than it may be.

    ``text``: what a bar is called.
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with bar(text) as told:
            yield told
    elif callable(progress):
        yield progress
    else:
        kind = type(progress).__name__
        raise Invalid(
            f"progress takes a function, True or None, not a value of type {kind}",
            hint="progress=True shows a bar",
        )


@contextmanager
def bar(text: str) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs, if that is a terminal; it is gone afterwards."""
    # takes longer to load than most calls take; only who wants a bar pays for it
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        console=console, transient=True, disable=not (console.is_terminal or console.is_jupyter)
    ) as shown_bar:
        task = shown_bar.add_task(text, total=None)
        yield lambda done, total: shown_bar.update(task, completed=done, total=total)


def counted(done: Iterable[T], total: int, progress: Progress | None) -> Iterator[T]:
    """Yield ``done``, which are ``total`` things, and tell ``progress`` of each before the next
    one.
    """
    for number, one in enumerate(done, 1):
        if progress is not None:
            progress(number, total)
        yield one
