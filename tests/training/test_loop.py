"""The loop: what it computes does not depend on the schedule, what it reports was measured."""

import gc
import math
import tracemalloc

import numpy as np
import pytest

import membptt as mb
from membptt.training.corpus import Corpus
from membptt.training.loop import digest
from membptt.training.measure import PeakMeter
from membptt.training.settings import Settings, make_trainer


def train(trainer, updates):
    return [trainer.update() for _ in range(updates)]


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_same_bits_for_every_strategy_and_budget(make, cell, backend):
    found = set()
    for strategy, memory in [
        ("full", None),
        ("hsm", "2 kB"),
        ("ism", "3 kB"),
        ("msm", "3 kB"),
        ("optimal", "1200"),
        ("optimal", "5 kB"),
        ("optimal", "1 MB"),
    ]:
        trainer = make(strategy=strategy, memory=memory, cell=cell, backend=backend)
        train(trainer, 10)  # once over the text, and on
        report = trainer.report()
        found.add((report["parameters_sha256"], report["loss_first"], report["loss_last"]))
        assert report["arena_peak_bytes"] <= report["budget_bytes"]
    assert len(found) == 1


def test_another_seed_gives_other_parameters(make):
    digests = {make(seed=seed).report()["parameters_sha256"] for seed in (0, 1)}
    assert len(digests) == 2


def test_it_learns(make):
    updates = train(make(batch=2, steps=10, learning_rate=0.02), 60)
    assert updates[0].loss == pytest.approx(math.log(6), abs=0.2)
    text = Corpus("abcd" * 100)
    trainer = make_trainer(Settings(steps=10, batch=2, hidden=8, learning_rate=0.02), text)
    assert train(trainer, 60)[-1].bits < 0.2


def test_state_is_carried_and_cleared_with_the_text(make):
    trainer = make()  # 3 streams of 166: 8 windows of 20
    states = []
    for _ in range(9):
        states.append([array.copy() for array in trainer.state])
        trainer.update()
    cleared = [all((array == 0).all() for array in state) for state in states]
    assert cleared == [True] + [False] * 7 + [True]
    assert trainer.position == 20


def test_an_update_is_one_run_of_bptt(make):
    trainer = make(clip=math.inf)
    cell, head = trainer.cell, trainer.head
    inputs, targets = trainer.windows.at(0)
    result = mb.full_bptt(cell, inputs, head.with_targets(targets))
    update = trainer.update()
    assert update.loss == result.loss
    norm = math.sqrt(sum(float((g.astype(float) ** 2).sum()) for g in result.grads.values()))
    assert update.gradient_norm == pytest.approx(norm, rel=1e-9)
    assert update.forward_steps == trainer.schedule.forward_steps


def test_report(make):
    trainer = make(meter=PeakMeter())
    updates = train(trainer, 3)
    report = trainer.report()
    assert list(report) == [
        "updates",
        "loss_first",
        "loss_last",
        "bits_per_char_last",
        "budget_bytes",
        "arena_peak_bytes",
        "measured_peak_bytes",
        "full_bytes",
        "forward_steps_per_update",
        "seconds_per_update",
        "parameters_sha256",
    ]
    assert report["updates"] == 3
    assert (report["loss_first"], report["loss_last"]) == (updates[0].loss, updates[2].loss)
    assert report["bits_per_char_last"] == updates[2].loss / math.log(2) == updates[2].bits
    assert report["budget_bytes"] == 4000
    assert report["full_bytes"] == 20 * 3 * 8 * 6 * 4
    assert report["seconds_per_update"] == updates[2].seconds  # the first two were traced


