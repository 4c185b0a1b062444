"""How long this machine takes for each of a chain's moves, and plans in seconds instead of steps.

A chain of the executor runs a window: forward without saving, forward saving every
internal state, backward with the head, saves and restores of hidden states. Each is timed over the
window and divided by its steps; the medians over the rounds are the answer.
"""

import time
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from membptt.arrays import array_module, synchronize
from membptt.chains.plain import SAVED
from membptt.chains.registry import NoHead, Team, blank_inputs, make_chain
from membptt.executor.executor import Executor
from membptt.kernels.threads import useful_threads
from membptt.schedules import actions
from membptt.schedules.schedule import Schedule, schedule
from membptt.schedules.uneven import chain_schedule
from membptt.solver.chains import Chain
from membptt.timing.expand import expand_schedule

NAME = "optimal-in-seconds"  # the strategy of such plans
MOST_ROUNDS = 15
SECONDS = 0.5  # no round begins after so long
SWEEP_STEPS = 64  # of a forward sweep measured alone
ROUND_SECONDS = 0.1  # what a round should take at most, three sweeps of a window
MOST_STEPS = 300  # longer chains are planned in steps: tables in seconds grow as the cube


@dataclass(frozen=True)
class Times:
    """Seconds of each move, one step each.

    Attributes
    ----------
    forward : float
        One step's forward, without saving.
    backward : float
        One step's backward, the head and its share of the weights' gradients included.
    save_hidden, save_internal : float
        What a save adds to a forward.
    restore : float
        Going back to a saved hidden state.
    run : float
        What a whole run takes besides: packing the weights, unpacking the gradients.
    """

    forward: float
    backward: float
    save_hidden: float
    save_internal: float
    restore: float
    run: float

    def chain(self, steps, hidden, internal):
        """Return the even chain with these costs, for `chain_schedule`."""
        costs = {name: getattr(self, name) for name in ("save_hidden", "save_internal", "restore")}
        return Chain.even(steps, hidden, internal, self.forward, self.backward, **costs)

    def seconds(self, planned):
        """Return how long a run of the schedule should take.

        Parameters
        ----------
        planned : membptt.Schedule or membptt.schedules.ChainSchedule
            With two lanes, saves and restores are left out; with a disk, what it makes wait is.
        """
        if planned.lanes == 2:
            factor = planned.time_factor(self.backward / self.forward)
            return self.run + factor * planned.steps * (self.forward + self.backward)
        forward_steps = planned.forward_steps
        if getattr(planned, "expand_cost", None) is not None:
            forward_steps += planned.expand_cost.total(planned.expansions, planned.expanded_steps)
        counts = np.zeros(6, np.int64)
        for chunk in planned.codes():
            counts += np.bincount(chunk[:, 0], minlength=6)[:6]
        return (
            self.run
            + self.forward * forward_steps
            + self.save_hidden * int(counts[actions.SAVE_HIDDEN])
            + self.save_internal * int(counts[actions.SAVE_INTERNAL])
            + self.restore * int(counts[actions.RESTORE])
            + self.backward * planned.steps
        )

    def full_seconds(self, steps):
        """Return how long full BPTT should take: every internal state saved, nothing run again."""
        return self.run + steps * (self.forward + self.save_internal + self.backward)


