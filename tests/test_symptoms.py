"""What goes wrong for people who train on long sequences with checkpoints, one kind a test.

Each docstring names public reports, of several projects, of the kind that must not occur here.
Kinds that belong to one part of the package are tested beside it: states on disk in
executor/test_disk.py, steps that do not repeat themselves in executor/test_verify.py, masks of
dropout in cells/test_noise.py, a device's memory in gpu.
"""

import random
import tracemalloc

import numpy as np
import pytest

import membptt as mb
from membptt.chains.plain import PlainChain

T, B, D, H, V = 12, 3, 5, 4, 6
BACKENDS = ["numpy", "cython"]
STRATEGIES = ["full", "hsm", "ism", "msm", "optimal", "expand", "disk"]


def network(backend="cython", dtype="float32", seed=0):
    """Return a cell and a head with parameters of this seed."""
    return (
        mb.LSTM(D, H, dtype, seed, backend),
        mb.SoftmaxHead(H, V, dtype, seed, backend),
    )


def problem(steps=T, batch=B, seed=0):
    """Return tokens, dense inputs, classes, a mask and an initial state, from this seed."""
    generator = np.random.default_rng(seed)
    return {
        "tokens": generator.integers(D, size=(steps, batch)),
        "dense": generator.standard_normal((steps, batch, D)).astype(np.float32),
        "classes": generator.integers(V, size=(steps, batch)),
        "mask": generator.random((steps, batch)) < 0.7,
        "h": generator.standard_normal((batch, H)).astype(np.float32),
        "c": generator.standard_normal((batch, H)).astype(np.float32),
    }


def plan(cell, strategy="optimal", steps=T, batch=B):
    budget = 3 * cell.internal_nbytes(batch) + 2 * cell.hidden_nbytes(batch)
    if strategy == "full":
        budget = steps * cell.internal_nbytes(batch)
    return mb.schedule(steps, budget, strategy, cell, batch)


# -- Nothing that the user passed is changed, and arrays are taken as they come -------------------


def run_bptt(cell, inputs, head, p):
    bound = head.with_targets(p["classes"], p["mask"])
    return mb.bptt(cell, inputs, bound, plan(cell), (p["h"], p["c"]), verify=True)


def run_full(cell, inputs, head, p):
    bound = head.with_targets(p["classes"], p["mask"])
    return mb.full_bptt(cell, inputs, bound, (p["h"], p["c"]))


def run_stream(cell, inputs, head, p):
    items = zip(inputs, p["classes"], strict=True)
    return mb.bptt_stream(cell, items, head, 4 * cell.internal_nbytes(B), (p["h"], p["c"]))


def run_truncated(cell, inputs, head, p):
    bound = head.with_targets(p["classes"], p["mask"])
    return mb.truncated_bptt(cell, inputs, bound, 4, (p["h"], p["c"]), stride=3)


def run_bidirectional(cell, inputs, head, p):
    both = mb.SoftmaxHead(2 * H, V, seed=1, backend=cell.backend)
    cells, state = (cell, mb.LSTM(D, H, seed=1, backend=cell.backend)), (p["h"], p["c"])
    bound = both.with_targets(p["classes"], p["mask"])
    return mb.bptt_bidirectional(cells, inputs, bound, plan(cell), (state, state))


def run_at_last(cell, inputs, head, p):
    bound = head.at_last(p["classes"][-1], np.arange(T - B, T) + 1)
    return mb.bptt(cell, inputs, bound, plan(cell), (p["h"], p["c"]))


def run_evaluate(cell, inputs, head, p):
    bound = head.with_targets(p["classes"], p["mask"])
    return mb.evaluate(cell, inputs, bound, (p["h"], p["c"]))


def run_rtrl(cell, inputs, head, p):
    bound = head.with_targets(p["classes"], p["mask"])
    return mb.rtrl(cell, inputs, bound, (p["h"], p["c"]))


def run_check(cell, inputs, head, p):
    bound = head.with_targets(p["classes"], p["mask"])
    chosen = plan(mb.LSTM(D, H, "float64"))  # differences are taken of a copy in float64
    report = mb.check_gradients(cell, inputs, bound, chosen, (p["h"], p["c"]), samples=2)
    assert report.ok
    return report


ENTRIES = {
    function.__name__.removeprefix("run_"): function
    for function in (
        run_bptt,
        run_full,
        run_stream,
        run_truncated,
        run_bidirectional,
        run_at_last,
        run_evaluate,
        run_rtrl,
        run_check,
    )
}


def told(result):
    """Return what an entry point answers as bytes, but for the seconds that it took."""
    if isinstance(result, mb.Result | mb.BidirectionalResult):
        found = [result.loss, result.state, result.state_grad, sorted(result.grads.items())]
    elif isinstance(result, tuple):
        found = list(result)
    else:
        found = [str(result)]
    return b"".join(flat(found))