@pytest.fixture
def without_collections():
    """Keep the collector from giving back Python's free lists now here, now there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_measured_peak_is_the_memory_that_the_budget_bounds(without_collections, backend):
    text = Corpus("the quick brown fox " * 1500)
    outside = {}  # measured, and not in the arena
    budgets = [("full", None), ("hsm", 40_000), ("hsm", 400_000), ("ism", 80_000)]
    for strategy, memory in [budgets[0], *budgets]:  # the first imports what Python has not yet
        settings = Settings(
            steps=300, batch=8, hidden=32, strategy=strategy, memory=memory, backend=backend
        )
        trainer = make_trainer(settings, text, PeakMeter())
        train(trainer, 2)
        report = trainer.report()
        outside[strategy, memory] = report["measured_peak_bytes"] - report["budget_bytes"]
    whole = outside.pop(("full", None))
    assert 0 < whole < 1_500_000 < report["full_bytes"]
    for nbytes in outside.values():  # Python's own objects, and rows of actions on their way
        assert nbytes == pytest.approx(whole, abs=200_000)


def test_later_updates_allocate_nothing_more(make):
    trainer = make(steps=50, batch=2)
    train(trainer, 2)
    peaks = []
    for _ in range(2):
        meter = PeakMeter()
        train(trainer, 4)
        meter.stop()
        peaks.append(meter.peak_bytes)
    assert peaks[1] == pytest.approx(peaks[0], abs=2000)  # Python's own small objects


def test_without_a_meter_nothing_is_traced(make):
    trainer = make()
    train(trainer, 1)
    assert not tracemalloc.is_tracing()
    assert trainer.report()["measured_peak_bytes"] is None


@pytest.mark.parametrize("name", ["W_x", "W_h", "b", "W_y", "b_y"])
@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_parameters_that_are_not_finite_are_named(make, backend, name):
    trainer = make(backend=backend)
    trainer.update()
    trainer.optimizer.params[name][...] = math.nan
    with pytest.raises(ValueError, match=rf"^update 2: .* at step \d+: parameter {name} holds"):
        trainer.update()
    assert (trainer.updates, trainer.position) == (1, 20)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_divergence_is_named_and_changes_nothing(make, backend):
    trainer = make(backend=backend)
    trainer.update()
    trainer.optimizer.params["b"][...] = 30  # every h is near 1
    trainer.optimizer.params["W_y"][...] = 3e38  # and their weighted sum overflows
    before = digest(trainer.optimizer.params)
    with pytest.raises(FloatingPointError, match=r"^update 2: the loss stops being finite at step"):
        trainer.update()
    assert digest(trainer.optimizer.params) == before


def test_gradient_that_is_not_finite_is_named(make, monkeypatch):
    trainer = make()
    trainer.update()
    run = trainer.executor.run

    def explode(*arguments):
        result = run(*arguments)
        result.grads["W_h"][0, 0] = np.inf
        return result

    monkeypatch.setattr(trainer.executor, "run", explode)
    before = digest(trainer.optimizer.params)
    with pytest.raises(FloatingPointError, match="update 2: the gradient of W_h is not finite"):
        trainer.update()
    assert digest(trainer.optimizer.params) == before


def test_alphabet_must_fit(corpus):
    cell = mb.LSTM(5, 8)
    head = mb.SoftmaxHead(8, 6)
    plan = mb.schedule(20, "1 MB", cell=cell, batch=3)
    adam = mb.Adam(cell.params | head.params)
    with pytest.raises(ValueError, match="input_size is 5; give 6, as many as text has distinct"):
        mb.Trainer(cell, head, plan, corpus, adam, batch=3)


def test_digest_sees_names_shapes_and_bytes():
    values = {"a": np.arange(6.0), "b": np.zeros(2)}
    reference = digest(values)
    assert digest(dict(reversed(values.items()))) == reference
    assert digest({"a": values["a"].reshape(2, 3), "b": values["b"]}) != reference
    assert digest({"a": values["a"], "c": values["b"]}) != reference
    assert digest({"a": values["a"], "b": -values["b"]}) != reference  # -0.0: other bytes


def test_a_meter_beside_a_trace_of_ones_own():
    """Only what is added counts, and the trace goes on."""
    tracemalloc.start()
    try:
        kept = np.ones(100_000)
        meter = PeakMeter()
        more = np.ones(10_000)
        meter.stop()
        meter.stop()
        assert tracemalloc.is_tracing()
        assert more.nbytes <= meter.peak_bytes < more.nbytes + 10_000 < kept.nbytes
    finally:
        tracemalloc.stop()


def test_nothing_was_timed_before_an_update(make):
    assert make().seconds_per_update() is None
