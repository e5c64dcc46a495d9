"""SVG pictures of a table: its timeline, and the value ranges of its files in two columns.

All texts are escaped (:func:`mdt.display.escaped`). Pictures contain no scripts, and draw nothing
outside their own area.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log10

from mdt.display import escaped, visible
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.reports.file_map import FilesOfState, Layout, layout
from mdt.services.reports.summary import Summary

_WIDTH = 960
_LANE = 26
_LEFT = 130
_TOP = 54
_PANEL = 400
_GAP = 70
_COLOURS = {
    "commit": "#2b6cb0",
    "deltacommit": "#2b6cb0",
    "compaction": "#dd6b20",
    "replacecommit": "#2f855a",
    "clean": "#805ad5",
}
_OTHER = "#718096"
_BASE, _LOG = "#2b6cb0", "#dd6b20"
_RADIUS = 2.5
_RECTANGLE_MIN = 1.5
"""Minimum width, so that a file with a single value is visible."""
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}"'
    ' font-family="sans-serif" font-size="11"><rect width="{0}" height="{1}" fill="#ffffff"/>'
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a table: text as a ``str``, a picture in notebooks, and SVG.

    ``layout`` is None if the table has no rows, or no two columns with statistics.

    >>> t.show().svg()[:4]
    '<svg'
    """

    summary: Summary
    layout: Layout | None

    def __str__(self) -> str:
        return str(self.summary)

    def __repr__(self) -> str:
        return f"<mdt picture of {visible(self.summary.name)}, commit {self.summary.seq}>"

    def _repr_html_(self) -> str:
        return self.svg() + f"<pre>{escaped_lines(self.summary.lines())}</pre>"

    def svg(self) -> str:
        """Return the timeline and the layout below it as one SVG document."""
        parts = [_timeline(self.summary)]
        if self.layout is not None:
            parts.append(_plane(self.layout))
        height = sum(tall for tall, _ in parts)
        places = [0, *(tall for tall, _ in parts)]
        body = "".join(
            f'<g transform="translate(0 {offset})">{part}</g>'
            for offset, (_, part) in zip(places, parts, strict=False)
        )
        return _HEAD.format(_WIDTH, height) + body + "</svg>"


def picture(
    metadata: Metadata,
    snapshot: Snapshot,
    summary: Summary,
    *,
    columns: Sequence[str] | None,
    before: int | None,
) -> Picture:
    """Return the picture of ``snapshot`` next to the state ``before``.

    By default ``before`` is the state before the newest clustering, if it is readable. Raises
    Invalid for columns that cannot be drawn.
    """
    if before is None:
        before = _before_clustering(summary)
    states = (
        [snapshot] if before is None or before == snapshot.seq else [metadata.at(before), snapshot]
    )
    return Picture(summary, layout(states, columns))


def _before_clustering(summary: Summary) -> int | None:
    commits = zip(
        summary.commits["seq"].to_pylist(), summary.commits["operation"].to_pylist(), strict=True
    )
    clusterings = [
        seq for seq, operation in commits if operation == "cluster" and seq > summary.horizon
    ]
    return clusterings[-1] - 1 if clusterings else None


def escaped_lines(lines: Iterator[str]) -> str:
    """Return lines of text, escaped for HTML."""
    return "\n".join(map(escaped, lines))


# The timeline


def _timeline(summary: Summary) -> tuple[int, str]:
    """Return (height, SVG elements) of the newest commits.

    Each operation has a lane. Circles are larger for more rows.
    """
    commits = summary.commits.to_pylist()
    lanes = {
        name: _TOP + _LANE * n
        for n, name in enumerate(dict.fromkeys(commit["operation"] for commit in commits))
    }
    height = _TOP + _LANE * max(1, len(lanes)) + 20
    step = (_WIDTH - _LEFT - 30) / max(1, len(commits) - 1)
    place = {commit["seq"]: _LEFT + step * n for n, commit in enumerate(commits)}
    parts = [_text(12, 20, f"{summary.name}: commits", size=14)]
    parts += _marks(summary, place, height)
    for name, y in lanes.items():
        parts.append(_text(_LEFT - 14, y + 4, name, anchor="end"))
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - 30}" y2="{y}" stroke="#e2e8f0"/>')
    for commit in commits:
        rows = sum(commit[name] or 0 for name in ("inserted", "updated", "deleted"))
        radius = _RADIUS + 1.2 * log10(1 + rows)
        title = (
            f"commit {commit['seq']:,} at {commit['instant']}: {commit['operation']}, {rows:,} rows"
        )
        colour = _COLOURS.get(commit["action"], _OTHER)
        parts.append(
            f'<circle cx="{place[commit["seq"]]:.1f}" cy="{lanes[commit["operation"]]}"'
            f' r="{radius:.1f}" fill="{colour}" fill-opacity="0.75">'
            f"<title>{escaped(title)}</title></circle>"
        )
    for seq in list(place)[:1] + list(place)[1:][-1:]:
        parts.append(_text(place[seq], height - 8, f"{seq:,}", anchor="middle"))
    return height, "".join(parts)


