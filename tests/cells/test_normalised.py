"""Layer normalisation inside the cells: against another formula, differences, and to the bit."""

import numpy as np
import pytest

import membptt as mb
from membptt.cells.base import planned_part
from membptt.cells.normalised import EPSILON
from membptt.solver import STRATEGIES

KINDS = {"rnn": mb.LayerNormRNN, "lstm": mb.LayerNormLSTM, "gru": mb.LayerNormGRU}


def problem(cell, T=12, B=3, V=6, dense=True):
    generator = np.random.default_rng(0)
    if dense:
        inputs = generator.standard_normal((T, B, cell.input_size)).astype(cell.dtype)
    else:
        inputs = generator.integers(0, cell.input_size, (T, B))
    head = mb.SoftmaxHead(cell.hidden_size, V, cell.dtype.name)
    shapes = cell.hidden_shapes(B)
    state = tuple(generator.standard_normal(shape).astype(cell.dtype) for shape in shapes)
    return inputs, head.with_targets(generator.integers(0, V, (T, B))), state


def moved(cell):
    """Give gains and biases values that hide no mistake."""
    generator = np.random.default_rng(1)
    for name in ("g", "b"):
        cell.params[name][...] = generator.uniform(0.5, 1.5, cell.params[name].shape)
    return cell


@pytest.mark.parametrize("kind", KINDS)
def test_pytorch_normalises_and_differentiates_alike(kind):
    torch = pytest.importorskip("torch", reason="pip install torch")
    cell = moved(KINDS[kind](5, 8, "float64"))
    inputs, head, state = problem(cell)
    p = {
        name: torch.tensor(value, requires_grad=True)
        for name, value in (cell.params | head.params).items()
    }
    H, hidden = 8, [torch.from_numpy(array) for array in state]

    def norm(a, k, b):
        gain = p["g"][k * H : (k + 1) * H]
        return torch.nn.functional.layer_norm(a, (H,), gain, b, EPSILON)

    b = p["b"].split(H)
    loss = 0.0
    for x, target in zip(torch.from_numpy(inputs), head.targets, strict=True):
        of_x, of_h = x @ p["W_x"], hidden[0] @ p["W_h"]
        both = [norm(a, k, b[k]) for k, a in enumerate((of_x + of_h).split(H, dim=1))]
        if kind == "rnn":
            hidden = [both[0].tanh()]
        elif kind == "lstm":
            c = both[1].sigmoid() * hidden[1] + both[0].sigmoid() * both[2].tanh()
            hidden = [both[3].sigmoid() * c.tanh(), c]
        else:
            r, z = both[0].sigmoid(), both[1].sigmoid()
            q = norm(of_h[:, 2 * H :], 3, p["b_h"])
            n = (norm(of_x[:, 2 * H :], 2, b[2]) + r * q).tanh()
            hidden = [(1 - z) * n + z * hidden[0]]
        y = hidden[0] @ p["W_y"] + p["b_y"]
        loss = loss + torch.nn.functional.cross_entropy(y, torch.from_numpy(target)) / len(inputs)
    loss.backward()
    found = mb.full_bptt(cell, inputs, head, state)
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    for name, value in p.items():
        np.testing.assert_allclose(found.grads[name], value.grad, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_and_budget_has_the_bits_of_full_bptt(bits, kind, backend):
    cell = KINDS[kind](5, 8, backend=backend)
    assert cell.own_code
    inputs, head, state = problem(cell, dense=backend == "numpy")
    wanted = bits(mb.full_bptt(cell, inputs, head, state))
    hidden, internal = cell.hidden_nbytes(3), cell.internal_nbytes(3)
    for strategy in STRATEGIES:
        ran = 0
        for budget in (internal, internal + hidden, 3 * internal, 12 * internal):
            try:
                schedule = mb.schedule(12, budget, strategy, cell, 3)
            except ValueError:  # below this strategy's least
                continue
            result = mb.Executor(cell, schedule, 3, verify=True).run(inputs, head, state)
            assert bits(result) == wanted
            assert result.stats.peak_bytes <= budget
            ran += 1
        assert ran, strategy


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_against_differences_and_forward_mode(kind):
    cell = moved(KINDS[kind](5, 6, "float64", recurrent_dropout=0.3, zoneout=0.2))
    report = mb.check_gradients(cell)
    assert report.ok, report
    assert mb.check_step(cell.at(2)).ok
    window = problem(cell, T=5)
    full, forward = mb.full_bptt(cell, *window), mb.rtrl(cell, *window)
    for name, gradient in full.grads.items():
        np.testing.assert_allclose(forward.grads[name], gradient, rtol=0, atol=1e-13)


def test_in_a_stack_and_in_files(tmp_path):
    stack = mb.Stack([mb.LayerNormGRU(5, 6, "float64"), mb.LSTM(6, 4, "float64", seed=1)])
    assert mb.check_gradients(stack, samples=4).ok
    mb.save_params(tmp_path / "cell.npz", stack.params)
    other = mb.Stack([mb.LayerNormGRU(5, 6, "float64", seed=7), mb.LSTM(6, 4, "float64", seed=8)])
    mb.load_params(tmp_path / "cell.npz", other.params)
    assert all((other.params[name] == value).all() for name, value in stack.params.items())


@pytest.mark.parametrize(
    ("kind", "alpha"), [("rnn", 2 + 1 / 32), ("lstm", 3 + 1 / 32), ("gru", 5 + 1 / 32)]
)
def test_an_internal_state_hardly_grows(kind, alpha):
    cell = KINDS[kind](50, 128)
    assert cell.internal_nbytes(7) == alpha * cell.hidden_nbytes(7)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_preactivations_give_no_nan(kind):
    cell = KINDS[kind](5, 8, "float64")
    cell.params["W_x"][...] = cell.params["W_h"][...] = 0
    result = mb.full_bptt(cell, *problem(cell))
    assert all(np.isfinite(gradient).all() for gradient in result.grads.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_normalised_twin_is_refused(kind):
    cell = KINDS[kind](5, 8)
    with pytest.raises(ValueError, match="give an RNN, GRU or LSTM, or a Stack of one of them"):
        mb.to_torch(cell)
    with pytest.raises(TypeError, match="give an RNN, GRU or LSTM"):
        mb.Reduced(cell, "int8")


def test_a_planned_part_divides_and_is_at_most_a_32nd():
    for numbers in range(33, 400):
        part = planned_part(numbers)
        assert numbers % part == 0
        assert part <= numbers / 32
        assert not any(numbers % more == 0 for more in range(part + 1, numbers // 32 + 1))
