"""Calls that must fail, with the kind and the text of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mdt import Invalid, MdtError


def refused(
    said: str, act: Callable[..., object], *given: Any, kind: type[MdtError] = Invalid, **named: Any
) -> MdtError:
    """Assert that ``act(*given, **named)`` raises exactly ``kind``, and that its text, with the
    hint, contains the parts of ``said`` in their order. `` … `` separates the parts. Return the
    error.
    """
    with pytest.raises(MdtError) as raised:
        act(*given, **named)
    assert type(raised.value) is kind, repr(raised.value)
    text, begin = str(raised.value), 0
    for part in said.split(" … "):
        at = text.find(part, begin)
        assert at >= 0, f"{part!r} does not follow in {text!r}"
        begin = at + len(part)
    return raised.value