def _marks(summary: Summary, place: dict[int, float], height: int) -> Iterator[str]:
    """Yield the background: unreadable states and tags."""
    if place and min(place) < summary.horizon:
        end = place.get(summary.horizon, _WIDTH - 30.0)
        yield (
            f'<rect x="{_LEFT - 8}" y="{_TOP - 16}" width="{end - _LEFT:.1f}"'
            f' height="{height - _TOP - 6}" fill="#edf2f7"/>'
        )
        yield _text(_LEFT, _TOP - 20, "no longer readable", colour=_OTHER)
    for name, seq in summary.tags.items():
        if seq in place:
            yield (
                f'<line x1="{place[seq]:.1f}" y1="{_TOP - 16}" x2="{place[seq]:.1f}"'
                f' y2="{height - 22}" stroke="#d69e2e"/>'
            )
            yield _text(place[seq] + 3, _TOP - 8, name, colour="#b7791f")


# The layout


def _plane(found: Layout) -> tuple[int, str]:
    """Return (height, SVG elements) of the files as rectangles over two columns, one panel per
    state.
    """
    parts = [_text(12, 20, f"files by {found.columns[0]} and {found.columns[1]}", size=14)]
    for number, state in enumerate(found.states):
        parts.append(_panel(found, state, _GAP + number * (_PANEL + _GAP)))
    return _TOP + _PANEL + 50, "".join(parts)


def _panel(found: Layout, state: FilesOfState, x: int) -> str:
    """Return the panel of one state."""
    note = "" if len(state.is_log) == state.of else f", {len(state.is_log):,} of them shown"
    parts = [
        _text(x, _TOP - 8, f"commit {state.seq:,}: {state.of:,} files{note}"),
        (
            f'<rect x="{x}" y="{_TOP}" width="{_PANEL}" height="{_PANEL}" fill="none"'
            ' stroke="#a0aec0"/>'
        ),
    ]
    left, right = x + _PANEL * state.low[0], x + _PANEL * state.high[0]
    top, bottom = _TOP + _PANEL * (1 - state.high[1]), _TOP + _PANEL * (1 - state.low[1])
    wide, tall = (right - left).clip(_RECTANGLE_MIN), (bottom - top).clip(_RECTANGLE_MIN)
    ends = (left.tolist(), top.tolist(), wide.tolist(), tall.tolist(), state.is_log.tolist())
    for a, b, width, height, is_log in zip(*ends, strict=True):
        colour, dense = (_LOG, 0.05) if is_log else (_BASE, 0.12)
        parts.append(
            f'<rect x="{a:.1f}" y="{b:.1f}" width="{width:.1f}" height="{height:.1f}"'
            f' fill="{colour}" fill-opacity="{dense}" stroke="{colour}" stroke-width="0.7"/>'
        )
    return "".join([*parts, *_axes(found, x)])


def _axes(found: Layout, x: int) -> Iterator[str]:
    """Yield the axis labels of a panel."""
    across, up = found.ticks
    for text, position in zip(across, _evenly(len(across)), strict=True):
        yield _text(x + _PANEL * position, _TOP + _PANEL + 14, text[:10], anchor="middle")
    for text, position in zip(up, _evenly(len(up)), strict=True):
        yield _text(x - 4, _TOP + _PANEL * (1 - position) + 4, text[:10], anchor="end")
    yield _text(x + _PANEL / 2, _TOP + _PANEL + 32, found.columns[0], anchor="middle")
    yield _text(x - 4, _TOP - 8, found.columns[1], anchor="end")


def _evenly(count: int) -> list[float]:
    return [n / max(1, count - 1) for n in range(count)]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, colour: str = "#2d3748"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escaped(text)}</text>"
