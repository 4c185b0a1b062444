"""Backend "cupy" on the stand-in: CuPy's rules are kept, and what runs has NumPy's bits."""

import itertools
import types

import numpy as np
import pytest

import membptt as mb
from membptt import arrays
from membptt.baselines.truncated import truncated_bptt
from membptt.executor.executor import HOST_ONLY
from membptt.sequences import feed
from membptt.solver import STRATEGIES

ONE_LANE = [strategy for strategy in STRATEGIES if strategy not in HOST_ONLY]
CASES = [
    *itertools.product(["rnn", "lstm", "gru"], ["float32", "float64"], [True, False]),
    *itertools.product(["stack"], ["float32"], [True, False]),
]


def plan(cell, steps, batch, strategy="optimal"):
    internal = cell.internal_nbytes(batch)
    for amount in (4 * internal, steps * internal):
        try:
            return mb.schedule(steps, amount, strategy, cell, batch)
        except ValueError:
            continue
    raise AssertionError(strategy)


@pytest.mark.parametrize("cell, dtype, tokens", CASES)
def test_every_strategy_has_the_bits_of_numpy(device, problem, host_bits, cell, dtype, tokens):
    network, inputs, head, state = problem("numpy", cell, dtype=dtype, tokens=tokens)
    wanted = host_bits(mb.full_bptt(network, inputs, head, state))
    network, inputs, head, state = problem("cupy", cell, dtype=dtype, tokens=tokens)
    assert host_bits(mb.full_bptt(network, inputs, head, state)) == wanted
    for strategy in ONE_LANE:
        schedule = plan(network, 29, 3, strategy)
        result = mb.bptt(network, inputs, head, schedule, state)
        assert host_bits(result) == wanted
        assert isinstance(result.loss, float)
        assert {type(value) for value in result.grads.values()} == {device.ndarray}
        assert result.stats.peak_bytes == schedule.peak_bytes
        again = mb.bptt(network, inputs, head, schedule, result.state)  # a state of the device
        assert again.loss != result.loss


def test_a_stream_and_truncated_bptt_run_too(device, problem, host_bits):
    found = []
    for backend in ("numpy", "cupy"):
        network, inputs, head, state = problem(backend)
        items = zip(inputs, head.targets, strict=True)
        budget = 4 * network.internal_nbytes(3)
        found.append(
            (
                host_bits(mb.bptt_stream(network, items, head.head, budget, state)),
                host_bits(truncated_bptt(network, inputs, head, 8, state, 5)),
            )
        )
    assert found[0] == found[1]


def test_nothing_comes_back_before_the_end(device, problem, monkeypatch):
    network, inputs, head, state = problem("cupy", T=40)
    executor = mb.Executor(network, plan(network, 40, 3), 3)
    executor.run(inputs, head, state)
    finish, seen = executor.chain.finish, []

    def counted():
        seen.append(device.counts.fetched)
        found = finish()
        seen.append(device.counts.fetched)
        return found

    monkeypatch.setattr(executor.chain, "finish", counted)
    device.counts.begin()
    executor.run(inputs, head, state)
    assert seen == [0, 2]  # the loss, and the first step where it was not finite
    assert device.counts.fetched == 2 + len(network.params | head.params)  # all gradients finite?


def test_an_iteration_allocates_and_sends_as_much_as_the_one_before(device, problem):
    network, inputs, head, state = problem("cupy")
    executor = mb.Executor(network, plan(network, 29, 3), 3)
    seen = []
    for _ in range(4):
        device.counts.begin()
        executor.run(inputs, head, state)
        taken = executor.ledger.allocations
        seen.append((device.counts.allocations, device.counts.sent, device.counts.peak, taken))
    allocations, sent, peaks, taken = zip(*seen, strict=True)
    assert len(set(allocations[1:])) == len(set(sent[1:])) == len(set(peaks[1:])) == 1
    assert len({b - a for a, b in itertools.pairwise(taken)}) == 1


