"""Schedules: ordered actions for one training iteration, as immutable values."""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np

from membptt.cells import Cell
from membptt.checks import at_least, integer, one_of, shown
from membptt.files import replacing
from membptt.memory import Units, parse_bytes
from membptt.schedules._emit import DiskEmitter, Emitter, Meter
from membptt.schedules.actions import Action, from_chunks, from_row
from membptt.schedules.lookahead import rows as lookahead_rows
from membptt.schedules.replay import Machine, Replayed, ReplayError, replay
from membptt.solver._solver import FullRule
from membptt.solver.disk import Intervals
from membptt.solver.expand import ExpandCost
from membptt.solver.lookahead import Segments
from membptt.solver.strategies import (
    LARGEST,
    STRATEGIES,
    Sizes,
    check_length,
    find_strategy,
    plan,
)
from membptt.types import FilePath

FORMAT = "membptt schedule 1"
HEAD = ("steps", "strategy", "hidden", "internal", "unit", "budget", "units")


class Schedule:
    """An ordered, legal list of actions that back-propagates through `steps` steps.

    Made by `schedule`, `Schedule.from_actions` or `Schedule.load`. A planned schedule is a rule
    and streams its actions each time that it is iterated; it never exists as a whole. Two
    schedules are equal when they have the same steps, the same sizes and the same actions.

    Attributes
    ----------
    steps : int
        T.
    strategy : str
        The family it is taken from; "custom" for one made by hand.
    hidden, internal : int
        Sizes of a saved hidden and of a saved internal state.
    unit : str
        "bytes" with a cell, "units" without: the unit of every size here.
    budget : int
        Most that the saved states may take, the working internal state included.
    units : int or None
        The budget in the strategy's own counting; None for one made by hand.
    forward_steps, backward_steps : int
        Steps run in all, and steps back-propagated (T).
    lower_bound : int or None
        For strategy near-optimal: forward steps that no schedule within the budget goes below.
    expand_cost : membptt.solver.expand.ExpandCost or None
        For strategy expand: the price of an expansion that it was planned for.
    """

    steps: int
    backward_steps: int
    strategy: str
    hidden: int
    internal: int
    unit: str
    budget: int
    units: int | None
    forward_steps: int
    lower_bound: int | None
    expand_cost: ExpandCost | None
    _rule: Any
    _rows: np.ndarray | None

    def __init__(
        self,
        steps,
        strategy,
        sizes,
        unit,
        budget,
        units,
        forward_steps,
        rule=None,
        rows=None,
        lower_bound=None,
        expand_cost=None,
    ):
        self.__dict__.update(
            steps=steps,
            backward_steps=steps,
            strategy=strategy,
            hidden=sizes.hidden,
            internal=sizes.internal,
            unit=unit,
            budget=budget,
            units=units,
            forward_steps=forward_steps,
            lower_bound=lower_bound,
            expand_cost=expand_cost,
            _rule=rule,
            _rows=rows,
        )

    def __setattr__(self, name, *value):
        raise AttributeError(f"{name} cannot be set: a schedule does not change; plan another one")

    __delattr__ = __setattr__

    @classmethod
    def from_actions(
        cls,
        actions,
        steps,
        hidden=1,
        internal=1,
        unit="units",
        budget=None,
        strategy="custom",
        expand_cost=None,
    ):
        """Return a schedule made by hand, after replaying it.

        Parameters
        ----------
        actions : iterable
            Of the types in `membptt.schedules`.
        steps : int
            T.
        hidden, internal : int
            Sizes of the two kinds of saved states.
        unit : {"units", "bytes"}
            What the sizes are counted in.
        budget : int, optional
            Most that saved states may take; by default what the actions need.
        strategy : str
            A name for it.
        expand_cost : membptt.solver.expand.ExpandCost, optional
            The price of its expansions, where it has some.

        Raises
        ------
        membptt.schedules.ReplayError
            If the actions are not a legal schedule; a ValueError.
        """
        steps = integer("steps", steps, minimum=1)
        sizes = Sizes(
            integer("hidden", hidden, minimum=1), integer("internal", internal, minimum=1)
        )
        one_of("unit", unit, ("units", "bytes"))
        actions = list(actions)
        done = replay(actions, steps, sizes.hidden, sizes.internal, budget)
        rows = np.array([action.row for action in actions], np.int64)
        rows.flags.writeable = False
        budget = done.peak if budget is None else budget
        if done.expanded_steps and expand_cost is None:
            expand_cost = ExpandCost()
        return cls(
            steps,
            strategy,
            sizes,
            unit,
            budget,
            None,
            done.forward_steps,
            rows=rows,
            expand_cost=expand_cost,
        )

    def codes(self):
        """Yield the actions as int64 arrays [n, 3] of rows (code, start, stop), in chunks."""
        if self.lanes == 2:
            yield from lookahead_rows(self._rule)
        elif self.intervals is not None:
            yield from DiskEmitter(self._rule)
        elif self._rows is None:
            yield from Emitter(self._rule, self.steps)
        else:
            yield self._rows

    @property
    def lanes(self):
        """Threads that execute it: 2 for look-ahead, where a second one recomputes, else 1."""
        return 2 if isinstance(self._rule, Segments) else 1

    @property
    def segments(self):
        """The plan of the two lanes (`membptt.solver.lookahead.Segments`), or None."""
        return self._rule if self.lanes == 2 else None

    @property
    def intervals(self):
        """The plan for slow storage (`membptt.solver.disk.Intervals`), or None."""
        return self._rule if isinstance(self._rule, Intervals) else None

    @property
    def buffers(self):
        """Rooms of one hidden state each for states on their way to or from disk."""
        return self._rule.buffers if self.intervals is not None else 0

    @property
    def disk_bytes(self) -> int:
        """What the hidden states on disk take, in `unit`, without their checksums."""
        if self.intervals is None:
            return 0
        return max(0, self.intervals.count - 2) * self.hidden

    def __iter__(self) -> Iterator[Action]:
        return from_chunks(self.codes())

    @cached_property
    def _sums(self):
        return self._metered(self.hidden, self.internal)

    def _metered(self, hidden, internal):
        meter = Meter(hidden, internal)
        for chunk in self.codes():
            meter.feed(chunk)
        return meter

    def __len__(self) -> int:
        return self._sums.rows

    @property
    def expansions(self) -> int:
        """How many blocks of steps are expanded, each at once."""
        return self._sums.expansions

    @property
    def expanded_steps(self) -> int:
        """Steps whose internal states come from expansions and not from a forward step."""
        return self._sums.expanded_steps

    @property
    def peak_bytes(self) -> int:
        """Most that the saved states take at any action, in `unit`, buffers for disk included."""
        return self._sums.peak + self.buffers * self.hidden

    def peak(self, hidden, internal):
        """Return the most that the saved states take when they have these sizes instead."""
        return self._metered(hidden, internal).peak + self.buffers * hidden

    @property
    def full_bytes(self) -> int:
        """What full BPTT saves, in `unit`: T internal states."""
        return self.steps * self.internal

    @property
    def saved_fraction(self) -> float:
        """Share of full BPTT's memory that is not needed."""
        return 1 - self.peak_bytes / self.full_bytes

    def time_factor(self, backward_ratio: float = 2.0) -> float:
        """Return the predicted time of an iteration over that of full BPTT.

        Parameters
        ----------
        backward_ratio : float
            r, the time of a step's backward over that of its forward.

        Returns
        -------
        float
            (C / T + r) / (1 + r) with C the forward steps and the price of the expansions; with
            two lanes, the time of the slower one.

        Raises
        ------
        ValueError, TypeError
            If r is not a number from 0 on.
        """
        backward_ratio = at_least("backward_ratio", backward_ratio, 0)
        if self.lanes == 2:
            return self._rule.time_factor(backward_ratio)
        cost = self.forward_steps
        if self.expand_cost is not None:
            cost += self.expand_cost.total(self.expansions, self.expanded_steps)
        return (cost / self.steps + backward_ratio) / (1 + backward_ratio)

    def replay(self) -> Replayed:
        """Prove the schedule legal and within its budget; see `membptt.schedules.replay`."""
        return replay(
            self, self.steps, self.hidden, self.internal, self.budget, self.lanes, self.buffers
        )

    def machine(self):
        """Return a machine to replay the schedule on, action by action."""
        return Machine(
            self.steps, self.hidden, self.internal, self.budget, self.lanes, self.buffers
        )

    def __reduce__(self):
        """Copy and pickle as actions, or as what it is planned from: rules are compiled code."""
        if self._rows is not None:
            return object.__new__, (type(self),), self.__dict__
        interval = None if self.intervals is None else self.intervals.interval
        planned_as = "full" if isinstance(self._rule, FullRule) else self.strategy
        sizes = Sizes(self.hidden, self.internal)
        return _planned_again, (
            self.steps,
            self.strategy,
            planned_as,
            sizes,
            self.unit,
            self.budget,
            self.units,
            {"interval": interval, "expand_cost": self.expand_cost},
        )

    def _key(self):
        return self.steps, self.hidden, self.internal, self.unit, self.forward_steps

    def __eq__(self, other):
        if not isinstance(other, Schedule):
            return NotImplemented
        if self._key() != other._key() or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        return (
            f"<Schedule {self.strategy}: {self.steps} steps, {self.forward_steps} forward steps, "
            f"budget {self.budget} {self.unit}>"
        )

    def save(self, path: FilePath) -> None:
        """Write the schedule as JSON, one action per line; see `load`."""
        head = {"format": FORMAT} | {name: getattr(self, name) for name in HEAD}
        if self.intervals is not None:
            head["interval"] = self.intervals.interval
        if self.lanes == 2:
            head["lanes"] = 2
        if self.expand_cost is not None:
            head["expand_cost"] = [self.expand_cost.fixed, self.expand_cost.per_step]
        with replacing(path) as file:
            file.write(json.dumps(head)[:-1] + ', "actions": [\n')
            separator = ""
            for chunk in self.codes():
                for row in chunk.tolist():
                    file.write(f"{separator}{json.dumps(row)}")
                    separator = ",\n"
            file.write("\n]}\n")

    @classmethod
    def load(cls, path: FilePath) -> Self:
        """Read a schedule that `save` wrote, and replay it.

        A certificate is not in the file, since the actions do not show it: `lower_bound` is None.

        Raises
        ------
        ValueError
            If the file is not a schedule, or the schedule is not legal.
        """
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            if data["format"] != FORMAT:
                raise ValueError("unknown format")
            fields = {name: data[name] for name in HEAD}
            for name, value in fields.items():
                if type(value) is not (str if name in ("strategy", "unit") else int):
                    if name != "units" or value is not None:
                        raise ValueError(f"{name} is {value!r}")
            largest = max(fields["hidden"], fields["internal"]) * fields["steps"]
            if max(largest, fields["budget"]) > LARGEST // 2:
                raise ValueError("its states take more than 64 bits can count")
            actions = [from_row(*row) for row in data["actions"]]
            units = fields.pop("units")
            if "interval" in data or "lanes" in data:
                return cls._load_planned(actions, units, fields, data.get("interval"))
            if "expand_cost" in data:
                fields["expand_cost"] = ExpandCost(*data["expand_cost"])
            loaded = cls.from_actions(actions, **fields)
        except ReplayError:
            raise
        except (
            ValueError,
            TypeError,
            LookupError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise ValueError(f"{path} is not a schedule that membptt saved ({error})") from error
        loaded.__dict__["units"] = units
        return loaded

    @classmethod
    def _load_planned(cls, actions, units, fields, interval):
        """Plan again, and compare: lanes and intervals need the plan, not only its actions."""
        sizes = Sizes(
            integer("hidden", fields["hidden"], minimum=1),
            integer("internal", fields["internal"], minimum=1),
        )
        if len(actions) < fields["steps"]:
            raise ValueError("it has fewer actions than steps")
        if fields["unit"] not in ("units", "bytes"):
            raise ValueError(f"unit is {fields['unit']!r}")
        chosen = find_strategy(fields["strategy"])
        planned = plan(fields["steps"], integer("units", units), chosen, sizes, interval=interval)
        again = _of_plan(
            planned,
            fields["steps"],
            fields["strategy"],
            sizes,
            fields["unit"],
            fields["budget"],
            units,
        )
        if list(again) != actions:
            raise ValueError("its actions are not those of its plan")
        if again.peak_bytes > again.budget:
            raise ValueError(f"budget is {again.budget}, its states take {again.peak_bytes}")
        return again


def _planned_again(steps, strategy, planned_as, sizes, unit, budget, units, options):
    """Return the schedule that these describe; see `Schedule.__reduce__`."""
    planned = plan(steps, units, STRATEGIES[planned_as], sizes, **options)
    return _of_plan(planned, steps, strategy, sizes, unit, budget, units)


def _of_plan(planned, steps, strategy, sizes, unit, budget, units):
    """Return the schedule of what a strategy planned."""
    return Schedule(
        steps,
        strategy,
        sizes,
        unit,
        budget,
        units,
        planned.forward_steps,
        rule=planned.rule,
        lower_bound=planned.lower_bound,
        expand_cost=planned.expand_cost,
    )


def schedule(
    steps: int,
    memory: str | int | Units,
    strategy: str = "optimal",
    cell: Cell | None = None,
    batch: int = 1,
    interval: int | None = None,
    expand_cost: ExpandCost | None = None,
) -> Schedule:
    """Plan one training iteration within a memory budget.

    Parameters
    ----------
    steps : int
        T, at least 1.
    memory : str or int or membptt.Units
        Bytes for all saved states, the working internal state included ("2 MiB" or 2097152; needs
        `cell`), or ``Units(n, alpha)``, n units as the strategy counts them, without a cell.
    strategy : str
        One of `membptt.solver.STRATEGIES`.
    cell : optional
        Has ``hidden_nbytes(batch)`` and ``internal_nbytes(batch)``.
    batch : int
        B, sequences side by side.
    interval : int, optional
        For strategy disk: store a hidden state after every so many steps; by default the longest
        interval without recomputation inside it.
    expand_cost : membptt.ExpandCost, optional
        For strategy expand: the price of an expansion. `membptt.expand_schedule` measures it.

    Returns
    -------
    Schedule
        The cheapest that the strategy has within the budget; with a budget in bytes that full
        BPTT fits into, one without recomputation, whatever the strategy.

    Raises
    ------
    ValueError
        If the budget is too small; the message states the least that works.

    Examples
    --------
    >>> schedule(1000, Units(77, alpha=3)).forward_steps
    1999
    """
    chosen = find_strategy(strategy)
    if interval is not None:
        if strategy != "disk":
            raise ValueError(f"interval is {interval} with strategy {strategy}; it is for disk")
        interval = integer("interval", interval, minimum=1)
    if expand_cost is not None and strategy != "expand":
        raise ValueError(f"expand_cost is {expand_cost} with strategy {strategy}; it is for expand")
    options = {"interval": interval, "expand_cost": expand_cost}
    if isinstance(memory, Units):
        if cell is not None:
            raise ValueError(
                f"memory is {shown(memory)} with a cell; give bytes, or leave cell out"
            )
        sizes, unit = state_sizes(alpha=memory.alpha)
        steps, units = integer("steps", steps), memory.count
        planned = plan(steps, units, chosen, sizes, **options)
        budget = chosen.budget(units, sizes)
    else:
        budget = parse_bytes(memory)
        if cell is None:
            raise ValueError(
                f"memory is {shown(memory)} without a cell; give cell=, or Units(n, alpha)"
            )
        sizes, unit = state_sizes(cell, batch)
        steps = integer("steps", steps, minimum=1)
        planner = chosen if budget < steps * sizes.internal else STRATEGIES["full"]
        check_length(steps, planner)
        least = planner.least_budget(steps, sizes)
        if budget < least:
            raise ValueError(
                f"memory is {shown(memory)}, {budget} bytes; strategy {chosen.name} needs at least "
                f"{least} bytes for {steps} steps"
            )
        units = planner.units(steps, budget, sizes)
        planned = plan(steps, units, planner, sizes, **(options if planner is chosen else {}))
    return _of_plan(planned, steps, chosen.name, sizes, unit, budget, units)


def state_sizes(cell=None, batch=1, alpha=1):
    """Return the `Sizes` of saved states, and their unit: "bytes" with a cell, else "units"."""
    if cell is None:
        return Sizes(1, integer("alpha", alpha, minimum=1)), "units"
    if isinstance(cell, type) or not hasattr(cell, "hidden_nbytes"):
        raise TypeError(f"cell is {shown(cell)}; give a cell such as mb.LSTM(...)")
    batch = integer("batch", batch, minimum=1)
    return Sizes(cell.hidden_nbytes(batch), cell.internal_nbytes(batch)), "bytes"
