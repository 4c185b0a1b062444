"""Threads of one process, each with runs of its own over what all may read: nothing is shared.

Compiled code runs without the GIL, and a free-threaded Python has none at all.
"""

import pkgutil
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import membptt as mb

THREADS = 4
IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert not sys._is_gil_enabled(), name
"""


def at_once(act):
    """Return what `act` returns in each of some threads that start together."""
    together = threading.Barrier(THREADS)

    def start(number):
        together.wait()
        return act(number)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(start, range(THREADS)))


@pytest.mark.parametrize("strategy", ["optimal", "near-optimal", "lookahead", "disk", "expand"])
@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["lstm", "stack"])
def test_runs_over_one_cell_one_head_and_one_schedule(window, bits, cell, backend, strategy):
    case = window(cell, T=40, backend=backend)
    memory = 12 * case.cell.internal_nbytes(2)
    schedule = mb.schedule(40, memory, strategy, case.cell, 2)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))

    def run(number):
        executor = mb.Executor(case.cell, schedule, 2, step_through=number == 0)
        found = {bits(executor.run(case.inputs, case.head, case.state)) for _ in range(5)}
        return found | {bits(mb.bptt(*case.arguments(), schedule, case.state, threads=2))}

    assert at_once(run) == [{wanted}] * THREADS


@pytest.mark.parametrize("strategy", ["hsm", "msm", "optimal", "near-optimal", "chen-recursive"])
def test_plans_made_and_read_at_once(strategy):
    steps, budget = 3000, mb.Units(40, alpha=3)
    shared = mb.schedule(steps, budget, strategy)
    wanted = list(mb.schedule(steps, budget, strategy))
    for own, read in at_once(
        lambda number: (list(mb.schedule(steps, budget, strategy)), list(shared))
    ):
        assert own == wanted and read == wanted


def test_training_at_once_is_training_alone(make):
    def losses(number):
        trainer = make(cell=["rnn", "gru", "lstm", "ln-lstm"][number % 4], zoneout=0.1)
        return [trainer.update().loss for _ in range(5)]

    alone = [losses(number) for number in range(THREADS)]
    assert at_once(losses) == alone


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL: python3.13t"
)
def test_importing_does_not_bring_the_gil_back():
    found = pkgutil.walk_packages(mb.__path__, "membptt.")
    names = [module.name for module in found if not module.name.endswith("__main__")]
    command = [sys.executable, "-P", "-W", "error", "-c", IMPORTS, *names]
    subprocess.run(command, check=True)
