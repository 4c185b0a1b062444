"""Streams of unknown length: the bits of full BPTT at every end, never a byte over the budget."""

import tracemalloc

import numpy as np
import pytest

import membptt as mb
from membptt.executor.arena import HIDDEN, INTERNAL, HiddenSlots
from membptt.schedules.online import OnlineSchedule

BACKENDS = ["numpy", "cython"]


def single_steps(case):
    yield from zip(case.inputs, case.head.targets, strict=True)


def blocks(case, lengths=(1, 2, 5, 3)):
    """Yield steps and blocks of steps in turn."""
    at = turn = 0
    while at < len(case.inputs):
        end = min(at + lengths[turn % len(lengths)], len(case.inputs))
        where = at if end == at + 1 and turn % 2 == 0 else slice(at, end)
        yield case.inputs[where], case.head.targets[where]
        at, turn = end, turn + 1


def run(case, stream, memory, **options):
    return mb.bptt_stream(case.cell, stream, case.head.head, memory, case.state, **options)


def online_steps(steps, units):
    """Return the forward steps of the plan."""
    online = OnlineSchedule(units)
    actions = [action for _ in range(steps) for action in online.step()] + list(online.finish())
    return sum(
        action.stop - action.start for action in actions if type(action).__name__.startswith("Adv")
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "stack"])
@pytest.mark.parametrize("tokens, head", [(True, "softmax"), (False, "linear")])
def test_every_end_has_the_bits_of_full_bptt(window, bits, cell, backend, tokens, head):
    for steps in range(1, 61):
        case = window(cell, steps, backend=backend, tokens=tokens, head=head, seed=steps)
        wanted = bits(mb.full_bptt(*case.arguments(), case.state))
        hidden, internal = case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2)
        for units in (1, 2, 4, 30):
            nbytes = internal + (units - 1) * hidden + (steps * units) % hidden
            stream = (single_steps, blocks)[(steps + units) % 2](case)
            result = run(case, stream, nbytes, record=True)
            assert bits(result) == wanted
            stats = result.stats
            assert stats.peak_bytes <= stats.arena_bytes == nbytes
            assert stats.forward_steps == online_steps(steps, units)
            assert stats.backward_steps == steps
            assert result.trace[:, 3].max() == stats.peak_bytes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(1, 700), (7, 150), (33, 40)], ids=str)
def test_several_blocks_of_gradients(window, bits, dtype, size):
    """More steps than are multiplied into the weights' gradients at once."""
    batch, steps = size
    for tokens in (True, False):
        case = window("lstm", steps, batch, 5, 12, dtype=dtype, tokens=tokens)
        wanted = bits(mb.full_bptt(*case.arguments(), case.state))
        memory = 9 * case.cell.internal_nbytes(batch)
        for lengths in ((1,), (37, 1, 200)):
            assert bits(run(case, blocks(case, lengths), memory)) == wanted


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(window, bits, threads):
    case = window("lstm", 60, 16, 9, 100, 70)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    memory = 4 * case.cell.internal_nbytes(16)
    assert bits(run(case, blocks(case, (20, 1)), memory, threads=threads)) == wanted


def test_a_cell_of_the_users_own(bits):
    def forward(params, x, state):
        return (params["a"] * state[0] + x,), ()

    def backward(params, x, state, saved, dstate, grads):
        grads["a"] += (dstate[0] * state[0]).sum(axis=0)
        return (dstate[0] * params["a"],)

    cell = mb.Custom(forward, backward, {"a": np.full(3, 0.9)}, input_size=3, hidden={"s": (3,)})
    draw = np.random.default_rng(0)
    inputs, targets = draw.standard_normal((2, 40, 2, 3)).astype(cell.dtype)
    head = mb.LinearHead(3, 3, cell.dtype)
    wanted = bits(mb.full_bptt(cell, inputs, head.with_targets(targets)))
    memory = cell.internal_nbytes(2) + 3 * cell.hidden_nbytes(2)
    stream = zip(inputs, targets, strict=True)
    assert bits(mb.bptt_stream(cell, stream, head, memory)) == wanted


