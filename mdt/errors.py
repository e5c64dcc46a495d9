"""All errors that mdt raises on purpose.

A base class and seven kinds. A kind exists only where a caller would act differently. ``message``
describes the problem, ``hint`` the next step, and ``retryable`` is True if the same call may
succeed later.
"""

from __future__ import annotations

import re
from typing import Self


class MdtError(Exception):
    """Base class of all errors of this package.

    ``hint`` (str) is the next step for the user, or empty. ``is_of_others`` is True if the reason
    is that other Hudi writers wrote the table.

    >>> print(Invalid("there is no column 'fair'", hint="did you mean fare?"))
    there is no column 'fair'
      hint: did you mean fare?
    """

    retryable: bool = False
    is_of_others: bool = False
    sqlstate = "XX000"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def of_others(self) -> Self:
        """Mark this error as one about a table that other Hudi writers wrote. Return it."""
        self.is_of_others = True
        return self

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def getCondition(self) -> str:
        """Return Spark's error condition for this kind.

        >>> Invalid("there is no column 'fair'").getCondition()
        'MDT_INVALID'
        """
        return "MDT" + re.sub("[A-Z]", lambda letter: f"_{letter[0]}", type(self).__name__).upper()

    def getSqlState(self) -> str:
        """Return the five-character SQLSTATE of this kind.

        >>> Invalid("there is no column 'fair'").getSqlState()
        '22023'
        """
        return self.sqlstate


class Conflict(MdtError):
    """Another transaction changed data that this one read or wrote. A retry on the newest snapshot
    may succeed.

    >>> Conflict("another writer changed city=Oslo").retryable
    True
    """

    sqlstate = "40001"
    retryable = True


class Unavailable(MdtError):
    """The storage failed. The outcome may be unknown, and the same call may succeed later, unless
    a permission is missing: then ``retryable`` is False.

    >>> Unavailable("the request timed out").retryable
    True
    """

    sqlstate = "58030"
    retryable = True


class Invalid(MdtError, ValueError):
    """The caller's data, schema, options or SQL are not acceptable. Nothing was changed.

    >>> try:
    ...     t.scan("fair > 4")
    ... except mdt.Invalid as error:
    ...     print(error.hint)
    did you mean fare?
    """

    sqlstate = "22023"


class Corrupt(MdtError):
    """Stored bytes differ from the bytes that were written.

    path: The object.
    offset: The byte where the damage was found, or -1 if unknown.
    expected, got: The values that were compared.

    >>> error = Corrupt("bad checksum", path="a.parquet", offset=4, expected="1f", got="2e")
    >>> print(error)
    bad checksum [a.parquet at byte 4] (expected 1f, got 2e)
    """

    sqlstate = "XX001"

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        offset: int = -1,
        expected: str = "",
        got: str = "",
        hint: str = "",
    ) -> None:
        where = f" [{path}" + (f" at byte {offset}" if offset >= 0 else "") + "]" if path else ""
        compared = f" (expected {expected}, got {got})" if expected or got else ""
        super().__init__(message + where + compared, hint=hint)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.got = got


class Missing(Corrupt):
    """An object that must exist is absent.

    >>> Missing("a data file is missing", path="a.parquet").path
    'a.parquet'
    """

    sqlstate = "58P01"


class Expired(MdtError):
    """The requested snapshot or change range was cleaned. The hint names the readable snapshots.

    oldest, newest: Commit numbers of the readable snapshots, or -1 if unknown.

    >>> print(Expired("commit 2 was cleaned", oldest=5, newest=9))
    commit 2 was cleaned
      hint: commits 5 to 9 can be read
    """

    sqlstate = "72000"

    def __init__(self, message: str, *, oldest: int = -1, newest: int = -1, hint: str = "") -> None:
        if not hint and oldest >= 0:
            hint = f"commits {oldest} to {newest} can be read"
        super().__init__(message, hint=hint)
        self.oldest = oldest
        self.newest = newest


class Unsupported(MdtError):
    """The request is valid, but this version, storage or table does not support it.

    >>> issubclass(Unsupported, MdtError), Unsupported("").retryable
    (True, False)
    """

    sqlstate = "0A000"


class Internal(MdtError):
    """A bug in mdt. Please report it.

    >>> Internal("positions are not sorted").getCondition()
    'MDT_INTERNAL'
    """
