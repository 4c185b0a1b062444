"""Seconds to plan and list every action: this package beside checkpoint_schedules.

    python benchmarks/against_checkpoint_schedules.py --steps 1000 --units 50

Their Revolve and Multistage run the forward steps of hsm. Their Mixed is another model than msm
and optimal: a saved internal state cannot restart the forward. At 1000 steps and 50 units their
solves take tens of seconds, so the default is smaller. checkpoint_schedules is listed in
tests/requirements-oracles.txt.
"""

import argparse
import time

from needed import needed

from membptt.memory import Units
from membptt.schedules import schedule

library = needed("checkpoint_schedules", "pip install -r tests/requirements-oracles.txt")


def theirs(made):
    """Return the forward steps of one of their schedules."""
    steps = 0
    for action in made:
        if isinstance(action, library.Forward):
            steps += action.n1 - action.n0
        elif isinstance(action, library.EndReverse):
            break
    return steps


def ours(made):
    """Return the forward steps of one of ours, by its actions."""
    return sum(row[2] - row[1] for row in (a.row for a in made) if row[0] <= 2)


def main():
    """Print one line per planner."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--units", type=int, default=20)
    args = parser.parse_args()
    t, m = args.steps, args.units
    planners = {
        "checkpoint_schedules Revolve": lambda: theirs(library.Revolve(t, m)),
        "checkpoint_schedules Multistage": lambda: theirs(
            library.MultistageCheckpointSchedule(t, m, 0)
        ),
        "checkpoint_schedules Mixed": lambda: theirs(library.MixedCheckpointSchedule(t, m)),
        "membptt hsm": lambda: ours(schedule(t, Units(m), "hsm")),
        "membptt ism": lambda: ours(schedule(t, Units(m), "ism")),
        "membptt msm, alpha 3": lambda: ours(schedule(t, Units(m, 3), "msm")),
        "membptt optimal, alpha 3": lambda: ours(schedule(t, Units(m, 3), "optimal")),
    }
    print(f"{t} steps, {m} units{'forward steps':>30}{'seconds':>12}")
    for name, solve in planners.items():
        begin = time.perf_counter()
        steps = solve()
        print(f"{name:34}{steps:>12}{time.perf_counter() - begin:>12.4f}")


if __name__ == "__main__":
    main()
