"""The replay machine: what it lets pass, and the index and reason of what it does not."""

import pytest

from membptt.schedules import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Free,
    ReplayError,
    Restore,
    replay,
)

INTERNAL, HIDDEN = True, False

# Two steps: the second first, from its own forward; then the first.
TWO = [
    AdvanceSaveInternal(0, 2),
    Backward(2),
    Free(2, INTERNAL),
    Restore(0),
    AdvanceSaveInternal(0, 1),
    Backward(1),
    Free(1, INTERNAL),
]


def test_counts():
    done = replay(TWO, 2, internal=3, budget=3)
    assert done.forward_steps == 3
    assert done.executions.tolist() == [2, 1]
    assert done.peak == 3


def test_restore_from_every_giver():
    three = [
        AdvanceSaveInternal(0, 2),  # gives h_2, which it derives, and h_1, which it holds
        AdvanceSaveInternal(2, 3),
        Backward(3),
        Free(3, INTERNAL),
        Restore(2),
        Restore(1),
        Backward(2),
        Free(2, INTERNAL),
        Restore(0),
        AdvanceSaveHidden(0, 1),
        Restore(1),  # the hidden state
        Free(1, HIDDEN),
        Restore(0),
        AdvanceSaveInternal(0, 1),
        Backward(1),
        Free(1, INTERNAL),
    ]
    assert replay(three, 3).forward_steps == 5


@pytest.mark.parametrize(
    ("actions", "index", "reason"),
    [
        ([Advance(1, 2)], 0, "the working state is h_0"),
        ([Advance(0, 0)], 0, "give start < stop <= 2"),
        ([Advance(0, 3)], 0, "give start < stop <= 2"),
        ([Advance(0, 1), Restore(1)], 1, "no saved state gives h_1"),
        ([AdvanceSaveInternal(0, 1), Backward(1)], 1, "the next step to back-propagate is 2"),
        ([Advance(0, 2), Backward(2)], 1, "not on top"),
        ([AdvanceSaveHidden(0, 2), Backward(2)], 1, "not on top"),
        ([AdvanceSaveInternal(0, 2), Free(2, HIDDEN)], 1, "not on top"),
        (
            [AdvanceSaveHidden(0, 1), AdvanceSaveInternal(1, 2), Free(1, HIDDEN)],
            2,
            "not on top",
        ),
        ([AdvanceSaveHidden(0, 1), Restore(0), AdvanceSaveHidden(0, 1)], 2, "saved already"),
        ([*TWO[:2], Backward(2)], 2, "the next step to back-propagate is 1"),
        (TWO[:3], 3, "step 1 was not back-propagated"),
        (TWO[:-1], 6, "1 saved states were not given back"),
        ([], 0, "step 2 was not back-propagated"),
        (["advance"], 0, "not an action"),
    ],
)
def test_what_is_wrong_is_named(actions, index, reason):
    with pytest.raises(ReplayError, match=rf"^action {index}, .*") as caught:
        replay(actions, 2)
    assert caught.value.index == index
    assert reason in caught.value.reason


def test_the_budget_holds_at_every_action():
    actions = [AdvanceSaveHidden(0, 1), AdvanceSaveInternal(1, 2), Backward(2), Free(2, INTERNAL)]
    with pytest.raises(ReplayError, match=r"action 1, .*: 4 in use, above the budget of 3"):
        replay(actions, 2, hidden=1, internal=3, budget=3)
