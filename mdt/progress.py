"""Progress of long calls: a callback, or a bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mdt.errors import Invalid

Progress = Callable[[int, int], None]
"""Called in the calling thread with (done, total) counts of files or tasks. An exception from it
ends the call and rolls a write back.
"""
ProgressOption = Progress | bool | None
"""Values of ``progress=``: a :data:`Progress`, True for a bar on stderr if that is a terminal, None
or False for neither.
"""

T = TypeVar("T")


@contextmanager
def progress_callback(progress: ProgressOption, text: str) -> Iterator[Progress | None]:
    """Yield the callback for ``progress``, or None. Raises Invalid for any other type.

    text: The label of a bar.
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with bar(text) as callback:
            yield callback
    elif callable(progress):
        yield progress
    else:
        type_name = type(progress).__name__
        raise Invalid(
            f"progress takes a function, True or None, not a {type_name}",
            hint="progress=True shows a bar",
        )


@contextmanager
def bar(text: str) -> Iterator[Progress]:
    """Show a progress bar while the block runs, if stderr is a terminal. It disappears
    afterwards.
    """
    # importing rich takes longer than most calls
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        console=console, transient=True, disable=not (console.is_terminal or console.is_jupyter)
    ) as progress_bar:
        task = progress_bar.add_task(text, total=None)
        yield lambda done, total: progress_bar.update(task, completed=done, total=total)


def report_each(items: Iterable[T], total: int, progress: Progress | None) -> Iterator[T]:
    """Yield from ``items``, of which there are ``total``, and report each to ``progress``."""
    for number, item in enumerate(items, 1):
        if progress is not None:
            progress(number, total)
        yield item
