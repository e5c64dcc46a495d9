"""Calls that must fail, with the kind of their error and what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mdt import Invalid, MdtError


def refused(
    said: str, act: Callable[..., object], *given: Any, kind: type[MdtError] = Invalid, **named: Any
) -> MdtError:
    """Assert that ``act(*given, **named)`` raises exactly ``kind``, and that its text, with the
    hint, has the parts of ``said`` in their order, which `` … `` separates; return the error.
    """
    with pytest.raises(MdtError) as caught:
        act(*given, **named)
    assert type(caught.value) is kind, repr(caught.value)
    text, begin = str(caught.value), 0
    for part in said.split(" … "):
        found = text.find(part, begin)
        assert found >= 0, f"{part!r} does not follow in {text!r}"
        begin = found + len(part)
    return caught.value
