"""The least cost over all schedules, by looking at all of them; knows no recurrence.

A schedule is a path through the states of a machine, and the least cost is a shortest path
(Dijkstra). A state of the machine is ``(working, saved, remaining)``: the working state is
h_working; `saved` is the set of saved states, pairs (step, is internal) as in
`membptt.schedules.replay`; the steps 1...remaining are still to be back-propagated.

The machine may do more than a schedule of this package: it may save its working state at any
time, and give back any saved state at any time, not only the last one. Two rules keep it from
wandering, and neither excludes a schedule that could be cheaper: a backward is done as soon as it
can be, and a state that can serve no remaining step is given back at once.

For chains of up to about eight steps; the number of states grows as the subsets of 2 T.

Where blocks of steps can be expanded (`prices`), the machine is that of this package's schedules
in three ways: a hidden state is saved where a run ends and not later, out of an internal state; a
block is expanded out of states saved so, right before the backward of its last step; and the
working state is lost then. Without these it could hide states in the working state or make hidden
states of internal ones, and do a little better on some of the smallest chains.
"""

import heapq
from itertools import count


def least_cost(chain, budget, prices=None):
    """Return the least cost of back-propagating through `chain`, or None where none fits.

    Parameters
    ----------
    chain : membptt.solver.chains.Chain
        Costs and sizes of the steps.
    budget : int
        Most that all saved states may take at any time.
    prices : sequence, optional
        Cost of expanding a block of q steps at once, for q = 0, 1, 2, ...

    Returns
    -------
    float or int or None
        Forward runs, saves and restores; the backward of each step is not counted.
    """
    options, start = moves, (0, frozenset(), chain.steps)
    if prices is not None:
        options, start = block_moves, (*start, False)  # False: no run has just ended
    best = {start: 0}
    order = count()  # states of equal cost in the order they were found
    queue = [(0, next(order), start)]
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if state[2] == 0:
            return cost
        for price, following in options(chain, budget, state, prices):
            following = settle(following)
            if cost + price < best.get(following, float("inf")):
                best[following] = cost + price
                heapq.heappush(queue, (cost + price, next(order), following))
    return None


def moves(chain, budget, state, _):
    """Yield (cost, state) for everything the machine may do next."""
    working, saved, remaining = state
    room = budget - sum(size(chain, item) for item in saved)
    if working < remaining:
        step, price = working + 1, chain.forward[working]
        yield price, (step, saved, remaining)
        if chain.internal[working] <= room and (step, True) not in saved:
            yield price + chain.save_internal, (step, saved | {(step, True)}, remaining)
    if working > 0 and chain.hidden[working - 1] <= room and (working, False) not in saved:
        yield chain.save_hidden, (working, saved | {(working, False)}, remaining)
    for step in reachable(saved):
        if step != working:
            yield chain.restore, (step, saved, remaining)
    for item in saved:
        yield 0, (working, saved - {item}, remaining)


def block_moves(chain, budget, state, prices):
    """Yield (cost, state) for everything that a machine which expands blocks may do next."""
    working, saved, remaining, run_ended = state
    room = budget - sum(size(chain, item) for item in saved)
    if working is not None and working < remaining:
        step, price = working + 1, chain.forward[working]
        yield price, (step, saved, remaining, True)
        if chain.internal[working] <= room:
            yield price + chain.save_internal, (step, saved | {(step, True)}, remaining, False)
    if run_ended and chain.hidden[working - 1] <= room:
        yield chain.save_hidden, (working, saved | {(working, False)}, remaining, False)
    for step in reachable(saved):
        yield chain.restore, (step, saved, remaining, False)
    for item in saved:
        yield 0, (working, saved - {item}, remaining, run_ended)
    for q in range(2, min(len(prices) - 1, remaining) + 1):
        start = remaining - q
        before = {(step, False) for step in range(start + 1, remaining)}
        if before <= saved and (start == 0 or {(start, False), (start, True)} & saved):
            block = {(step, True) for step in range(start + 1, remaining + 1)}
            after = saved - before - {(start, False)} | block
            if sum(size(chain, item) for item in after) <= budget:
                yield prices[q], (None, after, remaining, False)


def size(chain, item):
    """Return what a saved state takes."""
    step, internal = item
    return (chain.internal if internal else chain.hidden)[step - 1]


def reachable(saved):
    """Return the steps whose hidden state can be restored."""
    steps = {0}
    for step, internal in saved:
        steps.add(step)
        if internal:
            steps.add(step - 1)  # the state that entered the step
    return steps


def settle(state):
    """Do every backward that can be done, and give back what has become useless."""
    working, saved, remaining, *rest = state
    while (remaining, True) in saved:
        remaining -= 1
        saved = saved - {(remaining + 1, True)}
    useful = frozenset((step, internal) for step, internal in saved if step < remaining + internal)
    return working, useful, remaining, *rest
