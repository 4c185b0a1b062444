"""Compiled chains against the plain one, clone against clone, row against batch."""

import numpy as np
import pytest
from numpy._core import _internal

from membptt.chains.plain import PlainChain
from membptt.chains.registry import make_chain
from membptt.kernels import _kernels

# (T, B, I, H, V): sizes of one, odd sizes, several panels, several flush blocks, wide batches
SHAPES = [
    (1, 1, 1, 1, 1),
    (2, 1, 2, 3, 2),
    (5, 3, 4, 5, 7),
    (7, 2, 3, 33, 40),
    (20, 9, 17, 64, 100),
    (40, 16, 8, 48, 50),
    (3, 600, 5, 16, 9),
    (600, 1, 5, 24, 11),
]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def run_chain(chain, window):
    """Run everything stored; return the arrays that came out, by name."""
    cell, steps, batch = window.cell, len(window.inputs), window.inputs.shape[1]
    size = cell.internal_nbytes(batch)
    arena = np.zeros(steps * size, np.uint8)
    chain.begin(window.inputs, window.head, window.state, arena)
    for step in range(1, steps + 1):
        chain.forward(step - 1, step, (step - 1) * size)
    for step in range(steps, 0, -1):
        chain.backward(step, (step - 1) * size)
    loss, bad_step, grads, state, state_grad = chain.finish()
    assert bad_step == 0
    named = {"loss": np.float64(loss), **grads}
    for name, last, first in zip(cell.hidden_names, state, state_grad, strict=True):
        named |= {f"{name}_T": last, f"d{name}_0": first}
    return named


def compiled(window, isa=None):
    return make_chain(window.cell, window.head, *window.inputs.shape[:2], isa=isa)


@pytest.mark.parametrize("isa", _kernels.available())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tokens, head", [(True, "softmax"), (False, "linear")])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_compiled_agrees_with_plain(window, cell, tokens, head, dtype, shape, isa):
    T, B, I, H, V = shape  # noqa: E741
    case = window(cell, T, B, I, H, V, dtype, tokens=tokens, head=head, seed=T + H)
    plain = run_chain(PlainChain(case.cell, case.head, T, B), case)
    fast = run_chain(compiled(case, isa), case)
    assert plain.keys() == fast.keys()
    for name, wanted in plain.items():
        scale = np.abs(wanted).max() + np.finfo(dtype).tiny
        assert np.abs(fast[name] - wanted).max() / scale <= TOLERANCE[dtype], name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("tokens, head", [(True, "softmax"), (False, "linear")])
def test_clones_that_fuse_agree_to_the_bit(window, cell, dtype, tokens, head):
    fused = [isa for isa in _kernels.available() if isa != "portable"]
    if len(fused) < 2:
        pytest.skip(f"this processor has only {fused} besides the portable kernels")
    case = window(cell, 70, 9, 17, 45, 53, dtype, tokens=tokens, head=head)
    first, second = (run_chain(compiled(case, isa), case) for isa in fused)
    for name, wanted in first.items():
        assert second[name].tobytes() == wanted.tobytes(), name


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("tokens", [True, False])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(window, cell, tokens):
    case = window(cell, 9, 11, 6, 37, 5, tokens=tokens)
    whole = run_chain(compiled(case), case)
    for row in (0, 7, 10):
        alone = window(cell, 9, 1, 6, 37, 5, tokens=tokens)
        alone.inputs = np.ascontiguousarray(case.inputs[:, row : row + 1])
        alone.head = case.head.head.with_targets(case.head.targets[:, row : row + 1])
        alone.state = tuple(np.ascontiguousarray(array[row : row + 1]) for array in case.state)
        single = run_chain(compiled(alone), alone)
        for name in case.cell.hidden_names:
            assert (single[f"{name}_T"] == whole[f"{name}_T"][row]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_tokens_of_every_width_are_the_same_tokens(window, dtype):
    case = window(T=12, B=3, I=100)
    wanted = run_chain(compiled(case), case)
    case.inputs = case.inputs.astype(dtype)
    case.head = case.head.head.with_targets(case.head.targets.astype(dtype))
    for name, array in run_chain(compiled(case), case).items():
        assert array.tobytes() == wanted[name].tobytes(), name


def test_a_chain_can_be_begun_again_with_other_inputs(window):
    first, second = window(seed=1, tokens=False), window(seed=2, tokens=False)
    second.cell = first.cell
    second.head = first.head.head.with_targets(second.head.targets)
    reused = compiled(first)
    run_chain(reused, first)
    again = run_chain(reused, second)
    fresh = run_chain(compiled(second), second)
    for name, array in fresh.items():
        assert again[name].tobytes() == array.tobytes(), name


def test_workspace_does_not_grow_with_the_steps(window):
    assert compiled(window(T=3)).workspace_nbytes == compiled(window(T=3000)).workspace_nbytes


@pytest.mark.parametrize("cell", ["gru", "stack"])
def test_ctrl_c_while_a_chain_begins_and_ends(window, monkeypatch, cell):
    """NumPy says where an array lies by way of Python code, and a signal may come just there."""
    case = window(cell, T=3)
    asked, stop = 0, 0
    real = _internal._ctypes

    def interrupted(*given):
        nonlocal asked
        asked += 1
        if asked == stop:
            raise KeyboardInterrupt
        return real(*given)

    chain = make_chain(case.cell, case.head, 3, 2)
    arena = np.zeros(3 * case.cell.internal_nbytes(2), np.uint8)
    monkeypatch.setattr(_internal, "_ctypes", interrupted)
    while asked >= stop:  # the last one is not interrupted
        asked, stop = 0, stop + 1
        try:
            chain.begin(case.inputs, case.head, case.state, arena)
            chain.finish()
        except KeyboardInterrupt:
            assert asked == stop
        else:
            assert asked < stop
    assert stop > 10
