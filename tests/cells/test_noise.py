"""Dropout, recurrent dropout and zoneout: masks that are run again are the same masks."""

from dataclasses import replace

import numpy as np
import pytest

import membptt as mb
from membptt.cells.noise import Noise
from membptt.solver import STRATEGIES

KINDS = {"rnn": mb.RNN, "lstm": mb.LSTM, "gru": mb.GRU}
BOTH = {"recurrent_dropout": 0.5, "zoneout": 0.3}


def stack(inputs, hidden, dtype="float32", backend="numpy", dropout=0.5, **options):
    layers = [
        mb.LSTM(inputs, 6, dtype, 0, backend, **options),
        mb.LSTM(6, hidden, dtype, 0, backend, **options),
    ]
    return mb.Stack(layers, dropout=dropout)


def noisy(kind, backend="numpy", dtype="float32"):
    if kind == "stack":
        return stack(5, 4, dtype, backend, **BOTH)
    if kind == "dropout":
        return stack(5, 4, dtype, backend)
    return KINDS[kind](5, 4, dtype, 0, backend, **BOTH)


def problem(cell, T=20, B=3, V=6):
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 5, (T, B)).astype(np.uint8)
    head = mb.SoftmaxHead(4, V, cell.dtype.name).with_targets(generator.integers(0, V, (T, B)))
    shapes = cell.hidden_shapes(B)
    return inputs, head, tuple(generator.standard_normal(s).astype(cell.dtype) for s in shapes)


def plans(cell, T, B):
    """Yield a schedule of every strategy at several budgets, from the least on."""
    hidden, internal = cell.hidden_nbytes(B), cell.internal_nbytes(B)
    for strategy in STRATEGIES:
        ran = 0
        for budget in (internal, internal + hidden, 2 * internal, T * internal // 3, T * internal):
            try:
                schedule = mb.schedule(T, budget, strategy, cell, B)
            except ValueError:  # below this strategy's least
                continue
            ran += 1
            yield schedule
        assert ran, strategy


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "stack", "dropout"])
def test_every_strategy_and_budget_has_the_bits_of_full_bptt(bits, kind, backend):
    cell = noisy(kind, backend)
    assert cell.own_code
    inputs, head, state = problem(cell)
    before = np.random.get_state()[1].copy()
    wanted = bits(mb.full_bptt(cell, inputs, head, state))
    for schedule in plans(cell, 20, 3):
        executor = mb.Executor(cell, schedule, 3, verify=True)
        assert bits(executor.run(inputs, head, state)) == wanted
        assert bits(executor.run(inputs, head, state)) == wanted
    assert (np.random.get_state()[1] == before).all()
    cell.set_noise(1)
    assert bits(mb.full_bptt(cell, inputs, head, state)) != wanted
    cell.set_noise(0)
    assert bits(mb.full_bptt(cell, inputs, head, state)) == wanted


def test_masks_differ_wherever_they_should():
    def hits(kind=0, layer=0, step=1, **place):
        return Noise(dropout=0.5, **place).hits(np.zeros((8, 16)), 0.5, kind, layer, step)

    first = hits()
    assert (hits() == first).all()
    for place in ({"kind": 1}, {"layer": 1}, {"step": 2}, {"seed": 1}, {"draw": 1}):
        assert 0.3 < (hits(**place) == first).mean() < 0.7
    assert len({tuple(row) for row in first}) == 8
    assert (hits(first_row=3)[:5] == first[3:]).all()
    # Rows and units are hashed one by one: a smaller array is a corner of a larger one.
    assert (Noise().hits(np.zeros((3, 4)), 0.5, 0, 0, 1) == first[:3, :4]).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_mean_and_variance_of_masks(p):
    """Of 10⁵ elements: within four standard deviations, in all and from one to the next."""
    ones = np.ones((200, 500))
    mask = Noise(dropout=p, seed=3).between(ones, 1)
    assert np.unique(mask).tolist() == [0, 1 / (1 - p)]
    deviation = np.sqrt(p / (1 - p))  # of one element
    assert abs(mask.mean() - 1) < 4 * deviation / np.sqrt(mask.size)
    assert mask.var() == pytest.approx(deviation**2, rel=0.05)
    centred = (mask - 1) / deviation
    along = [centred[1:] * centred[:-1], centred[:, 1:] * centred[:, :-1]]
    steps = [Noise(dropout=p, step=t).between(ones, 1) for t in (1, 2)]
    along.append((steps[0] - 1) * (steps[1] - 1) / deviation**2)
    for products in along:
        assert abs(products.mean()) < 4 / np.sqrt(products.size)