@pytest.mark.parametrize("cell, dtype, tokens", CASES)
@pytest.mark.parametrize(
    "size",
    [(64, 3, 8, 3), (3, 40, 8, 3), (3, 3, 64, 3), (3, 3, 8, 64), (64, 3, 64, 9), (1, 1, 1, 1)],
    ids=str,
)
def test_the_ledger_holds_all_that_lives(device, problem, cell, dtype, tokens, size):
    B, I, H, V = size  # noqa: E741
    before = device.counts.live
    network, inputs, head, _ = problem("cupy", cell, 20, B, I, H, V, dtype, tokens)
    executor = mb.Executor(network, plan(network, 20, B), B)
    device.counts.begin()
    executor.run(inputs, head)
    lived = device.counts.peak - before
    assert lived <= executor.ledger.peak
    # Not by counting too much: blocks are known exactly, temporaries within a factor.
    held = executor.ledger.held
    assert "temporaries" not in held
    parameters = sum(value.nbytes for value in (network.params | head.params).values())
    assert held["arena"] == executor.schedule.budget == len(executor.arena.buffer)
    assert held["parameters"] == held["gradients"] == parameters
    assert held["inputs and targets"] == executor.chain.feed.nbytes + head.rows.nbytes
    assert executor.ledger.peak - sum(held.values()) <= 5 * max(1024, lived - sum(held.values()))


NORMALISED = [mb.LayerNormRNN, mb.LayerNormLSTM, mb.LayerNormGRU]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("noise", [{}, {"recurrent_dropout": 0.5, "zoneout": 0.3}], ids=bool)
@pytest.mark.parametrize("kind", [mb.RNN, mb.LSTM, mb.GRU, *NORMALISED, mb.Stack])
@pytest.mark.parametrize("size", [(64, 3, 8), (64, 3, 1), (1, 3, 64)], ids=str)
def test_options_have_the_bits_of_numpy_and_are_in_the_ledger(
    device, problem, host_bits, size, kind, noise, dtype
):
    found, (B, I, H) = [], size  # noqa: E741
    for backend in ("numpy", "cupy"):
        before = device.counts.live
        _, inputs, head, _ = problem(backend, "lstm", 20, B, I, H, 3, dtype)
        if kind is mb.Stack:
            lower, upper = mb.LayerNormGRU, mb.LSTM
            layers = [lower(I, 9, dtype, 1, backend, **noise), upper(9, H, dtype, 1, backend)]
            network = mb.Stack(layers, dropout=0.5 if noise else 0.0)
        else:
            network = kind(I, H, dtype, 1, backend, **noise)
        executor = mb.Executor(network, plan(network, 20, B), B)
        device.counts.begin()
        found.append(host_bits(executor.run(inputs, head)))
    lived, held = device.counts.peak - before, sum(executor.ledger.held.values())
    assert lived <= executor.ledger.peak <= held + 5 * max(1024, lived - held)
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [(3, 5, 7, 6), (64, 3, 8, 3), (3, 3, 5, 64)], ids=str)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("tokens", [True, False])
def test_both_directions(device, problem, bits, tokens, cell, size):
    B, I, H, V = size  # noqa: E741
    found = []
    for backend in ("numpy", "cupy"):
        before = device.counts.live
        sizes = 29, B, I, H, V, "float32", tokens
        network, inputs, head, state = problem(backend, cell, *sizes)
        cells = network, mb.GRU(I, 4, seed=2, backend=backend)
        wide = type(head.head)(H + 4, V, "float32", 1, backend).with_targets(head.targets)
        states = state, cells[1].zero_state(B)
        del head
        plans = tuple(plan(each, 29, B) for each in cells)
        device.counts.begin()
        result = mb.bptt_bidirectional(cells, inputs, wide, plans, states)
        arrays_of = [*result.grads.values(), *sum(result.state + result.state_grad, ())]
        found.append([result.loss, *(arrays.to_host(each).tobytes() for each in arrays_of)])
    assert found[0] == found[1]
    assert {type(array) for array in arrays_of} == {device.ndarray}
    assert device.counts.peak - before <= result.stats.device_peak_bytes


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_derivatives_by_inputs(device, problem, cell):
    found = []
    for backend in ("numpy", "cupy"):
        before = device.counts.live
        network, inputs, head, _ = problem(backend, cell, 20, 3, 90, 4, tokens=False)
        executor = mb.Executor(network, plan(network, 20, 3), 3, input_grads=True)
        device.counts.begin()
        found.append(arrays.to_host(executor.run(inputs, head).input_grads))
    assert found[0].tobytes() == found[1].tobytes()
    assert executor.ledger.held["derivatives by inputs"] == inputs.nbytes
    assert device.counts.peak - before <= executor.ledger.peak


