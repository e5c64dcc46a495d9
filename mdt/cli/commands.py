"""What all commands share: ``--json``, ``--storage-option``, exit codes, and an end without noise.

A command says what it found by :func:`tell` or :func:`tell_rows`, once for programs and once for
people.  With ``--json`` stdout has one JSON document, or one for each row, and an error is one on
stderr.  Exit codes: 0; 1 if ``check`` found problems; 2 for wrong usage and our own errors; 130 if
interrupted.  A closed pipe ends a command well.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from functools import wraps
from typing import Annotated, Any

import pyarrow as pa
import typer
from typer.core import TyperGroup

from mdt import table
from mdt.cli import json_text
from mdt.cli.terminal import errors, pairs, settings, show_error, show_table, warn
from mdt.errors import MdtError
from mdt.write.result import WriteResult

INTERRUPTED = 130
"""What shells expect of a command that Ctrl-C ended."""

_AsJson = Annotated[
    bool, typer.Option("--json", help="Write JSON: one document, or one a line for rows.")
]
_StorageOption = Annotated[
    list[str],
    typer.Option(
        "--storage-option",
        help="For a URL, as name=value, such as region=eu-west-1; may be repeated.",
    ),
]
_as_json: ContextVar[bool] = ContextVar("as_json", default=False)
_is_dry: ContextVar[bool] = ContextVar("is_dry", default=False)
_storage_options: ContextVar[Mapping[str, str] | None] = ContextVar("storage_options", default=None)


class Commands(TyperGroup):
    """The group of all commands: tells our errors without a traceback, and ends well when nobody
    reads on.
    """

    def main(self, *args: Any, **named: Any) -> Any:
        """Run the command line; see the module for exit codes."""
        try:
            try:
                return super().main(*args, **named)
            finally:
                sys.stdout.flush()
        except (BrokenPipeError, SystemExit) as ended:
            # typer and rich turn a closed pipe into an exit with code 1.
            if not any(isinstance(error, BrokenPipeError) for error in (ended, ended.__context__)):
                raise
            _close_stdout()
            raise SystemExit(0) from None

    def invoke(self, ctx: Any) -> Any:
        """Run one command."""
        try:
            return super().invoke(ctx)
        except MdtError as error:
            if is_json():
                facts = {
                    "error": type(error).__name__,
                    "message": error.message,
                    "hint": error.hint,
                    "retryable": error.retryable,
                }
                print(json_text.line(facts), file=sys.stderr)
            else:
                show_error(error)
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            errors().print("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            _as_json.set(False)
            _is_dry.set(False)
            _storage_options.set(None)


def _close_stdout() -> None:
    """Let the interpreter flush at its end what nobody will read."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stdout that is no file
        return


def command(
    app: typer.Typer, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a function to ``app``, with the options that every command
    has.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        shared = [
            inspect.Parameter(
                "json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_AsJson
            ),
            inspect.Parameter(
                "storage_option",
                inspect.Parameter.KEYWORD_ONLY,
                default=[],
                annotation=_StorageOption,
            ),
        ]

        @wraps(function)
        def run(*given: Any, json: bool, storage_option: list[str], **named: Any) -> None:
            _as_json.set(json)
            _is_dry.set(named.get("dry_run", False))
            _storage_options.set(pairs("--storage-option", storage_option) or None)
            function(*given, **named)

        signature = inspect.Signature([*own, *shared])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {
            parameter.name: parameter.annotation for parameter in signature.parameters.values()
        }
        app.command(name)(run)
        return function

    return register


def is_json() -> bool:
    """Return whether a program reads the result."""
    return _as_json.get()


_SEQ_DIGITS_MAX = 10
"""Of a number that stands for a seq on the command line; an instant has 14 or 17 digits."""


def opened(path: str, option: Sequence[str] = (), as_of: str | None = None) -> table.Table:
    """Open a table with the options of the command line, perhaps as of a point."""
    state = None
    if as_of is not None:
        state = point(as_of)
    return table.open(path, settings(option), storage_options=storage_options(), as_of=state)


def point(text: str) -> int | str:
    """Return what stands for a point in history: few digits are a seq."""
    if text.isascii() and text.isdigit() and len(text) <= _SEQ_DIGITS_MAX:
        return int(text)
    return text


def storage_options() -> Mapping[str, str] | None:
    """Return the options for the store."""
    return _storage_options.get()


def tell(
    document: Mapping[str, object],
    text: str | Callable[[], None],
    warnings: Sequence[str] | None = None,
) -> None:
    """Write a result: ``document`` for programs; for people ``text``, or what a call of it shows.

    ``warnings``: of the operation, None for one that has none; people find them on stderr, programs
    in the document. Of a command that has ``--dry-run`` both say that it was one.
    """
    if is_json():
        told = dict(document)
        if warnings is not None:
            told["warnings"] = list(warnings)
        if _is_dry.get():
            told["dry_run"] = True
        print(json_text.line(told))
        return
    if _is_dry.get():
        print("dry run, nothing was changed: ", end="")
    if isinstance(text, str):
        print(text)
    else:
        text()
    warn(warnings or ())


def tell_rows(
    rows: pa.Table | Iterable[Mapping[str, object]], show: Callable[[], None] | None = None
) -> None:
    """Write rows: JSON lines for programs; a table, or what ``show`` shows, for people."""
    if is_json():
        if isinstance(rows, pa.Table):
            rows = rows.to_pylist()
        for row in rows:
            print(json_text.line(row))
    elif show is not None:
        show()
    elif isinstance(rows, pa.Table):
        show_table(rows)


def tell_written(result: WriteResult) -> None:
    """Write how a write ended."""
    names = ("inserted", "updated", "deleted", "late", "missing")
    done = [f"{getattr(result, name):,} {name}" for name in names if getattr(result, name)]
    tell_commit(result, ", ".join(done) or "nothing to do")


def tell_commit(result: WriteResult, done: str) -> None:
    """Write how a write ended: what it has ``done``, and its commit; of a dry run what it would
    write.
    """
    text = f"{done}; commit {result.seq} stays the newest"
    if result.instant:
        text = f"{done}; commit {result.seq} at {result.instant}"
    if _is_dry.get():
        files = (
            f"{result.files_written:,} files, {result.files_rewritten:,} of them in the place of"
            " file groups"
        )
        text = f"{done}; {files}, about {result.bytes_written:,} bytes"
    document = asdict(result)
    tell(
        {name: value for name, value in document.items() if name != "warnings"},
        text,
        result.warnings,
    )