@pytest.mark.parametrize("draw", [0, None])
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "stack"])
def test_gradients_against_differences(kind, draw):
    cell = noisy(kind, dtype="float64")
    cell.set_noise(draw)
    inputs, head, state = problem(cell, T=4)
    schedule = mb.schedule(4, mb.Units(5, alpha=3), "optimal")
    report = mb.check_gradients(cell, inputs, head, schedule, state, samples=6)
    assert report.ok, report
    if kind != "stack":  # larger, and made of these
        report = mb.check_gradients(cell)
        assert report.ok, report
        assert mb.check_step(cell.at(3)).ok


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "stack"])
def test_forward_mode_streams_and_one_window_agree(bits, kind):
    cell = noisy(kind, dtype="float64")
    inputs, head, state = problem(cell, T=6, B=2)
    full = mb.full_bptt(cell, inputs, head, state)
    assert bits(mb.truncated_bptt(cell, inputs, head, 6, state)) == bits(full)
    cut = mb.truncated_bptt(cell, inputs, head, 4, state, stride=2)  # steps 1, 2 are run twice
    assert cut.loss == pytest.approx(full.loss, rel=1e-14)
    items = zip(inputs, head.targets, strict=True)
    streamed = mb.bptt_stream(cell, items, head.head, 3 * cell.internal_nbytes(2), state)
    assert bits(streamed) == bits(full)
    forward = mb.rtrl(cell, inputs, head, state)
    assert forward.loss == pytest.approx(full.loss, rel=1e-14)
    for name, gradient in full.grads.items():
        np.testing.assert_allclose(forward.grads[name], gradient, rtol=0, atol=1e-14)


def test_recurrent_dropout_is_one_mask_on_the_product_with_w_h():
    """By hand: three steps of a vanilla RNN."""
    cell = mb.RNN(3, 50, "float64", backend="numpy", recurrent_dropout=0.25)
    x = np.random.default_rng(0).standard_normal((3, 2, 3))
    mask = cell.noise.recurrent(np.ones((2, 50)))
    assert set(np.unique(mask)) == {0, 1 / 0.75}
    W_x, W_h, b = cell.params.values()
    h = np.ones((2, 50))
    state = (h,)
    for step in (1, 2, 3):
        h = np.tanh(x[step - 1] @ W_x + (h * mask) @ W_h + b)
        state, _ = cell.at(step).forward_step(x[step - 1], state)
        np.testing.assert_allclose(state[0], h, rtol=1e-13)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_zoneout_keeps_units_or_takes_the_expectation(kind):
    cell, plain = KINDS[kind](5, 400, zoneout=0.3), KINDS[kind](5, 400)
    x = np.array([1, 4])
    state = tuple(np.full(shape, 0.5, np.float32) for shape in cell.hidden_shapes(2))
    wanted, _ = plain.forward_step(x, state)
    masks = []
    for step in (1, 2):
        after, _ = cell.at(step).forward_step(x, state)
        for new, old, other in zip(after, state, wanted, strict=True):
            kept = new == old
            assert (new[~kept] == other[~kept]).all()
            assert 0.2 < kept.mean() < 0.4
            masks.append(kept)
    for k, mask in enumerate(masks):  # other units at every step, and for c others than for h
        assert all((mask != another).any() for another in masks[:k])
    cell.set_noise(None)
    after, _ = cell.forward_step(x, state)
    for new, old, other in zip(after, state, wanted, strict=True):
        np.testing.assert_allclose(new, 0.3 * old + 0.7 * other, rtol=1e-6)


def test_dropout_hides_units_from_the_layer_above_alone():
    cell = stack(5, 4, dropout=0.5)
    state = cell.zero_state(3)
    x = np.array([0, 1, 2])
    (h1, c1, h0, c0), _ = cell.at(7).forward_step(x, state)
    lower, upper = cell.layers
    (h, c), _ = lower.forward_step(x, (state[2], state[3]))
    assert (h0 == h).all() and (c0 == c).all()
    seen = Noise(dropout=0.5, step=7).between(h, 1)
    assert 0 < np.count_nonzero(seen) < h.size
    (h, c), _ = upper.forward_step(seen, (state[0], state[1]))
    assert (h1 == h).all() and (c1 == c).all()


def test_steps_are_counted_on_in_a_window():
    """What a window begins at is added to the step within it."""
    cell = mb.LSTM(3, 8, seed=2, zoneout=0.5)
    x, state = np.ones((2, 3), np.float32), cell.zero_state(2)
    state = tuple(array + 1 for array in state)
    one, two, other = (
        each.advance(x, state)[0] for each in (cell.at(3).at(4), cell.at(7), cell.at(4))
    )
    assert (one == two).all() and (one != other).any()


def test_layers_with_one_seed_have_masks_of_their_own():
    lower, upper = stack(5, 6, **BOTH).layers
    ones = np.ones((3, 6))
    assert (lower.noise.recurrent(ones) != upper.noise.recurrent(ones)).any()