def flat(value):
    if isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value.encode() if isinstance(value, str) else np.asarray(value).tobytes()


def strided(array):
    """Return an array of the same numbers whose rows and steps are apart in memory."""
    wide = np.repeat(np.repeat(array, 2, axis=0), 2, axis=1)
    return wide[::2, ::2]


@pytest.mark.parametrize("inputs", ["tokens", "dense"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_arrays_are_taken_as_they_come_and_left_as_they_were(entry, backend, inputs):
    run, answers = ENTRIES[entry], []
    for layout in (np.array, strided, np.asfortranarray):
        cell, head = network(backend)
        given = {name: layout(array) for name, array in problem().items()}
        params = cell.params | head.params
        kept = {name: array.copy() for name, array in (given | params).items()}
        for array in (given | params).values():
            array.flags.writeable = False
        answers.append(told(run(cell, given[inputs], head, given)))
        for name, array in (given | params).items():
            assert (array == kept[name]).all(), name
        assert all(cell.params[name] is params[name] for name in cell.params)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("entry", ENTRIES)
def test_global_random_state_is_neither_read_nor_moved(entry):
    """Recomputation that saves and restores global generators: pytorch/pytorch#14253."""
    p, answers = problem(), []
    for seed in (0, 1):
        random.seed(seed)
        np.random.seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist()
        cell, head = network()
        answers.append(told(ENTRIES[entry](cell, p["tokens"], head, p)))
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert answers[0] == answers[1]


@pytest.mark.parametrize("make", [mb.Adam, mb.AdamW, mb.SGD])
def test_an_optimizer_changes_parameters_alone(make):
    cell, head = network()
    result = run_full(cell, problem()["tokens"], head, problem())
    params = cell.params | head.params
    before = {name: array.copy() for name, array in params.items()}
    grads = {name: array.copy() for name, array in result.grads.items()}
    make(params, 0.1).step(result.grads)
    for name, array in params.items():
        assert (array != before[name]).any()
        assert (result.grads[name] == grads[name]).all()
        assert cell.params.get(name, array) is array


# -- The same objects, used again -----------------------------------------------------------------


def windows():
    """Yield inputs and a function that binds a head, of kinds that follow badly on one another."""
    for seed in range(2):
        p = problem(seed=seed)
        last = np.array([T, 1, 5])
        for inputs in (
            p["tokens"].astype(np.uint8),
            p["dense"],
            p["tokens"],
            strided(p["dense"]),
            strided(p["tokens"].astype(np.int16)),
        ):
            yield inputs, lambda head, p=p: head.with_targets(p["classes"])
            yield inputs, lambda head, p=p: head.with_targets(strided(p["classes"]), p["mask"])
            yield inputs, lambda head, p=p, last=last: head.at_last(p["classes"][-1], last)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_executor_runs_windows_of_every_kind_in_turn(bits, backend, strategy):
    """Buffers left over from the run before: each run has the bits of a fresh full BPTT.

    The parameters are changed in between, in place and by replacing the arrays.
    """
    cell, head = network(backend)
    executor = mb.Executor(cell, plan(cell, strategy), B)
    for number, (inputs, bind) in enumerate(windows()):
        if number % 3 == 1:
            cell.params["W_h"] *= 0.9
            head.params["b_y"] += 0.1
        if number % 3 == 2:
            other = network(backend, seed=number)
            cell.params = other[0].params
            head.params |= other[1].params
        fresh_cell, fresh_head = network(backend)
        fresh_cell.params = {name: value.copy() for name, value in cell.params.items()}
        fresh_head.params = {name: value.copy() for name, value in head.params.items()}
        wanted = mb.full_bptt(fresh_cell, inputs, bind(fresh_head))
        assert bits(executor.run(inputs, bind(head))) == bits(wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_cell_and_head_run_lengths_and_batches_in_turn(bits, backend):
    cell, head = network(backend)
    for steps, batch in [(9, 2), (1, 1), (40, 5), (2, 7), (9, 2)]:
        p = problem(steps, batch)
        bound = head.with_targets(p["classes"], p["mask"] | True)
        chosen = mb.schedule(steps, 3 * cell.internal_nbytes(batch), "optimal", cell, batch)
        found = mb.bptt(cell, p["tokens"], bound, chosen)
        other_cell, other_head = network(backend)
        wanted = mb.full_bptt(other_cell, p["tokens"], other_head.with_targets(p["classes"]))
        assert bits(found) == bits(wanted)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_result_is_not_written_over_by_the_next_run(bits, backend, strategy):
    cell, head = network(backend)
    executor = mb.Executor(cell, plan(cell, strategy), B, input_grads=True)
    first, second = problem(seed=0), problem(seed=1)
    state = first["h"], first["c"]
    result = executor.run(first["dense"], head.with_targets(first["classes"]), state)
    kept, derivative = bits(result), result.input_grads.copy()
    executor.run(second["dense"], head.with_targets(second["classes"]))
    assert bits(result) == kept
    assert (result.input_grads == derivative).all()
    for array in (*result.state, *result.state_grad, *result.grads.values()):
        assert not any(np.shares_memory(array, given) for given in state)
        assert not np.shares_memory(array, executor.arena.buffer)


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_is_the_same_after_every_run(backend):
    cell, head = network(backend)
    executor = mb.Executor(cell, plan(cell), B)
    p = problem()
    bound = head.with_targets(p["classes"])
    held = []
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    tracemalloc.start()
    for _ in range(10):
        executor.run(p["tokens"], bound)
        held.append(
            sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([arrays]).traces)
        )
    tracemalloc.stop()
    assert len(set(held)) == 1  # Python's own free lists are not in this domain


# -- What is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["every step", "the last step"])
def test_the_peak_is_far_below_full_bptt_wherever_the_loss_is(where):
    """Outputs kept, so that checkpoints save nothing: pytorch/pytorch#6750."""
    steps, batch, hidden = 600, 8, 32
    cell, head = mb.LSTM(D, hidden), mb.SoftmaxHead(hidden, V)
    generator = np.random.default_rng(0)
    tokens = generator.integers(D, size=(steps, batch)).astype(np.uint8)
    classes = generator.integers(V, size=(steps, batch)).astype(np.uint8)
    bound = (
        head.with_targets(classes) if where == "every step" else head.at_last(classes[-1], steps)
    )
    full = steps * cell.internal_nbytes(batch)
    executor = mb.Executor(cell, mb.schedule(steps, full // 20, cell=cell, batch=batch), batch)
    executor.run(tokens, bound)  # the first run makes the workspace, of constant size
    tracemalloc.start()
    executor.run(tokens, bound)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(executor.arena.buffer) <= full // 20
    assert len(executor.arena.buffer) + peak < full // 10


@pytest.mark.parametrize("strategy", ["hsm", "optimal", "disk"])
def test_a_saved_state_without_a_part_is_noticed(bits, monkeypatch, strategy):
    """A checkpoint that left out a dependency: dolfin-adjoint/pyadjoint#200.

    With c left out of every saved state, gradients are others, and `verify` names the step.
    """
    cell, head = network("numpy")
    p = problem()
    bound = head.with_targets(p["classes"])
    executor = mb.Executor(cell, plan(cell, strategy), B)
    wanted = bits(executor.run(p["tokens"], bound))

    def save_h_alone(self, at):
        for name, target, array in zip(
            self.cell.hidden_names, self.hidden(at, self.place), self.working, strict=True
        ):
            target[...] = array if name == "h" else 0

    monkeypatch.setattr(PlainChain, "save_hidden", save_h_alone)
    assert bits(executor.run(p["tokens"], bound)) != wanted
    with pytest.raises(ValueError, match=r"step \d+"):
        mb.Executor(cell, plan(cell, strategy), B, verify=True).run(p["tokens"], bound)


# -- The smallest sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["hsm", "ism", "msm", "optimal"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_smallest_sizes_run_or_state_both_numbers(bits, steps, strategy):
    """IndexErrors and crashes at edge sizes: pytorch/pytorch#152752, pyrevolve with 0 snapshots."""
    cell, head = network()
    p = problem(steps)
    bound = head.with_targets(p["classes"])
    full = mb.full_bptt(cell, p["tokens"], bound)
    size = cell.internal_nbytes(B)
    for units in {1, steps - 1, steps, steps + 1, 10 * steps} - {0}:
        for budget in (units * size, np.int64(units * size), float(units * size)):
            chosen = mb.schedule(steps, budget, strategy, cell, B)
            found = mb.bptt(cell, p["tokens"], bound, chosen)
            assert bits(found) == bits(full)
            if units >= steps:
                assert found.stats.forward_steps == steps
    for budget in (-size, 0):
        with pytest.raises(ValueError, match=rf"memory in bytes is {budget}"):
            mb.schedule(steps, budget, strategy, cell, B)
    for wrong in (0, -steps):
        with pytest.raises(ValueError, match=rf"steps is {wrong}"):
            mb.schedule(wrong, size, strategy, cell, B)
    for wrong in (True, "many", None):
        with pytest.raises((ValueError, TypeError), match=r"memory .*give"):
            mb.schedule(steps, wrong, strategy, cell, B)