def test_the_peak_that_is_reported_holds_training(device, make):
    before = device.counts.live
    device.counts.begin()
    trainer = make(backend="cupy", hidden=40, memory="60 kB")
    for _ in range(3):
        trainer.update()
    report = trainer.report()
    assert device.counts.peak - before <= report["measured_peak_bytes"]
    assert report["measured_peak_bytes"] == trainer.executor.ledger.peak
    assert trainer.ledger.held["moments"] == 2 * trainer.ledger.held["parameters"]


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_training_has_the_bits_of_numpy(device, make, cell):
    trained = []
    for backend in ("numpy", "cupy"):
        trainer = make(backend=backend, cell=cell, clip=0.05)
        updates = [trainer.update() for _ in range(4)]
        assert all(update.gradient_norm > 0.05 for update in updates)  # it was clipped
        trained.append((trainer.report()["parameters_sha256"], [u.loss for u in updates]))
    assert trained[0] == trained[1]


def test_training_goes_on_from_a_checkpoint(device, make):
    whole = make(backend="cupy")
    for _ in range(4):
        whole.update()
    first = make(backend="cupy")
    first.update()
    first.update()
    kept = first.arrays()
    assert all(isinstance(array, np.ndarray) for array in kept.values())
    first.update()  # what was kept does not move with it
    second = make(backend="cupy", memory="6 kB", strategy="ism")
    second.restore(kept)
    second.update()
    second.update()
    digests = [trainer.report()["parameters_sha256"] for trainer in (whole, second)]
    assert digests[0] == digests[1]


def test_gradients_are_checked_on_the_device(device, problem):
    network, inputs, head, state = problem("cupy", T=5, dtype="float64")
    schedule = plan(network, 5, 3)
    assert mb.check_gradients(network, inputs, head, schedule, state, samples=5).ok
    assert mb.check_gradients(network, samples=5).ok
    assert mb.check_step(network).ok


def test_functions_of_the_users_are_given_arrays_of_the_device(device):
    seen = set()

    def forward(params, x, state):
        seen.add(type(x))
        return (params["a"] * state[0] + x,), ()

    def backward(params, x, state, saved, dstate, grads):
        grads["a"] += (dstate[0] * state[0]).sum(axis=0)
        return (dstate[0] * params["a"],)

    params = {"a": np.full(3, 0.9)}
    cell = mb.Custom(forward, backward, params, 3, {"s": (3,)}, backend="cupy")
    assert mb.check_gradients(cell).ok
    assert seen == {device.ndarray}
    with pytest.raises(ValueError, match="backend is 'cython'; your own functions run on numpy"):
        mb.Custom(forward, backward, params, 3, {"s": (3,)}, backend="cython")


@pytest.mark.parametrize("block_nbytes", [1, 40, 100, 2**20])
def test_inputs_go_in_blocks(device, problem, host_bits, monkeypatch, block_nbytes):
    network, inputs, head, state = problem("numpy", tokens=False)
    wanted = host_bits(mb.full_bptt(network, inputs, head, state))
    monkeypatch.setattr(feed, "BLOCK_NBYTES", block_nbytes)
    network, inputs, head, state = problem("cupy", tokens=False)
    for source in (inputs, Reader(inputs), np.asfortranarray(inputs)):
        executor = mb.Executor(network, plan(network, 29, 3), 3)
        assert host_bits(executor.run(source, head, state)) == wanted
        blocks = executor.chain.feed
        step = inputs[0].nbytes
        assert blocks.nbytes <= max(2 * step, 2 * block_nbytes)
        assert blocks.sent_nbytes >= inputs.nbytes
        assert blocks.sent_nbytes == inputs.nbytes or block_nbytes < 2**20


class Reader:
    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, part):
        return self.array[part]


def test_a_block_that_grows_is_sent_once(device):
    steps = np.arange(20, dtype=np.uint8).reshape(10, 2)
    served = feed.Feed(steps[:1], device)
    for count in range(1, 11):
        served.extend(steps[:count])
        assert served[count - 1].get().tolist() == steps[count - 1].tolist()
    assert served[3].dtype == np.int32
    assert served.sent_nbytes <= 4 * (20 + 2 * 15)  # each step once, and again when it doubled
    served.bind(steps[::-1])
    assert served[0].get().tolist() == steps[9].tolist()


@pytest.mark.parametrize("strategy, reason", [("lookahead", "two threads of the CPU")])
def test_what_a_device_does_not_run_is_refused(device, problem, strategy, reason):
    network, inputs, head, _ = problem("cupy")
    schedule = mb.schedule(29, 8 * network.internal_nbytes(3), strategy, network, 3)
    with pytest.raises(ValueError, match=f"strategy is '{strategy}'.*{reason}.*'optimal'"):
        mb.bptt(network, inputs, head, schedule)


