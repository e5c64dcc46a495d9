"""SVG pictures of a table: its timeline, and the value ranges of its files in two columns.

All texts are escaped (:func:`mdt.display.escaped`). Pictures contain no scripts, and draw nothing
outside their own area.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from mdt.display import escaped, visible
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.reports.file_map import Axis, FilesOfState, Layout, layout
from mdt.services.reports.summary import Summary

_WIDTH = 960
_LANE = 26
_LEFT = 130
_RIGHT = 30
_TOP = 54
_PANEL = 380
_GAP = 95
_PANEL_TOP = 74
_COLOURS = {
    "commit": "#2b6cb0",
    "deltacommit": "#2b6cb0",
    "compaction": "#dd6b20",
    "replacecommit": "#2f855a",
    "clean": "#805ad5",
}
_OTHER = "#718096"
_ACTION_NAMES = {
    "commit": "rows",
    "deltacommit": "rows",
    "compaction": "compaction",
    "replacecommit": "replaced files",
    "clean": "cleaning",
}
_COMMIT_LABELS_MAX = 5
_TAG_ROWS_MAX = 3
_TAG_ROW = 13
_CHARACTER = 6.5
"""Mean width of a character of the font size 11, for the layout of labels."""
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
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(commits) - 1)
    place = {commit["seq"]: _LEFT + step * n for n, commit in enumerate(commits)}
    tags = _tag_labels(summary.tags, place)
    top = _TOP + _TAG_ROW * max((row for _, _, row in tags), default=0)
    lanes = {
        name: top + _LANE * n
        for n, name in enumerate(dict.fromkeys(commit["operation"] for commit in commits))
    }
    bottom = top + _LANE * max(1, len(lanes)) - 10
    parts = [_text(12, 20, f"{summary.name}: commits", size=14), *_legend_of_commits(commits)]
    parts += _marks(summary, place, top, bottom)
    parts += _tags(summary.tags, tags, place, top, bottom)
    for name, y in lanes.items():
        parts.append(_text(_LEFT - 14, y + 4, name, anchor="end"))
        end = _WIDTH - _RIGHT
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{end}" y2="{y}" stroke="#e2e8f0"/>')
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
    parts += _commit_labels(commits, place, bottom)
    return bottom + 46, "".join(parts)


def _legend_of_commits(commits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the colours of the actions in ``commits``, from right to left."""
    names = {
        _ACTION_NAMES.get(commit["action"], "other"): _COLOURS.get(commit["action"], _OTHER)
        for commit in commits
    }
    x = float(_WIDTH - _RIGHT)
    for text, colour in [("larger: more rows", ""), *names.items()]:
        yield _text(x, 20, text, anchor="end", colour=_OTHER)
        x -= _CHARACTER * len(text) + 10
        if colour:
            yield f'<circle cx="{x + 3:.1f}" cy="16" r="4" fill="{colour}" fill-opacity="0.75"/>'
            x -= 12


def _commit_labels(
    commits: Sequence[Mapping[str, Any]], place: Mapping[int, float], bottom: int
) -> Iterator[str]:
    """Yield numbers and times of the first and the last commit, and of a few between them."""
    count = min(_COMMIT_LABELS_MAX, len(commits))
    last = len(commits) - 1
    for index in sorted({round(last * n / max(1, count - 1)) for n in range(count)}):
        commit = commits[index]
        anchor = "middle"
        if index == 0:
            anchor = "start"
        elif index == last:
            anchor = "end"
        x = place[commit["seq"]]
        yield f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}" stroke="{_OTHER}"/>'
        yield _text(x, bottom + 16, f"commit {commit['seq']:,}", anchor=anchor)
        time = _minute(commit["instant"])
        yield _text(x, bottom + 30, time, anchor=anchor, colour=_OTHER)


def _minute(instant: str) -> str:
    """Return an instant to the minute.

    >>> _minute("20261127123434679")
    '2026-11-27 12:34'
    """
    return f"{instant[:4]}-{instant[4:6]}-{instant[6:8]} {instant[8:10]}:{instant[10:12]}"


def _marks(summary: Summary, place: dict[int, float], top: int, bottom: int) -> Iterator[str]:
    """Yield the background of unreadable states."""
    if place and min(place) < summary.horizon:
        end = place.get(summary.horizon, float(_WIDTH - _RIGHT))
        yield (
            f'<rect x="{_LEFT - 8}" y="{top - 16}" width="{end - _LEFT:.1f}"'
            f' height="{bottom - top + 16}" fill="#edf2f7"/>'
        )
        yield _text(_LEFT - 8, bottom - 3, "no longer readable", colour=_OTHER)


def _tag_labels(
    tags: Mapping[str, int], place: Mapping[int, float]
) -> list[tuple[str, float, int]]:
    """Return (name, left end, row) of the labels of tags, so that none overlap.

    Labels that do not fit into any row are left out.
    """
    labels = []
    free = [0.0] * _TAG_ROWS_MAX
    for name, seq in sorted(tags.items(), key=lambda tag: tag[1]):
        if seq not in place:
            continue
        width = _CHARACTER * len(visible(name))
        x = max(0.0, min(place[seq] + 3, _WIDTH - width))
        row = next((row for row in range(_TAG_ROWS_MAX) if free[row] <= x), None)
        if row is not None:
            labels.append((name, x, row))
            free[row] = x + width + 6
    return labels


