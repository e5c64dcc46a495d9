"""Transport of mdt's errors from Spark tasks to the caller.

Spark passes only the text of a traceback to the driver. A task therefore puts kind, message and
hint into its exception's text, as JSON after a marker, and the driver restores the error. Other
errors are unchanged, unless Spark's Python workers lack a package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mdt import errors
from mdt.engines.spark import private
from mdt.errors import MdtError, Missing, Unavailable, Unsupported
from mdt.session import Recent, in_session

_MARK = "mdt-error:"
_MISSING_PACKAGE = re.compile(
    r"No module named"
    r" '(mdt|indexes|numpy|pyarrow|pyroaring|mmh3|sortedcontainers|fastavro|obstore)\b"
)
_MISSING_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+)")


@in_session
def _roots() -> Recent[str, str]:
    """Return the tables that queries of this process read, limited to the most recent."""
    return Recent(1_024)


class TaskFailed(Exception):
    """Raised in a task in place of an mdt error. :func:`in_driver` parses its text."""


@contextmanager
def in_task() -> Iterator[None]:
    """Raise mdt errors in a form that reaches the driver complete."""
    try:
        yield
    except MdtError as error:
        fields = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        raise TaskFailed(_MARK + json.dumps(fields)) from error


@contextmanager
def in_driver(doing: str = "") -> Iterator[None]:
    """Restore and raise mdt errors of tasks.

    Raises Unsupported if a worker lacks a package. ``doing``: an activity, such as writing, that
    tasks may continue after the job has failed. Any other failure of Spark is then Unavailable.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        restored = _restore(str(error))
        if restored is None and doing:
            restored = Unavailable(
                f"Spark could not {doing}: {_last_line(str(error))}",
                hint="nothing was committed; try again",
            )
        if restored is None:
            raise
        raise restored from error


def restore_in_queries(root: str) -> None:
    """Restore mdt errors of queries in planner and tasks, for any caller of the query.

    ``root``: URI of a table that queries read. A missing file of this table also becomes an mdt
    error.
    """
    _roots().put(root, root)
    private.on_java_errors(lambda text: _parse_marked(text) or _missing_file(text))


def _missing_file(text: str) -> Missing | None:
    """Return the error for a query whose files were deleted after it was planned, or None."""
    match = _MISSING_FILE.search(text)
    if match is None or not ("FILE_NOT_EXIST" in text or "FileNotFoundException" in text):
        return None
    root = next((root for root in _roots().values() if root in match[1]), None)
    if root is None:
        return None
    return Missing(
        f"a file of the table at {root} is missing: the table was deleted or replaced, or its"
        " snapshot was cleaned",
        hint=(
            "create the DataFrame again with mdt.read(spark, path), in SQL run REFRESH TABLE and"
            " the query again"
        ),
    )


def _last_line(text: str) -> str:
    """Return the last line of a Python traceback, without JVM frames."""
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith(("\t", "JVM"))
    ]
    if lines:
        return lines[-1]
    return ""


def _parse_marked(text: str) -> MdtError | None:
    at = text.find(_MARK + "{")
    if at < 0:
        return None
    fields = json.JSONDecoder().raw_decode(text, at + len(_MARK))[0]
    kind: type[MdtError] = getattr(errors, fields["kind"])
    return kind(fields["message"], hint=fields["hint"])


def _restore(text: str) -> MdtError | None:
    restored = _parse_marked(text)
    if restored is not None:
        return restored
    lacking = _MISSING_PACKAGE.search(text)
    if lacking is None:
        return None
    return Unsupported(
        f"the Python of Spark's workers lacks the package {lacking[1]!r}",
        hint=(
            "install pyspark-mdt on the workers, or set PYSPARK_PYTHON (and PYTHONPATH) to a Python"
            " that has it"
        ),
    )
