"""The replay machine: what it lets pass, and the index and reason of what it does not."""

import pytest

from membptt.schedules import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Expand,
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
    with pytest.raises(ReplayError, match=rf"^action {index + 1}, .*") as caught:
        replay(actions, 2)
    assert caught.value.index == index
    assert reason in caught.value.reason


def test_the_budget_holds_at_every_action():
    actions = [AdvanceSaveHidden(0, 1), AdvanceSaveInternal(1, 2), Backward(2), Free(2, INTERNAL)]
    with pytest.raises(ReplayError, match=r"action 2, .*: 4 in use, above the budget of 3"):
        replay(actions, 2, hidden=1, internal=3, budget=3)


def block(*extra):
    """Four steps: 4 on its own, then 2 and 3 out of h_1 and h_2, then 1."""
    return [
        AdvanceSaveHidden(0, 1),
        AdvanceSaveHidden(1, 2),
        AdvanceSaveInternal(2, 4),
        Backward(4),
        Free(4, INTERNAL),
        *extra,
        Expand(1, 3),
        Backward(3),
        Free(3, INTERNAL),
        Backward(2),
        Free(2, INTERNAL),
        Restore(0),
        AdvanceSaveInternal(0, 1),
        Backward(1),
        Free(1, INTERNAL),
    ]


def test_a_block_takes_the_places_of_its_hidden_states():
    done = replay(block(), 4, hidden=2, internal=5, budget=10)
    assert (done.forward_steps, done.expanded_steps, done.peak) == (5, 2, 10)
    assert done.executions.tolist() == [2, 1, 1, 1]


def test_a_block_that_starts_at_the_callers_state_or_after_an_internal_one():
    start = [AdvanceSaveHidden(0, 1), Expand(0, 2), Backward(2), Free(2, INTERNAL)]
    done = replay([*start, Backward(1), Free(1, INTERNAL)], 2, hidden=1, internal=3, budget=6)
    assert (done.forward_steps, done.expanded_steps) == (1, 2)
    after = [
        AdvanceSaveInternal(0, 1),
        AdvanceSaveHidden(1, 2),
        Expand(1, 3),
        *(action for step in (3, 2, 1) for action in (Backward(step), Free(step, INTERNAL))),
    ]
    assert replay(after, 3, hidden=1, internal=3, budget=9).forward_steps == 2


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([Expand(0, 1)], "the next step to back-propagate is 4"),
        ([Expand(2, 4)], "h_3 is not on top of the stack"),
        ([AdvanceSaveHidden(0, 3), Expand(2, 4)], "no saved state gives h_2"),
        ([*block()[:6], Advance(3, 4)], "the working state was lost to a block"),
        ([*block(Free(2, HIDDEN))], "h_2 is not on top of the stack"),
    ],
)
def test_what_is_wrong_with_a_block_is_named(actions, reason):
    with pytest.raises(ReplayError) as caught:
        replay(actions, 4)
    assert reason in caught.value.reason


def test_a_block_may_not_pass_the_budget():
    with pytest.raises(ReplayError, match="10 in use, above the budget of 9"):
        replay(block(), 4, hidden=2, internal=5, budget=9)


def test_a_block_needs_internal_states_that_cover_the_hidden_ones():
    with pytest.raises(ReplayError, match="at least as large"):
        replay(block(), 4, hidden=5, internal=4)
