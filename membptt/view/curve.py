"""The trade-off of time and memory, as a table and drawn."""

import numpy as np

from membptt.files import replacing
from membptt.view.chart import Axis, chart
from membptt.view.text import amount

SHOWN = 24  # rows of the table


def curve_table(curve):
    """Yield the lines of a table: forward steps per step, for up to 24 of the budgets."""
    names = list(curve.forward_steps)
    yield "  ".join(
        ["memory".rjust(10), "of full", *(name.rjust(max(7, len(name))) for name in names)]
    )
    rows = np.unique(np.geomspace(1, len(curve.memory), SHOWN).round().astype(int)) - 1
    for row in rows.tolist():
        memory = int(curve.memory[row])
        cells = [amount(memory, curve.unit).rjust(10), f"{memory / curve.memory[-1]:7.2%}"]
        for name in names:
            cost = curve.forward_steps[name][row] / curve.steps
            text = "-" if np.isnan(cost) else f"{cost:.3f}"
            cells.append(text.rjust(max(7, len(name))))
        yield "  ".join(cells)


def draw_curve(curve, backward_ratio=2.0):
    """Return an SVG: time over full BPTT's against memory over full BPTT's, which is logarithmic.

    Times above three are cut off.
    """
    share = curve.memory / curve.memory[-1]
    lines = {name: (share, curve.time_factor(name, backward_ratio)) for name in curve.forward_steps}
    return chart(
        lines,
        f"Time against memory for {curve.steps} steps",
        Axis("saved states, of full BPTT's", log=True, ticks=lambda part: f"{100 * part:g} %"),
        Axis("time of an iteration, of full BPTT's", limits=(1, 3), ticks="{:g} ×".format),
    )


def save_curve(curve, path, backward_ratio=2.0):
    """Write the drawing to `path`: PNG by matplotlib where the name ends so, else SVG.

    Raises
    ------
    ValueError
        If a PNG is asked for and matplotlib is not installed.
    """
    if not str(path).endswith(".png"):
        with replacing(path) as file:
            file.write(draw_curve(curve, backward_ratio))
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(
            f"file {str(path)!r} needs matplotlib, which is not installed; pip install "
            "'membptt[plot]', or give .svg"
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
    with replacing(path, "wb") as file:
        figure.savefig(file, format="png")
