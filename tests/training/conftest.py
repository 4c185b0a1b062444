"""A small training run."""

import numpy as np
import pytest

from membptt.training.corpus import Corpus
from membptt.training.settings import Settings, make_trainer


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
