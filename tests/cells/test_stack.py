"""Layers on one another: sizes, parameters, copies, refusals, and PyTorch's own stacks."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import membptt as mb
from membptt.cells import GRU, LSTM, RNN, Stack


def two(dtype="float32", backend="cython"):
    return Stack([GRU(4, 6, dtype, 0, backend), LSTM(6, 5, dtype, 1, backend)])


def test_sizes_add_and_the_top_layer_comes_first():
    stack = two()
    assert stack.hidden_names == ("h1", "c1", "h0")
    assert stack.internal_names[:2] == ("h_prev1", "c_prev1") and len(stack.internal_names) == 11
    assert stack.hidden_nbytes(3) == sum(layer.hidden_nbytes(3) for layer in stack.layers)
    assert stack.internal_nbytes(3) == sum(layer.internal_nbytes(3) for layer in stack.layers)
    assert (stack.input_size, stack.hidden_size) == (4, 5)


def test_a_step_is_the_layers_steps(window):
    stack = two("float64", "numpy")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4))
    state = tuple(rng.standard_normal(shape) for shape in stack.hidden_shapes(3))
    (h0,), _ = stack.layers[0].forward_step(x, state[2:])
    (h1, c1), _ = stack.layers[1].forward_step(h0, state[:2])
    after, internal = stack.forward_step(x, state)
    for mine, theirs in zip(after, (h1, c1, h0), strict=True):
        assert (mine == theirs).all()
    for mine, theirs in zip(stack.entering(internal), state, strict=True):
        assert (mine == theirs).all()
    for mine, theirs in zip(stack.state_from_internal(internal), after, strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_parameters_are_the_layers_own_and_read_anew():
    layers = [GRU(4, 6, backend="numpy"), LSTM(6, 5, backend="numpy")]
    stack = Stack(layers)
    assert stack.params["0.W_x"] is layers[0].params["W_x"]
    stack.params["1.b"] = np.ones(20, np.float32)
    assert (stack.layers[1].params["b"] == 1).all()
    assert (layers[1].params["b"] != 1).any()  # what was passed is not changed
    stack.params = {name: value * 2 for name, value in stack.params.items()}
    assert (stack.layers[1].params["b"] == 2).all()
    assert dict(stack.layers[0].params).keys() == layers[0].params.keys()


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_copies_find_their_own_parameters(again):
    stack = two()
    other = again(stack)
    other.dtype, other.backend = np.dtype("float64"), "numpy"
    assert {layer.dtype.name for layer in other.layers} == {"float64"}
    assert {(layer.dtype.name, layer.backend) for layer in stack.layers} == {("float32", "cython")}
    other.params = {name: value + 1 for name, value in stack.params.items()}
    for layer, mine in zip(other.layers, stack.layers, strict=True):
        for name in mine.params:
            assert (layer.params[name] == mine.params[name] + 1).all()


@pytest.mark.parametrize(("sizes", "threads"), [((8, 300, 8), 2), ((8, 8, 300), 2), ((8, 8, 8), 1)])
def test_threads_are_used_where_any_layer_is_large(sizes, threads):
    stack = Stack([GRU(5, sizes[0]), RNN(sizes[0], sizes[1]), LSTM(sizes[1], sizes[2])])
    schedule = mb.schedule(9, 9 * stack.internal_nbytes(4), cell=stack, batch=4)
    assert mb.Executor(stack, schedule, 4, threads=2).threads == threads


def test_a_stack_goes_with_its_last_name():
    """Not when Python's collector runs: it may hold a device's memory."""
    gc.disable()
    try:
        for make in (two, lambda: copy.copy(two())):
            stack = make()
            array = weakref.ref(stack.params["0.W_x"])
            layer = stack.layers[0]
            del stack
            assert layer.params["W_x"] is array()  # a layer alone still has its parameters
            del layer
            assert array() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_one_layer_is_the_layer(window, bits, backend):
    case = window("lstm", 9, 3, 4, 7, 5, backend=backend, tokens=False)
    alone = mb.full_bptt(*case.arguments(), case.state)
    result = mb.full_bptt(Stack([case.cell]), case.inputs, case.head, case.state)
    assert result.loss == alone.loss
    for name in case.cell.params:
        assert (result.grads[f"0.{name}"] == alone.grads[name]).all()


class Weighted:
    """A head whose one parameter has the name of a layer's: it weighs the units of h."""

    kernel = None

    def __init__(self, size):
        self.params = {"W_x": np.arange(1.0, size + 1)}

    def forward_backward(self, step, h, grads):
        grads["W_x"] += h.sum(axis=0)
        return (h * self.params["W_x"]).sum(), self.params["W_x"] + np.zeros_like(h)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_a_head_may_name_its_parameters_as_a_layer_does(backend):
    stack = two("float64", backend)
    x = np.random.default_rng(0).standard_normal((6, 2, 4))
    assert mb.check_gradients(stack, x, Weighted(5)).ok
    names = [*stack.params, "W_x"]
    assert list(mb.full_bptt(stack, x, Weighted(5)).grads) == names


def square(params, x, state):
    return (np.tanh(x + params["a"] * state[0]),), ()


def square_back(params, x, state, saved, dstate, grads):
    da = dstate[0] * (1 - np.tanh(x + params["a"] * state[0]) ** 2)
    grads["a"] += (da * state[0]).sum(axis=0)
    return (da * params["a"],)


