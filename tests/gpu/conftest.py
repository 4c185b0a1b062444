"""The stand-in for CuPy (tests/standin.py) in place of a device, and the real one where it is."""

import numpy as np
import pytest
import standin

import membptt as mb
from membptt import arrays


@pytest.fixture
def device(monkeypatch):
    """Let backend "cupy" run on the stand-in; return it, counting from now on."""
    monkeypatch.setattr(arrays, "device_module", standin.device_module)
    standin.counts.begin()
    yield standin
    standin.stream.synchronize()


def stack(I, H, dtype, seed, backend):  # noqa: E741
    """Return a stack whose largest layer is below the top one."""
    layers = [mb.GRU(I, 2 * H, dtype, seed, backend), mb.LSTM(2 * H, 9, dtype, seed, backend)]
    return mb.Stack([*layers, mb.RNN(9, H, dtype, seed, backend)])


@pytest.fixture
def problem():
    """Return a factory of a cell, inputs, a head with targets and a state, for any backend."""

    def make(backend, cell="lstm", T=29, B=3, I=5, H=7, V=6, dtype="float32", tokens=True):  # noqa: E741
        generator = np.random.default_rng(0)
        kinds = {"lstm": mb.LSTM, "rnn": mb.RNN, "gru": mb.GRU, "stack": stack}
        network = kinds[cell](I, H, dtype, 1, backend)
        state = tuple(
            generator.standard_normal(shape).astype(dtype) for shape in network.hidden_shapes(B)
        )
        if tokens:
            inputs = generator.integers(0, I, (T, B)).astype(np.uint8)
            targets = generator.integers(0, V, (T, B))
            head = mb.SoftmaxHead(H, V, dtype, 1, backend)
        else:
            inputs = generator.standard_normal((T, B, I)).astype(dtype)
            targets = generator.standard_normal((T, B, V)).astype(dtype)
            head = mb.LinearHead(H, V, dtype, 1, backend)
        return network, inputs, head.with_targets(targets), state

    return make


@pytest.fixture
def host_bits(bits):
    """Return a function that gives a result's bits, wherever its arrays are."""

    def of(result):
        on_host = {name: arrays.to_host(value) for name, value in result.grads.items()}
        states = (tuple(map(arrays.to_host, part)) for part in (result.state, result.state_grad))
        return bits(mb.Result(result.loss, on_host, *states, result.stats))

    return of
