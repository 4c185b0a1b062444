"""Heads: losses against their definitions, gradients against differences, refusals in one line."""

import numpy as np
import pytest

from membptt.heads import LinearHead, SoftmaxHead

T, B, H, V = 4, 3, 5, 6


@pytest.fixture
def numbers():
    return np.random.default_rng(0)


def bind(kind, numbers, dtype="float64"):
    head = kind(H, V, dtype)
    for value in head.params.values():
        value[...] = numbers.standard_normal(value.shape)
    if kind is SoftmaxHead:
        return head.with_targets(numbers.integers(0, V, (T, B)))
    return head.with_targets(numbers.standard_normal((T, B, V)).astype(dtype))


def zeros(bound):
    return {name: np.zeros_like(value) for name, value in bound.params.items()}


def test_softmax_is_the_mean_of_negative_log_probabilities(numbers):
    bound = bind(SoftmaxHead, numbers)
    h = numbers.standard_normal((T, B, H))
    y = h @ bound.params["W_y"] + bound.params["b_y"]
    probabilities = np.exp(y) / np.exp(y).sum(axis=2, keepdims=True)
    of_targets = np.take_along_axis(probabilities, bound.targets[:, :, None], axis=2)
    grads = zeros(bound)
    total = sum(bound.forward_backward(t, h[t - 1], grads)[0] for t in range(1, T + 1))
    assert total == pytest.approx(-np.log(of_targets).mean(), rel=1e-12)


def test_squared_error_is_half_the_mean_square(numbers):
    bound = bind(LinearHead, numbers)
    h = numbers.standard_normal((T, B, H))
    y = h @ bound.params["W_y"] + bound.params["b_y"]
    grads = zeros(bound)
    total = sum(bound.forward_backward(t, h[t - 1], grads)[0] for t in range(1, T + 1))
    assert total == pytest.approx(0.5 * ((y - bound.targets) ** 2).mean(), rel=1e-12)


@pytest.mark.parametrize("kind", [SoftmaxHead, LinearHead])
def test_gradients_are_those_of_differences(kind, numbers):
    bound = bind(kind, numbers)
    h = numbers.standard_normal((B, H))
    grads = zeros(bound)
    _, dh = bound.forward_backward(2, h, grads)
    for value, gradient in [(h, dh), *((bound.params[name], grads[name]) for name in grads)]:
        for index in np.ndindex(value.shape):
            kept = value[index]
            value[index] = kept + 1e-5
            above = bound.forward_backward(2, h, zeros(bound))[0]
            value[index] = kept - 1e-5
            below = bound.forward_backward(2, h, zeros(bound))[0]
            value[index] = kept
            assert gradient[index] == pytest.approx((above - below) / 2e-5, abs=1e-9)


def test_large_outputs_do_not_overflow(numbers):
    bound = bind(SoftmaxHead, numbers)
    bound.params["b_y"][0] = 1e4
    loss, dh = bound.forward_backward(1, numbers.standard_normal((B, H)), zeros(bound))
    assert np.isfinite(loss)
    assert np.isfinite(dh).all()


def test_gradients_are_added_to_those_of_other_steps(numbers):
    bound = bind(LinearHead, numbers)
    h = numbers.standard_normal((B, H))
    once, twice = zeros(bound), zeros(bound)
    bound.forward_backward(1, h, once)
    for _ in range(2):
        bound.forward_backward(1, h, twice)
    np.testing.assert_allclose(twice["W_y"], 2 * once["W_y"])


@pytest.mark.parametrize(
    ("kind", "targets", "error", "message"),
    [
        (SoftmaxHead, np.full((T, B), V), ValueError, r"targets hold 6 at step 1, row 0; give"),
        (SoftmaxHead, np.full((T, B), -1), ValueError, r"targets hold -1 .* from 0 to 5"),
        (SoftmaxHead, np.zeros((T, B)), TypeError, "targets are float64; give whole numbers"),
        (SoftmaxHead, np.zeros(T, int), ValueError, r"targets have shape \(4,\)"),
        (SoftmaxHead, np.zeros((0, B), int), ValueError, "neither empty"),
        (LinearHead, np.zeros((T, B)), ValueError, r"give \[steps, batch, 6\]"),
        (LinearHead, np.zeros((T, B, V + 1)), ValueError, r"give \[steps, batch, 6\]"),
        (LinearHead, np.zeros((T, B, V)), TypeError, "targets are float64; give float32"),
    ],
)
def test_targets_that_do_not_fit(kind, targets, error, message):
    with pytest.raises(error, match=message):
        kind(H, V).with_targets(targets)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, V), "hidden_size is 0"),
        ((H, 0), "outputs is 0"),
        ((H, V, "float16"), "dtype is 'float16'"),
        ((H, V, "float32", -1), "seed is -1"),
    ],
)
def test_sizes_that_make_no_head(arguments, message):
    with pytest.raises(ValueError, match=message):
        SoftmaxHead(*arguments)