def test_arrays_on_the_wrong_side_are_named(device, problem):
    network, inputs, head, _ = problem("cupy")
    on_host = problem("numpy")
    with pytest.raises(TypeError, match=r"inputs lie on a device.*inputs\.get\(\)"):
        mb.full_bptt(network, device.asarray(inputs), head)
    with pytest.raises(TypeError, match="targets lie on a device"):
        head.head.with_targets(device.asarray(head.targets))
    with pytest.raises(TypeError, match=r"the head's W_y is a numpy\.ndarray.*backend='cupy'"):
        mb.full_bptt(network, inputs, on_host[2])
    with pytest.raises(TypeError, match=r"the head's W_y is a standin\.ndarray.*a NumPy array"):
        mb.full_bptt(*on_host[:2], head)
    network.params["W_h"] = network.params["W_h"].get()
    with pytest.raises(TypeError, match=r"parameter W_h is a numpy\.ndarray"):
        mb.full_bptt(network, inputs, head)
    with pytest.raises(ValueError, match="RTRL runs on the host"):
        mb.rtrl(network, inputs, head)


def test_what_is_not_finite_is_named(device, problem):
    network, inputs, head, state = problem("cupy", tokens=False)
    inputs[11, 2, 0] = np.nan
    with pytest.raises(ValueError, match="inputs hold NaN or infinity at step 12, row 2"):
        mb.bptt(network, inputs, head, plan(network, 29, 3), state)


def test_the_standin_refuses_what_cupy_refuses(device):
    on_device = device.asarray(np.ones(3))
    with pytest.raises(TypeError, match=r"numpy\.ndarray"):
        on_device + np.ones(3)
    with pytest.raises(TypeError, match=r"numpy\.ndarray"):
        np.ones(3) * on_device
    with pytest.raises(TypeError, match="not allowed"):
        np.asarray(on_device)
    with pytest.raises(TypeError):
        memoryview(on_device)
    view = on_device[1]
    on_device[1] = 5.0
    assert float(view) == 5.0  # as in CuPy, where one element is a view
    pinned = np.zeros(3)
    on_device.set(pinned, stream=device.stream)
    pinned[0] = 1
    with pytest.raises(AssertionError, match="pinned memory changed"):
        device.stream.synchronize()
    device.stream.pending.clear()


def test_auto_takes_the_device(device, capsys):
    from membptt.cli import main

    words = "train --updates 1 --hidden 8 --steps 30 --batch 2 --memory 4kB --backend".split()
    assert main([*words, "auto"]) == 0
    assert ", cupy;" in capsys.readouterr().err
    assert main([*words, "auto", "--strategy", "lookahead"]) == 0
    assert ", cython;" in capsys.readouterr().err
    assert main(["check", "--cell", "rnn", "--strategy", "hsm"]) == 0
    assert "cupy" in capsys.readouterr().out


def test_without_a_device_there_is_one_line(monkeypatch, capsys):
    from membptt.cli import main

    def none_here():
        raise ValueError("backend is 'cupy', but there is none; give backend 'cython'")

    monkeypatch.setattr(arrays, "device_module", none_here)
    for command in ("train", "check"):
        assert main([command, "--backend", "cupy"]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["check", "--cell", "rnn", "--strategy", "hsm"]) == 0
    assert "cupy" not in capsys.readouterr().out


def test_what_the_standin_has_cupy_has(device):
    """Names only: they are there without a GPU, wherever CuPy is installed."""
    cupy = pytest.importorskip("cupy")
    own = {"wrap", "unwrap", "method", "function", "device_module", "get_elapsed_time"}
    functions = {
        name
        for name, value in vars(device).items()
        if isinstance(value, types.FunctionType) and not name.startswith("_")
    }
    assert len(functions - own) > 15
    for name in functions - own:
        assert hasattr(cupy, name), name
    for name in set(vars(device.ndarray)) - set(vars(object)):
        assert hasattr(cupy.ndarray, name) or name in ("__index__", "__weakref__"), name
    for name in vars(device.cuda):
        assert hasattr(cupy.cuda, name), name
    assert arrays.add_rows_kernel(cupy).name == "add_rows"


