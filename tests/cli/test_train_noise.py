"""``membptt train`` with dropout and zoneout: other masks every update, the same ones again."""

import json

import numpy as np
import pytest

import membptt as mb
from membptt.cli import main
from membptt.training.corpus import Corpus
from membptt.training.sampling import load_model
from membptt.training.settings import Settings, make_trainer

SIZES = ["--steps", "12", "--batch", "4", "--hidden", "8", "--layers", "2", "--memory", "8kB"]
NOISE = ["--dropout", "0.3", "--recurrent-dropout", "0.2", "--zoneout", "0.1"]


@pytest.fixture
def report(tmp_path, capsys):
    """Return a function that trains and returns the JSON report."""
    text = tmp_path / "text"
    letters = np.random.default_rng(0).choice(list("abcde "), 2000)
    text.write_text("".join(letters))

    def report(*words):
        assert main(["train", "--text", str(text), *SIZES, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return report


def trainer_of(text, **options):
    settings = Settings(steps=12, batch=4, hidden=8, layers=2, updates=3, dropout=0.3, **options)
    return make_trainer(settings, Corpus.from_file(text))


def test_every_update_has_masks_of_its_own_and_between_updates_there_are_none(report, tmp_path):
    trainer = trainer_of(tmp_path / "text", recurrent_dropout=0.2, zoneout=0.1)
    cell = trainer.cell
    for number in (1, 2, 3):
        assert cell.noise.draw is None
        inputs, targets = trainer.windows.at(trainer.position)
        found = []
        for draw in (None, 1, 2, 3):
            cell.set_noise(draw)
            head = trainer.head.with_targets(targets)
            found.append(mb.full_bptt(cell, inputs, head, trainer.state).loss)
        cell.set_noise(None)
        assert len(set(found)) == 4
        assert trainer.update().loss == found[number]


def test_reduced_states_are_measured_with_the_masks_of_the_next_update(
    report, tmp_path, monkeypatch
):
    trainer = trainer_of(tmp_path / "text", internal="int8", parts=2)
    cell, places = trainer.cell, []
    own = mb.training.loop.gradient_error

    def noting(cell, *rest):
        places.append((cell.noise.draw, cell.noise.first_row))
        return own(cell, *rest)

    monkeypatch.setattr(mb.training.loop, "gradient_error", noting)
    trainer.measure_error()
    trainer.update()
    trainer.measure_error()
    assert places == [(1, 0), (2, 0)]
    assert cell.noise.draw is None


def test_resumed_training_has_the_bits_of_one_without_a_stop(report, tmp_path):
    path = str(tmp_path / "model.npz")
    valid = ["--valid", "0.2", "--eval-every", "1"]  # without noise, and without a trace
    whole = report(*NOISE, "--updates", "4")
    report(*NOISE, *valid, "--updates", "2", "--save", path)
    evaluated = report(*valid, "--updates", "4", "--resume", path)
    report(*NOISE, "--updates", "2", "--save", path)
    resumed = report("--updates", "4", "--resume", path)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    assert evaluated["valid_loss_last"] is not None
    assert report("--updates", "4")["parameters_sha256"] != whole["parameters_sha256"]


def test_no_strategy_budget_or_part_changes_the_masks(report):
    found = report(*NOISE, "--updates", "3")
    for words in (["--strategy", "ism"], ["--memory", "1MB"], ["--backend", "numpy"]):
        again = report(*NOISE, "--updates", "3", *words)
        assert again["parameters_sha256"] == found["parameters_sha256"]
    parts = report(*NOISE, "--updates", "3", "--parts", "2")
    assert parts["loss_first"] == pytest.approx(found["loss_first"], rel=1e-6)


def test_a_saved_model_writes_without_noise(report, tmp_path, capsys):
    path = str(tmp_path / "model.npz")
    report(*NOISE, "--updates", "2", "--save", path)
    texts = set()
    for _ in range(2):
        assert main(["sample", "--resume", path, "--length", "50", "--temperature", "0"]) == 0
        texts.add(capsys.readouterr().out)
    assert len(texts) == 1
    cell, _, _ = load_model(path)
    assert all(each.noise.wanted and each.noise.draw is None for each in (cell, *cell.layers))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--zoneout", "1"], "zoneout is 1.0; give a number from 0 up to"),
        (["--dropout", "0.5", "--layers", "1"], "dropout is 0.5 between layers, of which"),
        (["--zoneout", "0.5", "--internal", "int8"], "leave one of them out"),
    ],
)
def test_misuse_is_one_line(report, capsys, words, message):
    with pytest.raises(AssertionError):
        report("--updates", "1", *words)
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
