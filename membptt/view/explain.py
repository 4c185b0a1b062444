"""The dynamic programme at work: which splits there were, what each costs, and why this one.

A *node* is a part of the problem: t steps, m units. Its candidates are the terms of the recurrence
(membptt.solver.recurrences); each saves one state after y steps and leaves two smaller nodes, the
steps right of it and those left of it. The nodes are followed as the schedule itself is made
(membptt.schedules.plan.plan), so what is explained is what runs.
"""

from dataclasses import dataclass
from math import inf

from membptt.checks import integer
from membptt.memory import Units
from membptt.schedules import schedule
from membptt.solver import recurrences
from membptt.solver.strategies import Sizes, find_strategy, plan

MOST_STEPS = 60  # the readable tables take t² m operations
MOST_COLUMNS = 16
PROGRAMMES = ("hsm", "ism", "msm", "optimal")

FORMULAS = {
    "hsm": "C(t,m) = min over y of  y + C(t-y, m-1) + C(y, m);  C(t,1) = t(t+1)/2",
    "ism": "C(t,m) = min over y of  y + C(t-y, m-1) + C(y-1, m);  C(t,1) = t(t+1)/2",
    "msm": "C(t,m) = min over y of  hidden y + C(t-y, m-1) + C(y, m),"
    "  internal y + C(t-y, m-α) + C(y-1, m),  or nothing t + C(t-1, m)",
    "optimal": "A(t,m) = min over y of  hidden y + B(t-y, m) + A(y, m),"
    "  internal y + A(t-y, m-α) + A(y-1, m)\n"
    "B(t,m) = min over y of  hidden y + B(t-y, m-1) + B(y, m),"
    "  internal y + A(t-y, m-1-α) + B(y-1, m),  or 1 + A(t-1, m-α)\n"
    "A: the start of the steps can be had again for nothing; B: it is a saved hidden state",
}


@dataclass(frozen=True)
class Entry:
    """An entry of a table of costs: ``C(t, m)``.

    Attributes
    ----------
    table : str
        "C", or "A" and "B" of strategy optimal.
    t, m : int
    cost : int or float
        `math.inf` where there is no schedule.
    """

    table: str
    t: int
    m: int
    cost: float

    def __str__(self):
        return f"{self.table}({self.t},{self.m}) = {_number(self.cost)}"


@dataclass(frozen=True)
class Candidate:
    """One term of the recurrence.

    Attributes
    ----------
    kind : str
        What is saved after y steps: "hidden" or "internal"; "convert": the start's memory becomes
        a part of the internal state of its first step; "run": nothing is saved but the working
        internal state of the last step, which is back-propagated at once.
    y : int
        Steps run first.
    right, left : Entry or None
        What the steps after and before the saved state cost.
    """

    kind: str
    y: int
    right: Entry | None
    left: Entry | None

    @property
    def total(self):
        """The forward steps in all."""
        return self.y + sum(part.cost for part in (self.right, self.left) if part)


@dataclass(frozen=True)
class Node:
    """A part of the problem and how it was decided.

    Attributes
    ----------
    start : int
        The steps start + 1 ... start + entry.t are back-propagated, from h_start.
    depth : int
        Nodes above it.
    sweep : bool
        Reached by the first sweep.
    entry : Entry
    candidates : tuple of Candidate
    chosen : Candidate
    """

    start: int
    depth: int
    sweep: bool
    entry: Entry
    candidates: tuple
    chosen: Candidate


@dataclass(frozen=True)
class Explanation:
    """All nodes of one schedule, in the order in which they are executed.

    Attributes
    ----------
    schedule : membptt.Schedule
    programme : str
        The recurrence that decided: the strategy's name, or "ism" for optimal with α = 1.
    alpha : int
    nodes : tuple of Node
    tables : dict of str to list
        The costs, ``table[t][m]``.
    """

    schedule: object
    programme: str
    alpha: int
    nodes: tuple
    tables: dict