@pytest.mark.parametrize("cell", ["lstm", "stack"])
def test_evaluation_has_the_bits_of_numpy_and_waits_at_the_end_alone(device, problem, cell):
    network, inputs, head, state = problem("numpy", cell)
    wanted, states = mb.evaluate(network, inputs, head, state)
    network, inputs, head, state = problem("cupy", cell)
    device.counts.begin()
    loss, after = mb.evaluate(network, inputs, head, state)
    assert device.counts.fetched == 2  # the loss, and the first step where it was not finite
    assert (type(loss), loss) == (float, wanted)
    assert {type(array) for array in after} == {device.ndarray}
    for mine, theirs in zip(after, states, strict=True):
        assert np.array_equal(arrays.to_host(mine), theirs)


@pytest.mark.parametrize("cell, dtype, tokens", CASES)
def test_rows_of_several_lengths_have_the_bits_of_numpy(
    device, problem, host_bits, cell, dtype, tokens
):
    lengths, found = [4, 9, 2], []
    for backend in ("numpy", "cupy"):
        before = device.counts.live
        network, inputs, head, state = problem(backend, cell, 9, dtype=dtype, tokens=tokens)
        if not tokens:
            inputs[4:, 0] = np.nan
        bound = head.head.with_targets(head.targets, lengths=lengths)
        plan = mb.packed_schedule(lengths, 3 * network.internal_nbytes(3), network)
        executor = mb.Executor(network, plan, 3, input_grads=not tokens)
        device.counts.begin()
        result = executor.run(inputs, bound, state, lengths)
        found.append(host_bits(result))
        full = mb.full_bptt(network, inputs, bound, state, lengths=lengths)
        assert host_bits(full) == found[-1]
        _, last = mb.evaluate(network, inputs, bound, state, lengths)
        for mine, kept in zip(last, result.state, strict=True):
            assert (arrays.to_host(mine) == arrays.to_host(kept)).all()
    assert found[0] == found[1]
    assert device.counts.peak - before > 0


@pytest.mark.parametrize("at_last", [True, False])
@pytest.mark.parametrize("cell, tokens", [("lstm", True), ("gru", False), ("stack", True)])
def test_both_directions_of_several_lengths(device, problem, cell, tokens, at_last):
    lengths, found = [4, 9, 2], []
    classes = np.arange(27).reshape(9, 3) % 5
    for backend in ("numpy", "cupy"):
        before = device.counts.live
        network, inputs, _, state = problem(backend, cell, 9, tokens=tokens)
        if not tokens:
            inputs[4:, 0] = np.nan
        cells = network, mb.GRU(network.input_size, 4, seed=2, backend=backend)
        head = mb.SoftmaxHead(network.hidden_size + 4, 5, backend=backend)
        if at_last:
            bound = head.at_last(classes[0], [2, 9, 1])
        else:
            bound = head.with_targets(classes, lengths=lengths)
        plans = [mb.packed_schedule(lengths, 3 * c.internal_nbytes(3), c) for c in cells]
        states = state, cells[1].zero_state(3)
        device.counts.begin()
        result = mb.bptt_bidirectional(cells, inputs, bound, plans, states, lengths=lengths)
        arrays_of = [*result.grads.values(), *sum(result.state + result.state_grad, ())]
        found.append([result.loss, *(arrays.to_host(each).tobytes() for each in arrays_of)])
    assert found[0] == found[1]
    assert device.counts.peak - before <= result.stats.device_peak_bytes


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("kind", [mb.RNN, mb.LSTM, mb.GRU, mb.LayerNormLSTM])
@pytest.mark.parametrize("size", [(64, 3, 8), (64, 3, 1), (5, 3, 64)], ids=str)
def test_the_ledger_holds_what_rows_of_several_lengths_need(device, problem, kind, size, tokens):
    B, I, H = size  # noqa: E741
    lengths = [20] + [1 + row % 20 for row in range(1, B)]
    before = device.counts.live
    _, inputs, head, _ = problem("cupy", "lstm", 20, B, I, H, 3, tokens=tokens)
    network = kind(I, H, backend="cupy")
    plan = mb.packed_schedule(lengths, 3 * network.internal_nbytes(B), network)
    bound = head.head.with_targets(head.targets, lengths=lengths)
    executor = mb.Executor(network, plan, B)
    device.counts.begin()
    executor.run(inputs, bound, lengths=lengths)
    lived, held = device.counts.peak - before, sum(executor.ledger.held.values())
    assert lived <= executor.ledger.peak <= held + 5 * max(1024, lived - held)
