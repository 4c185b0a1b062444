"""What a strategy is: its source, its budget, its cost and where it splits.

Each strategy is one small class. It says how many units, as its source counts them, a budget
gives; what those units take at most; the least budget it works in; and it plans: the plan holds
the rule that `membptt.schedules` turns into actions, and the cost the solver found. Sizes are in
bytes with a cell, and 1 and alpha without.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import comb, gcd, isqrt

import numpy as np

from membptt.checks import integer, one_of
from membptt.memory import format_bytes
from membptt.solver import _expand, _solver
from membptt.solver.bounds import EXACT, NearOptimalRule
from membptt.solver.disk import Intervals, inner_budget, shortest_interval
from membptt.solver.expand import ExpandCost
from membptt.solver.lookahead import least_budget, lookahead

WORK_LIMIT = 10**12  # comparisons of a planner: minutes at most, and nothing interrupts them
TABLE_LIMIT = 2**30  # bytes; a planner must not be the memory hog it is there to prevent
LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Sizes:
    """Sizes of the two kinds of saved states.

    Attributes
    ----------
    hidden, internal : int
        Bytes of a hidden and of an internal state, or units: 1 and alpha.
    """

    hidden: int
    internal: int

    @property
    def unit(self):
        """Greatest common divisor of the two sizes: what the recurrences count in."""
        return gcd(self.hidden, self.internal)

    @property
    def counts(self):
        """The two sizes a and b in that unit."""
        return self.hidden // self.unit, self.internal // self.unit


@dataclass(frozen=True)
class Plan:
    """Where to split, and what that costs.

    Attributes
    ----------
    rule : membptt.solver._solver.Rule, or lookahead.Segments or disk.Intervals of the solver
        Answers where to split a node; or how the chain is cut for two lanes, or for slow storage.
    forward_steps : int
        The recurrence's answer.
    lower_bound : int or None
        Where the plan may be above the optimum: what no schedule goes below.
    expand_cost : membptt.solver.expand.ExpandCost or None
        What the plan was told about the price of an expansion.
    """

    rule: object
    forward_steps: int
    lower_bound: int | None = None
    expand_cost: ExpandCost | None = None


class Strategy(ABC):
    """Base of all strategies; the defaults are those of a strategy that counts plain units.

    Attributes
    ----------
    name : str
        What users call it.
    most_steps : int
        Longest chain: a planner that tries every length of a segment has arrays of T numbers.
    """

    name = ""
    most_steps = LARGEST

    def units(self, steps, budget, sizes):
        """Return how many units `budget` gives, in the strategy's own counting."""
        return budget // sizes.unit

    def budget(self, units, sizes):
        """Return what `units` units take at most, the working internal state included."""
        return units * sizes.unit

    def least_units(self, steps, sizes):
        """Return the fewest units that `steps` steps can be planned with."""
        return self.units(steps, self.least_budget(steps, sizes), sizes)

    def least_budget(self, steps, sizes):
        """Return the least budget: for most strategies the working internal state alone."""
        return sizes.internal

    @abstractmethod
    def plan(self, steps, units, sizes):
        """Return the `Plan` for `steps` steps with `units` units (not below the least)."""

    def cost(self, steps, units, sizes):
        """Return the forward steps of the plan; a table, where there is one, is not kept."""
        return self.costs(steps, [units], sizes)[0]

    def costs(self, steps, units, sizes):
        """Return `cost` for each number of units in the ascending sequence `units`."""
        return [self.plan(steps, count, sizes).forward_steps for count in units]


class Full(Strategy):
    """Full BPTT: every internal state is kept, every step runs forward once."""

    name = "full"

    def least_budget(self, steps, sizes):
        """Return the room for all internal states."""
        return steps * sizes.internal

    def plan(self, steps, units, sizes):
        """Return the plan without recomputation."""
        return Plan(_solver.FullRule(), steps)


class Hidden(Strategy):
    """Hidden state memorisation, Gruslys et al. (2016), section 3.1.

    Units count saved hidden states, the initial one included; the working internal state is not
    counted. Planned by the closed form of Revolve, which has the same cost.
    """

    name = "hsm"

    def units(self, steps, budget, sizes):
        """Return how many hidden states fit beside one internal state, plus the initial one."""
        return 1 + (budget - sizes.internal) // sizes.hidden

    def budget(self, units, sizes):
        """Return the size of all but the initial hidden state, and of one internal state."""
        return (units - 1) * sizes.hidden + sizes.internal

    def plan(self, steps, units, sizes):
        """Return the plan by binomial coefficients; no table, any length."""
        units = min(units, steps)
        return Plan(_solver.HiddenRule(units), steps + binomial_cost(steps, units))


