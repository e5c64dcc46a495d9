"""Make the pictures of the documentation: ``docs/pictures/*.txt`` -> SVG files beside them.

    python tools/docs/pictures.py            # write every picture
    python tools/docs/pictures.py --check    # exit with 1 if one is out of date

A source has one shape on each line; lengths are pixels, and ``#`` begins a comment:

    size WIDTH HEIGHT
    box ID X Y WIDTH HEIGHT STYLE | text | more text
    cells ID X Y WIDTH HEIGHT STYLE | text of each cell | ...
    text X Y STYLE | text
    arrow FROM TO STYLE | label

An end of an arrow is the ID of a box, with a side and a place on it (from 0 to 1) if need be:
``log:right:0.25``.  Texts that begin with ``*`` are bold, and with `````` ` `````` monospace.
"""

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
STYLES = {
    "plain": ("#ffffff", "#546e7a", "#1c2b33"),
    "blue": ("#e3f0fb", "#2f6fa8", "#12324d"),
    "green": ("#e4f4e8", "#38834f", "#143d22"),
    "orange": ("#fdf0dc", "#b5731d", "#4d3009"),
    "red": ("#fbe4e2", "#b3423a", "#4f1713"),
    "grey": ("#eef1f3", "#90a0a8", "#45535b"),
    "frame": ("none", "#90a0a8", "#45535b"),
}
"""Name -> colours of the area, the line and the text."""
SIDES = {"left": (0, None), "right": (1, None), "top": (None, 0), "bottom": (None, 1)}
LINE_HEIGHT = 17
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
MONO = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"
Box = tuple[float, float, float, float]


def picture(source: str) -> str:
    r"""Return the SVG of a source.

    >>> picture("size 90 40\nbox a 5 5 80 30 blue | log").count("<rect")
    2
    """
    boxes: dict[str, Box] = {}
    shapes: list[str] = []
    width = height = 0
    for line in source.splitlines():
        head, *texts = [part.strip() for part in line.split("|")]
        match head.split():
            case [] | ["#", *_]:
                continue
            case ["size", w, h]:
                width, height = int(w), int(h)
            case ["box", name, x, y, w, h, style]:
                boxes[name] = (float(x), float(y), float(w), float(h))
                shapes += box(boxes[name], style, texts)
            case ["cells", name, x, y, w, h, style]:
                boxes[name] = (float(x), float(y), float(w), float(h))
                shapes += cells(boxes[name], style, texts)
            case ["text", x, y, style]:
                shapes += written(float(x), float(y), STYLES[style][2], texts, "start")
            case ["arrow", first, last, style]:
                shapes += arrow(boxes, first, last, style, texts)
            case _:
                raise ValueError(f"not a shape: {line}")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' {FONT} font-size='13'>\n"
        f"<rect width='{width}' height='{height}' rx='6' fill='#ffffff'/>\n"
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def box(place: Box, style: str, texts: list[str]) -> Iterator[str]:
    """Yield a rectangle with lines of text in its middle; those of a frame are at its top."""
    x, y, w, h = place
    area, edge, ink = STYLES[style]
    dash = " stroke-dasharray='5 4'" if style == "frame" else ""
    yield (
        f"<rect x='{x:g}' y='{y:g}' width='{w:g}' height='{h:g}' rx='4' fill='{area}' "
        f"stroke='{edge}'{dash}/>"
    )
    if style == "frame":
        yield from written(x + 10, y + 18, ink, texts, "start")
    else:
        top = y + h / 2 - LINE_HEIGHT * (len(texts) - 1) / 2 + 4.5
        yield from written(x + w / 2, top, ink, texts, "middle")


def cells(place: Box, style: str, texts: list[str]) -> Iterator[str]:
    """Yield a row of cells of one width.  A cell whose text begins with ``!`` is red."""
    x, y, w, h = place
    step = w / len(texts)
    for n, text in enumerate(texts):
        kind = "red" if text.startswith("!") else style
        yield from box((x + n * step, y, step, h), kind, [text.removeprefix("!")])


def written(x: float, y: float, ink: str, texts: list[str], anchor: str) -> Iterator[str]:
    """Yield lines of text below each other, the first with its base at ``y``."""
    for n, text in enumerate(texts):
        font = ""
        if text.startswith("*"):
            text, font = text[1:], " font-weight='600'"
        elif text.startswith("`"):
            text, font = text[1:], f" {MONO} font-size='12'"
        yield (
            f"<text x='{x:g}' y='{y + n * LINE_HEIGHT:g}' fill='{ink}' "
            f"text-anchor='{anchor}'{font}>{escape(text)}</text>"
        )


def arrow(
    boxes: dict[str, Box], first: str, last: str, style: str, texts: list[str]
) -> Iterator[str]:
    """Yield an arrow between two boxes, with a label above its middle."""
    sides = nearest(boxes[first.split(":")[0]], boxes[last.split(":")[0]])
    (x1, y1), (x2, y2) = end(boxes, first, sides[0]), end(boxes, last, sides[1])
    edge, ink = STYLES[style][1:]
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    left = (x2 - 9 * dx + 4.5 * dy, y2 - 9 * dy - 4.5 * dx)
    right = (x2 - 9 * dx - 4.5 * dy, y2 - 9 * dy + 4.5 * dx)
    yield (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2 - 6 * dx:g}' y2='{y2 - 6 * dy:g}' "
        f"stroke='{edge}' stroke-width='1.5'/>"
    )
    tip = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
    yield f"<polygon points='{tip}' fill='{edge}'/>"
    middle = ((x1 + x2) / 2, (y1 + y2) / 2)
    if abs(dx) > abs(dy):
        top = middle[1] - 7 - LINE_HEIGHT * (len(texts) - 1)
        yield from written(middle[0], top, ink, texts, "middle")
    else:
        yield from written(middle[0] + 9, middle[1] + 4, ink, texts, "start")


def nearest(one: Box, other: Box) -> tuple[str, str]:
    """Return the sides of two boxes that face each other."""
    if other[0] >= one[0] + one[2]:
        return "right", "left"
    if other[0] + other[2] <= one[0]:
        return "left", "right"
    return ("bottom", "top") if other[1] > one[1] else ("top", "bottom")


def end(boxes: dict[str, Box], text: str, side: str) -> tuple[float, float]:
    """Return the point that the text of an arrow's end names."""
    name, *rest = text.split(":")
    side = rest[0] if rest else side
    at = float(rest[1]) if len(rest) > 1 else 0.5
    x, y, w, h = boxes[name]
    across, down = SIDES[side]
    return x + w * (at if across is None else across), y + h * (at if down is None else down)


def main() -> int:
    """Write the pictures, or compare them; return the exit code."""
    late = []
    for source in sorted(FOLDER.glob("*.txt")):
        made = picture(source.read_text(encoding="utf-8"))
        target = source.with_suffix(".svg")
        if not target.exists() or target.read_text(encoding="utf-8") != made:
            late.append(target.name)
        if "--check" not in sys.argv:
            target.write_text(made, encoding="utf-8")
    if "--check" in sys.argv and late:
        print("out of date:", *late, "(python tools/docs/pictures.py)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
