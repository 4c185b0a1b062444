"""Reduced internal states on the stand-in: the bits of NumPy, and a ledger that holds them."""

import pytest

import membptt as mb


def reduced(cell, name):
    if isinstance(cell, mb.Stack):
        return mb.Stack([mb.Reduced(layer, name) for layer in cell.layers])
    return mb.Reduced(cell, name)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_the_device_has_the_bits_of_numpy(device, problem, host_bits, cell, name):
    dtype = "float64" if name == "int8" else "float32"
    network, inputs, head, state = problem("numpy", cell, dtype=dtype)
    wanted = host_bits(mb.full_bptt(reduced(network, name), inputs, head, state))
    network, inputs, head, state = problem("cupy", cell, dtype=dtype)
    network = reduced(network, name)
    for strategy in ("full", "optimal", "expand", "disk"):
        amount = (29 if strategy == "full" else 5) * network.internal_nbytes(3)
        plan = mb.schedule(29, amount, strategy, network, 3)
        assert host_bits(mb.bptt(network, inputs, head, plan, state)) == wanted


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(64, 3, 8, 3), (3, 3, 64, 3), (64, 3, 1, 2)], ids=str)
def test_the_ledger_holds_what_is_unpacked(device, problem, cell, name, size, dtype):
    B, I, H, V = size  # noqa: E741
    before = device.counts.live
    network, inputs, head, _ = problem("cupy", cell, 20, B, I, H, V, dtype)
    network = reduced(network, name)
    plan = mb.schedule(20, 4 * network.internal_nbytes(B), cell=network, batch=B)
    executor = mb.Executor(network, plan, B)
    device.counts.begin()
    executor.run(inputs, head)
    lived, held = device.counts.peak - before, sum(executor.ledger.held.values())
    assert lived <= executor.ledger.peak <= held + 5 * max(1024, lived - held)


def test_the_error_is_measured_on_the_device(device, problem):
    found = []
    for backend in ("numpy", "cupy"):
        network, inputs, head, state = problem(backend, "stack")
        found.append(mb.gradient_error(reduced(network, "int8"), inputs, head, state))
    assert found[0] == found[1]