class Revolve(Hidden):
    """The binomial schedule of Griewank and Walther (2000): hsm by another name, and its source.

    Slots are counted as in hsm, the one with the initial state included.
    """

    name = "revolve"


class Internal(Strategy):
    """Internal state memorisation, Gruslys et al. (2016), section 3.2.

    Units count internal states, the working one included. With D(t, m) = C(t - 1, m) the
    recurrence becomes D(t, m) = min over 1 <= y < t of y + D(y, m) + D(t - y, m - 1), which is
    Revolve's: C(t, m) is the closed form for t + 1 steps.
    """

    name = "ism"

    def units(self, steps, budget, sizes):
        """Return how many internal states fit."""
        return budget // sizes.internal

    def budget(self, units, sizes):
        """Return the size of `units` internal states."""
        return units * sizes.internal

    def plan(self, steps, units, sizes):
        """Return the plan by binomial coefficients; no table, any length."""
        units = min(units, steps)
        return Plan(_solver.InternalRule(units), binomial_cost(steps + 1, units))


class Mixed(Strategy):
    """Mixed state memorisation as Gruslys et al. (2016), section 3.3, have it.

    Units count saved states, a hidden state 1 and an internal state alpha, without the initial
    state and without the working internal state. Not optimal for alpha >= 2; see `Optimal`.
    """

    name = "msm"

    def units(self, steps, budget, sizes):
        """Return the units beside one working internal state."""
        return (budget - sizes.internal) // sizes.unit

    def budget(self, units, sizes):
        """Return the size of the units and of one internal state."""
        return units * sizes.unit + sizes.internal

    def plan(self, steps, units, sizes):
        """Return the plan from the table of the recurrence."""
        a, b = sizes.counts
        units = min(units, (steps - 1) * b)
        check_tables(self.name, steps, units, tables=1)
        rule = _solver.MixedRule(steps, units, a, b)
        return Plan(rule, rule.cost())

    def costs(self, steps, units, sizes):
        """Return the last column of the table, of which few rows are held at a time."""
        a, b = sizes.counts
        most = (steps - 1) * b
        check_tables(self.name, steps, min(units[-1], most), tables=1)  # what a plan would need
        column = _solver.msm_costs(steps, min(units[-1], most), a, b)
        return [int(column[min(count, most)]) for count in units]


