"""Strategy disk on a device: states in the host's memory, on the stand-in."""

import numpy as np
import pytest

import membptt as mb
from membptt.executor.tier import HostTier
from membptt.timing.disk import disk_schedule


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("interval", [2, 5, 13])
def test_bits_and_bytes(device, problem, host_bits, cell, interval):
    network, inputs, head, state = problem("numpy", cell, T=40)
    wanted = host_bits(mb.full_bptt(network, inputs, head, state))
    network, inputs, head, state = problem("cupy", cell, T=40)
    budget = 4 * network.internal_nbytes(3)
    plan = mb.schedule(40, budget, "disk", network, 3, interval=interval)
    result = mb.bptt(network, inputs, head, plan, state, record=True)
    assert host_bits(result) == wanted
    assert result.stats.peak_bytes == plan.peak_bytes <= budget
    stored = max(0, plan.intervals.count - 2) * network.hidden_nbytes(3)
    assert result.stats.disk_written_bytes == stored == plan.disk_bytes
    assert result.stats.disk_read_bytes == stored
    assert (result.trace[:, :3] == np.concatenate(list(plan.codes()))).all()


def test_the_time_loop_waits_for_nothing(device, problem, monkeypatch):
    network, inputs, head, state = problem("cupy", T=40)
    plan = mb.schedule(40, 4 * network.internal_nbytes(3), "disk", network, 3, interval=4)
    executor = mb.Executor(network, plan, 3)
    wait, close, closed = device.Stream.synchronize, HostTier.close, []

    def after_the_loop(tier):
        closed.append(tier)
        monkeypatch.setattr(device.Stream, "synchronize", wait)
        close(tier)

    monkeypatch.setattr(device.Stream, "synchronize", lambda self: pytest.fail("waited"))
    monkeypatch.setattr(HostTier, "close", after_the_loop)
    executor.run(inputs, head, state)
    assert len(closed) == 1


def test_times_are_read_when_both_streams_have_passed(device):
    tier = HostTier(50, 10, 8, device.zeros(100, dtype=np.uint8), 2, device, device.stream)
    tier.store(10, tier.acquire(10))
    tier.prefetch(10)
    tier.fetch(10)
    with pytest.raises(RuntimeError, match="cudaErrorNotReady"):
        tier.report()
    tier.close()
    assert tier.report()["disk_read_bytes"] == tier.report()["disk_written_bytes"] == 8


def test_planned_from_what_the_device_takes(device, problem):
    network, inputs, head, state = problem("cupy", T=40)
    plan, speed = disk_schedule(40, 4 * network.internal_nbytes(3), network, 3, None)
    assert min(speed.write_rate, speed.read_rate, speed.latency, speed.forward_seconds) > 0
    assert mb.bptt(network, inputs, head, plan, state).stats.backward_steps == 40


def test_a_folder_is_for_the_cpu(device, problem, tmp_path):
    network, *_ = problem("cupy", T=40)
    plan = mb.schedule(40, 4 * network.internal_nbytes(3), "disk", network, 3)
    with pytest.raises(ValueError, match="whose states go to the host's memory; leave it out"):
        mb.Executor(network, plan, 3, disk=tmp_path)


def test_buffers_are_given_out_and_taken_back(device):
    arena = device.zeros(100, dtype=np.uint8)
    tier = HostTier(50, 10, 8, arena, 2, device, device.stream)
    for step in (10, 20, 30):
        at = tier.acquire(step)
        assert at in (84, 92)
        arena[at : at + 8] = step
        tier.store(step, at)
    tier.prefetch(30)
    tier.prefetch(20)
    with pytest.raises(LookupError, match="all 2 buffers are taken"):
        tier.prefetch(10)
    at = tier.fetch(30)
    assert (arena[at : at + 8].get() == 30).all() and tier.find(30) == at
    tier.drop(30)
    assert tier.find(30) == -1
    with pytest.raises(LookupError, match="state of step 30 is in no buffer"):
        tier.fetch(30)
    tier.prefetch(10)
    at = tier.fetch(10)
    assert (arena[at : at + 8].get() == 10).all()
    tier.close()
