"""Streams of unknown length: legal, within the slots, near the best schedule of the known length,
and the gradients of full BPTT."""

import math

import numpy as np
import pytest

from membptt.schedules import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Free,
    Restore,
)
from membptt.schedules.online import OnlineSchedule, online_actions
from membptt.solver import forward_steps


def actions_for(steps, units):
    online = OnlineSchedule(units)
    made = [action for _ in range(steps) for action in online.step()]
    return [*made, *online.finish()]


def run(actions, steps):
    """Replay on a set of slots; return forward steps and the most hidden states held."""
    working, saved, due, forward, most = 0, set(), steps, 0, 0
    for action in actions:
        match action:
            case Advance(start, stop) | AdvanceSaveHidden(start, stop):
                assert working == start
                working, forward = stop, forward + stop - start
                if isinstance(action, AdvanceSaveHidden):
                    saved.add((stop, False))
            case AdvanceSaveInternal(start, stop):
                assert working == start
                working, forward = stop, forward + stop - start
                saved.add((stop, True))
            case Restore(step):
                assert step == 0 or (step, False) in saved
                working = step
            case Backward(step):
                assert step == due and (step, True) in saved
                due -= 1
            case Free(step, internal):
                saved.remove((step, internal))
        assert sum(internal for _, internal in saved) <= 1
        most = max(most, sum(not internal for _, internal in saved))
    assert due == 0 and not saved
    return forward, most


@pytest.mark.parametrize("units", [1, 2, 3, 4, 5, 7, 10, 20, 50])
def test_every_possible_end(units):
    """Within the slots, and near hsm with the length known, which runs the last step once less."""
    for steps in [*range(1, 80), 150, 333, 1000]:
        forward, most = run(actions_for(steps, units), steps)
        assert most <= units - 1
        best = forward_steps(steps, units, "hsm")
        assert best <= forward <= 1.5 * best + 1


@pytest.mark.parametrize("units", [1, 2, 5, 30])
def test_the_end_in_rows_is_the_end_in_actions(units):
    for steps in [*range(1, 40), 5000]:
        online = OnlineSchedule(units)
        for _ in range(steps if units > 1 else min(steps, 100)):
            online.step()
        rows = np.concatenate(list(online.finish_codes()))
        assert rows.tolist() == [list(action.row) for action in online.finish()]


def test_a_stream_is_read_once_and_trained_on():
    """A scalar RNN h = tanh(w h + x), loss the sum of h: its gradient in w, against full BPTT."""
    inputs = [math.sin(3.0 * t) for t in range(50)]
    w, kept, saved, working, delta, grad = 0.7, [], {}, 0.0, 0.0, 0.0
    for item, actions in online_actions(iter(inputs), units=4):
        if item is not None:
            kept.append(item)
        for action in actions:
            match action:
                case (
                    Advance(start, stop)
                    | AdvanceSaveHidden(start, stop)
                    | AdvanceSaveInternal(start, stop)
                ):
                    for t in range(start, stop):
                        before, working = working, math.tanh(w * working + kept[t])
                    if isinstance(action, AdvanceSaveHidden):
                        saved[stop, False] = working
                    elif isinstance(action, AdvanceSaveInternal):
                        saved[stop, True] = before, working
                case Restore(step):
                    working = 0.0 if step == 0 else saved[step, False]
                case Backward(step):
                    before, after = saved[step, True]
                    inner = (delta + 1.0) * (1 - after * after)
                    grad, delta = grad + inner * before, inner * w
                case Free(step, internal):
                    del saved[step, internal]
    states = [0.0]
    for item in inputs:
        states.append(math.tanh(w * states[-1] + item))
    expected = delta = 0.0
    for t in range(50, 0, -1):
        inner = (delta + 1.0) * (1 - states[t] ** 2)
        expected, delta = expected + inner * states[t - 1], inner * w
    assert grad == expected


def test_bad_requests():
    with pytest.raises(ValueError, match="units is 0"):
        OnlineSchedule(0)
    with pytest.raises(ValueError, match="the stream is empty"):
        list(OnlineSchedule(3).finish())
