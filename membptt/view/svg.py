"""A schedule drawn as the paper draws it: x is the place in the sequence, y is time, downwards.

A line to the right is a run of forward steps; it ends in a disc where a hidden state is saved and
in a square where an internal state is. A dashed line with a square at every step expands a block
of steps at once. A short arrow to the left is the backward of one step. The bar below a saved
state lasts as long as it is held, and a ring on it marks a restore. At the right stands the memory
in use, and the budget as a line.

The drawing is one self-contained SVG, without scripts or fonts; its colours follow the reader's
light or dark mode.
"""

from html import escape

from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Expand,
    Fetch,
    Restore,
)
from membptt.view.text import quantity, summary, title

MOST_ACTIONS = 20_000  # a larger drawing opens in no browser

STYLE = """
svg { --ink: #1f2328; --faint: #c9ced6; --hidden: #0969da; --internal: #bc4c00; --back: #1a7f37;
      --ground: #ffffff; font: 11px system-ui, sans-serif; background: var(--ground); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #3d444d; --hidden: #58a6ff; --internal: #f0883e; --back: #3fb950;
        --ground: #0d1117; } }
.ink { fill: var(--ink); } .run { stroke: var(--ink); } .faint { stroke: var(--faint); }
.hidden { fill: var(--hidden); } .internal { fill: var(--internal); }
.back { stroke: var(--back); fill: none; } .ring { stroke: var(--ink); fill: var(--ground); }
.held { opacity: 0.3; } .budget { stroke: var(--ink); stroke-dasharray: 3 2; }
"""

LEFT, TOP, MEMORY, GAP, LEGEND = 30, 42, 150, 36, 48  # margins, and the width for memory


def draw(schedule):
    """Return the drawing of a schedule as the text of an SVG file.

    Parameters
    ----------
    schedule : membptt.schedules.Schedule
        Up to some thousand actions.

    Raises
    ------
    ValueError
        If the schedule has more than `MOST_ACTIONS` actions.
    """
    if len(schedule) > MOST_ACTIONS:
        raise ValueError(
            f"the schedule has {len(schedule)} actions; a drawing holds {MOST_ACTIONS}, give fewer "
            "steps"
        )
    return _Drawing(schedule).text()