def test_the_twins_run_the_same(window):
    case = window("rnn", 47)
    memory = 4 * case.cell.internal_nbytes(2)
    traces = [
        run(case.on(backend), single_steps(case), memory, record=True).trace for backend in BACKENDS
    ]
    assert (traces[0] == traces[1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_item_is_used_before_the_next_is_asked_for(window, bits, backend):
    """One buffer, written anew for each step, is enough for whoever makes the stream."""
    case = window(T=30, backend=backend, tokens=False)

    def reused():
        x, y = np.empty_like(case.inputs[0]), np.empty_like(case.head.targets[0])
        for step in range(30):
            x[:], y[:] = case.inputs[step], case.head.targets[step]
            yield x, y

    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    assert bits(run(case, reused(), "1 KiB")) == wanted


def test_only_the_stream_itself_grows():
    """Ten times as long: what is added are inputs and targets, at most three times while copied."""
    cell, head = mb.LSTM(5, 16), mb.SoftmaxHead(16, 5)

    def peak(steps):
        draw = np.random.default_rng(0)
        stream = ((draw.integers(5, size=(50, 2), dtype=np.int8),) * 2 for _ in range(steps // 50))
        tracemalloc.start()
        mb.bptt_stream(cell, stream, head, "8 KiB")
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(500)  # what is made once is made
    assert peak(20000) - peak(2000) < 18000 * 2 * 2 * 3


def test_slots_become_a_stack():
    draw = np.random.default_rng(0)
    for count in (1, 2, 5, 8):
        for _ in range(20):
            slots = HiddenSlots(4 * count + 13, 4, 12)
            for step in range(1, 40):
                if not slots.free:
                    slots.pop(HIDDEN, int(draw.choice([of for _, of, _ in slots.stack])))
                at = slots.push(HIDDEN, step)
                slots.buffer[at : at + 4] = step
            for step in draw.choice([of for _, of, _ in slots.stack], count // 2, replace=False):
                slots.pop(HIDDEN, int(step))
            steps = [of for _, of, _ in slots.stack]
            arena = slots.stacked()
            assert arena.buffer is slots.buffer
            assert arena.stack == [(HIDDEN, step, 4 * i) for i, step in enumerate(steps)]
            assert arena.buffer[: 4 * len(steps)].tolist() == np.repeat(steps, 4).tolist()
    with pytest.raises(MemoryError, match="no slot is free for the state of step 3"):
        HiddenSlots(12, 4, 12).push(HIDDEN, 3)
    with pytest.raises(MemoryError, match="no slot is free"):
        slots.push(INTERNAL, 50)
    with pytest.raises(LookupError, match="step 99 is not saved"):
        slots.pop(HIDDEN, 99)


@pytest.mark.parametrize("backend", BACKENDS)
def test_streams_that_do_not_fit(window, backend):
    case = window(T=9, backend=backend)
    good = list(single_steps(case))

    def refused(items, message, memory="1 KiB"):
        with pytest.raises(ValueError, match=message) as caught:
            run(case, iter(items), memory)
        assert "\n" not in str(caught.value)

    refused([], "the stream is empty; give at least 1 step")
    refused(good, r"^memory is '191', 191 bytes; a stream needs at least 192", memory="191")
    refused([*good, 5], "item 10 of the stream: it is of type int; give pairs")
    x, y = good[0]
    refused([*good, (x + 200, y)], "item 10 of the stream: inputs hold 20. at step 1, row 0")
    refused([(x, y + 200)], "^targets hold 20. at step 1")
    refused([*good, (x, y + 200)], "item 10 of the stream: targets hold 20. at step 1")
    refused([*good, (x[:1], y[:1])], "inputs have batch 1; give 2 as before")
    refused([*good, (case.inputs, y)], r"inputs have 9 steps, targets the shape \(2,\)")
    refused([*good, (x.astype("i8"), y)], "inputs are int64 of shape .*; give uint8")
    refused([*good, (x, y[:1])], "targets are int64 of shape")
    refused([(x.astype("f8"), y)], "inputs are float64")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_finite_is_named_by_its_step(window, backend):
    case = window(T=30, backend=backend, tokens=False)
    case.inputs[16, 1, 2] = np.nan
    with pytest.raises(ValueError, match="at step 17: inputs hold NaN or infinity at step 17"):
        run(case, single_steps(case), "1 KiB")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_the_stream_comes_through(window, backend):
    case = window(T=9, backend=backend)

    def broken():
        yield from single_steps(case)
        raise OSError("the line is dead")

    with pytest.raises(OSError, match="the line is dead"):
        run(case, broken(), "1 KiB")
