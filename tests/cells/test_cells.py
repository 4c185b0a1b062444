"""Sizes, parameters and refusals of the cells."""

import copy

import numpy as np
import pytest

from membptt.cells import GRU, LSTM, RNN


@pytest.mark.parametrize("kind, alpha", [(RNN, 2), (LSTM, 3), (GRU, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_are_those_of_the_arrays(kind, alpha, dtype):
    cell = kind(7, 5, dtype, backend="numpy")
    x = np.ones((3, 7), dtype)
    state, internal = cell.forward_step(x, cell.zero_state(3))
    assert cell.hidden_nbytes(3) == sum(array.nbytes for array in state)
    assert cell.internal_nbytes(3) == sum(array.nbytes for array in internal)
    assert cell.internal_nbytes(3) == alpha * cell.hidden_nbytes(3)
    assert {array.dtype.name for array in state + internal} == {dtype}


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_the_state_follows_from_the_internal_state_to_the_bit(kind):
    cell = kind(7, 5, backend="numpy")
    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    state = tuple(array + np.float32(0.3) for array in cell.zero_state(3))
    after, internal = cell.forward_step(x, state)
    for again, first in zip(cell.state_from_internal(internal), after, strict=True):
        assert again.tobytes() == first.tobytes()
    for entered, before in zip(internal, state, strict=False):
        assert entered.tobytes() == before.tobytes()


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_one_step_backward_against_complex_steps(kind):
    """The products of all derivatives with random directions, one argument after the other."""
    generator = np.random.default_rng(3)
    cell = kind(3, 4, "float64", backend="numpy")
    x, *state = (generator.standard_normal(shape) for shape in ((2, 3), *cell.hidden_shapes(2)))
    after, internal = cell.forward_step(x, tuple(state))
    dstate = tuple(generator.standard_normal(array.shape) for array in after)
    by = {name: np.zeros_like(value) for name, value in cell.params.items()} | {"x": 0 * x}
    by |= enumerate(cell.backward_step(x, internal, dstate, by, by["x"]))

    shifted = copy.copy(cell)
    shifted.dtype = np.dtype(np.complex128)
    given = cell.params | {"x": x} | dict(enumerate(state))
    for moved, value in given.items():
        direction = generator.standard_normal(value.shape)
        point = {name: array + 0j for name, array in given.items()}
        point[moved] = point[moved] + 1e-30j * direction
        shifted.params = {name: point[name] for name in cell.params}
        ends, _ = shifted.forward_step(point["x"], tuple(point[k] for k in range(len(state))))
        expected = sum((d * end.imag).sum() for d, end in zip(dstate, ends, strict=True)) / 1e-30
        assert (by[moved] * direction).sum() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_a_token_is_a_row_of_the_weights(kind):
    cell = kind(6, 5, "float64", backend="numpy")
    tokens = np.array([4, 0, 4])
    looked_up, _ = cell.forward_step(tokens, cell.zero_state(3))
    multiplied, _ = cell.forward_step(np.eye(6)[tokens], cell.zero_state(3))
    for one, other in zip(looked_up, multiplied, strict=True):
        np.testing.assert_allclose(one, other, 1e-14, 1e-14)


def test_the_seed_gives_the_parameters():
    first, again, other = LSTM(3, 4, seed=5), LSTM(3, 4, seed=5), LSTM(3, 4, seed=6)
    for name in first.params:
        assert (first.params[name] == again.params[name]).all()
        assert (first.params[name] != other.params[name]).any()
    assert (LSTM(3, 4).params["W_x"] == LSTM(3, 4, seed=0).params["W_x"]).all()


def test_parameters_are_uniform_up_to_one_by_the_root_of_the_size():
    drawn = np.concatenate([each.ravel() for each in LSTM(50, 64, "float64").params.values()])
    assert 0.999 / 8 < drawn.max() < 1 / 8 and -1 / 8 < drawn.min() < -0.999 / 8
    assert abs(drawn.mean()) < 0.003


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_a_subclass_advances_as_it_says(kind):
    """By a forward step of its own; without one as the class above, which may be faster."""

    class Silent(kind):
        def forward_step(self, x, state):
            state, internal = super().forward_step(x, state)
            return tuple(0 * array for array in state), internal

    class Same(kind):
        pass

    x, state = np.ones((2, 3), np.float32), kind(3, 4).zero_state(2)
    assert not any(array.any() for array in Silent(3, 4).advance(x, state))
    assert all(array.any() for array in Same(3, 4).advance(x, state))
    assert Same(3, 4).kind == "Same" and kind(3, 4).kind == kind.__name__


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_the_least_sizes(kind):
    cell = kind(1, 1)
    state, _ = cell.forward_step(np.ones((1, 1), np.float32), cell.zero_state(1))
    assert all(array.shape == (1, 1) for array in state)


def test_the_global_random_state_is_untouched():
    before = np.random.get_state()[1].copy()
    LSTM(3, 4, seed=5)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"hidden_size": 0}, ValueError, "hidden_size is 0; give at least 1"),
        ({"hidden_size": -3}, ValueError, "hidden_size is -3"),
        ({"hidden_size": 2.5}, ValueError, "hidden_size is 2.5; give a whole number"),
        ({"hidden_size": True}, TypeError, "hidden_size is True"),
        ({"hidden_size": "4"}, TypeError, "hidden_size is '4'"),
        ({"input_size": 0}, ValueError, "input_size is 0"),
        ({"input_size": 2**31}, ValueError, "input_size is 2147483648; give at most 2147483647"),
        ({"hidden_size": 10**30}, ValueError, "hidden_size is 10*; give at most 2147483647"),
        ({"dtype": "float16"}, ValueError, "dtype is 'float16'; give one of float32, float64"),
        ({"dtype": "nonsense"}, ValueError, "dtype is 'nonsense'"),
        ({"backend": "torch"}, ValueError, "backend is 'torch'; give one of"),
        ({"seed": -1}, ValueError, "seed is -1"),
    ],
)
def test_mistakes_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        LSTM(**({"input_size": 3, "hidden_size": 4} | arguments))
