"""The replay machine against a model of its own, and against execution.

The model says of any action whether it is legal, from the words of `membptt.schedules.actions`: it
holds a list of saved states and nothing else. What is legal passes and counts the same, what is not
is refused; and a schedule that passes, whatever it does on the way, gives the gradients of full
BPTT to the bit.
"""

import copy
import dataclasses

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import membptt as mb
from membptt.schedules import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Expand,
    Fetch,
    Free,
    ReplayError,
    Restore,
    replay,
)
from membptt.schedules._emit import Meter
from membptt.schedules.replay import Machine
from membptt.solver import STRATEGIES

HIDDEN, INTERNAL = 1, 2  # sizes, as an RNN has them


class Model:
    """What is saved, in the order of saving, and which legal actions there are."""

    def __init__(self, steps, budget):
        self.steps, self.budget = steps, budget
        self.saved, self.working, self.left = [], 0, steps
        self.forward_steps = self.peak = 0

    def used(self, saved):
        return sum(INTERNAL if internal else HIDDEN for _, internal in saved)

    def given(self):
        """Return the steps whose hidden states are at hand."""
        found = {0}
        for step, internal in self.saved:
            found |= {step, step - 1} if internal else {step}
        return found

    def room(self, saved):
        return len(set(saved)) == len(saved) and self.used(saved) <= self.budget

    def after_block(self, start, stop):
        """Return what is saved after a block, or None if its hidden states are not on top."""
        inside = [(step, False) for step in range(start + 1, stop)]
        rest = self.saved[: len(self.saved) - len(inside)]
        if rest + inside != self.saved or start not in self.given():
            return None
        if rest and rest[-1] == (start, False):
            rest = rest[:-1]
        elif start and not {(start, False), (start, True)} & set(rest):
            return None
        return rest + [(step, True) for step in range(start + 1, stop + 1)]

    def next(self, action):
        """Return (saved, working, steps left) after an action, or None if it is not legal."""
        match action:
            case Restore(step):
                return (self.saved, step, self.left) if step in self.given() else None
            case Backward(step):
                legal = step == self.left and self.saved[-1:] == [(step, True)]
                return (self.saved, self.working, step - 1) if legal else None
            case Free(step, internal):
                legal = self.saved[-1:] == [(step, internal)]
                return (self.saved[:-1], self.working, self.left) if legal else None
            case Expand(start, stop):
                if stop != self.left or not 0 <= start < stop:
                    return None
                saved = self.after_block(start, stop)
                return (saved, None, self.left) if saved and self.room(saved) else None
        if action.start != self.working or not action.start < action.stop <= self.steps:
            return None
        saved = self.saved
        if not isinstance(action, Advance):
            saved = [*saved, (action.stop, isinstance(action, AdvanceSaveInternal))]
        return (saved, action.stop, self.left) if self.room(saved) else None

    def do(self, action):
        self.saved, self.working, self.left = self.next(action)
        self.peak = max(self.peak, self.used(self.saved))
        if hasattr(action, "stop") and not isinstance(action, Expand):
            self.forward_steps += action.stop - action.start

    def every_action(self):
        """Yield all actions with numbers around those that make sense."""
        near = range(-1, self.steps + 2)
        for kind in (Restore, Backward):
            yield from map(kind, near)
        for step in near:
            yield from (Free(step, False), Free(step, True))
            for kind in (Advance, AdvanceSaveHidden, AdvanceSaveInternal, Expand):
                yield from (kind(step, stop) for stop in near)


class Replaying(RuleBasedStateMachine):
    @initialize(steps=st.integers(1, 6), room=st.integers(0, 8))
    def begin(self, steps, room):
        self.model = Model(steps, INTERNAL + room)
        self.machine = Machine(steps, HIDDEN, INTERNAL, INTERNAL + room, lanes=1, buffers=0)
        self.actions = []

    def do(self, action):
        self.model.do(action)
        assert self.machine.fault(action) is None
        self.actions.append(action)
        assert self.machine.used == self.model.used(self.model.saved)

    @rule(data=st.data())
    def act(self, data):
        legal = [action for action in self.model.every_action() if self.model.next(action)]
        if legal:
            # Rather what moves on than what only goes to and fro.
            moves = [action for action in legal if not isinstance(action, Restore)]
            self.do(data.draw(st.sampled_from(moves or legal)))

    @rule(data=st.data())
    def go_back(self, data):
        self.do(Restore(data.draw(st.sampled_from(sorted(self.model.given())))))

    @rule()
    def what_is_not_legal_is_refused(self):
        for action in self.model.every_action():
            reason = copy.deepcopy(self.machine).fault(action)
            assert bool(reason) == (self.model.next(action) is None), (self.actions, action)

    def teardown(self):
        if not hasattr(self, "model"):
            return
        steps, model = self.model.steps, self.model
        while model.left or model.saved:  # bring it to its end
            if model.saved:
                (step, internal) = model.saved[-1]
                if (step, internal) == (model.left, True):
                    self.do(Backward(step))
                self.do(Free(step, internal))
            else:
                self.do(Restore(0))
                self.do(AdvanceSaveInternal(0, model.left))
        budget = model.budget
        done = replay(self.actions, steps, HIDDEN, INTERNAL, budget)
        assert (done.forward_steps, done.peak) == (model.forward_steps, model.peak)
        with pytest.raises(ReplayError, match="above the budget"):
            replay(self.actions, steps, HIDDEN, INTERNAL, model.peak - 1)
        execute(self.actions, steps, done)