def explain(steps, units, strategy="optimal", alpha=1):
    """Return why the schedule of a strategy is as it is.

    Parameters
    ----------
    steps : int
        T, up to 60.
    units : int
        Memory as the strategy counts it.
    strategy : {"hsm", "ism", "msm", "optimal"}
    alpha : int
        Size of an internal state in hidden states.

    Returns
    -------
    Explanation

    Raises
    ------
    ValueError
        If the strategy is no dynamic programme, there are more than 60 steps, or too few units.

    Examples
    --------
    >>> node = explain(10, 4, "hsm").nodes[0]
    >>> print(node.entry, node.chosen.y, node.chosen.right, node.chosen.left, sep=", ")
    C(10,4) = 24, 5, C(5,3) = 10, C(5,4) = 9
    """
    steps, units = integer("steps", steps), integer("units", units)
    chosen = find_strategy(strategy)
    if strategy not in PROGRAMMES:
        raise ValueError(
            f"strategy is {strategy}, which is no dynamic programme; give one of "
            f"{', '.join(PROGRAMMES)}"
        )
    if steps > MOST_STEPS:
        raise ValueError(f"steps is {steps}; an explanation holds {MOST_STEPS}, give fewer")
    planned = schedule(steps, Units(units, alpha), strategy)
    alpha = planned.internal
    rule = plan(steps, units, chosen, Sizes(1, alpha)).rule
    programme = "ism" if strategy == "optimal" and alpha == 1 else strategy
    most = rule.free + (programme == "hsm")  # hsm counts the start, its rule does not
    tables = _tables(programme, steps, most, alpha)
    terms = _Terms(programme, tables, alpha)
    nodes = tuple(_nodes(rule, terms, 0, steps, rule.free, False, 0, True))
    return Explanation(planned, programme, alpha, nodes, tables)


def _tables(programme, steps, units, alpha):
    if programme == "optimal":
        A, B = recurrences.optimal(steps, units, 1, alpha)
        return {"A": A, "B": B}
    if programme == "msm":
        return {"C": recurrences.msm(steps, units, 1, alpha)}
    return {"C": getattr(recurrences, programme)(steps, units)}


class _Terms:
    """Writes down the terms of a recurrence for one entry."""

    def __init__(self, programme, tables, alpha):
        self.programme = programme
        self.tables = tables
        self.alpha = alpha

    def entry(self, table, t, m):
        cost = self.tables[table][t][m] if m >= 0 else inf
        return Entry(table, t, m, cost)

    def node(self, t, free, held):
        """Return the entry of a node of the schedule's rule."""
        if self.programme == "optimal":
            return self.entry("B" if held else "A", t, free + held)
        return self.entry("C", t, free + (self.programme == "hsm"))

    def candidates(self, at):
        """Return the terms for an entry, those that save a hidden state first."""
        return tuple(getattr(self, f"_{self.programme}")(at.t, at.m, at.table))

    def _hsm(self, t, m, _):
        for y in range(1, t - 1 if m > 1 else 0):
            yield Candidate("hidden", y, self.entry("C", t - y, m - 1), self.entry("C", y, m))
        yield Candidate("run", t, None, self.entry("C", t - 1, m))

    def _ism(self, t, m, _):
        for y in range(1 if m > 1 else t, t + 1):
            right = self.entry("C", t - y, m - 1) if y < t else None
            yield Candidate("internal", y, right, self.entry("C", y - 1, m))

    def _msm(self, t, m, _):
        for y in range(1, t - 1 if m >= 1 else 0):
            yield Candidate("hidden", y, self.entry("C", t - y, m - 1), self.entry("C", y, m))
        for y in range(1, t if m >= self.alpha else 0):
            right = self.entry("C", t - y, m - self.alpha)
            yield Candidate("internal", y, right, self.entry("C", y - 1, m))
        yield Candidate("run", t, None, self.entry("C", t - 1, m))

    def _optimal(self, t, m, table):
        held = table == "B"
        if held and m >= self.alpha:
            yield Candidate("convert", 1, self.entry("A", t - 1, m - self.alpha), None)
        for y in range(1, t if m > held else 0):
            yield Candidate("hidden", y, self.entry("B", t - y, m - held), self.entry(table, y, m))
        for y in range(1, t + 1 if m >= self.alpha + held else 0):
            right = self.entry("A", t - y, m - self.alpha - held)
            yield Candidate("internal", y, right, self.entry(table, y - 1, m))


def _nodes(rule, terms, start, t, free, held, depth, sweep):
    """Yield the nodes in the order of `membptt.schedules.plan.plan`."""
    if t == 0:
        return
    entry = terms.node(t, free, held)
    candidates = terms.candidates(entry)
    split = rule.split(t, free, held)
    y = abs(split) or 1
    kinds = ("hidden",) if split > 0 else ("internal", "run") if split < 0 else ("convert",)
    chosen = next(one for one in candidates if one.y == y and one.kind in kinds)
    yield Node(start, depth, sweep, entry, candidates, chosen)
    if split > 0:
        yield from _nodes(rule, terms, start + y, t - y, free - rule.hidden, True, depth + 1, sweep)
        yield from _nodes(rule, terms, start, y, free, held, depth + 1, False)
        return
    if split == 0:
        free, held = free + rule.hidden, False
    yield from _nodes(rule, terms, start + y, t - y, free - rule.internal, False, depth + 1, sweep)
    yield from _nodes(rule, terms, start, y - 1, free, held, depth + 1, False)


# -- as text --------------------------------------------------------------------------------------