def _tags(
    tags: Mapping[str, int],
    labels: Sequence[tuple[str, float, int]],
    place: Mapping[int, float],
    top: int,
    bottom: int,
) -> Iterator[str]:
    """Yield a line for each tag, and the labels."""
    rows = {name: row for name, _, row in labels}
    for name, seq in tags.items():
        if seq in place:
            start = top - 16 - _TAG_ROW * rows.get(name, 0)
            yield (
                f'<line x1="{place[seq]:.1f}" y1="{start}" x2="{place[seq]:.1f}" y2="{bottom}"'
                f' stroke="#d69e2e"><title>{escaped(f"tag {name}")}</title></line>'
            )
    for name, x, row in labels:
        yield _text(x, top - 9 - _TAG_ROW * row, name, colour="#b7791f")


# The layout


def _plane(file_layout: Layout) -> tuple[int, str]:
    """Return (height, SVG elements) of the files as rectangles over two columns, one panel per
    state.
    """
    parts = [
        _text(12, 20, f"files by {file_layout.columns[0]} and {file_layout.columns[1]}", size=14)
    ]
    parts += _legend_of_files()
    for number, state in enumerate(file_layout.states):
        parts.append(_panel(file_layout, state, _GAP + number * (_PANEL + _GAP)))
    return _PANEL_TOP + _PANEL + 46, "".join(parts)


def _legend_of_files() -> Iterator[str]:
    x = float(_WIDTH - _RIGHT)
    for text, colour in (("log file", _LOG), ("base file", _BASE)):
        yield _text(x, 20, text, anchor="end", colour=_OTHER)
        x -= _CHARACTER * len(text) + 18
        yield (
            f'<rect x="{x:.1f}" y="11" width="12" height="9" fill="{colour}"'
            f' fill-opacity="0.12" stroke="{colour}"/>'
        )
        x -= 12


def _panel(file_layout: Layout, state: FilesOfState, x: int) -> str:
    """Return the panel of one state."""
    note = "" if len(state.is_log) == state.count else f", {len(state.is_log):,} of them shown"
    noun = "file" if state.count == 1 else "files"
    parts = [
        _text(x, _PANEL_TOP - 26, f"commit {state.seq:,}: {state.count:,} {noun}{note}"),
        (
            f'<rect x="{x}" y="{_PANEL_TOP}" width="{_PANEL}" height="{_PANEL}" fill="none"'
            ' stroke="#a0aec0"/>'
        ),
    ]
    left, right = x + _PANEL * state.low[0], x + _PANEL * state.high[0]
    top = _PANEL_TOP + _PANEL * (1 - state.high[1])
    bottom = _PANEL_TOP + _PANEL * (1 - state.low[1])
    wide, tall = (right - left).clip(_RECTANGLE_MIN), (bottom - top).clip(_RECTANGLE_MIN)
    ends = (left.tolist(), top.tolist(), wide.tolist(), tall.tolist(), state.is_log.tolist())
    for a, b, width, height, is_log in zip(*ends, strict=True):
        colour, dense = (_LOG, 0.05) if is_log else (_BASE, 0.12)
        parts.append(
            f'<rect x="{a:.1f}" y="{b:.1f}" width="{width:.1f}" height="{height:.1f}"'
            f' fill="{colour}" fill-opacity="{dense}" stroke="{colour}" stroke-width="0.7"/>'
        )
    return "".join([*parts, *_axes(file_layout, x)])


def _axes(file_layout: Layout, x: int) -> Iterator[str]:
    """Yield the axis labels of a panel."""
    across, up = file_layout.axes
    bottom = _PANEL_TOP + _PANEL
    for position, text in across.labels.items():
        anchor = {0.0: "start", 1.0: "end"}.get(position, "middle")
        yield _text(x + _PANEL * position, bottom + 16, text, anchor=anchor)
    for position, text in up.labels.items():
        yield _text(x - 6, bottom - _PANEL * position + 4, text, anchor="end")
    for axis, end in ((across, bottom), (up, x)):
        for position in axis.labels:
            yield _tick(axis is across, position, x, end)
    yield _text(
        x + _PANEL / 2,
        bottom + 34,
        f"{_axis_name(file_layout.columns[0], across)} →",
        anchor="middle",
    )
    yield _text(x, _PANEL_TOP - 8, f"↑ {_axis_name(file_layout.columns[1], up)}")


def _tick(is_across: bool, position: float, left: int, end: int) -> str:
    """Return the mark of a label on the lower or the left side of a panel."""
    if is_across:
        x = left + _PANEL * position
        ends = f'x1="{x:.1f}" y1="{end}" x2="{x:.1f}" y2="{end + 4}"'
    else:
        y = _PANEL_TOP + _PANEL * (1 - position)
        ends = f'x1="{end - 4}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}"'
    return f'<line {ends} stroke="#a0aec0"/>'


def _axis_name(column: str, axis: Axis) -> str:
    return column if axis.is_linear else f"{column} (in order of values, not to scale)"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, colour: str = "#2d3748"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escaped(text)}</text>"
