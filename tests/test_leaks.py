"""What is done again and again takes no more memory, files or threads than at first.

pytest tests/test_leaks.py              each a few times: part of the suite
pytest tests/test_leaks.py -m soak      each 10,000 times: minutes
"""

import contextlib
import gc
import itertools
import os
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest
from handles import handles, handles_once

import membptt as mb
from membptt.executor._spill import Spill
from membptt.executor.arena import Arena
from membptt.schedules import trade_off
from membptt.solver import STRATEGIES
from membptt.training import checkpoint
from membptt.training.corpus import Corpus
from membptt.training.settings import Settings, make_trainer

T, B, I, H, V = 8, 2, 3, 4, 3  # noqa: E741

TRACED = 2**16  # what tracemalloc may see more: Python keeps some of what it has freed
RESIDENT = 2**23

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc lists")


def resident():
    """Return the bytes of the process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def arenas():
    """Return how many arenas there are; isinstance would wake lazy objects of PyTorch."""
    return sum(issubclass(type(each), Arena) for each in gc.get_objects())


def check_settles(works, times):
    """Do the works in turn, so often in all, and again; see that nothing has grown since.

    Ever other sizes fill the lists of small blocks that Python and NumPy keep, for as long.
    """

    def repeat(count):
        for work in itertools.islice(itertools.cycle(works), -(-count // len(works)) * len(works)):
            work()

    repeat(1)
    gc.collect()
    before, held = handles(), arenas()
    tracemalloc.start()
    try:
        repeat(times)
        gc.collect()
        traced, in_memory = tracemalloc.get_traced_memory()[0], resident()
        repeat(times)
        gc.collect()
        traced, in_memory = tracemalloc.get_traced_memory()[0] - traced, resident() - in_memory
    finally:
        tracemalloc.stop()
    assert traced < TRACED and in_memory < RESIDENT, (traced, in_memory)
    gc.disable()  # an arena is a budget: it must not wait for the collector
    try:
        repeat(2 * len(works))
        assert arenas() == held
    finally:
        gc.enable()
    assert handles_once(before) == before


def window(backend="cython", kind=mb.LSTM, **options):
    """Return a cell, tokens and a head with targets."""
    rng = np.random.default_rng(0)
    cell = kind(I, H, backend=backend, **options)
    inputs = rng.integers(I, size=(T, B))
    return cell, inputs, mb.SoftmaxHead(H, V).with_targets(rng.integers(V, size=(T, B)))


def plan(cell, strategy="optimal"):
    budget = (T if strategy == "full" else 6) * cell.internal_nbytes(B)
    return mb.schedule(T, budget, strategy, cell, B)


def gradients(tmp_path):
    """A new executor that runs twice, of each strategy on each backend."""

    def run(cell, inputs, head, schedule):
        executor = mb.Executor(cell, schedule, B, threads=2, record=True)
        executor.run(inputs, head)
        executor.run(inputs, head)

    for backend, strategy in itertools.product(["numpy", "cython"], STRATEGIES):
        cell, inputs, head = window(backend)
        yield partial(run, cell, inputs, head, plan(cell, strategy))


class Failing:
    """A head that fails at step 3."""

    kernel, params = None, {}

    def forward_backward(self, step, h, grads):
        if step == 3:
            raise ArithmeticError
        return 0.0, h


def failures(tmp_path):
    """Runs that end in the middle, of one executor again and again and of new ones."""

    def run(executor, inputs, anew):
        if anew:
            executor = mb.Executor(executor.cell, executor.schedule, B, disk=tmp_path)
        with contextlib.suppress(ArithmeticError):
            executor.run(inputs, Failing())
            pytest.fail("nothing failed")

    strategies = "optimal", "disk", "lookahead"
    for backend, strategy in itertools.product(["numpy", "cython"], strategies):
        cell, inputs, _ = window(backend)
        executor = mb.Executor(cell, plan(cell, strategy), B, disk=tmp_path)
        yield from (partial(run, executor, inputs, anew) for anew in (False, True))


def other_runs(tmp_path):
    """What runs a network without an executor of the user's."""
    cell, inputs, head = window()
    noisy, _, _ = window(kind=mb.GRU, zoneout=0.5)
    stack = mb.Stack([mb.GRU(I, H), mb.RNN(H, H)], dropout=0.5)
    both = mb.SoftmaxHead(2 * H, V).with_targets(head.targets)
    yield partial(mb.evaluate, noisy, inputs, head)
    yield partial(mb.full_bptt, mb.Reduced(cell, "int8"), inputs, head)
    yield partial(mb.full_bptt, stack, inputs, head)
    yield partial(mb.truncated_bptt, cell, inputs, head, 4, stride=2)
    yield partial(mb.bptt_bidirectional, (cell, cell), inputs, both, plan(cell))
    budget = 3 * cell.internal_nbytes(B)

    def stream():
        mb.bptt_stream(cell, zip(inputs, head.targets, strict=True), head.head, budget)

    yield stream