def node_lines(node):
    """Yield the candidates of a node as lines, the chosen one marked, and why."""
    entry = node.entry
    yield f"{_steps(node)}, from h{node.start}: {entry}"
    if entry.t > 1:
        for one in node.candidates:
            if one.total == inf:
                continue
            yield f"  {'>' if one is node.chosen else ' '} {_term(node, one)}"
    yield f"  {why(node)}"


def why(node):
    """Return in words why the node was decided as it was."""
    chosen, t = node.chosen, node.entry.t
    if t == 1:
        return "One step: run it, save its internal state, back-propagate it."
    text = f"{_does(node, chosen)}: {_sum(chosen)} is the least."
    ties = [one for one in node.candidates if one.total == chosen.total and one is not chosen]
    if ties:
        kinds = {one.kind: [o.y for o in ties if o.kind == one.kind] for one in ties}
        groups = (f"y = {', '.join(map(str, ys))} ({kind})" for kind, ys in kinds.items())
        text += f" As good: {'; '.join(groups)}."
    for y in (chosen.y - 1, chosen.y + 1):
        other = next((o for o in node.candidates if (o.kind, o.y) == (chosen.kind, y)), None)
        if other and inf > other.total > chosen.total:
            text += f" y = {y}: {_change(chosen, other)}, {other.total - chosen.total} more in all."
    return text


def table_lines(explanation):
    """Yield the tables of costs, with a star on every entry that the schedule goes through."""
    path = {(node.entry.table, node.entry.t, node.entry.m) for node in explanation.nodes}
    for name, table in explanation.tables.items():
        through = sorted({m for other, _, m in path if other == name})
        if not through:
            continue
        columns = range(through[0], through[-1] + 1)
        columns = list(columns) if len(columns) <= MOST_COLUMNS else through[-MOST_COLUMNS:]
        width = max(len(_number(table[-1][m])) for m in columns) + 2
        width = max(width, 6)
        yield f"{name}(t,m){'':>2}" + "".join(f"{f'm={m}':>{width}} " for m in columns)
        for t in range(1, len(table)):
            cells = (
                f"{_number(table[t][m]):>{width}}{'*' if (name, t, m) in path else ' '}"
                for m in columns
            )
            yield f"{f't={t}':>8}" + "".join(cells)


def as_json(explanation):
    """Return the explanation as plain values; None stands for an infeasible cost."""

    def entry(one):
        return one and {"table": one.table, "t": one.t, "m": one.m, "cost": _finite(one.cost)}

    def candidate(one):
        return {
            "kind": one.kind,
            "y": one.y,
            "right": entry(one.right),
            "left": entry(one.left),
            "total": _finite(one.total),
        }

    return [
        {
            **entry(node.entry),
            "start": node.start,
            "depth": node.depth,
            "first_sweep": node.sweep,
            "chosen": candidate(node.chosen),
            "candidates": [candidate(one) for one in node.candidates],
            "why": why(node),
        }
        for node in explanation.nodes
    ]


def _steps(node):
    first, last = node.start + 1, node.start + node.entry.t
    return f"step {last}" if first == last else f"steps {first}-{last}"


def _state(node, one):
    at = node.start + one.y
    return {"hidden": f"h{at}", "internal": f"[{at}]", "convert": f"[{at}]", "run": "-"}[one.kind]


def _does(node, one):
    words = {
        "hidden": f"Run {one.y} and save {_state(node, one)}",
        "internal": f"Run {one.y} and save {_state(node, one)}",
        "convert": f"Give h{node.start} back, run 1 and save {_state(node, one)} in its place too",
        "run": f"Save nothing: run {one.y}, back-propagate the last step, and start again",
    }
    return words[one.kind]


def _term(node, one):
    right = f"+ {one.right}" if one.right else ""
    left = f"+ {one.left}" if one.left else ""
    save = f"save {_state(node, one)}" if one.kind != "run" else "save nothing"
    return f"y = {one.y:<3} {save:<13} {one.y:>3} {right:<17} {left:<17} = {_number(one.total)}"


def _sum(one):
    parts = [one.y, *(part.cost for part in (one.right, one.left) if part)]
    return f"{' + '.join(map(_number, parts))} = {_number(one.total)}"


def _change(chosen, other):
    """Return what moving the split does to its two sides."""
    right = (other.right.cost if other.right else 0) - (chosen.right.cost if chosen.right else 0)
    left = other.y - chosen.y + (other.left.cost if other.left else 0)
    left -= chosen.left.cost if chosen.left else 0
    return f"{right:+} at the right, {left:+} for the first run and the left"


def _number(cost):
    return "-" if cost == inf else str(cost)


def _finite(cost):
    return None if cost == inf else cost