def measure(cell, head, batch, threads=None):
    """Time this machine's forward, backward, save and restore of a cell.

    Parameters
    ----------
    cell : membptt.Cell
    head : membptt.SoftmaxHead
        Not bound; random targets are made for it.
    batch : int
    threads : int, optional
        As for `membptt.Executor`.

    Returns
    -------
    Times

    Notes
    -----
    Takes about half a second, more only where one round of 16 steps does.
    """

    def window(steps):
        inputs, bound = random_window(cell, head, steps, batch)
        return Stopwatch(cell, inputs, bound, useful_threads(cell, batch, threads))

    trial = window(4)
    trial.round()  # the first touches memory for the first time
    per_step = sum(trial.round()[:2])
    # Gradients of weights are multiplied out in blocks of about 512 rows: measure whole blocks.
    steps = max(16, min(max(32, 512 // batch), int(ROUND_SECONDS / (2 * per_step))))
    watch = window(steps)
    watch.round()
    started = time.perf_counter()
    rounds = []
    while len(rounds) < 1 or time.perf_counter() - started < SECONDS:
        rounds.append(watch.round())
        if len(rounds) == MOST_ROUNDS:
            break
    times = Times(*map(median, zip(*rounds, strict=True)))
    return replace(times, save_internal=max(0.0, times.save_internal))


def random_window(cell, head, steps, batch):
    """Return random tokens [steps, batch], and the head with as many random targets."""
    generator = np.random.default_rng(0)
    shape = steps, batch
    inputs = generator.integers(cell.input_size, size=shape, dtype=np.int32)
    return inputs, head.with_targets(generator.integers(head.outputs, size=shape, dtype=np.int32))


def run_seconds(planned, cell, head, batch):
    """Return the seconds of one run of a schedule on random tokens.

    It is the second run: the first one touches the arena's memory for the first time.
    """
    executor = Executor(cell, planned, batch)
    inputs, bound = random_window(cell, head, planned.steps, batch)
    executor.run(inputs, bound)
    return executor.run(inputs, bound).stats.seconds


def forward_seconds(cell, batch):
    """Return the median seconds of one forward step in a sweep that saves nothing.

    Cells of the package run tokens, others rows of zeros.
    """
    inputs = blank_inputs(cell, SWEEP_STEPS, batch)
    watch = Stopwatch(cell, inputs, NoHead(), useful_threads(cell, batch))
    watch.sweep()  # the first touches memory for the first time
    return median(watch.sweep() for _ in range(5))


class Stopwatch:
    """A chain on a window, and an arena for all its internal states."""

    def __init__(self, cell, inputs, bound, threads):
        self.steps, batch = inputs.shape[:2]
        self.window = inputs, bound, cell.zero_state(batch)
        self.size = cell.internal_nbytes(batch)
        self.xp = array_module(cell.backend)
        self.arena = self.xp.zeros(self.steps * self.size, dtype=np.uint8)
        self.chain = make_chain(cell, bound, self.steps, batch)
        self.threads = threads

    def sweep(self):
        """Return the seconds of a forward step, many run at once as between two saves."""
        self.chain.begin(*self.window, self.arena)
        with Team(self.chain, self.threads):
            whole = seconds_of(lambda stop: self.chain.forward(0, stop), [self.steps], self.xp)
        return whole / self.steps

    def round(self):
        """Return the seconds of each move, in the order of `Times`."""
        chain, steps, size = self.chain, self.steps, self.size

        def timed(move, steps):
            return seconds_of(move, steps, self.xp)

        began = time.perf_counter()
        chain.begin(*self.window, self.arena)
        with Team(chain, self.threads):
            run = time.perf_counter() - began
            forward = timed(lambda t: chain.forward(t, t + 1), range(steps))
            save = timed(lambda t: chain.save_hidden(t * size), range(steps))
            restore = timed(lambda t: chain.restart(SAVED, t * size), range(steps))
            chain.restart(0)
            saving = timed(lambda t: chain.forward(t, t + 1, t * size), range(steps))
            backward = timed(lambda t: chain.backward(t, (t - 1) * size), range(steps, 0, -1))
            began = time.perf_counter()
        chain.finish()
        run += time.perf_counter() - began
        return forward, backward, save, saving - forward, restore, run


def seconds_of(move, steps, xp):
    """Return the seconds of `move` a step, until the device has done it."""
    synchronize(xp)
    began = time.perf_counter()
    for step in steps:
        move(step)
    synchronize(xp)
    return (time.perf_counter() - began) / len(steps)


def plan_in_seconds(times, steps, memory, strategy="optimal", cell=None, batch=1):
    """Plan like `membptt.schedule`, but for the least measured time.

    Parameters
    ----------
    times : Times
        Of the cell and batch.
    steps, memory, strategy, cell, batch
        As for `membptt.schedule`, memory in bytes.

    Returns
    -------
    planned : membptt.Schedule
    in_seconds : bool
        Whether it was planned for seconds: by strategy "expand", and by "optimal" for up to 300
        steps, where the plan in steps is not as fast.
    """
    if strategy == "expand":
        return expand_schedule(steps, memory, cell, batch)[0], True
    planned = schedule(steps, memory, strategy, cell, batch)
    if strategy != "optimal" or steps > MOST_STEPS or planned.forward_steps == steps:
        return planned, False
    chain = times.chain(steps, planned.hidden, planned.internal)
    found = chain_schedule(chain, planned.budget)
    if times.seconds(found) >= times.seconds(planned):
        return planned, False
    sizes = planned.hidden, planned.internal
    return Schedule.from_actions(found, steps, *sizes, "bytes", planned.budget, NAME), True
