"""Values of index options, which specifications write as text: ``bloom(status, fpp='0.001')``."""

from __future__ import annotations


def probability(name: str, value: float | str) -> float:
    """Return the value of the option ``name`` as a number between 0 and 1, both excluded.

    Raises ValueError for anything else.

    >>> probability("fpp", "0.001")
    0.001
    >>> probability("fpp", "many")
    Traceback (most recent call last):
        ...
    ValueError: invalid fpp='many'; use a number between 0 and 1
    """
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0.0 < number < 1.0:
        raise ValueError(f"invalid {name}={value!r}; use a number between 0 and 1")
    return number


def whole_number(name: str, value: int | str, most: int | None = None) -> int:
    """Return the value of the option ``name`` as a whole number of at least 1 and at most ``most``.

    Raises ValueError for anything else.

    >>> whole_number("buckets", "8", 100)
    8
    """
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1 or (most is not None and number > most):
        allowed = "at least 1" if most is None else f"from 1 to {most:,}"
        raise ValueError(f"invalid {name}={value!r}; use a whole number {allowed}")
    return number
