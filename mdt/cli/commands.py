"""Shared parts of all commands: ``--json``, ``--storage-option``, output and exit codes.

A command reports its result with :func:`tell` or :func:`tell_rows`, as JSON or as text. With
``--json`` stdout has one JSON document, or one per row, and an error is a JSON document on stderr.

Exit codes: 0 for success, 1 if ``check`` found problems, 2 for wrong usage and errors, 130 if
interrupted. A closed pipe is not an error.
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
from mdt.cli.hints import for_command_line
from mdt.cli.terminal import (
    encode_as_json,
    errors,
    note,
    pairs,
    settings,
    show_error,
    show_table,
    warn,
)
from mdt.errors import MdtError
from mdt.write.result import WriteResult

INTERRUPTED = 130
"""The exit code that shells expect after Ctrl-C."""

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
    """The group of all commands. It prints errors without a traceback and ends quietly if the pipe
    is closed.
    """

    def main(self, *args: Any, **named: Any) -> Any:
        """Run the command line. The module documents the exit codes."""
        try:
            try:
                return super().main(*args, **named)
            finally:
                sys.stdout.flush()
        except (BrokenPipeError, SystemExit) as error:
            # typer and rich turn a closed pipe into an exit with code 1.
            if not any(isinstance(cause, BrokenPipeError) for cause in (error, error.__context__)):
                raise
            _close_stdout()
            raise SystemExit(0) from None
        except OSError as error:  # of the output, such as a full disk
            _close_stdout()
            note(f"error: {error}", "red")
            raise SystemExit(2) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except MdtError as error:
            if is_json():
                facts = {
                    "error": type(error).__name__,
                    "message": error.message,
                    "hint": for_command_line(error.hint),
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
    """Redirect stdout to null, so that the final flush of the interpreter succeeds."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is not a file
        return


def command(
    app: typer.Typer, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a function to ``app``, with the options of every command."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
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
            if json:
                encode_as_json()
            _is_dry.set(named.get("dry_run", False))
            _storage_options.set(pairs("--storage-option", storage_option) or None)
            function(*given, **named)

        signature = inspect.Signature([*parameters, *shared])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {
            parameter.name: parameter.annotation for parameter in signature.parameters.values()
        }
        app.command(name)(run)
        return function

    return register


def is_json() -> bool:
    """Return True if ``--json`` was given."""
    return _as_json.get()


_SEQ_DIGITS_MAX = 10
"""Digits of a commit number on the command line. An instant has 14 or 17 digits."""


def open_table(path: str, option: Sequence[str] = (), as_of: str | None = None) -> table.Table:
    """Open a table with the options of the command line, optionally as of a point."""
    state = None
    if as_of is not None:
        state = point(as_of)
    return table.open(path, settings(option), storage_options=storage_options(), as_of=state)


def point(text: str) -> int | str:
    """Return a point in history. Up to ten digits are a commit number.

    >>> point("7"), point("20240229120000123")
    (7, '20240229120000123')
    """
    if text.isascii() and text.isdigit() and len(text) <= _SEQ_DIGITS_MAX:
        return int(text)
    return text


def storage_options() -> Mapping[str, str] | None:
    """Return the values of ``--storage-option``, or None."""
    return _storage_options.get()


def tell(
    document: Mapping[str, object],
    text: str | Callable[[], None],
    warnings: Sequence[str] | None = None,
) -> None:
    """Print a result: ``document`` as JSON, or ``text`` for people. A callable ``text`` prints
    itself.

    warnings: Warnings of the operation, on stderr or in the document. None if it has no warnings.

    The output of a dry run is marked as such.
    """
    if is_json():
        result = dict(document)
        if warnings is not None:
            result["warnings"] = list(warnings)
        if _is_dry.get():
            result["dry_run"] = True
        print(json_text.line(result))
        return
    if _is_dry.get():
        print("dry run, nothing changed: ", end="")
    if isinstance(text, str):
        print(text)
    else:
        text()
    warn(warnings or ())


def tell_rows(
    rows: pa.Table | Iterable[Mapping[str, object]], show: Callable[[], None] | None = None
) -> None:
    """Print rows: as JSON lines, or as a table for people. ``show`` replaces the table."""
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
    """Print the row counts and the commit of a write."""
    names = ("inserted", "updated", "deleted", "late", "missing")
    counts = [f"{getattr(result, name):,} {name}" for name in names if getattr(result, name)]
    tell_commit(result, ", ".join(counts) or "nothing to do")


def tell_commit(result: WriteResult, summary: str) -> None:
    """Print a summary and the commit of a write. For a dry run, print the files and bytes it would
    write.
    """
    text = f"{summary}; the newest commit is {result.seq}"
    if result.instant:
        text = f"{summary}; commit {result.seq} at {result.instant}"
    if _is_dry.get():
        files = (
            f"{result.files_written:,} files, of which {result.files_rewritten:,} replace file"
            " groups"
        )
        text = f"{summary}; {files}, about {result.bytes_written:,} bytes"
    document = asdict(result)
    tell(
        {name: value for name, value in document.items() if name != "warnings"},
        text,
        result.warnings,
    )
