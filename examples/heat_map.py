"""A picture of delays as SVG, written by hand: no library, and the same bytes for the same numbers."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

CELL_WIDTH, CELL_HEIGHT = 34, 22
LEFT, TOP = 190, 64
LINES_HEIGHT = 150
_FONT = "font-family='system-ui,sans-serif'"
# From early to late: blue, white, orange, red.
_COLOURS = ((-5.0, (70, 130, 180)), (5.0, (247, 247, 242)), (20.0, (244, 165, 90)), (45.0, (178, 24, 43)))
_STROKES = ("#4682b4", "#b2182b")


class Line(NamedTuple):
    """A line under the map: a value for each column that has one."""

    name: str
    values: Mapping[int, float]


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[int],
    cells: Mapping[tuple[str, int], float],
    lines: Sequence[Line],
) -> str:
    """A cell for each row and column that has a value, and lines over the same columns beneath."""
    width = LEFT + CELL_WIDTH * len(columns) + 20
    bottom = TOP + CELL_HEIGHT * len(rows)
    height = bottom + LINES_HEIGHT + 70
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' {_FONT} font-size='12'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        _text(16, 28, title, "font-size='16' font-weight='600'"),
    ]
    for number, column in enumerate(columns):
        parts.append(_text(_middle(number), TOP - 8, str(column), "text-anchor='middle' fill='#555'"))
    for number, row in enumerate(rows):
        y = TOP + CELL_HEIGHT * number
        parts.append(_text(LEFT - 10, y + 15, row, "text-anchor='end'"))
        parts += [_cell(place, y, cells[row, each]) for place, each in enumerate(columns) if (row, each) in cells]
    parts += _lines(columns, lines, bottom + 40)
    return "\n".join([*parts, "</svg>", ""])


def _cell(place: int, y: int, value: float) -> str:
    x = LEFT + CELL_WIDTH * place
    shade = _colour(value)
    ink = "#222" if sum(shade) > 380 else "white"
    box = f"<rect x='{x}' y='{y}' width='{CELL_WIDTH - 1}' height='{CELL_HEIGHT - 1}' fill='rgb{shade}'/>".replace(
        ", ", ","
    )
    return box + _text(_middle(place), y + 15, f"{round(value):d}", f"text-anchor='middle' font-size='11' fill='{ink}'")


def _lines(columns: Sequence[int], lines: Sequence[Line], top: int) -> list[str]:
    """Against an axis of its own; the legend stands where the rows have their names."""
    values = [value for line in lines for value in line.values.values()]
    if not values:
        return []
    highest, right = max(10.0, *values), LEFT + CELL_WIDTH * len(columns)

    def height_of(value: float) -> float:
        return round(top + LINES_HEIGHT * (1 - value / highest), 1)

    parts = []
    for mark in range(0, int(highest) + 1, 10):
        y = height_of(mark)
        parts.append(f"<line x1='{LEFT}' x2='{right}' y1='{y}' y2='{y}' stroke='#ddd'/>")
        parts.append(_text(LEFT - 10, y + 4, str(mark), "text-anchor='end' fill='#555'"))
    for number, (line, stroke) in enumerate(zip(lines, _STROKES, strict=False)):
        points = [
            (_middle(place), height_of(line.values[each])) for place, each in enumerate(columns) if each in line.values
        ]
        track = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f"<polyline points='{track}' fill='none' stroke='{stroke}' stroke-width='2.5'/>")
        parts.append(_text(16, top + 16 + 18 * number, f"― {line.name}", f"fill='{stroke}' font-weight='600'"))
    return parts


def _middle(place: int) -> float:
    return LEFT + CELL_WIDTH * place + CELL_WIDTH / 2


def _text(x: float, y: float, words: str, style: str) -> str:
    return f"<text x='{x:g}' y='{y:g}' {style}>{escape(words)}</text>"


def _colour(value: float) -> tuple[int, ...]:
    """Between the two marks that the value lies between."""
    for (low, before), (high, after) in pairwise(_COLOURS):
        if value <= high:
            share = min(1.0, max(0.0, (value - low) / (high - low)))
            return tuple(round(a + (b - a) * share) for a, b in zip(before, after, strict=True))
    return _COLOURS[-1][1]
