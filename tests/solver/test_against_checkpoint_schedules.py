"""Costs against the package checkpoint_schedules, where its models are ours.

Its Revolve and its Multistage with snapshots in memory only are hsm with as many units. Its Mixed
is another model: a saved internal state cannot restart the forward there, so it is not compared.
"""

import pytest

from membptt.solver import forward_steps

library = pytest.importorskip(
    "checkpoint_schedules",
    reason="checkpoint_schedules is not installed: tests/requirements-oracles.txt",
)


def total(schedule):
    """Return how many forward steps a schedule of the library runs."""
    steps = 0
    for action in schedule:
        if isinstance(action, library.Forward):
            steps += action.n1 - action.n0
        if isinstance(action, library.EndReverse):
            return steps
    raise AssertionError("the schedule has no end")


@pytest.mark.parametrize("units", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("steps", [2, 3, 4, 7, 12, 25, 60])
def test_revolve_and_multistage_are_hsm(steps, units):
    expected = forward_steps(steps, units, "hsm")
    if units < steps:  # beyond, the library's own limits differ
        assert total(library.Revolve(steps, units)) == expected
        assert total(library.MultistageCheckpointSchedule(steps, units, 0)) == expected
