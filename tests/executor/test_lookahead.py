"""Look-ahead: two lanes, the same bits, never a byte over the budget, and a legal trace."""

import numpy as np
import pytest

import membptt as mb
from membptt.schedules import actions, replay
from membptt.solver import lookahead as planner


def plan(case, budget):
    steps, batch = case.inputs.shape[:2]
    return mb.schedule(steps, budget, "lookahead", case.cell, batch)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("size", [(2, 1, 3), (7, 2, 5), (53, 3, 8), (200, 1, 33)], ids=str)
def test_bits_budget_and_trace(window, bits, cell, size, backend):
    steps, batch, hidden = size
    case = window(cell, steps, batch, 5, hidden, 6, backend=backend, tokens=steps % 2 == 0)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    sizes = case.cell.hidden_nbytes(batch), case.cell.internal_nbytes(batch)
    least = planner.least_budget(steps, *sizes)
    for budget in sorted(
        {least, least + 1, 2 * least, steps * sizes[1] // 2, steps * sizes[1] - 1}
    ):
        if not least <= budget < steps * sizes[1]:
            continue
        schedule = plan(case, budget)
        assert schedule.lanes == 2
        assert schedule.replay().forward_steps == schedule.forward_steps
        for threads in (1, 2) if backend == "cython" else (1,):
            executor = mb.Executor(case.cell, schedule, batch, record=True, threads=threads)
            result = executor.run(case.inputs, case.head, case.state)
            assert bits(result) == wanted
            assert result.stats.forward_steps == schedule.forward_steps
            assert result.stats.peak_bytes <= schedule.peak_bytes <= budget
            assert result.trace[:, 3].max() <= result.stats.peak_bytes
            ran = [actions.from_row(*row) for row in result.trace[:, :3].tolist()]
            proved = replay(ran, steps, *sizes, budget, lanes=2)
            assert proved.forward_steps == schedule.forward_steps
            assert sorted(map(repr, ran)) == sorted(map(repr, schedule))


def test_the_readable_machine_runs_it_too(window, bits):
    case = window(T=60)
    schedule = plan(case, planner.least_budget(60, 64, 192) + 100)
    runs = [
        mb.Executor(case.cell, schedule, 2, step_through=slow).run(case.inputs, case.head)
        for slow in (False, True)
    ]
    assert bits(runs[0]) == bits(runs[1])
    assert runs[1].stats.peak_bytes == schedule.peak_bytes


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_in_a_head_ends_both_lanes(window, threads):
    class Broken:
        kernel = None
        params = {}  # noqa: RUF012

        def forward_backward(self, step, h, grads):
            if step == 50:
                raise RuntimeError("at step 50")
            return 0.0, np.zeros_like(h)

    case = window(T=60)
    schedule = plan(case, planner.least_budget(60, 64, 192))
    executor = mb.Executor(case.cell, schedule, 2, threads=threads)
    for _ in range(20):
        with pytest.raises(RuntimeError, match="at step 50"):
            executor.run(case.inputs, Broken())


def test_the_minimum_is_stated_and_sharp(window):
    case = window(T=60)
    least = planner.least_budget(60, 64, 192)
    with pytest.raises(ValueError, match=f"needs at least {least} bytes for 60 steps"):
        plan(case, least - 1)
    assert plan(case, least).replay().peak <= least


def test_a_budget_for_full_bptt_needs_no_second_lane(window):
    case = window(T=60)
    schedule = plan(case, 60 * 192)
    assert schedule.lanes == 1 and schedule.forward_steps == 60


@pytest.mark.parametrize("hidden, internal", [(1, 3), (1, 2), (5, 12), (3, 2), (1, 1)])
def test_plans_cover_every_step_within_the_budget(hidden, internal):
    for steps in (1, 2, 3, 10, 47, 200):
        least = planner.least_budget(steps, hidden, internal)
        for budget in range(least, min(least + 40, steps * internal)):
            segments = planner.lookahead(steps, budget, hidden, internal)
            assert sum(segments.lengths) == steps and min(segments.lengths) >= 1
            assert segments.begins[0] == steps and segments.begins[-1] == 0
            sizes = zip(segments.lengths, segments.slots, strict=True)
            for j, (length, slots) in enumerate(sizes):
                assert length <= slots - (j > 0)
                kept = max(0, len(segments.lengths) - 2 - j)
                assert kept * hidden + slots * internal <= budget


def fewest_segments(steps, budget, hidden, internal):
    """Return the most steps that each of the fewest segments may have; None if none do."""
    for k in range(1, steps + 1):
        slots = [(budget - max(0, k - 1 - j) * hidden) // internal for j in range(1, k + 1)]
        most = [slots[0], *(n - 1 for n in slots[1:])]
        if min(most) >= 1 and sum(most) >= steps:
            return most
    return None


@pytest.mark.parametrize("hidden, internal", [(1, 3), (1, 2), (5, 12), (3, 2), (1, 1)])
def test_plans_have_the_fewest_segments_that_there_are(hidden, internal):
    """Only the first segment in time is cut short: a longer last one is recomputed less."""
    for steps in (1, 2, 3, 10, 17, 47):
        for budget in range(steps * internal):
            most = fewest_segments(steps, budget, hidden, internal)
            lengths = planner.cover(steps, budget, hidden, internal)
            if most is None:
                assert lengths == []
                assert budget < planner.least_budget(steps, hidden, internal)
            else:
                assert lengths[:-1] == most[:-1] and 1 <= lengths[-1] <= most[-1]
                assert budget >= planner.least_budget(steps, hidden, internal)


def test_the_time_of_two_lanes():
    """10 steps forward; 5 back beside 4 ahead, 4 beside 1, 1 alone, each step back at a price."""
    segments = planner.Segments(10, 1, 3, 100, (5, 4, 1))
    assert segments.forward_steps == 15
    for ratio, back in [
        (2.0, 10 + 8 + 2),
        (1.0, 5 + 4 + 1),
        (0.5, 4 + 2 + 0.5),
        (0.1, 4 + 1 + 0.1),
    ]:
        assert segments.time_factor(ratio) == pytest.approx((10 + back) / (10 * (1 + ratio)))


def test_a_thousand_lstm_steps_need_a_thirtieth_of_the_memory():
    schedule = mb.schedule(1000, mb.Units(80, alpha=3), "lookahead")
    assert schedule.forward_steps == 1998
    assert schedule.time_factor(2.0) < 1.01
    assert schedule.saved_fraction > 0.973


def test_saved_and_loaded(tmp_path):
    schedule = mb.schedule(100, mb.Units(40, alpha=3), "lookahead")
    schedule.save(tmp_path / "plan.json")
    loaded = mb.Schedule.load(tmp_path / "plan.json")
    assert loaded == schedule and loaded.lanes == 2
    text = (tmp_path / "plan.json").read_text().replace("[4, 100, 0]", "[4, 99, 0]")
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match="not a schedule that membptt saved"):
        mb.Schedule.load(tmp_path / "plan.json")


def test_units_for_another_alpha_are_refused(window):
    case = window(T=100)
    schedule = mb.schedule(100, mb.Units(40, alpha=2), "lookahead")
    with pytest.raises(ValueError, match="schedule is for alpha 2, this cell's is 3"):
        mb.bptt(*case.arguments(), schedule)


def test_the_planner_states_the_least_budget():
    least = planner.least_budget(40, 5, 12)
    with pytest.raises(ValueError, match=f"strategy lookahead needs at least {least} for 40 steps"):
        planner.lookahead(40, least - 1, 5, 12)
    assert sum(planner.lookahead(40, least, 5, 12).lengths) == 40