class Optimal(Strategy):
    """The best schedule there is; see `membptt.solver.recurrences.optimal`.

    Units count everything that is saved, a hidden state 1 and an internal state alpha (in bytes:
    in multiples of the greatest common divisor of the two sizes); the initial state is the
    caller's.
    """

    name = "optimal"

    def plan(self, steps, units, sizes):
        """Return the plan from the two tables, or by ism where hidden states are of no use.

        An internal state restores the hidden state it ends with, and its own backward for nothing
        besides; where it is not larger it always serves better.
        """
        a, b = sizes.counts
        if a >= b:
            return Internal().plan(steps, units // b, sizes)
        units = min(units, steps * b)
        check_tables(self.name, steps, units, tables=2)
        rule = _solver.OptimalRule(steps, units, a, b)
        return Plan(rule, rule.cost())

    def costs(self, steps, units, sizes):
        """Return the last column of table A, of which few rows are held at a time."""
        a, b = sizes.counts
        if a >= b:
            return Internal().costs(steps, [count // b for count in units], sizes)
        most = steps * b
        check_tables(self.name, steps, min(units[-1], most), tables=2)  # what a plan would need
        column = _solver.optimal_costs(steps, min(units[-1], most), a, b)
        return [int(column[min(count, most)]) for count in units]


class NearOptimal(Optimal):
    """`optimal` at any length, with a certificate; see `membptt.solver.bounds`.

    Up to 2000 steps the same; beyond, the splits of the long nodes come from a lower bound, and
    the plan says by how much it may be above the optimum.
    """

    name = "near-optimal"

    def plan(self, steps, units, sizes):
        """Return the plan with its lower bound; tables are needed for 2000 steps only."""
        a, b = sizes.counts
        if steps <= EXACT or a >= b:
            return super().plan(steps, units, sizes)
        units = min(units, steps * b)
        check_tables(self.name, EXACT, units, tables=2)
        rule = NearOptimalRule(steps, units, a, b)
        return Plan(rule, rule.cost(steps), rule.lower)

    def costs(self, steps, units, sizes):
        """Return the cost for each number of units; beyond 2000 steps, plan by plan."""
        if steps <= EXACT:
            return super().costs(steps, units, sizes)
        return Strategy.costs(self, steps, units, sizes)


class Expand(Optimal):
    """As `Optimal`, and runs of hidden states whose internal states are computed block by block.

    See `membptt.solver.recurrences.expand` and docs/expand.md; units are those of `Optimal`.
    """

    name = "expand"

    def plan(self, steps, units, sizes, expand_cost=None):
        """Return the plan for this `ExpandCost`; hidden states are of use only if smaller."""
        a, b = sizes.counts
        if a >= b:
            return Internal().plan(steps, units // b, sizes)
        expand_cost = expand_cost or ExpandCost()
        units = min(units, steps * b)
        check_tables(self.name, steps, units, tables=2, itemsize=8)
        rule = _expand.ExpandRule(steps, units, a, b, expand_cost.prices())
        return Plan(rule, rule.forward_steps, expand_cost=expand_cost)

    costs = Strategy.costs  # plan by plan: prices are part of a plan


class Uniform(Strategy):
    """Hidden states at every k-th step, full BPTT within a segment; the usual practice.

    Every step but those of the last segment, of r steps, runs twice: 2 T - r forward steps. k is
    the one of least cost that fits the budget. A segment's start becomes a part of its first
    internal state. Units are those of `optimal`.
    """

    name = "uniform"
    most_steps = TABLE_LIMIT // 32  # four arrays of 8 bytes a step at once

    def least_budget(self, steps, sizes):
        """Return the room that the best k takes, about 2 sqrt(T hidden internal)."""
        return int(_uniform_peaks(steps, sizes).min())

    def plan(self, steps, units, sizes):
        """Return the plan with the best k."""
        segments = np.arange(1, steps + 1)
        fits = _uniform_peaks(steps, sizes) <= units * sizes.unit
        costs = np.where(fits, 2 * steps - _last_segment(steps, segments), 2 * steps)
        return _uniform_plan(steps, int(segments[costs.argmin()]))


class Chen(Strategy):
    """Segments of sqrt(T) steps, rounded up: Chen et al. (2016), section 4.1.

    `Uniform` with k = ceil(sqrt(T)), whatever the budget; 2 T - r forward steps. Units are those
    of `optimal`.
    """

    name = "chen"

    def least_budget(self, steps, sizes):
        """Return the room that segments of this length take."""
        return int(_uniform_peaks(steps, sizes, np.array([_root(steps)]))[0])

    def plan(self, steps, units, sizes):
        """Return the plan; more units than the least change nothing."""
        return _uniform_plan(steps, _root(steps))


class ChenRecursive(Strategy):
    """One hidden state in the middle, and the same again for either half: log T memory.

    Chen et al. (2016), section 4.4 with k = 1. F(1) = 1, F(t) = y + F(y) + F(t - y) with
    y = ceil(t / 2), about T log2(T) / 2 forward steps more than T. Units are those of `optimal`.
    """

    name = "chen-recursive"

    def least_budget(self, steps, sizes):
        """Return the room for one hidden state per level and one internal state."""
        one = {(1, False): sizes.internal, (1, True): max(sizes.hidden, sizes.internal)}
        return _halving_peak(steps, False, sizes, one)

    def plan(self, steps, units, sizes):
        """Return the plan; more units than the least change nothing."""
        return Plan(_solver.HalvingRule(), _halving_cost(steps, {1: 1}))


class Lookahead(Strategy):
    """One core back-propagates a segment while another recomputes the one before it.

    See `membptt.solver.lookahead`; for sizes where a second core hardly speeds a step up.
    """

    name = "lookahead"
    most_steps = TABLE_LIMIT // 32

    def least_budget(self, steps, sizes):
        """Return the least that segments can be cut for."""
        return least_budget(steps, sizes.hidden, sizes.internal)

    def plan(self, steps, units, sizes):
        """Return the plan with the fewest segments; its rule is a `Segments`."""
        segments = lookahead(steps, self.budget(units, sizes), sizes.hidden, sizes.internal)
        return Plan(segments, segments.forward_steps)


class Disk(Strategy):
    """Hidden states on disk at intervals, `Optimal` within each; see `membptt.solver.disk`.

    Kukreja, Hückelheim and Gorman (2018).
    """

    name = "disk"

    def least_budget(self, steps, sizes):
        """Return the room for one internal state, two buffers and a hidden state."""
        return sizes.internal + 3 * sizes.hidden

    def plan(self, steps, units, sizes, interval=None):
        """Return the plan for intervals of `interval` steps, by default without recomputation."""
        budget = self.budget(units, sizes)
        if interval is None:
            interval = shortest_interval(steps, budget, sizes.hidden, sizes.internal)
        interval = min(interval, steps)
        inner = inner_budget(budget, sizes.hidden)
        planner = Full() if inner >= interval * sizes.internal else Optimal()
        count = inner // sizes.unit
        planned = plan(interval, planner.units(interval, inner, sizes), planner, sizes)
        whole, last = divmod(steps - 1, interval)
        rest = planner.cost(last + 1, count, sizes)
        forward = whole * (interval + planned.forward_steps) + rest
        return Plan(Intervals(steps, interval, planned.rule), forward)


def _root(steps):
    """Return ceil(sqrt(steps)), exactly."""
    return isqrt(steps - 1) + 1


def _last_segment(steps, segment):
    """Return the length of the last of the segments."""
    return (steps - 1) % segment + 1


def _uniform_plan(steps, segment):
    return Plan(_solver.UniformRule(segment), 2 * steps - _last_segment(steps, segment))


def _uniform_peaks(steps, sizes, segments=None):
    """Return what `Uniform` saves at most, for each length of the segments (1...T).

    With n segments, n - 1 hidden states stand at the end of the first sweep; the last of them
    makes way for the internal states of the last segment, the next for those of the last but one.
    """
    if segments is None:
        segments = np.arange(1, steps + 1)
    last = _last_segment(steps, segments)
    before = (steps - last) // segments  # segments before the last
    return np.maximum.reduce(
        [
            before * sizes.hidden,
            np.maximum(before - 1, 0) * sizes.hidden + last * sizes.internal,
            np.where(
                before > 0,
                np.maximum(before - 2, 0) * sizes.hidden + segments * sizes.internal,
                0,
            ),
        ]
    )


def _halving_cost(t, known):
    """Return F(t) of `ChenRecursive`; there are two lengths per level, `known` keeps them."""
    if t not in known:
        y = (t + 1) // 2
        known[t] = y + _halving_cost(y, known) + _halving_cost(t - y, known)
    return known[t]


def _halving_peak(t, held, sizes, known):
    """Return the most that `ChenRecursive` saves for `t` steps, a held start included."""
    if (t, held) not in known:
        start = sizes.hidden if held else 0
        y = (t + 1) // 2
        right = _halving_peak(t - y, True, sizes, known)
        known[t, held] = max(start + right, _halving_peak(y, held, sizes, known))
    return known[t, held]


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Full(),
        Uniform(),
        Chen(),
        ChenRecursive(),
        Revolve(),
        Hidden(),
        Internal(),
        Mixed(),
        Optimal(),
        NearOptimal(),
        Expand(),
        Lookahead(),
        Disk(),
    )
}

# Those whose time is their forward steps: one core, memory alone, one step after the other.
ONE_LANE = {
    name: strategy
    for name, strategy in STRATEGIES.items()
    if name not in ("expand", "lookahead", "disk")
}


def find_strategy(name):
    """Return the strategy called `name`, or say which there are."""
    return STRATEGIES[one_of("strategy", name, STRATEGIES)]


def binomial_cost(t, s):
    """Return the steps that Revolve advances over to reverse `t` steps with `s` slots.

    r t - beta(s + 1, r - 1) with beta(s, r) = binomial(s + r, s) and the least r with
    t <= beta(s, r); s counts the start. Griewank and Walther (2000), theorem 1.
    """
    if s == 1:
        return t * (t - 1) // 2
    r, beta = 0, 1
    while beta < t:
        r += 1
        beta = beta * (s + r) // r
    return r * t - (comb(s + r, s + 1) if r else 0)


def table_bytes(steps, units, tables, itemsize=None):
    """Return the bytes that `tables` cost tables up to `steps` and `units` take."""
    return tables * (steps + 1) * (units + 1) * (itemsize or _solver.cost_type(steps).itemsize)


def check_tables(name, steps, units, tables, itemsize=None):
    """Refuse tables above `TABLE_LIMIT` or `WORK_LIMIT` before anything is allocated."""
    if steps > 2**31:
        raise OverflowError(f"steps is {steps}; {name} counts in 64 bits, give at most {2**31}")
    longer = [each for each in ("near-optimal", "hsm", "ism") if each != name]
    hint = f"strategies {' and '.join(longer)} need no table that long"
    need = table_bytes(steps, units, tables, itemsize)
    if need > TABLE_LIMIT:
        raise ValueError(
            f"strategy {name} for {steps} steps and {units} units needs tables of "
            f"{format_bytes(need)}, above the limit of {format_bytes(TABLE_LIMIT)}; {hint}"
        )
    work = steps * steps * units
    if work > WORK_LIMIT:
        raise ValueError(
            f"strategy {name} for {steps} steps and {units} units makes {work:.0e} comparisons, "
            f"above the limit of {WORK_LIMIT:.0e}; {hint}"
        )


def check_length(steps, strategy):
    """Refuse a chain that the strategy's planner has no room for."""
    if steps > strategy.most_steps:
        raise ValueError(
            f"steps is {steps}; strategy {strategy.name} plans up to {strategy.most_steps}, give "
            'fewer, or strategy "disk", "hsm" or "ism"'
        )


def check_full(steps, sizes):
    """Refuse chains whose whole memory does not fit into 64 bits with room for sums."""
    largest = max(sizes.hidden, sizes.internal)
    if steps * largest > LARGEST // 2:
        raise ValueError(
            f"steps is {steps} with states of size {largest}, together {steps * largest}; give "
            f"fewer steps or smaller states, together at most {LARGEST // 2}"
        )


def check_request(steps, units, strategy, sizes):
    """Refuse lengths below 1, sizes beyond 64 bits, and fewer units than the strategy needs."""
    if steps < 1:
        raise ValueError(f"steps is {steps} (with {units} units); give at least 1 step")
    check_length(steps, strategy)
    check_full(steps, sizes)
    least = strategy.least_units(steps, sizes)
    if units < least:
        raise ValueError(
            f"units is {units} for {steps} steps; strategy {strategy.name} needs at least {least}"
        )


def check_cost(cost, steps, units, strategy):
    """Refuse a cost that no signed 64-bit integer holds."""
    if cost > LARGEST:
        raise OverflowError(
            f"strategy {strategy.name} with {units} units runs {cost} forward steps for {steps} "
            "steps, more than a 64-bit integer holds; give more units"
        )


def plan(steps, units, strategy, sizes, **options):
    """Return the plan of a strategy object after checking `steps` and `units`.

    `options` are the strategy's own, those that are None left out: `interval` of disk,
    `expand_cost` of expand.

    Raises
    ------
    ValueError
        If `steps` is below 1 or `units` below what the strategy needs.
    OverflowError
        If the cost does not fit a signed 64-bit integer.
    """
    check_request(steps, units, strategy, sizes)
    options = {name: value for name, value in options.items() if value is not None}
    planned = strategy.plan(steps, units, sizes, **options)
    check_cost(planned.forward_steps, steps, units, strategy)
    return planned


def forward_steps(steps: int, units: int, strategy: str, alpha: int = 1) -> int:
    """Return how many forward steps the best schedule of a strategy runs.

    Parameters
    ----------
    steps : int
        T, at least 1.
    units : int
        Memory as the strategy counts it. hsm: saved hidden states, the initial one included. ism:
        saved internal states, the working one included. msm: saved states in hidden states,
        without the initial and the working internal state. revolve: as hsm. All others:
        everything saved, in hidden states.
    strategy : str
        A name from `membptt.solver.strategies.STRATEGIES`.
    alpha : int
        Size of an internal state in hidden states.

    Returns
    -------
    int
        First sweep, recomputations, and the forward that writes the internal state before each
        backward; full BPTT: `steps`.

    Raises
    ------
    ValueError
        If a number is out of range; the message states the least units.
    OverflowError
        If the answer does not fit a signed 64-bit integer.

    Examples
    --------
    >>> forward_steps(1000, 77, "optimal", alpha=3)
    1999
    >>> forward_steps(100000, 1, "hsm")
    5000050000
    """
    sizes = Sizes(1, integer("alpha", alpha, minimum=1))
    steps, units = integer("steps", steps), integer("units", units)
    chosen = find_strategy(strategy)
    check_request(steps, units, chosen, sizes)
    cost = chosen.cost(steps, units, sizes)
    check_cost(cost, steps, units, chosen)
    return cost