@pytest.mark.parametrize("kind", ["lstm", "stack"])
def test_no_noise_has_the_bits_of_a_cell_without_options(bits, kind):
    """Zoneout aside, whose expectation is another network."""
    if kind == "stack":
        cells = stack(5, 4, recurrent_dropout=0.5), stack(5, 4, dropout=0)
    else:
        cells = mb.LSTM(5, 4, recurrent_dropout=0.5), mb.LSTM(5, 4, backend="numpy")
    cells[0].set_noise(None)
    found = [bits(mb.full_bptt(cell, *problem(cell))) for cell in cells]
    assert found[0] == found[1]
    assert not cells[1].own_code
    assert cells[1].at(3) is cells[1]


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("kind", ["lstm", "stack"])
def test_an_evaluation_is_without_noise_and_leaves_it_as_it_was(bits, kind, backend):
    cell = noisy(kind, backend)
    inputs, head, state = problem(cell)
    cell.set_noise(3)
    noisy_result = mb.full_bptt(cell, inputs, head, state)
    loss, after = mb.evaluate(cell, inputs, head, state)
    assert bits(mb.full_bptt(cell, inputs, head, state)) == bits(noisy_result)
    cell.set_noise(None)
    wanted = mb.full_bptt(cell, inputs, head, state)
    assert loss == pytest.approx(wanted.loss, rel=1e-6)
    assert loss != pytest.approx(noisy_result.loss, rel=1e-4)
    for array, other in zip(after, wanted.state, strict=True):
        assert array.tobytes() == other.tobytes()


def test_a_cell_without_noise_is_itself_whatever_is_asked_of_its_noise():
    """So that a class of the user's is not copied behind his back."""
    for cell in (mb.LSTM(5, 4), stack(5, 4, dropout=0), mb.Reduced(mb.RNN(5, 4), "int8")):
        assert cell.at(3) is cell.without_noise() is cell.reseeded() is cell
    noisy_layer = mb.Stack([mb.GRU(5, 4), mb.RNN(4, 4, zoneout=0.5)])
    quiet = noisy_layer.without_noise()
    assert noisy_layer.layers[1].noise.draw == 0 and quiet.layers[1].noise.draw is None
    assert noisy_layer.params is quiet.params
    seeds = [each.layers[1].noise.seed for each in (noisy_layer, noisy_layer.reseeded())]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("name", ["recurrent_dropout", "zoneout"])
@pytest.mark.parametrize("p", [-0.1, 1, 2.0, float("nan")])
def test_probabilities_outside_are_refused(name, p):
    for kind in KINDS.values():
        with pytest.raises(ValueError, match=f"{name} is .*; give a number from 0 up to"):
            kind(3, 4, **{name: p})
    with pytest.raises(ValueError, match=r"dropout is .*; give a number from 0 up to"):
        stack(3, 4, dropout=p)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"dropout is 0\.5 between the layers of a stack of one"):
        mb.Stack([mb.RNN(3, 4)], dropout=0.5)
    cell = mb.RNN(3, 4, zoneout=0.5)
    with pytest.raises(ValueError, match="draw is -1; give at least 0"):
        cell.set_noise(-1)
    with pytest.raises(ValueError, match=r"first_row is 0\.5; give a whole number"):
        cell.set_noise(0, 0.5)
    assert "zoneout=0.5" in repr(cell) and "dropout" not in repr(cell)
    assert repr(stack(3, 4)).endswith("], dropout=0.5)")


def test_numbered_rows_have_the_masks_of_their_places_in_the_whole_batch():
    noise = Noise(zoneout=0.5, seed=3, draw=2, step=4)
    whole = noise.hits(np.zeros((9, 6)), 0.5, 2, 0, 4)
    rows = np.array([3, 0, 2])
    part = replace(noise, first_row=5, rows=rows).hits(np.zeros((3, 6)), 0.5, 2, 0, 4)
    assert (part == whole[5 + rows]).all()


def test_masks_are_those_of_splitmix64():
    """Written out with numbers of Python, that a mask stays what it was when training began."""
    word, golden = 2**64, 0x9E3779B97F4A7C15

    def scrambled(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % word
        z = (z ^ z >> 27) * 0x94D049BB133111EB % word
        return z ^ z >> 31

    seed, layer, draw, kind, step, first_row, p = 7, 1, 5, 2, 3, 4, 0.4
    key = 0
    for number in (seed, layer, draw, kind, step):
        key = scrambled((key + (number + 1) * golden) % word)
    wanted = [
        [
            scrambled(
                (scrambled(((first_row + 1 + row) * golden + key) % word) + unit * golden) % word
            )
            < int(p * word)
            for unit in range(1, 8)
        ]
        for row in range(5)
    ]
    noise = Noise(zoneout=p, seed=seed, layer=layer, draw=draw, first_row=first_row, step=step)
    assert noise.hits(np.zeros((5, 7)), p, kind, layer, step).tolist() == wanted


@pytest.mark.parametrize("draw, first_row", [(-1, 0), (0, -1), (None, -1)])
def test_a_place_before_the_first_is_refused(draw, first_row):
    with pytest.raises(ValueError, match=r"is -1; give"):
        mb.LSTM(2, 3, zoneout=0.5).set_noise(draw, first_row)
