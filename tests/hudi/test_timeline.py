from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Invalid
from mdt.hudi import timeline

T = "20261121053000123"
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)


def test_instant_is_utc_to_the_millisecond() -> None:
    assert timeline.instant_text(0) == "19700101000000000"
    assert timeline.instant_text(1_795_239_000_123_999) == T
    assert timeline.instant_us(T) == 1_795_239_000_123_000


@given(TIMES)
def test_instant_round_trips_to_the_millisecond(us: int) -> None:
    assert timeline.instant_us(timeline.instant_text(us)) == us - us % 1000


@given(TIMES, TIMES)
def test_order_of_text_is_order_of_time(a: int, b: int) -> None:
    assert (timeline.instant_text(a) < timeline.instant_text(b)) == (a // 1000 < b // 1000)


def test_fourteen_digits_mean_the_end_of_their_second() -> None:
    assert timeline.instant_us(T[:14]) == timeline.instant_us(T[:14] + "999")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026",
        T + "0",
        "20261321053000123",
        "2026112105300012a",
        "２０２６１１２１０５３０００１２３",
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        timeline.instant_us(text)


def test_times_beyond_the_calendar_are_refused() -> None:
    with pytest.raises(Invalid):
        timeline.instant_text(10**18)


@pytest.mark.parametrize("text", [T, T[:14]])
def test_seventeen_digits_are_a_time_and_fourteen_of_old_tables(text: str) -> None:
    assert timeline.is_time(text)
    assert not any(
        map(timeline.is_time, ("", f"{text}0", f"{text[:-1]}a", f"{text}\n", "２" * len(text)))
    )
