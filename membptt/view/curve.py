"""The trade-off of time and memory, as a table and drawn."""

from html import escape

import numpy as np

from membptt.memory import format_bytes

COLOURS = "#0969da #bc4c00 #1a7f37 #8250df #bf3989 #9a6700 #57606a #0b7285 #d4a72c #f85149".split()
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 60, 150, 30, 50
SHOWN = 24  # rows of the table

STYLE = """
svg { --ink: #1f2328; --faint: #c9ced6; --ground: #ffffff; font: 11px system-ui, sans-serif;
      background: var(--ground); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #3d444d; --ground: #0d1117; } }
text { fill: var(--ink); } .faint { stroke: var(--faint); }
polyline { fill: none; stroke-width: 1.5; }
"""


def curve_table(curve):
    """Yield the lines of a table: forward steps per step, for up to 24 of the budgets."""
    names = list(curve.forward_steps)
    yield "  ".join(
        ["memory".rjust(10), "of full", *(name.rjust(max(7, len(name))) for name in names)]
    )
    rows = np.unique(np.geomspace(1, len(curve.memory), SHOWN).round().astype(int)) - 1
    for row in rows.tolist():
        memory = int(curve.memory[row])
        cells = [_amount(memory, curve.unit).rjust(10), f"{memory / curve.memory[-1]:7.2%}"]
        for name in names:
            cost = curve.forward_steps[name][row] / curve.steps
            text = "-" if np.isnan(cost) else f"{cost:.3f}"
            cells.append(text.rjust(max(7, len(name))))
        yield "  ".join(cells)


def draw_curve(curve, backward_ratio=2.0):
    """Return an SVG: time over full BPTT's against memory over full BPTT's, which is logarithmic.

    Times above three are cut off.
    """
    share = np.log10(curve.memory / curve.memory[-1])
    low, most = float(share[0]), 3.0

    def point(x, y):
        right = WIDTH - RIGHT
        across = LEFT + (x - low) / (-low or 1.0) * (right - LEFT)
        return across, HEIGHT - BOTTOM - (y - 1) / (most - 1) * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" role="img">',
        f"<title>Time against memory for {curve.steps} steps</title>",
        f"<style>{STYLE}</style>",
    ]
    for factor in (1.0, 1.5, 2.0, 2.5, 3.0):
        _, y = point(0, factor)
        parts.append(f'<path class="faint" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{factor} ×</text>')
    for power in range(int(np.ceil(low)), 1):
        x, _ = point(power, 1)
        parts.append(f'<path class="faint" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
            f"{100 * 10.0**power:g} %</text>"
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}">saved states, of full BPTT\'s</text>')
    parts.append(f'<text x="{LEFT}" y="16">time of an iteration, of full BPTT\'s</text>')
    for number, name in enumerate(curve.forward_steps):
        factors = curve.time_factor(name, backward_ratio)
        shown = ~np.isnan(factors) & (factors <= most)
        points = " ".join(
            f"{x:.1f},{y:.1f}"
            for x, y in (point(*pair) for pair in zip(share[shown], factors[shown], strict=True))
        )
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline stroke="{colour}" points="{points}"/>')
        y = TOP + 16 * number + 8
        parts.append(f'<path stroke="{colour}" d="M{WIDTH - RIGHT + 16} {y}h16"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 38}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def save_curve(curve, path, backward_ratio=2.0):
    """Write the drawing to `path`: PNG by matplotlib where the name ends so, else SVG.

    Raises
    ------
    ValueError
        If a PNG is asked for and matplotlib is not installed.
    """
    if not str(path).endswith(".png"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(draw_curve(curve, backward_ratio))
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(
            f'{path} needs matplotlib; install "membptt[plot]", or give a name that ends in .svg'
        ) from None
    figure = Figure(figsize=(7.6, 4.2), dpi=144)
    axes = figure.subplots()
    for name in curve.forward_steps:
        axes.plot(
            curve.memory / curve.memory[-1], curve.time_factor(name, backward_ratio), label=name
        )
    axes.set(
        xscale="log",
        ylim=(1, 3),
        xlabel="saved states, of full BPTT's",
        ylabel="time of an iteration, of full BPTT's",
        title=f"{curve.steps} steps",
    )
    axes.legend()
    figure.savefig(path)


def _amount(memory, unit):
    return format_bytes(memory) if unit == "bytes" else str(memory)
