"""From splits to actions: the readable emitter.

Every strategy is a rule that says where to split a node (see `membptt.solver._solver.Rule`); this
one generator turns any rule into actions. Its compiled twin, without recursion and in chunks, is
`membptt.schedules._emit.Emitter`.

A node back-propagates the steps t0 + 1...t0 + t, and the working state is h_t0 when it begins.
`free` units are left for it. Where the start is `held`, h_t0 is a hidden state on top of the
stack that this node gives back; otherwise it can be had again for nothing: it is the caller's
initial state, or the end of the step whose internal state lies on the stack.
"""

from membptt.schedules.actions import (
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Expand,
    Free,
    Restore,
)


def plan(rule, t0, t, free, held=False):
    """Yield the actions of the node (t0, t).

    Parameters
    ----------
    rule : membptt.solver._solver.Rule
        Where to split.
    t0, t : int
        Steps before the node, and in it.
    free : int
        Units left, in the rule's counting.
    held : bool
        The start is a saved hidden state.

    Yields
    ------
    action
        See `membptt.schedules.actions`.
    """
    while True:  # each round is the node that is left of the split
        y = rule.split(t, free, held)
        if y > t:
            yield from block(rule, t0, t, y - t, free)
            return
        if y > 0:
            yield AdvanceSaveHidden(t0, t0 + y)
            yield from plan(rule, t0 + y, t - y, free - rule.hidden, held=True)
            yield Restore(t0)
            t = y
            continue
        if y == 0:  # the start's units become a part of its first internal state
            yield Free(t0, internal=False)
            free, held, y = free + rule.hidden, False, -1
        y = -y
        yield AdvanceSaveInternal(t0, t0 + y)
        if y < t:
            yield from plan(rule, t0 + y, t - y, free - rule.internal)
        yield Backward(t0 + y)
        yield Free(t0 + y, internal=True)
        if y == 1:
            break
        yield Restore(t0)
        t = y - 1
    if held:
        yield Free(t0, internal=False)


def block(rule, t0, t, q, free):
    """Yield the actions of the node (t0, t) whose first q steps are expanded at once.

    The block takes the places of its hidden states, a held start among them.
    """
    for step in range(t0, t0 + q if q < t else t0 + q - 1):
        yield AdvanceSaveHidden(step, step + 1)
    if q < t:
        yield from plan(rule, t0 + q, t - q, free - q * rule.hidden, held=True)
    yield Expand(t0, t0 + q)
    for step in range(t0 + q, t0, -1):
        yield Backward(step)
        yield Free(step, internal=True)
