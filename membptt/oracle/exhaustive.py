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
"""

import heapq
from itertools import count


def least_cost(chain, budget):
    """Return the least cost of back-propagating through `chain`, or None where none fits.

    Parameters
    ----------
    chain : membptt.solver.chains.Chain
        Costs and sizes of the steps.
    budget : int
        Most that all saved states may take at any time.

    Returns
    -------
    float or int or None
        Forward runs, saves and restores; the backward of each step is not counted.
    """
    start = (0, frozenset(), chain.steps)
    best = {start: 0}
    order = count()  # states of equal cost in the order they were found
    queue = [(0, next(order), start)]
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if state[2] == 0:
            return cost
        for price, following in moves(chain, budget, state):
            following = settle(following)
            if cost + price < best.get(following, float("inf")):
                best[following] = cost + price
                heapq.heappush(queue, (cost + price, next(order), following))
    return None


def moves(chain, budget, state):
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
    working, saved, remaining = state
    while (remaining, True) in saved:
        remaining -= 1
        saved = saved - {(remaining + 1, True)}
    useful = frozenset((step, internal) for step, internal in saved if step < remaining + internal)
    return working, useful, remaining
