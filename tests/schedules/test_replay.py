"""The replay machine: what it lets pass, and the index and reason of what it does not."""

from dataclasses import FrozenInstanceError

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
from membptt.schedules.actions import Drop, Fetch, Prefetch, Store

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
    assert (done.peak, done.expanded_steps) == (3, 0)
    with pytest.raises(FrozenInstanceError):
        done.peak = 2


def test_sizes_count_as_1_unless_given():
    three = [
        AdvanceSaveHidden(0, 1),
        AdvanceSaveInternal(1, 3),
        *(Backward(3), Free(3, INTERNAL)),
        Restore(1),
        AdvanceSaveInternal(1, 2),
        *(Backward(2), Free(2, INTERNAL), Free(1, HIDDEN), Restore(0)),
        AdvanceSaveInternal(0, 1),
        *(Backward(1), Free(1, INTERNAL)),
    ]
    assert replay(three, 3).peak == 2
    assert replay(three, 3, hidden=7).peak == 8
    assert replay(three, 3, internal=7).peak == 8
    # h_1 stands beside the internal state of step 3, then beside that of 2; that of 1 is alone.
    assert replay(three, 3, hidden=[1, 0, 0], internal=[3, 2, 6]).peak == 7
    assert replay(three, 3, hidden=[1, 0, 0], internal=[3, 9, 6]).peak == 10
    assert replay(three, 3, hidden=[1, 0, 0], internal=[12, 9, 6]).peak == 12
    with pytest.raises(ReplayError, match=r"action 2, .*: 7 in use, above the budget of 6$"):
        replay(three, 3, hidden=[1, 0, 0], internal=[3, 2, 6], budget=6)


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
        ([Advance(0, 1), Advance(1, 0)], 1, "give start < stop <= 2"),
        ([Advance(0, 1), Restore(1)], 1, "no saved state gives h_1"),
        ([Restore(-1)], 0, "no saved state gives h_-1"),
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


@pytest.mark.parametrize(("start", "stop"), [(4, 4), (5, 4), (3, 5)])
def test_a_block_ends_at_the_next_step_and_is_not_empty(start, stop):
    with pytest.raises(ReplayError, match=r"action 1, .*: the next step to back-propagate is 4"):
        replay([Expand(start, stop)], 4)


def test_a_block_takes_all_its_states_and_leaves_its_start_if_that_is_below():
    whole = [AdvanceSaveHidden(step, step + 1) for step in range(3)]
    ends = [action for step in (4, 3, 2, 1) for action in (Backward(step), Free(step, INTERNAL))]
    done = replay([*whole, Expand(0, 4), *ends], 4, internal=2)
    assert (done.expanded_steps, done.peak) == (4, 8)
    below = [
        AdvanceSaveHidden(0, 2),
        Restore(0),
        AdvanceSaveHidden(0, 1),
        Restore(2),
        AdvanceSaveHidden(2, 3),
        Expand(2, 4),
        *ends[:4],
        *(Restore(1), AdvanceSaveInternal(1, 2), *ends[4:6]),
        *(Free(1, HIDDEN), Free(2, HIDDEN)),
        *(Restore(0), AdvanceSaveInternal(0, 1), *ends[6:]),
    ]
    done = replay(below, 4, internal=2)
    assert (done.expanded_steps, done.peak) == (2, 6)


def test_a_block_needs_its_own_states_on_top_and_a_start():
    saved = [AdvanceSaveHidden(0, 1), AdvanceSaveHidden(1, 2)]
    with pytest.raises(ReplayError, match="h_2 is not on top of the stack"):
        replay([*saved[:1], Expand(1, 3)], 3)
    with pytest.raises(ReplayError, match="no saved state gives h_1"):
        replay([Advance(0, 1), saved[1], Expand(1, 3)], 3)


def test_two_lanes_give_states_back_in_any_order():
    crossed = [
        AdvanceSaveInternal(0, 1),
        AdvanceSaveInternal(1, 2),
        *(Backward(2), Backward(1)),
        *(Free(1, INTERNAL), Free(2, INTERNAL)),
    ]
    with pytest.raises(ReplayError, match=r"action 4, .*: .* is not on top of the stack"):
        replay(crossed, 2)
    assert replay(crossed, 2, lanes=2).peak == 2
    with pytest.raises(ReplayError, match=r"action 5, .*: this state is not saved"):
        replay([*crossed[:4], Free(2, HIDDEN)], 2, lanes=2)
    with pytest.raises(ReplayError, match="the internal state of this step is not saved"):
        replay([Advance(0, 2), Backward(2)], 2, lanes=2)
    with pytest.raises(ReplayError, match="blocks are for one lane"):
        replay([AdvanceSaveHidden(0, 1), Expand(0, 2)], 2, lanes=2)


def last_step(step):
    return [AdvanceSaveInternal(step - 1, step), Backward(step), Free(step, INTERNAL)]


# Three steps: h_1 and h_2 go to disk, and come back one after the other.
THREE = [
    *(Advance(0, 1), Store(1), Advance(1, 2), Store(2)),
    *last_step(3),
    *(Prefetch(2), Fetch(2), Prefetch(1), Drop(2), Restore(1)),
    *last_step(2),
    *(Drop(1), Restore(0)),
    *last_step(1),
]


def test_buffers_are_always_taken():
    done = replay(THREE, 3, hidden=2, internal=5, budget=9, buffers=2)
    assert (done.forward_steps, done.peak) == (5, 9)
    with pytest.raises(ReplayError, match="9 in use, above the budget of 8"):
        replay(THREE, 3, hidden=2, internal=5, budget=8, buffers=2)
    assert replay(THREE, 3, hidden=2, internal=5, buffers=3).peak == 11


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([Store(0)], "the working state is h_0"),
        ([Advance(0, 2), Store(1)], "the working state is h_2"),
        ([Advance(0, 1), Store(2)], "the working state is h_1"),
        ([Advance(0, 1), Store(1), Prefetch(2)], "h_2 was not stored"),
        ([Advance(0, 1), Store(1), Fetch(1)], "h_1 was not prefetched"),
        ([Advance(0, 1), Store(1), Drop(1)], "h_1 was not prefetched"),
        ([*THREE[:10], Store(2)], "all 2 buffers are taken"),
        ([*THREE[:10], Prefetch(1)], "all 2 buffers are taken"),
        ([*THREE[:11], Fetch(2)], "h_2 was not prefetched"),
        ([*THREE[:11], Drop(1), Restore(1)], "no saved state gives h_1"),
        ([action for action in THREE if action != Drop(1)], "1 buffers were not given back"),
    ],
)
def test_what_is_wrong_with_a_transfer_is_named(actions, reason):
    with pytest.raises(ReplayError) as caught:
        replay(actions, 3, buffers=2)
    assert caught.value.reason == reason
    assert caught.value.index in (len(actions) - 1, len(actions))


def test_without_buffers_nothing_goes_to_disk():
    with pytest.raises(ReplayError, match=r"action 2, .*: all 0 buffers are taken"):
        replay(THREE, 3)