def test_a_cell_of_the_users_own_beneath():
    own = mb.Custom(square, square_back, {"a": np.full(4, 0.5)}, 4, {"h": (4,)})
    stack = Stack([own, RNN(4, 3, "float64", backend="numpy")])
    x = np.random.default_rng(0).standard_normal((6, 2, 4))
    head = mb.LinearHead(3, 2, "float64").with_targets(np.zeros((6, 2, 2)))
    assert mb.check_gradients(stack, x, head).ok


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        ([], ValueError, "layers is empty"),
        (["lstm"], TypeError, "layer 0 is 'lstm'; give a cell"),
        (
            [LSTM(3, 4), LSTM(5, 4)],
            ValueError,
            "layer 1 has input_size 5, the layer beneath gives 4",
        ),
        ([LSTM(3, 4), LSTM(4, 4, "float64")], ValueError, "layer 1 has dtype float64, layer 0"),
        ([LSTM(3, 4), LSTM(4, 4, backend="numpy")], ValueError, "layer 1 has backend numpy"),
        ([two(), LSTM(5, 4)], TypeError, "layer 0 is a Stack; give its layers one by one"),
    ],
)
def test_what_does_not_fit_is_named(layers, error, message):
    with pytest.raises(error, match=message):
        Stack(layers)


def test_no_compiled_kernels_for_a_layer_of_the_users_own():
    class Mine(LSTM):
        pass

    stack = Stack([LSTM(3, 4), Mine(4, 4)])
    head = mb.SoftmaxHead(4, 3).with_targets(np.zeros((2, 1), int))
    with pytest.raises(ValueError, match="Mine has no compiled kernels"):
        mb.full_bptt(stack, np.zeros((2, 1), int), head)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_pytorch_has_the_same_loss_and_gradients(kind, backend):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    T, B, I, H, V = 17, 3, 5, 11, 6  # noqa: E741
    sizes = [I, H, H]
    stack = Stack([kind(size, H, "float64", k, backend) for k, size in enumerate(sizes)])
    head = mb.SoftmaxHead(H, V, "float64")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((T, B, I)), rng.integers(V, size=(T, B))
    result = mb.full_bptt(stack, x, head.with_targets(y))
    layer = getattr(torch.nn, kind.__name__)(I, H, len(sizes), dtype=torch.float64)
    with torch.no_grad():
        for k, own in enumerate(stack.layers):
            getattr(layer, f"weight_ih_l{k}").copy_(torch.from_numpy(own.params["W_x"].T))
            getattr(layer, f"weight_hh_l{k}").copy_(torch.from_numpy(own.params["W_h"].T))
            getattr(layer, f"bias_ih_l{k}").copy_(torch.from_numpy(own.params["b"]))
            getattr(layer, f"bias_hh_l{k}").zero_()
            if kind is GRU:
                b_h = torch.from_numpy(own.params["b_h"])
                getattr(layer, f"bias_hh_l{k}")[2 * H :].copy_(b_h)
    h, _ = layer(torch.from_numpy(x))
    W_y, b_y = (torch.from_numpy(head.params[name]) for name in ("W_y", "b_y"))
    logits = (h @ W_y + b_y).reshape(T * B, V)
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y.reshape(-1)))
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-12)
    for k in range(len(sizes)):
        theirs = getattr(layer, f"weight_ih_l{k}").grad.numpy().T
        np.testing.assert_allclose(result.grads[f"{k}.W_x"], theirs, rtol=1e-9, atol=1e-14)
        theirs = getattr(layer, f"bias_ih_l{k}").grad.numpy()
        np.testing.assert_allclose(result.grads[f"{k}.b"], theirs, rtol=1e-9, atol=1e-14)


class Residual(mb.Stack):
    """A layer's output is added to what it reads."""

    def forward_step(self, x, state):
        (h1, h0), internal = super().forward_step(x, state)
        return (h1 + h0, h0), internal


def test_a_subclass_with_a_forward_step_of_its_own_advances_by_it():
    stack = Residual([mb.RNN(4, 4, backend="numpy"), mb.RNN(4, 4, seed=1, backend="numpy")])
    x, state = np.ones((2, 4), np.float32), stack.zero_state(2)
    after = stack.advance(x, state)
    assert [a.tobytes() for a in after] == [a.tobytes() for a in stack.forward_step(x, state)[0]]
    other = mb.Stack(stack.layers).advance(x, state)
    assert after[0].tobytes() != other[0].tobytes()


def test_a_subclass_without_one_advances_as_before():
    class Same(mb.Stack):
        pass

    assert Same.advance is mb.Stack.advance is not mb.Cell.advance


def test_a_layer_shows_its_part_of_the_parameters():
    stack = mb.Stack([mb.RNN(3, 4), mb.RNN(4, 4, seed=1)])
    layer = stack.layers[1].params
    assert len(layer) == 3 and sorted(layer) == ["W_h", "W_x", "b"]
    layer["b"] = np.ones(4, np.float32)
    assert stack.params["1.b"] is layer["b"] and stack.params["0.b"] is not layer["b"]
    del layer["b"]
    assert "1.b" not in stack.params and "0.b" in stack.params and len(layer) == 2
