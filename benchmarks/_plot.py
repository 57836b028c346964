"""A picture of a comparison as SVG, written by hand so that nothing has to be installed: how soon jobs were done, and what was held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, GAP = 720, 250, 60, 40, 80
COLOURS = ("#8d8d8d", "#fa4d56", "#0f62fe", "#8a3ffc", "#007d79")


@dataclass(frozen=True)
class Panel:
    """Lines in one frame. `log_x`: the horizontal axis is logarithmic. `ticks`: (value, label) on the horizontal axis."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    ticks: Sequence[tuple[float, str]]
    y_top: float
    log_x: bool = False


def share_done(title: str, hours: Mapping[str, Sequence[float]]) -> Panel:
    """For each policy, the share of jobs that took at most so long."""
    lines = {
        name: [(each, (rank + 1) / len(taken)) for rank, each in enumerate(sorted(max(one, 0.01) for one in taken))]
        for name, taken in hours.items()
    }
    ticks = [(0.01, "36 s"), (0.1, "6 min"), (1.0, "1 h"), (10.0, "10 h")]
    return Panel(title, "time from submission to the end", "share of jobs", lines, ticks, y_top=1.0, log_x=True)


def over_time(title: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> Panel:
    """Steps over time (hours)."""
    lines = {name: _steps(points) for name, points in series.items()}
    last = max((points[-1][0] for points in lines.values() if points), default=1.0)
    each = max(1, round(last / 8))
    ticks = [(float(hour), f"{hour} h") for hour in range(0, int(last) + 1, each)]
    top = max((y for points in lines.values() for _, y in points), default=1.0)
    return Panel(title, "time", y_label, lines, ticks, y_top=max(1.0, top))


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    made: list[tuple[float, float]] = []
    for x, y in points:
        if made:
            made.append((x, made[-1][1]))
        made.append((x, y))
    return made


def write_svg(path: Path, panels: Sequence[Panel]) -> None:
    height = TOP + len(panels) * (HEIGHT + GAP)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, panel in enumerate(panels):
        parts += _panel(panel, TOP + index * (HEIGHT + GAP), names)
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _panel(panel: Panel, top: int, names: Sequence[str]) -> list[str]:
    xs = [x for points in panel.lines.values() for x, _ in points] + [value for value, _ in panel.ticks]
    low, high = _scaled(min(xs), panel), _scaled(max(xs), panel)
    span = (high - low) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + (_scaled(x, panel) - low) / span * WIDTH, top + HEIGHT - y / panel.y_top * HEIGHT

    parts = [
        f'<text x="{LEFT}" y="{top - 10}" font-weight="bold">{escape(panel.title)}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#c6c6c6"/>',
        f'<text x="{LEFT + WIDTH / 2}" y="{top + HEIGHT + 34}" text-anchor="middle">{escape(panel.x_label)}</text>',
        f'<text transform="translate(16 {top + HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(panel.y_label)}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{panel.y_top:g}</text>',
        f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>',
    ]
    for value, text in panel.ticks:
        x, y = at(value, 0)
        parts.append(
            f'<path d="M{x:.1f} {y:.1f}v5" stroke="#6f6f6f"/><text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{text}</text>'
        )
    for number, (name, points) in enumerate(panel.lines.items()):
        colour = COLOURS[names.index(name) % len(COLOURS)]
        drawn = " ".join(f"{x:.0f},{y:.0f}" for x, y in _thinned([at(x, y) for x, y in points]))
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{LEFT + 90 * number + 150}" y="{top - 10}" fill="{colour}">{escape(name)}</text>')
    return parts


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that the eye can tell apart, a pixel each way; the last one always."""
    kept: list[tuple[float, float]] = []
    for x, y in points:
        if not kept or abs(x - kept[-1][0]) >= 1 or abs(y - kept[-1][1]) >= 1:
            kept.append((x, y))
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]


def _scaled(x: float, panel: Panel) -> float:
    return log10(x) if panel.log_x else x
