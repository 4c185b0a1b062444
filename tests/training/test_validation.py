"""Held-out text: its loss, the best of several, and when there have been enough."""

import math

import numpy as np
import pytest

import membptt as mb
from membptt.training import validation as module
from membptt.training.corpus import Corpus
from membptt.training.settings import Settings, load_corpus
from membptt.training.validation import Validation


@pytest.fixture
def model(corpus):
    size = len(corpus.alphabet)
    return mb.GRU(size, 8, "float64"), mb.SoftmaxHead(8, size, "float64")


@pytest.fixture
def scripted(monkeypatch, corpus, model):
    """Return a function that gives a validation after evaluations of these losses."""

    def run(*losses, patience=None):
        coming = iter(losses)
        monkeypatch.setattr(module, "evaluate", lambda *_: (next(coming), ()))
        validation = Validation(corpus, 3, patience)
        for update in range(1, len(losses) + 1):
            validation.evaluate(*model, update)
        return validation

    return run


def test_the_loss_is_that_of_full_bptt_on_the_whole_text(corpus, model):
    cell, head = model
    loss = Validation(corpus, 3).evaluate(cell, head, 1)
    streams = np.array(corpus.tokens[:498]).reshape(3, 166)
    window = np.ascontiguousarray(streams.T)
    full = mb.full_bptt(cell, window[:-1], head.with_targets(window[1:]))
    assert loss == pytest.approx(full.loss, rel=1e-12)


def test_evaluating_changes_nothing_that_is_learnt(make, corpus):
    watched, alone = make(), make()
    validation = Validation(corpus, 3)
    for _ in range(3):
        validation.evaluate(watched.cell, watched.head, watched.updates)
        assert watched.update().loss == alone.update().loss
    assert watched.report()["parameters_sha256"] == alone.report()["parameters_sha256"]


def test_best_and_patience(scripted):
    found = scripted(3.0, 2.0, 2.0, 2.5, patience=2)
    assert (found.loss, found.best, found.best_update, found.stale) == (2.5, 2.0, 2, 2)
    assert found.exhausted and not found.improved
    assert scripted(3.0, 2.0, 2.5, 1.0, patience=2).improved
    assert not scripted(1.0, 2.0, patience=2).exhausted
    assert not scripted(1.0, *[2.0] * 9).exhausted
    assert found.report() == {
        "valid_loss_last": 2.5,
        "valid_bits_per_char_last": 2.5 / np.log(2),
        "valid_loss_best": 2.0,
        "valid_bits_per_char_best": 2.0 / np.log(2),
        "valid_updates_best": 2,
        "stopped_early": True,
    }


def test_restored(scripted, corpus):
    saved = scripted(3.0, 2.0, 2.5)
    again, other, fresh = Validation(corpus, 3), Validation(Corpus("abab" * 9), 3), scripted()
    again.restore(saved.arrays())
    assert again.report() == saved.report() and again.stale == 1
    other.restore(saved.arrays())  # the best on one text says nothing about another
    again_fresh = Validation(corpus, 3)
    again_fresh.restore(fresh.arrays())
    for empty in (other, again_fresh):
        assert empty.best is empty.loss is None and not empty.improved
        empty.restore({})  # saved without held-out text
        assert empty.report()["valid_updates_best"] is None


@pytest.mark.parametrize("name", ["valid/losses", "valid/counts"])
def test_what_does_not_fit_is_not_restored(scripted, corpus, name):
    arrays = scripted(3.0).arrays()
    for wrong in (arrays | {name: arrays[name][:1]}, {k: arrays[k] for k in arrays if k != name}):
        with pytest.raises(ValueError, match=f"{name} is missing or not .* \\[2\\]"):
            Validation(corpus, 3).restore(wrong)


def test_a_text_is_split():
    begin, end = Corpus("abcdefghij").split(0.25)
    assert (begin.decode(begin.tokens), end.decode(end.tokens)) == ("abcdefgh", "ij")
    assert begin.alphabet == end.alphabet == "abcdefghij"
    assert (begin.name, end.name) == ("text without its last 0.25", "the last 0.25 of text")
    for fraction in (0.01, 0.99):
        with pytest.raises(ValueError, match=f"{fraction} of the 10 characters of text leave one"):
            Corpus("abcdefghij").split(fraction)


def test_a_file_is_read_with_the_alphabet_of_the_text(tmp_path):
    text, valid = tmp_path / "text", tmp_path / "valid"
    text.write_text("abcd" * 20)
    valid.write_text("dcb" * 5)
    settings = Settings(text=str(text), valid=str(valid), steps=3, batch=2)
    corpus, held_out = load_corpus(settings)
    assert held_out.alphabet == corpus.alphabet == "abcd"
    assert held_out.tokens[:4].tolist() == [3, 2, 1, 3]
    valid.write_text("abß")
    with pytest.raises(ValueError, match=r"valid '.*' has 'ß', which is not one of the 4 char"):
        load_corpus(settings)


def test_too_little_text():
    with pytest.raises(ValueError, match="text has 5 characters; batch 3 needs 6 to evaluate on"):
        Validation(Corpus("abcab"), 3)


def test_a_loss_that_is_not_finite_says_when(corpus, model):
    cell, head = model
    cell.params["b"][0] = np.nan
    with pytest.raises(ValueError, match=r"evaluation after update 7: .*parameter b holds NaN"):
        Validation(corpus, 3).evaluate(cell, head, 7)


def test_what_overflows_is_no_warning(corpus, model):
    """Warnings are errors in the tests."""
    cell, head = model
    head.params["b_y"][:2] = np.finfo(np.float64).max * np.array([0.9, -0.9])
    with pytest.raises(FloatingPointError, match="evaluation after update 7: the loss"):
        Validation(corpus, 3).evaluate(cell, head, 7)


@pytest.mark.parametrize(
    ("counts", "losses"),
    [
        ([-1, 0], [1.5, 1.5]),
        ([1, -2], [1.5, 1.5]),
        ([1, 0], [1.5, math.nan]),
        ([1, 0], [math.inf, math.inf]),
    ],
)
def test_numbers_that_no_evaluation_comes_to_are_refused(corpus, counts, losses):
    validation = Validation(corpus, 3)
    change = {"valid/counts": np.array(counts), "valid/losses": np.array(losses)}
    with pytest.raises(ValueError, match=r"valid/counts are .* and valid/losses"):
        validation.restore(validation.arrays() | change)
    assert (validation.loss, validation.best_update, validation.stale) == (None, 0, 0)
