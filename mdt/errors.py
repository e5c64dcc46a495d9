"""Every error that mdt raises on purpose.

One base class and seven kinds; a kind exists only where a caller would act differently.  The
message says what happened, ``hint`` says what to do next, ``retryable`` says whether the same call
may succeed later unchanged.
"""

from __future__ import annotations

import re


class MdtError(Exception):
    """Base of all errors of this package.

    ``hint`` (str) is the next step for the person who reads it, or empty.

    >>> print(Invalid("there is no column 'fair'", hint="did you mean fare?"))
    there is no column 'fair'
      hint: did you mean fare?
    """

    retryable: bool = False
    sqlstate = "XX000"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def getCondition(self) -> str:
        """Return the name of the kind as an error condition of Spark.

        >>> Invalid("there is no column 'fair'").getCondition(), Invalid("").getSqlState()
        ('MDT_INVALID', '22023')
        """
        return "MDT" + re.sub("[A-Z]", lambda letter: f"_{letter[0]}", type(self).__name__).upper()

    def getSqlState(self) -> str:
        """Return the SQLSTATE of the kind, five characters of which the first two are its class."""
        return self.sqlstate


class Conflict(MdtError):
    """Another transaction changed what this one read or wrote; a retry on the newest snapshot may
    succeed.
    """

    sqlstate = "40001"
    retryable = True


class Unavailable(MdtError):
    """The storage did not do what was asked; the outcome may be unknown; the same call may succeed
    later.
    """

    sqlstate = "58030"
    retryable = True


class Invalid(MdtError, ValueError):
    """The caller's data, schema, options or SQL are not acceptable; nothing was changed."""

    sqlstate = "22023"


class Corrupt(MdtError):
    """Bytes on storage are not what was written.

    ``path`` names the object, ``offset`` the byte where the trouble was found (-1: unknown),
    ``expected`` and ``got`` what was compared.
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
    """An object that should exist does not."""

    sqlstate = "58P01"


class CorruptInput(Corrupt):
    """A file whose rows are to be written is not what it says of itself.  Raised before a commit,
    never after one.
    """


class Expired(MdtError):
    """The past state or range that was asked for was cleaned; the hint says what can still be read.

    ``oldest`` and ``newest``: seqs of the states that can be read, -1 if unknown.
    """

    sqlstate = "72000"

    def __init__(self, message: str, *, oldest: int = -1, newest: int = -1, hint: str = "") -> None:
        if not hint and oldest >= 0:
            hint = f"the states after commits {oldest} to {newest} can be read"
        super().__init__(message, hint=hint)
        self.oldest = oldest
        self.newest = newest


class Unsupported(MdtError):
    """The request is meaningful, but this version, storage or table cannot do it."""

    sqlstate = "0A000"


class Internal(MdtError):
    """A mistake in mdt itself; please report it."""
