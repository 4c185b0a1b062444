"""Costs against the reference rows, and the edges of their arguments."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from membptt.solver import STRATEGIES, forward_steps
from membptt.solver import strategies as module

ROWS = json.loads(Path(__file__).with_name("costs.json").read_text())


@pytest.mark.parametrize("name", ["hsm", "ism", "msm", "optimal"])
def test_every_reference_row(name):
    rows = [row for row in ROWS if row["strategy"] == name]
    assert len(rows) > 70
    for row in rows:
        arguments = row["steps"], row["units"], name, row["alpha"]
        if row["forward_steps"] is None:
            with pytest.raises(ValueError, match="needs at least"):
                forward_steps(*arguments)
        else:
            assert forward_steps(*arguments) == row["forward_steps"], row


def test_long_sequences_without_tables():
    assert forward_steps(100_000, 1, "hsm") == 5_000_050_000
    assert forward_steps(1_000_000, 50, "hsm") == 5_658_945
    assert forward_steps(1_000_000, 10**9, "ism") == 1_000_000


def test_overflow_is_an_error_not_a_number():
    most = 4_294_967_295  # the largest t with t (t + 1) / 2 < 2**63
    assert forward_steps(most, 1, "hsm") == most * (most + 1) // 2
    for name in ("hsm", "ism"):
        with pytest.raises(OverflowError, match="64-bit"):
            forward_steps(most + 1, 1, name)
    for name in ("msm", "optimal"):
        with pytest.raises(OverflowError, match="64 bits"):
            forward_steps(most + 1, 3, name, alpha=2)


def test_costs_between_32_and_64_bits():
    # 70,000 steps with one unit: above 2**31, where 32-bit tables would wrap.
    assert forward_steps(70_000, 0, "msm", alpha=2) == 70_000 * 70_001 // 2


def test_a_table_too_large_is_refused_before_it_is_allocated():
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"tables of .* above the limit of 1\.00 GiB.*hsm"):
            forward_steps(1_000_000, 1000, "optimal", alpha=3)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("strategy", ["msm", "optimal"])
def test_a_table_that_takes_too_long_is_refused_before_it_is_begun(strategy):
    with pytest.raises(ValueError, match=r"makes 6e\+13 comparisons, above the limit of 1e\+12"):
        forward_steps(1_000_000, 60, strategy, alpha=3)


@pytest.mark.parametrize(
    ("name", "allocated"),
    [
        ("msm", 101 * 21 * 4),
        ("optimal", 2 * 101 * 21 * 4),
        ("near-optimal", 2 * 101 * 21 * 4),
        ("expand", 2 * 101 * 21 * 8),
    ],
)
def test_the_limit_is_on_what_the_tables_take(name, allocated, monkeypatch):
    sizes = module.Sizes(1, 3)
    rule = module.plan(100, 20, STRATEGIES[name], sizes).rule
    tables = rule.table if name == "msm" else rule.tables
    assert sum(np.atleast_3d(table).nbytes for table in tables) == allocated
    monkeypatch.setattr(module, "TABLE_LIMIT", allocated)
    found = module.plan(100, 20, STRATEGIES[name], sizes).forward_steps
    monkeypatch.setattr(module, "TABLE_LIMIT", allocated - 1)
    with pytest.raises(ValueError, match=f"strategy {name} for 100 steps and 20 units needs"):
        module.plan(100, 20, STRATEGIES[name], sizes)
    with pytest.raises(ValueError, match="above the limit"):
        STRATEGIES[name].costs(100, [3, 20], sizes)
    monkeypatch.setattr(module, "TABLE_LIMIT", allocated)
    assert STRATEGIES[name].costs(100, [3, 20], sizes)[1] == found


@pytest.mark.parametrize("name", ["hsm", "ism", "msm", "optimal"])
@pytest.mark.parametrize("t", [1, 2, 3])
def test_units_beyond_need(name, t):
    for m in (t - 1, t, t + 1, 10 * t):
        if m < 1:
            continue
        exact = forward_steps(t, m, name)
        assert t <= exact <= t * (t + 1) // 2
        for same in (float(m), np.int64(m), np.int8(m)):
            assert forward_steps(t, same, name) == exact
    beyond = 2 * t - 1 if name == "hsm" else t
    assert forward_steps(t, 10 * t, name) == beyond


@pytest.mark.parametrize("name", ["hsm", "ism", "optimal", "full"])
@pytest.mark.parametrize(("t", "m"), [(3, 0), (3, -1), (0, 3), (-2, 3)])
def test_nonsense_states_both_numbers(name, t, m):
    with pytest.raises(ValueError, match=rf"(?s)(?=.*\b{abs(t)}\b)(?=.*\b{abs(m)}\b)"):
        forward_steps(t, m, name)


def test_msm_works_without_units_but_not_below():
    assert forward_steps(3, 0, "msm") == 6
    with pytest.raises(ValueError, match=r"units is -1 for 3 steps; .* at least 0"):
        forward_steps(3, -1, "msm")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((True, 3, "hsm"), TypeError, "steps is True"),
        ((3, True, "hsm"), TypeError, "units is True"),
        ((3, 2.5, "hsm"), ValueError, "units is 2.5"),
        ((3, float("nan"), "hsm"), ValueError, "units is nan"),
        ((3, "2", "hsm"), TypeError, "units is '2'"),
        ((3, 2, "hsn"), ValueError, "strategy is 'hsn'; give one of full, uniform"),
        ((3, 2, None), ValueError, "strategy is None"),
        ((3, 2, "msm", 0), ValueError, "alpha is 0"),
    ],
)
def test_bad_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        forward_steps(*arguments)
