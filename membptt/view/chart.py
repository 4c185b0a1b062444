"""Lines in a frame, as one self-contained SVG that follows the reader's light or dark mode."""

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np

COLOURS = "#0969da #bc4c00 #1a7f37 #8250df #bf3989 #9a6700 #57606a #0b7285 #d4a72c #f85149".split()
DASHES = ("", "7 3", "2 3", "9 3 2 3")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 60, 150, 30, 50

STYLE = """
svg { --ink: #1f2328; --faint: #c9ced6; --ground: #ffffff; font: 11px system-ui, sans-serif;
      background: var(--ground); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #3d444d; --ground: #0d1117; } }
text { fill: var(--ink); } .faint { stroke: var(--faint); }
polyline { fill: none; stroke-width: 1.5; }
"""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes
    ----------
    label : str
    log : bool
        Logarithmic.
    limits : tuple of two floats, optional
        Lines are cut off beyond; by default what there is.
    ticks : callable, optional
        Writes a number at the axis.
    """

    label: str
    log: bool = False
    limits: tuple | None = None
    ticks: object = "{:,g}".format

    def scaled(self, values):
        """Return the values as they are spaced on the axis."""
        values = np.asarray(values, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log10(values) if self.log else values

    def range(self, values):
        """Return the ends of the axis in its own spacing."""
        ends = self.scaled(self.limits if self.limits else values)
        ends = ends[np.isfinite(ends)]
        low, high = float(ends.min()), float(ends.max())
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def marks(self, low, high):
        """Return round numbers for the grid, as values."""
        if self.log:
            factors = (1, 2, 5) if high - low < 2.2 else (1,)
            powers = range(floor(low), ceil(high) + 1)
            values = [factor * 10.0**power for power in powers for factor in factors]
            return [value for value in values if low - 1e-9 <= log10(value) <= high + 1e-9]
        raw = (high - low) / 5
        power = 10.0 ** floor(log10(raw))
        every = next(
            factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw - 1e-12
        )
        first, last = ceil(low / every - 1e-9), floor(high / every + 1e-9)
        return [number * every for number in range(first, last + 1)]


def chart(series, title, across, upwards):
    """Return the drawing as the text of an SVG file.

    Parameters
    ----------
    series : dict of str to (x, y)
        The lines by their names; nan where a line is interrupted.
    title : str
    across, upwards : Axis
    """
    x0, x1 = across.range(np.concatenate([np.asarray(x, float) for x, _ in series.values()]))
    y0, y1 = upwards.range(np.concatenate([np.asarray(y, float) for _, y in series.values()]))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def px(value):
        return LEFT + (across.scaled(value) - x0) / (x1 - x0) * (right - LEFT)

    def py(value):
        return bottom - (upwards.scaled(value) - y0) / (y1 - y0) * (bottom - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    for mark in upwards.marks(y0, y1):
        y = py(mark)
        parts.append(f'<path class="faint" d="M{LEFT} {y:.1f}H{right}"/>')
        text = escape(upwards.ticks(mark))
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for mark in across.marks(x0, x1):
        x = px(mark)
        parts.append(f'<path class="faint" d="M{x:.1f} {TOP}V{bottom}"/>')
        text = escape(across.ticks(mark))
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}">{escape(across.label)}</text>')
    parts.append(f'<text x="{LEFT}" y="16">{escape(upwards.label)}</text>')
    for number, (name, (x, y)) in enumerate(series.items()):
        dashes = DASHES[number % len(DASHES)]
        stroke = f'stroke="{COLOURS[number % len(COLOURS)]}"'
        stroke += f' stroke-dasharray="{dashes}"' if dashes else ""
        for piece in _pieces(px(x), py(y)):
            parts.append(f'<polyline {stroke} points="{piece}"/>')
        at = TOP + 16 * number + 8
        parts.append(f'<path {stroke} stroke-width="1.5" d="M{right + 16} {at}h20"/>')
        parts.append(f'<text x="{right + 42}" y="{at + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _pieces(x, y):
    """Yield the points of the line where it is inside the frame, piece by piece."""
    x, y = np.broadcast_arrays(np.atleast_1d(x), np.atleast_1d(y))
    inside = (x >= LEFT - 0.01) & (x <= WIDTH - RIGHT + 0.01)
    inside &= (y >= TOP - 0.01) & (y <= HEIGHT - BOTTOM + 0.01)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(int)))
    for begin, end in edges.reshape(-1, 2).tolist():
        points = zip(x[begin:end], y[begin:end], strict=True)
        yield " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
