"""The solver: seconds, bytes of tables and forward steps as T and m grow."""

import importlib

from membptt.memory import Units
from membptt.schedules import schedule, trade_off
from membptt.solver import STRATEGIES, forward_steps
from membptt.solver.chains import Chain, ChainRule
from membptt.solver.strategies import Sizes

ALPHA = 3
SIZES = Sizes(1, ALPHA)


class Tables:
    """Strategies that fill tables, the tables kept for a schedule."""

    params = (("msm", "optimal"), (250, 1000, 4000), (50, 200))
    param_names = ("strategy", "steps", "units")

    def time_plan(self, strategy, steps, units):
        STRATEGIES[strategy].plan(steps, units, SIZES)

    def time_cost(self, strategy, steps, units):
        forward_steps(steps, units, strategy, ALPHA)

    def track_table_bytes(self, strategy, steps, units):
        rule = STRATEGIES[strategy].plan(steps, units, SIZES).rule
        return sum(t.nbytes for t in (rule.tables if strategy == "optimal" else [rule.table]))

    track_table_bytes.unit = "bytes"

    def track_forward_steps(self, strategy, steps, units):
        return forward_steps(steps, units, strategy, ALPHA)

    track_forward_steps.unit = "steps"


class Goals:
    """The two solves that the package promises a time for: 0.5 s and 3 s on one core."""

    number = 1
    repeat = (1, 3, 10.0)

    def time_every_budget_of_1000_steps(self):
        forward_steps(1000, 3000, "optimal", ALPHA)

    def time_10000_steps_300_units(self):
        forward_steps(10_000, 300, "optimal", ALPHA)

    def track_10000_steps_300_units(self):
        return forward_steps(10_000, 300, "optimal", ALPHA)


class Long:
    """A million steps: closed forms, and near-optimal with its certificate."""

    params = (("revolve", "hsm", "ism", "near-optimal"),)
    param_names = ("strategy",)
    number = 1
    repeat = (1, 3, 10.0)

    def time_plan(self, strategy):
        STRATEGIES[strategy].plan(1_000_000, 300, SIZES)

    def time_stream_every_action(self, strategy):
        len(schedule(1_000_000, Units(300, ALPHA), strategy))

    def track_forward_steps(self, strategy):
        return STRATEGIES[strategy].plan(1_000_000, 300, SIZES).forward_steps

    def track_lower_bound(self, strategy):
        return STRATEGIES[strategy].plan(1_000_000, 300, SIZES).lower_bound or 0


class Others:
    """The curve of all strategies, and an uneven chain."""

    number = 1
    repeat = (1, 3, 10.0)

    def time_trade_off(self):
        trade_off(1000, alpha=ALPHA)

    def time_uneven_chain_of_100_steps(self):
        ChainRule(Chain(tuple(1 + t % 3 for t in range(100)), (1,) * 100, (ALPHA,) * 100), 60)


class AgainstCheckpointSchedules:
    """The baseline: the same costs from the package checkpoint_schedules, as far as they agree."""

    params = ((50, 100, 200),)
    param_names = ("steps",)
    number = 1
    repeat = (1, 2, 5.0)

    def setup(self, steps):
        try:
            self.reference = importlib.import_module("checkpoint_schedules")
        except ImportError:
            raise NotImplementedError("checkpoint_schedules is not installed") from None

    def time_their_revolve(self, steps):
        list(self.reference.Revolve(steps, 10))

    def time_their_mixed(self, steps):
        for _ in self.reference.MixedCheckpointSchedule(steps, 10):
            pass

    def time_our_hsm(self, steps):
        list(schedule(steps, Units(10), "hsm"))

    def time_our_msm(self, steps):
        list(schedule(steps, Units(10), "msm"))
