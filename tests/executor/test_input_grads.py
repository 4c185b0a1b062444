"""The derivative by the inputs: the same bits under every schedule, and right."""

import numpy as np
import pytest

import membptt as mb

T, B, I = 9, 3, 5  # noqa: E741


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_differences_agree(window, cell, backend):
    case = window(cell, T, B, I, 6, 4, "float64", backend, tokens=False, head="linear")
    result = mb.full_bptt(*case.arguments(), case.state, input_grads=True)
    assert result.input_grads.shape == case.inputs.shape
    generator = np.random.default_rng(0)
    for _ in range(12):
        at = tuple(generator.integers(size) for size in case.inputs.shape)
        losses = []
        for change in (1e-6, -1e-6):
            moved = case.inputs.copy()
            moved[at] += change
            losses.append(mb.full_bptt(case.cell, moved, case.head, case.state).loss)
        slope = (losses[0] - losses[1]) / 2e-6
        assert result.input_grads[at] == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "stack"])
def test_bits_do_not_depend_on_the_schedule(window, bits, cell, backend):
    case = window(cell, 30, B, 37, 6, 4, "float32", backend, tokens=False)
    full = mb.full_bptt(*case.arguments(), case.state, input_grads=True)
    without = mb.full_bptt(*case.arguments(), case.state)
    assert without.input_grads is None and bits(without) == bits(full)
    for strategy in ("hsm", "optimal", "expand", "lookahead", "disk"):
        plan = mb.schedule(30, 14 * case.cell.internal_nbytes(B), strategy, case.cell, B)
        for threads in (1, 2):
            result = mb.bptt(*case.arguments(), plan, case.state, threads=threads, input_grads=True)
            assert bits(result) == bits(full)
            assert result.input_grads.tobytes() == full.input_grads.tobytes()


def test_an_executor_gives_new_arrays_at_every_run(window):
    case = window("gru", T, B, I, 6, 4, tokens=False)
    plan = mb.schedule(T, 3 * case.cell.internal_nbytes(B), cell=case.cell, batch=B)
    executor = mb.Executor(case.cell, plan, B, input_grads=True)
    first = executor.run(case.inputs, case.head, case.state).input_grads
    kept = first.copy()
    second = executor.run(case.inputs * 2, case.head, case.state).input_grads
    assert (first == kept).all() and (second != first).any()


@pytest.mark.parametrize("count", [1, 2])
def test_pytorch_agrees(count):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    torch.manual_seed(0)
    module = torch.nn.GRU(I, 6, count, dtype=torch.float64)
    x = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
    y, _ = module(x)
    (y * y).sum().backward()
    head = mb.LinearHead(6, 6, "float64")
    head.params["W_y"][...] = np.eye(6)
    bound = head.with_targets(np.zeros((T, B, 6)))  # half the squares, divided by T B 6
    result = mb.full_bptt(
        mb.from_torch(module.state_dict()), x.detach().numpy(), bound, input_grads=True
    )
    scaled = result.input_grads * 2 * T * B * 6
    np.testing.assert_allclose(scaled, x.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_what_has_no_derivative_is_named(window):
    case = window("lstm", T, B, I, 6, 4)
    with pytest.raises(ValueError, match="input_grads is True with tokens"):
        mb.full_bptt(*case.arguments(), input_grads=True)

    def forward(params, x, state):
        return (x + state[0],), ()

    def backward(params, x, state, saved, dstate, grads):
        return dstate

    own = mb.Custom(forward, backward, {"a": np.zeros(1, np.float32)}, 4, {"h": (4,)})
    head = mb.LinearHead(4, 1).with_targets(np.zeros((2, 1, 1), np.float32))
    for cell in (own, mb.Stack([own])):
        with pytest.raises(ValueError, match="with a Custom, whose backward gives no derivative"):
            mb.full_bptt(cell, np.zeros((2, 1, 4), np.float32), head, input_grads=True)
