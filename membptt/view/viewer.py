"""A page to see a schedule happen: one HTML file that needs no network.

Execution order goes across, the place in the sequence upwards; beneath stands the memory in use.
The page plays the actions, steps through them, and says in words what each is for. Several
strategies can stand side by side, and what an executor recorded lies over what was planned.

The page itself is written in viewer.html, viewer.css and viewer.js beside this file; here it gets
its numbers.
"""

import json
import re
from dataclasses import dataclass
from html import escape
from importlib import resources

import numpy as np

from membptt.files import replacing
from membptt.schedules._emit import Meter
from membptt.schedules.actions import BACKWARD, FREE, from_row
from membptt.view.svg import draw
from membptt.view.text import headings, lines, quantity, saved, summary, title, words

MOST_ACTIONS = 500_000  # of all strategies together; about 10 MB
MOST_TABLED = 400  # actions that a table, and a drawing without scripts, are made of


def page(schedule, others=(), trace=None, cell=None, batch=1, command=None):
    """Return the page as text.

    Parameters
    ----------
    schedule : membptt.Schedule
    others : sequence of membptt.Schedule
        Shown beside it: of the same length, with states of the same sizes.
    trace : numpy.ndarray, optional
        What ran under `schedule`: ``Result.trace`` of a run with ``record=True``. Planned and
        executed are drawn as two layers, and the page says whether they differ.
    cell : membptt.Cell, optional
        Named on the page, with `batch`: what the schedule is for.
    batch : int
    command : str, optional
        Shown on the page: what made it.

    Raises
    ------
    ValueError
        If there are more actions than a browser draws at ease, the schedules do not belong
        together, or the trace is none.
    """
    schedules = [schedule, *others]
    check(schedules)
    differs = None if trace is None else compare(schedule, trace)
    short = len(schedule) <= MOST_TABLED
    parts = {
        "title": escape(title(schedules)),
        "style": _file("css"),
        "script": _file("js"),
        "about": about(schedule, cell, batch, command),
        "numbers": numbers(schedules),
        "verdict": "" if differs is None else differs.html(),
        "table": actions_table(schedule) if short else "",
        "drawing": draw(schedule) if short else f"<pre>{escape(summary(schedule))}</pre>",
        "data": data(schedules, trace),
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], _file("html"))


def save_page(path, schedule, others=(), trace=None, cell=None, batch=1, command=None):
    """Write the page of `page` to a file.

    Parameters
    ----------
    path : str or path
    schedule, others, trace, cell, batch, command
        As in `page`.

    Examples
    --------
    What was planned and what ran, as two layers::

        result = mb.bptt(cell, inputs, head, schedule, record=True)
        save_page("run.html", schedule, trace=result.trace, cell=cell, batch=batch)
    """
    text = page(schedule, others, trace, cell, batch, command)
    with replacing(path) as file:
        file.write(text)


@dataclass(frozen=True)
class Comparison:
    """Whether a recorded run did what was planned.

    Attributes
    ----------
    actions : int
        How many were executed.
    index : int or None
        The first action that differs, from 0; None if all agree.
    reason : str
        In words; empty if all agree.
    order : str
        What was compared.
    """

    actions: int
    index: int | None
    reason: str
    order: str

    @property
    def same(self):
        """Whether planned and executed are the same."""
        return self.index is None

    def __str__(self):
        if self.same:
            return f"Planned and executed are the same: {self.actions} actions, {self.order}."
        return f"Planned and executed differ, first at action {self.index + 1}: {self.reason}."

    def html(self):
        """Return the verdict as a paragraph."""
        kind = "verdict" if self.same else "verdict differ"
        return f'<p class="{kind}" role="status">{escape(str(self))}</p>'


def compare(schedule, trace):
    """Compare a recorded run with the schedule that it was to follow.

    Parameters
    ----------
    schedule : membptt.Schedule
    trace : numpy.ndarray
        ``Result.trace``: rows code, start, stop, bytes in use.

    Returns
    -------
    Comparison
        For a schedule in bytes, of the actions and of the bytes in use after each. The two lanes
        of look-ahead are compared each in its own order, since between them the order is open.
    """
    trace = np.asarray(trace)
    if trace.ndim != 2 or trace.shape[1] != 4 or trace.dtype.kind not in "iu":
        raise ValueError(
            f"trace is {trace.dtype} of shape {trace.shape}; give Result.trace of a run with "
            "record=True, whole numbers [actions, 4]"
        )
    planned = np.concatenate(list(schedule.codes()))
    executed = trace[:, :3]
    order = "one by one"
    if schedule.lanes == 2:
        order = "in the order of each of the two lanes"
        planned, executed = (np.concatenate(_lanes(rows)) for rows in (planned, executed))
    both = min(len(planned), len(executed))
    unequal = (planned[:both] != executed[:both]).any(axis=1)
    count = len(executed)
    if unequal.any():
        at = int(unequal.argmax())
        reason = f"{_words(planned[at])} was planned, {_words(executed[at])} was executed"
        return Comparison(count, at, reason, order)
    if len(planned) != len(executed):
        reason = f"{len(planned)} actions were planned, {len(executed)} were executed"
        return Comparison(count, both, reason, order)
    if schedule.unit == "bytes" and schedule.lanes == 1:
        used = in_use(schedule, planned)
        if (used != trace[:, 3]).any():
            at = int((used != trace[:, 3]).argmax())
            reason = f"{used[at]} bytes in use were planned, {trace[at, 3]} were"
            return Comparison(count, at, reason, order)
        order += ", and the bytes in use after each"
    return Comparison(count, None, "", order)


