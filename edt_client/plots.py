"""Curves for a terminal, in braille, and for a notebook, as SVG. Pure: points in, text out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from edt_client.things import Curve

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column
COLOURS = ("#0f62fe", "#da1e28", "#198038", "#8a3ffc", "#b28600", "#007d79", "#ee538b", "#6f6f6f")


def points_of(curve: Curve) -> list[tuple[float, float]]:
    return [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if value is not None and math.isfinite(value)]


def number(value: float) -> str:
    return f"{value:.4g}"


def braille(curve: Curve, *, width: int = 64, height: int = 10, who: str = "") -> list[str]:
    """The lines of a picture `height` lines high, with a scale of values at its left and of steps below. `who`: before the curve's name."""
    points = points_of(curve)
    title = f"{who} {curve.group} {curve.name}".lstrip()
    if not points:
        return [title, "no finite values yet"]
    least, greatest = min(value for _, value in points), max(value for _, value in points)
    cells = _cells(points, width, height, least, greatest)
    labels = [number(greatest), *[""] * (height - 2), number(least)] if height > 1 else [number(greatest)]
    margin = max(map(len, labels))
    lines = [f"{label:>{margin}} │{''.join(chr(0x2800 + cell) for cell in row)}" for label, row in zip(labels, cells, strict=True)]
    first, last = f"{points[0][0]:.0f}", f"step {points[-1][0]:.0f}"
    scale = f"{first}{last:>{max(1, width - len(first))}}"
    said = f"{title}: {number(points[-1][1])} at step {points[-1][0]:.0f}"
    return [said, *lines, f"{'':>{margin}} └{'─' * width}", f"{'':>{margin}}  {scale}"]


def _cells(points: Sequence[tuple[float, float]], width: int, height: int, least: float, greatest: float) -> list[list[int]]:
    """Bits of braille, a line connecting each two points that follow each other."""
    cells = [[0] * width for _ in range(height)]
    first, long = points[0][0], (points[-1][0] - points[0][0]) or 1.0
    before: tuple[int, int] | None = None
    for step, value in points:
        x, y = round((step - first) / long * (2 * width - 1)), round(_down(value, least, greatest) * (4 * height - 1))
        for column, row in _line(before or (x, y), (x, y)):
            cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
        before = (x, y)
    return cells


def _down(value: float, least: float, greatest: float) -> float:
    """0 at the greatest, 1 at the least. Of halves: the difference of two floats may be more than the greatest float."""
    tall = greatest / 2 - least / 2
    return (greatest / 2 - value / 2) / tall if tall else 0.0


def _line(begin: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    return [
        (round(begin[0] + (end[0] - begin[0]) * place / steps), round(begin[1] + (end[1] - begin[1]) * place / steps))
        for place in range(steps + 1)
    ]


def svg(curves: Sequence[Curve], *, width: int = 640, height: int = 220) -> str:
    """All of them in one picture, each on its own scale of values, with a legend of their last ones."""
    drawn = [(curve, points) for curve in curves[: len(COLOURS)] if (points := points_of(curve))]
    size = f'width="{width}" height="{height + 18 * len(drawn)}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    first = min((points[0][0] for _, points in drawn), default=0.0)
    long = (max((points[-1][0] for _, points in drawn), default=1.0) - first) or 1.0
    for place, (curve, points) in enumerate(drawn):
        least, greatest = min(value for _, value in points), max(value for _, value in points)
        at = " ".join(f"{(s - first) / long * width:.1f},{4 + _down(v, least, greatest) * (height - 8):.1f}" for s, v in points)
        colour, y = COLOURS[place], height + 14 + 18 * place
        said = escape(f"{curve.group} {curve.name}: {number(points[-1][1])} ({number(least)} to {number(greatest)})")
        lines.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        lines.append(f'<text x="0" y="{y}" fill="{colour}">{said}</text>')
    return "".join([*lines, "</svg>"])