class _Drawing:
    """Goes through the actions once and collects the marks, backgrounds first."""

    def __init__(self, schedule):
        self.schedule = schedule
        self.dx = min(36.0, 760 / schedule.steps)
        self.dy = 13.0 if len(schedule) < 500 else 5.0
        self.right = LEFT + self.dx * schedule.steps + GAP
        self.row = 0
        self.bars, self.marks, self.memory = [], [], []
        self.since = {}  # saved state -> row of its saving
        self._go_through()

    def x(self, step):
        return LEFT + self.dx * step

    def y(self, row):
        return TOP + self.dy * (row + 0.5)

    def _go_through(self):
        schedule = self.schedule
        machine = schedule.machine()
        for action in schedule:
            machine.fault(action)
            match action:
                case Advance() | AdvanceSaveHidden() | AdvanceSaveInternal():
                    self._run(action)
                case Restore(step) | Fetch(step):
                    self._ring(step)
                case Backward(step):
                    self._arrow(step)
                case Expand():
                    self._block(action)
            gone = self.since.keys() - machine.saved
            for state in gone:
                self._held(state, self.since.pop(state))
            if isinstance(
                action, (Advance, AdvanceSaveHidden, AdvanceSaveInternal, Backward, Expand)
            ):
                self._in_use(machine.used)
                self.row += 1

    def _run(self, action):
        y, end = self.y(self.row), self.x(action.stop)
        self.marks.append(f'<path class="run" d="M{self.x(action.start):.1f} {y:.1f}H{end:.1f}"/>')
        if isinstance(action, AdvanceSaveHidden):
            self.since[action.stop, False] = self.row
            self.marks.append(
                f'<circle class="hidden" cx="{end:.1f}" cy="{y:.1f}" r="{self.dy * 0.32:.1f}"/>'
            )
        elif isinstance(action, AdvanceSaveInternal):
            self._square(action.stop)

    def _block(self, action):
        self.marks.append(
            f'<path class="run" d="M{self.x(action.start):.1f} {self.y(self.row):.1f}'
            f'H{self.x(action.stop):.1f}" stroke-dasharray="2 2"/>'
        )
        for step in range(action.start + 1, action.stop + 1):
            self._square(step)

    def _square(self, step):
        """Mark an internal state that is saved now."""
        self.since[step, True] = self.row
        size = self.dy * 0.32
        self.marks.append(
            f'<rect class="internal" x="{self.x(step) - size:.1f}" '
            f'y="{self.y(self.row) - size:.1f}" width="{2 * size:.1f}" height="{2 * size:.1f}"/>'
        )

    def _ring(self, step):
        self.marks.append(
            f'<circle class="ring" cx="{self.x(step):.1f}" cy="{self.y(self.row):.1f}" '
            f'r="{self.dy * 0.25:.1f}"/>'
        )

    def _arrow(self, step):
        y, tip, head = self.y(self.row), self.x(step - 1), self.dy * 0.25
        self.marks.append(
            f'<path class="back" d="M{self.x(step):.1f} {y:.1f}H{tip:.1f}m{head:.1f} {-head:.1f}'
            f'l{-head:.1f} {head:.1f}l{head:.1f} {head:.1f}"/>'
        )

    def _held(self, state, since):
        step, internal = state
        width = self.dx * 0.3 if internal else self.dx * 0.12
        self.bars.append(
            f'<rect class="{"internal" if internal else "hidden"} held" '
            f'x="{self.x(step) - width / 2:.1f}" y="{self.y(since):.1f}" width="{width:.1f}" '
            f'height="{self.y(self.row) - self.y(since):.1f}"/>'
        )

    def _in_use(self, used):
        width = MEMORY * used / self.schedule.budget
        self.memory.append(
            f'<rect class="hidden held" x="{self.right:.1f}" '
            f'y="{self.y(self.row) - self.dy / 2:.1f}" width="{width:.1f}" '
            f'height="{self.dy:.1f}"/>'
        )

    def _frame(self):
        """Return what is known before the first action: the grid, the numbers, the budget."""
        schedule, bottom = self.schedule, TOP + self.dy * self.row
        every = max(1, round(24 / self.dx))
        for step in range(0, schedule.steps + 1, every):
            x = self.x(step)
            yield f'<path class="faint" d="M{x:.1f} {TOP}V{bottom:.1f}"/>'
            yield f'<text class="ink" x="{x:.1f}" y="{TOP - 8}" text-anchor="middle">{step}</text>'
        yield f'<text class="ink" x="{LEFT}" y="14">{escape(title([schedule]))}: '
        alpha = schedule.internal / schedule.hidden
        yield f"{schedule.forward_steps} forward steps, α = {alpha:g}, time downwards</text>"
        budget = quantity(schedule.budget, schedule.unit)
        edge = self.right + MEMORY
        yield f'<text class="ink" x="{edge}" y="{TOP - 8}" text-anchor="end">in use, of {budget}'
        yield f'</text><path class="budget" d="M{edge:.1f} {TOP}V{bottom:.1f}"/>'

    def _legend(self):
        y = TOP + self.dy * self.row + 22
        marks = [
            (f'<path class="run" d="M0 {y}h16"/>', "forward"),
            (f'<circle class="hidden" cx="8" cy="{y}" r="4"/>', "hidden state saved"),
            (f'<rect class="internal" x="4" y="{y - 4}" width="8" height="8"/>', "internal saved"),
            (
                f'<rect class="hidden held" x="3" y="{y - 6}" width="3" height="12"/>'
                f'<rect class="internal held" x="10" y="{y - 6}" width="6" height="12"/>',
                "while kept",
            ),
            (f'<circle class="ring" cx="8" cy="{y}" r="3.5"/>', "restored"),
            (f'<path class="back" d="M16 {y}H2m4 -4l-4 4l4 4"/>', "backward"),
        ]
        x = LEFT
        for mark, words in marks:
            yield f'<g transform="translate({x:.0f} 0)">{mark}'
            yield f'<text class="ink" x="22" y="{y + 4}">{words}</text></g>'
            x += 38 + 5.5 * len(words)

    def text(self):
        width = max(self.right + MEMORY + 20, 620)
        height = TOP + self.dy * self.row + LEGEND
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" role="img" stroke-width="1.5">',
            f"<title>{escape(title([self.schedule]))}</title>",
            f"<desc>{escape(summary(self.schedule))}</desc>",
            f"<style>{STYLE}</style>",
            *self._frame(),
            *self.bars,
            *self.memory,
            *self.marks,
            *self._legend(),
            "</svg>\n",
        ]
        return "\n".join(parts)
