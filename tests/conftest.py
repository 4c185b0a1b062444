"""What the tests share: small networks with a window to run them on, a small training run."""

import os
import shlex
import shutil
import signal
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from membptt.cells import GRU, LSTM, RNN, Stack
from membptt.heads import LinearHead, SoftmaxHead
from membptt.training.corpus import Corpus
from membptt.training.settings import Settings, make_trainer


def stack(I, H, dtype="float32", seed=0, backend="cython"):  # noqa: E741
    """Return three layers of different kinds and sizes, the top one with H hidden units."""
    return Stack(
        [
            GRU(I, H + 3, dtype, seed, backend),
            LSTM(H + 3, 2 * H, dtype, seed + 1, backend),
            RNN(2 * H, H, dtype, seed + 2, backend),
        ]
    )


CELLS = {"rnn": RNN, "lstm": LSTM, "gru": GRU, "stack": stack}


@dataclass
class Window:
    """A cell, a bound head, inputs and an initial state that fit together."""

    cell: object
    head: object
    inputs: np.ndarray
    state: tuple

    def arguments(self):
        return self.cell, self.inputs, self.head

    def on(self, backend):
        """Return the same window with the same parameters on another backend."""
        make = stack if isinstance(self.cell, Stack) else type(self.cell)
        cell = make(self.cell.input_size, self.cell.hidden_size, self.cell.dtype, 0, backend)
        cell.params = self.cell.params
        return Window(cell, self.head, self.inputs, self.state)


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Have SIGINT interrupt, here and in what is started: a shell's background job ignores it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def window():
    """Return a factory of windows: letters as in the docs, tokens or dense inputs."""

    def make(
        cell="lstm",
        T=5,
        B=2,
        I=3,  # noqa: E741
        H=4,
        V=6,
        dtype="float32",
        backend="cython",
        tokens=True,
        head="softmax",
        seed=0,
    ):
        generator = np.random.default_rng(seed)
        network = CELLS[cell](I, H, dtype, seed, backend)
        if tokens:
            inputs = generator.integers(0, I, (T, B)).astype(np.uint8)
        else:
            inputs = generator.standard_normal((T, B, I)).astype(dtype)
        if head == "softmax":
            bound = SoftmaxHead(H, V, dtype, seed).with_targets(generator.integers(0, V, (T, B)))
        else:
            targets = generator.standard_normal((T, B, V)).astype(dtype)
            bound = LinearHead(H, V, dtype, seed).with_targets(targets)
        state = tuple(
            (generator.standard_normal(shape) / 2).astype(dtype)
            for shape in network.hidden_shapes(B)
        )
        return Window(network, bound, inputs, state)

    return make


def bits(result):
    """Return everything that must not depend on the schedule, as bytes."""
    arrays = [np.float64(result.loss), *result.state, *result.state_grad]
    arrays += [result.grads[name] for name in sorted(result.grads)]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


@pytest.fixture(name="bits")
def bits_fixture():
    return bits


@pytest.fixture(scope="session")
def compiler():
    """Return the command of a C compiler, or skip."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no C compiler {command[0]}")
    return command


@pytest.fixture(scope="session")
def corpus():
    letters = np.random.default_rng(0).choice(list("ab cdé"), 500)
    return Corpus("".join(letters))


@pytest.fixture
def make(corpus):
    """Return a factory of trainers over a small text."""

    def make(meter=None, **given):
        sizes = {"steps": 20, "batch": 3, "hidden": 8, "memory": "4 kB"}
        return make_trainer(Settings(**(sizes | given)), corpus, meter)

    return make
