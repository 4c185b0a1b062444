"""Each task asks for what its inputs hold, and only where the mask says so."""

import numpy as np
import pytest

from membptt.training.tasks import adding, copy_memory, digits


@pytest.mark.parametrize(("delay", "length", "symbols"), [(1, 1, 1), (5, 3, 4), (100, 10, 8)])
def test_copy_memory_reads_symbols_and_asks_for_them(delay, length, symbols):
    example = copy_memory(delay, 6, length, symbols, seed=3)
    steps = delay + 2 * length
    assert example.inputs.shape == example.targets.shape == example.mask.shape == (steps, 6)
    said = example.inputs[:length]
    assert said.min() >= 0 and said.max() < symbols
    rest = np.full(steps - length, symbols)
    rest[delay - 1] = symbols + 1
    np.testing.assert_array_equal(example.inputs[length:], np.tile(rest[:, None], 6))
    np.testing.assert_array_equal(example.targets[example.mask].reshape(length, 6), said)
    assert example.mask.sum() == 6 * length and example.mask[-length:].all()
    assert (example.targets[~example.mask] == symbols).all()


def test_adding_wants_the_sum_of_two_marked_numbers():
    example = adding(steps=51, batch=200, seed=1, dtype="float64")
    values, marks = np.moveaxis(example.inputs, 2, 0)
    assert set(np.unique(marks)) == {0, 1}
    assert (marks[:25].sum(axis=0) == 1).all() and (marks[25:].sum(axis=0) == 1).all()
    np.testing.assert_allclose(example.targets[-1, :, 0], (values * marks).sum(axis=0))
    assert example.mask[-1].all() and not example.mask[:-1].any()
    assert abs(((example.targets[-1] - 1) ** 2).mean() - 1 / 6) < 0.05  # of always saying 1


def test_examples_follow_from_the_seed_alone():
    for task in (lambda seed: copy_memory(9, 2, seed=seed), lambda seed: adding(9, 2, seed=seed)):
        one, same, other = task(5), task(5), task(6)
        assert (one.inputs == same.inputs).all() and (one.targets == same.targets).all()
        assert (one.inputs != other.inputs).any()


def test_digits_are_the_images_pixel_by_pixel():
    datasets = pytest.importorskip("sklearn.datasets")
    found = datasets.load_digits()
    train, test = digits(), digits(part="test", dtype="float64")
    assert train.inputs.shape == (64, 1500, 1) and test.inputs.shape == (64, 297, 1)
    np.testing.assert_array_equal(test.inputs[:, 5, 0].reshape(8, 8) * 16, found.images[1505])
    np.testing.assert_array_equal(train.targets[-1], found.target[:1500])
    assert train.mask.sum() == 1500 and train.inputs.max() == 1
    assert digits(batch=7, seed=2).inputs.shape == (64, 7, 1)
    with pytest.raises(ValueError, match='part is \'all\'; give "train" or "test"'):
        digits(part="all")


def test_what_is_wrong_is_said(monkeypatch):
    with pytest.raises(ValueError, match="steps is 1; give at least 2"):
        adding(1, 1)
    with pytest.raises(ValueError, match="delay is 0; give at least 1"):
        copy_memory(0, 1)
