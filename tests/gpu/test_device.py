"""On a real device: what the stand-in and the emulation cannot show."""

import numpy as np
import pytest

import membptt as mb
from membptt import arrays
from membptt.executor.executor import HOST_ONLY
from membptt.solver import STRATEGIES


def missing():
    """Return why there is no device to test on, or None."""
    try:
        arrays.device_module()
    except ValueError as error:
        return str(error)
    return None


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def plan(cell, steps, batch, strategy):
    for memory in (4 * cell.internal_nbytes(batch), steps * cell.internal_nbytes(batch)):
        try:
            return mb.schedule(steps, memory, strategy, cell, batch)
        except ValueError:
            continue
    raise AssertionError(strategy)


@pytest.mark.parametrize("kernels", ["1", "0"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_bits_of_every_strategy(problem, host_bits, monkeypatch, cell, tokens, dtype, kernels):
    monkeypatch.setenv("MEMBPTT_CUDA_KERNELS", kernels)
    network, inputs, head, state = problem("cupy", cell, T=70, dtype=dtype, tokens=tokens)
    full = mb.full_bptt(network, inputs, head, state)
    wanted = host_bits(full)
    for strategy in STRATEGIES:
        if strategy not in HOST_ONLY:
            result = mb.bptt(network, inputs, head, plan(network, 70, 3, strategy), state)
            assert host_bits(result) == wanted, strategy
    network, inputs, head, state = problem("cython", cell, T=70, dtype=dtype, tokens=tokens)
    ours = mb.full_bptt(network, inputs, head, state)
    assert full.loss == pytest.approx(ours.loss, rel=1e-6)
    for name, gradient in ours.grads.items():
        theirs = arrays.to_host(full.grads[name])
        if kernels == "1":
            assert (theirs == gradient).all(), name
        else:
            np.testing.assert_allclose(theirs, gradient, rtol=1e-3, atol=1e-6)


def test_the_second_run_asks_nothing_of_the_pool(problem):
    import cupy

    network, inputs, head, state = problem("cupy", T=200, H=32)
    executor = mb.Executor(network, plan(network, 200, 3, "optimal"), 3)
    executor.run(inputs, head, state)

    class Count(cupy.cuda.MemoryHook):
        name = "count"
        requests = 0

        def malloc_preprocess(self, **_):
            self.requests += 1

    counts = []
    for _ in range(2):
        with Count() as count:
            executor.run(inputs, head, state)
        counts.append(count.requests)
    assert counts[0] == counts[1] <= 2 * len(network.params | head.params) + 8  # what it returns


def test_memory_stays_below_the_ledgers_peak(problem):
    import cupy

    pool = cupy.get_default_memory_pool()
    network, inputs, head, state = problem("cupy", T=200, B=64, H=128)
    executor = mb.Executor(network, plan(network, 200, 64, "optimal"), 64)
    peak = executor.run(inputs, head, state).stats.device_peak_bytes
    del executor
    pool.free_all_blocks()
    pool.set_limit(size=int(1.1 * peak) + pool.total_bytes())
    try:
        mb.bptt(network, inputs, head, plan(network, 200, 64, "optimal"), state)
    finally:
        pool.set_limit(size=0)


def test_states_in_the_hosts_memory_are_copied_beside_the_steps(problem, host_bits):
    network, inputs, head, state = problem("cupy", T=400, B=16, H=256)
    wanted = host_bits(mb.full_bptt(network, inputs, head, state))
    budget = 40 * network.internal_nbytes(16)
    schedule = mb.schedule(400, budget, "disk", network, 16, interval=20)
    result = mb.bptt(network, inputs, head, schedule, state)
    assert host_bits(result) == wanted
    assert result.stats.disk_written_bytes == schedule.disk_bytes
    assert 0 <= result.stats.disk_hidden_fraction <= 1


def test_a_usable_device_is_taken_by_itself():
    from membptt.cli.train import best_backend

    assert best_backend("optimal") == "cupy"
    assert best_backend("lookahead") == "cython"