def in_use(schedule, rows):
    """Return the memory in use after each action, int64 [actions], in the schedule's unit."""
    used = np.empty(len(rows), np.int64)
    Meter(schedule.hidden, schedule.internal).feed(rows, used)
    return schedule.buffers * schedule.hidden + used


def check(schedules):
    """Raise unless the schedules can stand on one page."""
    first = schedules[0]
    for other in schedules[1:]:
        for name in ("steps", "hidden", "internal", "unit"):
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(
                    f"the schedules have {name} {mine} and {theirs}; give them the same one"
                )
    count = sum(map(len, schedules))
    if count > MOST_ACTIONS:
        raise ValueError(
            f"the schedules have {count} actions; a page holds {MOST_ACTIONS}, give fewer steps or "
            "more memory"
        )


def about(schedule, cell, batch, command):
    """Return what the page is made from, as a paragraph: sizes, cell and command."""
    sizes = schedule.hidden, schedule.internal
    hidden, internal = (quantity(size, schedule.unit) for size in sizes)
    parts = [
        f"α = {schedule.internal / schedule.hidden:g}: a hidden state takes {hidden}, an internal "
        f"state {internal}."
    ]
    if cell is not None:
        parts.append(
            f"{cell.kind}, {cell.hidden_size} hidden units, {cell.dtype.name}, batch {batch}."
        )
    text = escape(" ".join(parts))
    if command is not None:
        text += f" Made by <code>{escape(command)}</code>"
    return f'<p class="about">{text}</p>'


def numbers(schedules):
    """Return the table of what each schedule costs and saves."""
    heads = ("strategy", "forward steps", "per step", "most in use", "allowed", "full BPTT needs")
    heads = (*heads, "saved", "time, of full BPTT's")
    rows = []
    for schedule in schedules:
        sizes = schedule.peak_bytes, schedule.budget, schedule.full_bytes
        rows.append(
            (
                schedule.strategy,
                f"{schedule.forward_steps:,}",
                f"{schedule.forward_steps / schedule.steps:.3f}",
                *(quantity(size, schedule.unit) for size in sizes),
                saved(schedule),
                f"{schedule.time_factor():.3f}",
            )
        )
    return html_table(heads, rows)


def html_table(heads, rows):
    """Return a table whose first column names the rows."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "\n".join(
        f'<tr><th scope="row">{escape(str(first))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scrolls"><table class="numbers"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def actions_table(schedule):
    """Return the table of all actions, folded away: what the drawing shows, to be read."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings(schedule))
    rows = []
    for line in lines(schedule):
        number, action, *rest = (f"{escape(cell)}" for cell in line)
        cells = "".join(f"<td>{cell}</td>" for cell in rest)
        rows.append(
            f'<tr data-index="{int(number) - 1}"><th scope="row">{number}</th><td>{action}</td>'
            f"{cells}</tr>"
        )
    body = "\n".join(rows)
    return (
        f"<details><summary>Every action as a table ({escape(schedule.strategy)})</summary>\n"
        '<div class="scrolls"><table class="actions">'
        "<caption>h4: a hidden state; [4]: an internal state; the top of the stack at the "
        f"right</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        "</details>"
    )


def data(schedules, trace):
    """Return all that the script draws, as JSON that may stand between script tags."""
    first = schedules[0]
    planned = [
        {
            "name": schedule.strategy,
            "budget": schedule.budget,
            "stacked": schedule.lanes == 1,
            "buffers": schedule.buffers,
            "actions": np.concatenate(list(schedule.codes())).ravel().tolist(),
        }
        for schedule in schedules
    ]
    everything = {
        "steps": first.steps,
        "hidden": first.hidden,
        "internal": first.internal,
        "unit": first.unit,
        "schedules": planned,
        "executed": None if trace is None else np.asarray(trace).ravel().tolist(),
    }
    return json.dumps(everything, separators=(",", ":")).replace("</", "<\\/")


def _lanes(rows):
    """Return the rows of the lane that runs ahead, and of the one that back-propagates."""
    behind = (rows[:, 0] == BACKWARD) | ((rows[:, 0] == FREE) & (rows[:, 2] == 1))
    return rows[~behind], rows[behind]


def _words(row):
    return f'"{words(from_row(*row.tolist()))}"'


def _file(kind):
    return (resources.files("membptt.view") / f"viewer.{kind}").read_text(encoding="utf-8")
