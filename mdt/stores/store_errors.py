"""Converts errors of object stores to our errors, with a cause and a remedy.

obstore reports causes as text only. They are recognized by the codes in the services' XML answers
and by a few messages of obstore's HTTP client. Any other error becomes Unavailable with the first
line of its text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from obstore import exceptions

from mdt.errors import Invalid, MdtError, Unavailable, Unsupported
from mdt.stores.contract import missing
from mdt.stores.options import AZURE, GCS, S3, Service

_ANSWER = re.compile(r"<Code>([^<]{1,100})</Code>\s*<Message>([^<]{1,500})")
_ADDRESS = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)")
_REASON = re.compile(r'message: "([^"]+)"|error: "([^"]+)"|source: (TimedOut)')
_SIGNED = re.compile(r"(?i)\b(sig|signature|token|x-amz-[a-z-]+)=[^&\s\"]+")

_USER = re.compile(r"(?<=://)[^/\s\"@]+@")

_SECRET_LETTERS_MIN = 4
"""Shorter values are not secret, and too common in texts to replace."""

_NO_BUCKET = re.compile(
    r"NoSuchBucket|ContainerNotFound|FilesystemNotFound|The specified bucket does not exist"
)
_NO_CREDENTIALS = re.compile(
    r"/latest/api/token|/latest/meta-data|/computeMetadata/|/metadata/identity|CredentialsNotFound|MissingSecretAccessKey"
    r"|MissingAccessKeyId|Missing SecretAccessKey|Missing AccessKeyId|MissingAccount|az account"
    r" get-access-token"
)
_WRONG_REGION = re.compile(
    r"redirect without"
    r" LOCATION|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|region"
    r" '[^']*' is wrong"
)
_REGION = re.compile(r"expecting '([a-z0-9-]{1,40})'|<Region>([a-z0-9-]{1,40})</Region>")
_NO_ANSWER = re.compile(r"kind: (Connect|Timeout)|error sending request|operation timed out")
_NO_TLS = "HTTP error: builder error"
_KEY_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|TokenRefreshRequired|InvalidToken|AuthenticationFailed"
)
_REFUSED = re.compile(
    r"403 Forbidden|AccessDenied|AuthorizationFailure|AuthorizationPermissionMismatch"
)
_NO_REASON = re.compile(r"Error performing HEAD .* 400 Bad Request")
"""S3 gives no reason in answers to HEAD. It answers this for expired credentials."""
_UNDER_WAY = re.compile(r"ConditionalRequestConflict|OperationAborted")
_PUT = "Error performing PUT"
_ACTS = {
    "deleting": re.compile(r"DeleteObjects|Error performing (DELETE|POST .*[?&]delete)"),
    "listing": re.compile(r"list request"),
    "writing": re.compile(r"Error performing (PUT|POST)"),
    "reading": re.compile(r"Error performing (GET|HEAD)"),
}
"""Patterns for the refused action, which determines the missing permission. The first match
counts.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The store that an error comes from: URL of the table, and values to hide in messages."""

    url: str
    secrets: Sequence[str] = field(repr=False, default=())

    @property
    def bucket(self) -> str:
        """The bucket or container of the URL."""
        return self.url.partition("://")[2].partition("/")[0]

    @property
    def service(self) -> Service:
        """The service of the URL."""
        return {"gs": GCS, "s3": S3}.get(self.url.partition(":")[0], AZURE)

    def without_secrets(self, text: str) -> str:
        """Return ``text`` with secrets replaced by asterisks."""
        for secret in self.secrets:
            text = text.replace(secret, "***") if len(secret) >= _SECRET_LETTERS_MIN else text
        return _USER.sub("***@", _SIGNED.sub(r"\1=***", text))


def convert_error(error: BaseException, path: str, place: Place) -> MdtError:
    """Convert an obstore error for ``path``."""
    text = str(error)
    if _NO_BUCKET.search(text):
        return Invalid(
            f"there is no bucket {place.bucket!r} at {_address(text, place)}",
            hint="create it, or check its name, the account and the endpoint",
        )
    if isinstance(error, FileNotFoundError):
        return _no_destination(error, path, place) if _PUT in text else missing(path)
    if _NO_CREDENTIALS.search(text):
        return Unavailable(
            f"no credentials were found for {place.url}", hint=place.service.credentials
        )
    if _WRONG_REGION.search(text):
        return _wrong_region(text, place)
    if isinstance(error, (exceptions.NotSupportedError, NotImplementedError)):
        return Unsupported(f"the store cannot do this for {path!r}: {error_text(error, place)}")
    by_rights = isinstance(
        error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    )
    if by_rights or _KEY_REFUSED.search(text) or _REFUSED.search(text) or _NO_REASON.search(text):
        return _refused(error, path, place)
    return _no_answer(error, path, place)


def _no_destination(error: BaseException, path: str, place: Place) -> MdtError:
    return Unavailable(
        f"the store found no destination for {path!r}: {error_text(error, place)}",
        hint=(
            f"the bucket {place.bucket!r} may not exist: check its name, the account and the"
            " endpoint"
        ),
    )


def _refused(error: BaseException, path: str, place: Place) -> MdtError:
    text = str(error)
    act = next((name for name, pattern in _ACTS.items() if pattern.search(text)), "")
    needed = f": {act} needs {place.service.rights[act]}" if act else ""
    absent = (
        " (without the permission to list, absent objects are refused, too)"
        if act == "reading"
        else ""
    )
    hint = (
        f"check the permissions on the bucket{needed}{absent}; without credentials:"
        f" {place.service.credentials}"
    )
    if _KEY_REFUSED.search(text):
        hint = "check the credentials and their permissions on the bucket"
    elif _NO_REASON.search(text):
        hint = (
            "check the credentials, which may have expired: the store gives no reason in this case"
        )
    target = f"{act} {path or '/'!r}" if act else repr(path or "/")
    refusal = Unavailable(f"the store refused {target}: {error_text(error, place)}", hint=hint)
    refusal.retryable = False
    return refusal


def _no_answer(error: BaseException, path: str, place: Place) -> MdtError:
    text = str(error)
    if _NO_TLS in text:
        return Invalid(
            f"the endpoint {_address(text, place)} is not encrypted",
            hint="use https, or allow it: storage_options={'allow_http': 'true', …}",
        )
    if _NO_ANSWER.search(text):
        return Unavailable(
            f"nothing answers at {_address(text, place)}: {_reason(text)}",
            hint=(
                "check the endpoint (storage_options={'endpoint': …}), the network and the proxy;"
                " then try again"
            ),
        )
    return Unavailable(f"the store failed on {path!r}: {error_text(error, place)}")


def _wrong_region(text: str, place: Place) -> MdtError:
    match = _REGION.search(text)
    region = (match[1] or match[2]) if match else ""
    return Invalid(
        f"the bucket {place.bucket!r} is not in the requested region"
        + (f", but in {region}" if region else ""),
        hint=f"storage_options={{'region': {region or '…'!r}}}, or AWS_REGION in the environment",
    )


def refused_options(error: BaseException, place: Place) -> MdtError:
    """Return the error for options that obstore rejects."""
    text = str(error)
    if _NO_CREDENTIALS.search(text):
        return Invalid(
            f"credentials are incomplete: {error_text(error, place)}",
            hint=place.service.credentials,
        )
    return Invalid(
        f"the store for {place.url} cannot be created: {error_text(error, place)}",
        hint="check storage_options and the environment",
    )


def error_text(error: BaseException, place: Place) -> str:
    """Return the service's answer, or else the first line of the error, without secrets."""
    text = str(error).partition("\n\nDebug source")[0]
    answer = _ANSWER.search(text)
    return place.without_secrets(
        f"{answer[1]}: {answer[2]}" if answer else text.partition("\n")[0][:500]
    )


def is_conflict(error: BaseException) -> bool:
    """Return True if a conditional put was refused because of a concurrent put.

    obstore reports this as an existing object.
    """
    return _UNDER_WAY.search(str(error)) is not None


def contains_secrets(error: BaseException, place: Place) -> bool:
    """Return True if the text of ``error`` contains a secret. It must then not be attached as a
    cause.
    """
    text = str(error)
    return place.without_secrets(text) != text


def _address(text: str, place: Place) -> str:
    match = _ADDRESS.search(text)
    return match[1] if match else place.service.name


def _reason(text: str) -> str:
    match = _REASON.search(text)
    if match is None:
        return "the request could not be sent"
    return (match[1] or match[2] or "no answer in time").lower()