def execute(actions, steps, done):
    """Run a schedule made by hand on a network, by both loops."""
    plan = mb.Schedule.from_actions(actions, steps, HIDDEN, INTERNAL)
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((steps, 2, 3)).astype(np.float32)
    head = mb.LinearHead(4, 2).with_targets(rng.standard_normal((steps, 2, 2)).astype(np.float32))
    for backend in ("numpy", "cython"):
        cell = mb.RNN(3, 4, backend=backend)
        full = mb.full_bptt(cell, inputs, head)
        executor = mb.Executor(cell, plan, 2, record=True)
        result = executor.run(inputs, head)
        assert result.loss == full.loss
        for name, gradient in full.grads.items():
            assert (result.grads[name] == gradient).all(), name
        assert result.stats.forward_steps == done.forward_steps
        assert result.stats.expanded_steps == done.expanded_steps
        assert result.stats.peak_bytes == done.peak * cell.hidden_nbytes(2)
        assert result.stats.arena_bytes == len(executor.arena.buffer) == result.stats.peak_bytes
        assert result.trace[:, :3].tolist() == [list(action.row) for action in actions]


TestReplaying = Replaying.TestCase
TestReplaying.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def mutants(actions):
    """Yield the schedule with one action left out, twice, or with another number."""
    for index, action in enumerate(actions):
        before, after = actions[:index], actions[index + 1 :]
        yield index, [*before, *after]
        if not isinstance(action, Restore | Fetch):  # to go back twice is to go back
            yield index, [*before, action, action, *after]
        for name in (field.name for field in dataclasses.fields(action)):
            value = getattr(action, name)
            for other in [not value] if isinstance(value, bool) else [value - 1, value + 1]:
                yield index, [*before, dataclasses.replace(action, **{name: other}), *after]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_planned_schedule_with_one_change_is_refused(strategy):
    """None of its actions can be spared, and none could be another."""
    tried = 0
    for steps, units in ((1, 4), (2, 6), (5, 3), (5, 15), (9, 5), (9, 8), (9, 27)):
        try:
            plan = mb.schedule(steps, mb.Units(units, alpha=3), strategy)
        except ValueError as error:
            assert "at least" in str(error)
            continue
        sizes = plan.hidden, plan.internal, plan.budget, plan.lanes, plan.buffers
        assert plan.replay().peak == plan.peak_bytes
        for index, changed in mutants(list(plan)):
            with pytest.raises(ReplayError) as caught:
                replay(changed, steps, *sizes)
            assert caught.value.index >= index - 1
            tried += 1
        with pytest.raises(ReplayError, match="above the budget"):
            replay(plan, steps, plan.hidden, plan.internal, plan.peak_bytes - 1, *sizes[3:])
    assert tried > 100


def test_a_hidden_state_under_an_internal_one_is_not_on_top():
    """What a block begins with keeps its room there; it was counted as given back."""
    actions = [
        AdvanceSaveHidden(0, 1), AdvanceSaveInternal(1, 3), Backward(3), Expand(1, 2),
        Backward(2), Free(2, True), Free(3, True), Free(1, False),
        Restore(0), AdvanceSaveInternal(0, 1), Backward(1), Free(1, True),
    ]  # fmt: skip
    planned = mb.Schedule.from_actions(actions, 3, HIDDEN, INTERNAL, "units")
    assert planned.peak_bytes == planned.replay().peak == HIDDEN + 2 * INTERNAL
    cell = mb.RNN(3, 4)
    x = np.zeros((3, 1), np.uint8)
    head = mb.SoftmaxHead(4, 3).with_targets(x)
    assert mb.bptt(cell, x, head, planned).loss == mb.full_bptt(cell, x, head).loss


def test_counting_what_breaks_the_rules_stays_in_its_place():
    """The counts of such rows mean nothing, but memory beside the counter's is left alone."""
    for rows in (
        [(5, 1, 0)] * 100 + [(1, 0, 1)] * 200,
        [(10, 900, 1), (10, 1, 900), (1, 0, 1), (5, 1, 1), (2, 0, 1)] * 50,
    ):
        meter = Meter(HIDDEN, INTERNAL)
        meter.feed(np.array(rows, np.int64))
        assert meter.rows == len(rows)
