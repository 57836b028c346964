"""Curves as a picture: SVG of a few kilobytes, a panel for each metric, and a line of bars for where there are no pictures. Pure."""

from __future__ import annotations

from html import escape

from training_runtime.fabric.notebook.seen import Curve, Seen, ordered, thin

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 200, 52, 26, 24
MOST_PANELS, MOST_POINTS = 4, 300
COLOURS = {"train": "#1f6feb", "test": "#d1570a"}
BARS = "▁▂▃▄▅▆▇█"
_FONT = 'font-family="system-ui, sans-serif" font-size="11"'


def svg(seen: Seen) -> str:
    """Empty where there is nothing to draw yet."""
    panels: dict[str, list[Curve]] = {}
    for curve in ordered(seen):
        panels.setdefault(curve.name, []).append(curve)
    shown = [(name, curves) for name, curves in panels.items() if any(len(thin(curve, MOST_POINTS)) for curve in curves)][:MOST_PANELS]
    if not shown:
        return ""
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    drawn = "".join(
        f'<g transform="translate({WIDTH * (i % columns)} {HEIGHT * (i // columns)})">{_panel(name, curves, seen.steps)}</g>'
        for i, (name, curves) in enumerate(shown)
    )
    width, height = WIDTH * columns, HEIGHT * rows
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" {_FONT}>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{drawn}</svg>'
    )


def _panel(name: str, curves: list[Curve], steps: int | None) -> str:
    points = {curve.group: thin(curve, MOST_POINTS) for curve in curves}
    every = [point for found in points.values() for point in found]
    right = float(max([step for step, _ in every] + ([steps] if steps else [])) or 1)
    low, high = min(value for _, value in every), max(value for _, value in every)
    room = (high - low) or abs(high) or 1.0
    inner_width, inner_height = WIDTH - LEFT - 12, HEIGHT - TOP - BOTTOM

    def point_at(step: float, value: float) -> str:
        return f"{LEFT + inner_width * step / right:.1f},{TOP + inner_height * (1 - (value - low) / room):.1f}"

    legend = "   ".join(
        f'<tspan fill="{COLOURS.get(curve.group, "#555")}">{curve.group} {curve.values[-1]:.4g}</tspan>' for curve in curves
    )
    lines = "".join(_line([point_at(*point) for point in found], COLOURS[group]) for group, found in points.items() if found)
    bottom = TOP + inner_height
    return (
        f'<text x="{LEFT}" y="16" fill="#24292f" xml:space="preserve"><tspan font-weight="600">{escape(name)}</tspan>   {legend}</text>'
        f'<path d="M{LEFT} {TOP}V{bottom}H{LEFT + inner_width}" fill="none" stroke="#8c959f"/>'
        f'<text x="{LEFT - 4}" y="{TOP + 4}" text-anchor="end" fill="#57606a">{high:.3g}</text>'
        f'<text x="{LEFT - 4}" y="{bottom}" text-anchor="end" fill="#57606a">{low:.3g}</text>'
        f'<text x="{LEFT + inner_width}" y="{HEIGHT - 8}" text-anchor="end" fill="#57606a">step {right:.0f}</text>{lines}'
    )


def _line(points: list[str], colour: str) -> str:
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>'
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"/>'


def text(seen: Seen, *, width: int = 40) -> str:
    """A line for each curve: "train loss ▇▅▃▂▁ 0.123"."""
    return "\n".join(
        f"{curve.group} {curve.name} {bars([value for _, value in thin(curve, width)])} {curve.values[-1]:.4g}" for curve in ordered(seen)
    )


def bars(values: list[float]) -> str:
    """A character a value, from the lowest to the highest of them; "" for none."""
    if not values:
        return ""
    low, room = min(values), (max(values) - min(values)) or 1.0
    return "".join(BARS[int((value - low) / room * (len(BARS) - 1))] for value in values)
