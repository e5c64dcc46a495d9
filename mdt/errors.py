"""Every error that mdt raises on purpose.

One base class and seven kinds; a kind exists only where a caller would act differently.  The message says what
happened, ``hint`` says what to do next, ``retryable`` says whether the same call may succeed later unchanged.
"""

from __future__ import annotations


class MdtError(Exception):
    """Base of all errors of this package.

    ``hint`` (str) is the next step for the person who reads it, or empty.

    >>> print(Invalid("there is no column 'fair'", hint="did you mean fare?"))
    there is no column 'fair'
      hint: did you mean fare?
    """

    retryable: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class Conflict(MdtError):
    """Another transaction changed what this one read or wrote; a retry on the newest snapshot may succeed."""

    retryable = True


class Unavailable(MdtError):
    """The storage did not do what was asked; the outcome may be unknown; the same call may succeed later."""

    retryable = True


class Invalid(MdtError, ValueError):
    """The caller's data, schema, options or SQL are not acceptable; nothing was changed."""


class Corrupt(MdtError):
    """Bytes on storage are not what was written.

    ``path`` names the object, ``offset`` the byte where the trouble was found (-1: unknown), ``expected`` and ``got``
    what was compared.
    """

    def __init__(
        self, message: str, *, path: str = "", offset: int = -1, expected: str = "", got: str = "", hint: str = ""
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


class CorruptInput(Corrupt):
    """A file whose rows are to be written is not what it says of itself.  Raised before a commit, never after one."""


class Expired(MdtError):
    """The past state or range that was asked for was cleaned; the hint says what can still be read.

    ``oldest`` and ``newest``: seqs of the states that can be read, -1 if unknown.
    """

    def __init__(self, message: str, *, oldest: int = -1, newest: int = -1, hint: str = "") -> None:
        if not hint and oldest >= 0:
            hint = f"the states after commits {oldest} to {newest} can be read"
        super().__init__(message, hint=hint)
        self.oldest = oldest
        self.newest = newest


class Unsupported(MdtError):
    """The request is meaningful, but this version, storage or table cannot do it."""


class Internal(MdtError):
    """A mistake in mdt itself; please report it."""
