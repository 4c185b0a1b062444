"""The cost recurrences, written to be read: plain loops over the formulas of the papers.

``C(t, m)`` is the least number of forward steps that back-propagate ``t`` steps with ``m`` units
of memory: first sweep, recomputations, and the forward that writes the internal state before each
backward. Every function returns its whole table as nested lists, ``table[t][m]``, so that any
entry can be compared with the compiled twin in `membptt.solver._solver`, which is what schedules
are planned with. What a unit is, and which states are counted, differs from strategy to strategy
and is said in each docstring.

Letters: t steps, m units, y the split (the steps to the left of the state that is saved first),
C cost, a and b the units that a hidden and an internal state take (a = 1 and b = alpha in the
papers).
"""

from math import inf


def _sweep(t):
    """Return the forward steps of `t` steps with nothing saved: every step starts from the left."""
    return t * (t + 1) // 2


def _table(steps, units, entry):
    """Fill ``C[t][m]`` for t = 0...steps, m = 0...units, in an order that `entry` may rely on."""
    C = [[0] * (units + 1) for _ in range(steps + 1)]
    for t in range(1, steps + 1):
        for m in range(units + 1):
            C[t][m] = entry(C, t, m)
    return C


def hsm(steps, units):
    """Return the table of hidden state memorisation.

    ``m`` counts saved hidden states, the initial one included; the working internal state is not
    counted, so ``m = 0`` is infeasible::

        C(t, 1) = t (t + 1) / 2,   C(1, m) = 1
        C(t, m) = min over 1 <= y < t of  y + C(t - y, m - 1) + C(y, m)

    Gruslys et al. (2016), section 3.1; the same numbers as Revolve, Griewank and Walther (2000).
    """

    def entry(C, t, m):
        if m == 0:
            return inf
        if t == 1 or m == 1:
            return _sweep(t)
        return min(y + C[t - y][m - 1] + C[y][m] for y in range(1, t))

    return _table(steps, units, entry)


def ism(steps, units):
    """Return the table of internal state memorisation.

    ``m`` counts saved internal states, the working one included; the initial hidden state is the
    caller's and not counted::

        C(0, m) = 0,   C(t, 1) = t (t + 1) / 2
        C(t, m) = min over 1 <= y <= t of  y + C(y - 1, m) + C(t - y, m - 1)

    Gruslys et al. (2016), section 3.2.
    """

    def entry(C, t, m):
        if m == 0:
            return inf
        if m == 1:
            return _sweep(t)
        return min(y + C[y - 1][m] + C[t - y][m - 1] for y in range(1, t + 1))

    return _table(steps, units, entry)


def msm(steps, units, a, b):
    """Return the table of mixed state memorisation as the paper has it.

    ``m`` counts what the saved states take; neither the initial state nor the working internal
    state is counted. With nothing saved the cost is t (t + 1) / 2, and never more; otherwise it is
    the lesser of ::

        hidden    y + C(y, m)     + C(t - y, m - a)    1 <= y < t,  m >= a
        internal  y + C(y - 1, m) + C(t - y, m - b)    1 <= y <= t, m >= b

    Gruslys et al. (2016), section 3.3. Not optimal where b >= 2 a; see `optimal`.
    """

    def entry(C, t, m):
        best = _sweep(t)
        if m >= a:
            best = min([best, *(y + C[y][m] + C[t - y][m - a] for y in range(1, t))])
        if m >= b:
            best = min([best, *(y + C[y - 1][m] + C[t - y][m - b] for y in range(1, t + 1))])
        return best

    return _table(steps, units, entry)


def optimal(steps, units, a, b):
    """Return the two tables A and B of the best schedule there is.

    ``m`` counts everything that is saved, the working internal state too; the initial state is the
    caller's and not counted. In A the state that the steps start from can be had again without
    cost; in B it takes a of the m units, and may give them back at its last use::

        A(0, m) = B(0, m) = 0
        A(t, m) = min( y + B(t - y, m)         + A(y, m)        1 <= y < t
                       y + A(t - y, m - b)     + A(y - 1, m)    1 <= y <= t )
        B(t, m) = min( y + B(t - y, m - a)     + B(y, m)        1 <= y < t
                       y + A(t - y, m - a - b) + B(y - 1, m)    1 <= y <= t
                       1 + A(t - 1, m - b) )

    The last line of B is what the paper's mixed strategy lacks: the hidden state is given back and
    its unit holds a part of the internal state. ``docs/optimality.md`` has the proof.
    """
    A = [[0] * (units + 1) for _ in range(steps + 1)]
    B = [[0] * (units + 1) for _ in range(steps + 1)]
    for t in range(1, steps + 1):
        for m in range(units + 1):
            B[t][m] = _start_held(A, B, t, m, a, b)
            A[t][m] = _start_free(A, B, t, m, b)
    return A, B


def _start_free(A, B, t, m, b, forward=1):
    """Return A(t, m) from the entries before it."""
    best = inf
    for y in range(1, t):
        best = min(best, y * forward + B[t - y][m] + A[y][m])
    if m >= b:
        for y in range(1, t + 1):
            best = min(best, y * forward + A[t - y][m - b] + A[y - 1][m])
    return best


def _start_held(A, B, t, m, a, b, forward=1):
    """Return B(t, m) from the entries before it; the start itself needs `a` units."""
    best = inf
    if m < a:
        return best
    for y in range(1, t):
        best = min(best, y * forward + B[t - y][m - a] + B[y][m])
    if m >= a + b:
        for y in range(1, t + 1):
            best = min(best, y * forward + A[t - y][m - a - b] + B[y - 1][m])
    if m >= b:
        best = min(best, forward + A[t - 1][m - b])
    return best


def expand(steps, units, a, b, prices, forward=1):
    """Return the two tables A and B of `optimal` where blocks of steps can be expanded at once.

    When the hidden states h_0 ... h_(q-1) are all saved, the internal states of the steps 1...q
    follow from them without going from step to step, at ``prices[q]``, and take their places. So
    beside the terms of `optimal`, with runs of y steps at y times `forward`, a node may begin with
    a block of 1 < q <= t steps, if q b <= m::

        A(t, m) <= q + B(t - q, m - (q - 1) a) + prices[q]       q < t
        B(t, m) <= q + B(t - q, m - q a)       + prices[q]       q < t
        A(q, m), B(q, m) <= q - 1 + prices[q]

    h_q is where the steps after the block start, and counted in their m; where there are none, the
    last step of the block need not run. ``docs/expand.md`` says among which schedules this is the
    least.

    Parameters
    ----------
    prices : sequence
        Of a block of q steps, for q = 0, 1, 2, ..., the first two not used.
    forward : number
        What a forward step costs in the same unit.
    """
    A = [[0] * (units + 1) for _ in range(steps + 1)]
    B = [[0] * (units + 1) for _ in range(steps + 1)]
    for t in range(1, steps + 1):
        for m in range(units + 1):
            held = _start_held(A, B, t, m, a, b, forward)
            free = _start_free(A, B, t, m, b, forward)
            for q in range(2, min(t, len(prices) - 1) + 1):
                if q * b > m:
                    break
                # what runs first, and the expansion; then the steps after the block
                cost = (q if q < t else q - 1) * forward + prices[q]
                if m >= q * a:
                    held = min(held, cost + (B[t - q][m - q * a] if q < t else 0))
                free = min(free, cost + (B[t - q][m - (q - 1) * a] if q < t else 0))
            B[t][m], A[t][m] = held, free
    return A, B