def tier(tmp_path):
    """States to disk and back; then the tier is closed, or only dropped."""
    arena = np.zeros(64, np.uint8)

    def use(close):
        spill = Spill(tmp_path, 9, 2, 16, arena, 3, record=True)
        for step in (2, 4, 6):
            spill.store(step, spill.acquire(step))
        spill.prefetch(4)
        spill.fetch(4)
        if close:
            spill.close()

    yield from (partial(use, close) for close in (True, False))


def schedules(tmp_path):
    """Schedules of ever other lengths and budgets; the short ones replayed, written and read."""
    numbers, path = itertools.count(), tmp_path / "schedule"

    def make(strategy):
        number = next(numbers)
        steps, units = 20 + number % 1009, mb.Units(20 + number % 31, alpha=3)
        try:
            planned = mb.schedule(steps, units, strategy)
        except ValueError:  # below the least of a strategy
            return
        if steps < 50:
            planned.replay()
            planned.save(path)
            assert mb.Schedule.load(path) == planned

    yield from (partial(make, strategy) for strategy in STRATEGIES)
    yield partial(trade_off, 30, alpha=3)


def files(tmp_path):
    """Weights, written and read, and checkpoints."""
    cell = mb.LSTM(I, H)

    def save_and_load(path):
        mb.save_params(path, cell.params)
        mb.load_params(path, cell.params)

    def save_and_load_checkpoint(path):
        checkpoint.save_checkpoint(path, {"steps": 3}, cell.params)
        checkpoint.load_checkpoint(path)

    yield partial(save_and_load, tmp_path / "weights.npz")
    with contextlib.suppress(ImportError):
        import safetensors.numpy  # noqa: F401

        yield partial(save_and_load, tmp_path / "weights.safetensors")
    yield partial(save_and_load_checkpoint, str(tmp_path / "checkpoint"))


def training(tmp_path):
    """Trainers that make an update."""
    settings = Settings(steps=8, batch=2, hidden=4, memory=4000, dropout=0.2, layers=2)
    corpus = Corpus("ab" * 100)
    yield lambda: make_trainer(settings, corpus).update()


@pytest.mark.parametrize("times", [15, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "works", [gradients, failures, other_runs, tier, schedules, files, training]
)
def test_nothing_grows(works, times, tmp_path):
    check_settles(list(works(tmp_path)), times)
    left = {file.name for file in tmp_path.iterdir()}
    assert left <= {"weights.npz", "weights.safetensors", "checkpoint", "schedule"}


def test_what_grows_is_found():
    kept = []
    for leak in (
        lambda: kept.append(bytes(5000)),
        lambda: kept.append(os.dup(1)),
        lambda: kept.append(Arena(10, 1, 1)),
    ):
        with pytest.raises(AssertionError):
            check_settles([leak], 15)
    for each in kept:
        if isinstance(each, int):
            os.close(each)
