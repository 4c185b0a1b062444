"""Text from a model: what it is drawn from, and that a seed says all."""

from dataclasses import asdict

import numpy as np
import pytest

import membptt as mb
from membptt.training.checkpoint import load_checkpoint, save_checkpoint
from membptt.training.sampling import draw, load_model, sample
from membptt.training.settings import Settings


@pytest.fixture
def model():
    return mb.LSTM(5, 7, "float64", 3, "numpy"), mb.SoftmaxHead(7, 5, "float64", 3)


def test_the_coldest_text_has_the_least_loss_at_every_character(model):
    cell, head = model
    for name in ("W_x", "W_h"):
        cell.params[name] *= 4  # so that what was read matters
    prime = [4, 0, 2]
    text = prime + list(sample(cell, head, 12, temperature=0, prime=prime))
    assert len(set(text[3:])) > 1
    for length in range(3, 15):
        window = np.array(text[:length])[:, None]
        losses = [
            mb.evaluate(cell, window, head.at_last(np.array([token]), length))[0]
            for token in range(5)
        ]
        assert np.argmin(losses) == text[length]


def test_the_first_character_without_a_prime_is_drawn_from_a_state_of_zeros(model):
    cell, head = model
    head.params["b_y"][:] = [0, 0, 9, 0, 0]
    assert next(sample(cell, head, 1, temperature=0)) == 2


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_characters_come_as_often_as_their_probability(temperature):
    y, generator = np.array([0.3, -1.0, 2.0, 0.0]), np.random.default_rng(0)
    expected = np.exp(y / temperature) / np.exp(y / temperature).sum()
    drawn = [draw(y, temperature, generator) for _ in range(20_000)]
    found = np.bincount(drawn, minlength=4) / len(drawn)
    assert np.abs(found - expected).max() < 4 * 0.5 / np.sqrt(len(drawn))


def test_extreme_scores_and_temperatures():
    generator = np.random.default_rng(0)
    assert {draw(np.array([0.0, 5.0, 4.9]), 1e-310, generator) for _ in range(50)} == {1}
    assert draw(np.array([-1e4, 1e4, 0.0]), 1.0, generator) == 1
    assert {draw(np.array([0.0, 9e4]), 1e300, generator) for _ in range(50)} == {0, 1}


class Chance:
    """Draws the numbers given."""

    def __init__(self, number):
        self.random = lambda: number


def test_the_ends_of_chance():
    y = np.array([-1e4, 0.0, 0.0, -1e4])
    assert draw(y, 1.0, Chance(0.0)) == 1  # the first has no probability
    assert draw(y, 1.0, Chance(np.nextafter(1.0, 0))) == 2  # nor has the last


def test_a_seed_says_all(model):
    found = [list(sample(*model, 40, seed=seed)) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert list(sample(*model, 20)) == found[0][:20]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length is 0; give at least 1"),
        ({"temperature": -0.1}, "temperature is -0.1; give a finite number from 0 on"),
        ({"temperature": np.inf}, "temperature is inf"),
        ({"temperature": np.nan}, "temperature is nan"),
        ({"seed": -1}, "seed is -1; give at least 0"),
    ],
)
def test_what_makes_no_sense(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        next(sample(*model, **({"length": 5} | arguments)))


@pytest.mark.parametrize("given", [{"cell": "gru", "layers": 2}, {"dtype": "float64"}])
def test_a_model_is_loaded_as_it_was(make, tmp_path, corpus, given):
    trainer = make(**given)
    trainer.update()
    path = tmp_path / "model"
    save_checkpoint(path, asdict(Settings(hidden=8, **given)), trainer.arrays())
    cell, head, alphabet = load_model(path)
    assert alphabet == corpus.alphabet
    loaded, wanted = cell.params | head.params, trainer.cell.params | trainer.head.params
    assert set(loaded) == set(wanted)
    assert all(np.array_equal(loaded[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, a: s.update(hidden=9), "W_x is float32"),
        (lambda s, a: s.update(dtype="float64"), "W_x is float32"),
        (lambda s, a: s.update(dtype="float16"), "dtype is 'float16'"),
        (lambda s, a: a.pop("param/W_h"), "param/W_h"),
        (lambda s, a: a.pop("alphabet"), "alphabet"),
        (lambda s, a: a.update(alphabet=np.array([-1])), "no model that can be read"),
        (lambda s, a: a.update(alphabet=np.array([[97]])), "no model that can be read"),
        (lambda s, a: s.pop("hidden"), "has other settings"),
    ],
)
def test_a_file_that_contradicts_itself(make, tmp_path, change, message):
    path = tmp_path / "model"
    settings, arrays = asdict(Settings(hidden=8)), make().arrays()
    save_checkpoint(path, settings, arrays)
    settings, arrays = load_checkpoint(path)
    change(settings, arrays)
    save_checkpoint(path, settings, arrays)
    with pytest.raises(ValueError, match=message) as caught:
        load_model(path)
    assert f"checkpoint '{path}'" in str(caught.value)
