"""Inputs and targets that are read block by block: the same bits, constant memory, clear errors."""

import tracemalloc

import numpy as np
import pytest

import membptt as mb
from membptt.sequences.blocks import Blocks, sequence

STRATEGIES = ["full", "hsm", "optimal", "lookahead", "disk"]
BATCH = 128  # blocks of 4 steps


class Reader:
    """A dataset as a file would give it: one array, filled again and again."""

    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.filled = np.empty_like(array[:512])
        self.reads = []  # (start, stop)
        self.act = lambda block, start: block

    def __getitem__(self, steps):
        start, stop, stride = steps.indices(len(self.array))
        assert (steps.start, steps.stop, stride) == (start, stop, 1)
        self.reads.append((start, stop))
        block = self.filled[: stop - start]
        block[...] = self.array[steps]
        return self.act(block, start)


def plan(case, strategy, slots=12):
    steps, batch = case.inputs.shape[:2]
    hidden, internal = case.cell.hidden_nbytes(batch), case.cell.internal_nbytes(batch)
    budget = steps * internal if strategy == "full" else slots * internal + 3 * hidden
    return mb.schedule(steps, budget, strategy, case.cell, batch)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("backend, slow", [("numpy", False), ("cython", False), ("cython", True)])
def test_readers_give_the_same_bits(window, bits, backend, slow, tokens, strategy):
    head = "softmax" if tokens else "linear"
    case = window(T=42, B=BATCH, backend=backend, tokens=tokens, head=head)
    wanted = bits(mb.full_bptt(*case.arguments()))
    inputs, targets = Reader(case.inputs), Reader(case.head.targets)
    head = case.head.head.with_targets(targets)
    schedule = plan(case, strategy)
    executor = mb.Executor(case.cell, schedule, BATCH, step_through=slow)
    assert bits(executor.run(inputs, head)) == wanted
    assert bits(mb.bptt(case.cell, inputs, head, schedule)) == wanted
    assert bits(mb.full_bptt(case.cell, inputs, head)) == wanted
    assert set(inputs.reads) == {(at, min(at + 4, 42)) for at in range(0, 42, 4)}
    assert len(targets.reads) == 3 * 11  # at backward time, each block once a run


@pytest.mark.parametrize("layout", ["strided", "reversed", "fortran", "other bytes", "unaligned"])
@pytest.mark.parametrize("tokens", [True, False])
def test_arrays_of_any_layout_are_read_by_blocks(window, bits, tokens, layout):
    head = "softmax" if tokens else "linear"
    case = window(T=42, B=BATCH, tokens=tokens, head=head)
    case.inputs = case.inputs.astype(np.int32 if tokens else np.float32)
    wanted = bits(mb.full_bptt(*case.arguments()))

    def laid_out(array):
        if layout == "strided":
            wide = np.zeros((len(array), 2 * BATCH, *array.shape[2:]), array.dtype)
            wide[:, ::2] = array
            return wide[:, ::2]
        if layout == "reversed":
            return array[::-1].copy()[::-1]
        if layout == "fortran":
            return np.asfortranarray(array)
        if layout == "other bytes":
            return array.astype(array.dtype.newbyteorder()) if tokens else array
        shifted = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        shifted[...] = array
        return shifted

    case.inputs = laid_out(case.inputs)
    case.head = case.head.head.with_targets(laid_out(case.head.targets))
    assert bits(mb.full_bptt(*case.arguments())) == wanted
    for strategy in STRATEGIES:
        assert bits(mb.bptt(*case.arguments(), plan(case, strategy))) == wanted


@pytest.mark.parametrize("strategy", ["hsm", "disk"])
def test_a_block_is_read_again_only_where_it_must_be(window, strategy):
    case = window(T=400, B=BATCH)
    blocks = 100
    inputs = Reader(case.inputs)
    schedule = plan(case, strategy, slots=20)
    mb.bptt(case.cell, inputs, case.head, schedule)
    entered, place = 0, 0  # blocks, by forwards
    for action in schedule:
        code, start, stop = action.row
        if code <= 2:
            entered += (stop - 1) // 4 - start // 4 + (start % 4 == 0 or place != start)
            place = stop
    assert blocks < len(inputs.reads) <= entered + blocks  # each is left backwards once
    if strategy == "hsm":
        assert len(inputs.reads) < entered / 2  # the last two are kept


class Computed:
    """Tokens that exist nowhere: step t, row b is (7 t + b) mod 5."""

    dtype = np.dtype(np.uint8)

    def __init__(self, steps, batch):
        self.shape = (steps, batch)
        self.reads = 0

    def __getitem__(self, steps):
        self.reads += 1
        t = np.arange(steps.start, steps.stop)[:, None]
        return ((7 * t + np.arange(self.shape[1])) % 5).astype(np.uint8)


@pytest.mark.parametrize("strategy", ["disk", "near-optimal"])
def test_memory_does_not_grow_with_the_length(bits, tmp_path, strategy):
    cell = mb.RNN(5, 2)
    head = mb.SoftmaxHead(2, 5)
    peaks, spaces = [], []
    for steps in (10**4, 10**5):
        schedule = mb.schedule(steps, 2000, strategy, cell, 1)
        executor = mb.Executor(cell, schedule, 1, disk=tmp_path)
        inputs, targets = Computed(steps, 1), Computed(steps, 1)
        bound = head.with_targets(targets)
        tracemalloc.start()
        result = executor.run(inputs, bound)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        spaces.append(result.stats.workspace_bytes)
        assert targets.reads == -(-steps // 512)
    assert spaces[0] == spaces[1]
    assert peaks[1] < peaks[0] + 50_000  # tokens and targets alone would take 180,000
    if strategy == "disk":
        assert inputs.reads <= 3 * -(-steps // 512) + 2 * schedule.intervals.count
    array = inputs[0:steps]
    assert bits(result) == bits(mb.bptt(cell, array, head.with_targets(array), schedule))


def test_arrays_with_strides_are_not_copied_whole():
    steps = 10_000
    cell = mb.RNN(64, 2)
    inputs = np.zeros((steps, 1, 64), np.float32)[::-1]
    head = mb.LinearHead(2, 64).with_targets(inputs)
    executor = mb.Executor(cell, mb.schedule(steps, 4000, "near-optimal", cell, 1), 1)
    tracemalloc.start()
    executor.run(inputs, head)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < inputs.nbytes  # of inputs and targets, twice as much


def fails(block, start):
    raise OSError("the network is down")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize(
    "act, error, message",
    [
        (fails, OSError, "the network is down"),
        (lambda block, start: block[:-1], ValueError, r"inputs\[20:24\], steps 21 to 24, have"),
        (lambda block, start: block[:, :1], ValueError, r"have shape \(4, 1\); give \(4, 128\)"),
        (lambda block, start: block.astype("i8"), TypeError, "are int64; give uint8"),
        (lambda block, start: block + 3, ValueError, r"inputs hold [345] at step 2\d, row \d+"),
        (lambda block, start: None, ValueError, r"have shape \(\); give \(4, 128\)"),
    ],
)
def test_readers_that_fail(window, bits, backend, strategy, act, error, message):
    case = window(T=42, B=BATCH, backend=backend)
    wanted = bits(mb.full_bptt(*case.arguments()))
    schedule = plan(case, strategy)
    executor = mb.Executor(case.cell, schedule, BATCH)
    inputs = Reader(case.inputs)
    for time in (1, 2):  # when first run, and when run again
        inputs.reads.clear()
        inputs.act = lambda block, start, time=time: (
            act(block, start) if (start, inputs.reads.count((20, 24))) == (20, time) else block
        )
        if time == 2 and strategy == "full":
            continue  # which runs nothing again
        with pytest.raises(error, match=message) as caught:
            executor.run(inputs, case.head)
        if act is fails:
            assert caught.value.__notes__ == ["while inputs[20:24], steps 21 to 24, were read"]
    inputs.act = lambda block, start: block
    assert bits(executor.run(inputs, case.head)) == wanted


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_targets_that_fail(window, backend):
    case = window(T=42, B=BATCH, backend=backend)
    targets = Reader(case.head.targets)
    targets.act = lambda block, start: block + (6 if start == 20 else 0)
    head = case.head.head.with_targets(targets)
    with pytest.raises(ValueError, match=r"targets hold .* at step 2"):
        mb.bptt(case.cell, case.inputs, head, plan(case, "optimal"))
    with pytest.raises(TypeError, match="targets are float32; give whole numbers"):
        case.head.head.with_targets(Reader(case.head.targets.astype("f4")))


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_values_that_are_not_finite_are_named(window, backend):
    case = window(T=42, B=BATCH, backend=backend, tokens=False)
    case.inputs[29, 5, 1] = np.nan
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"NaN .* at step 30, row 5"):
        mb.bptt(case.cell, Reader(case.inputs), case.head, plan(case, "optimal"))


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"shape": (41, BATCH, 3)}, ValueError, "inputs have 41 steps"),
        ({"shape": (42, BATCH, 9)}, ValueError, "inputs are float32 of shape"),
        ({"shape": (0, BATCH, 3)}, ValueError, "inputs are float32 of shape"),
        ({"dtype": np.dtype("f8")}, TypeError, "inputs are float64"),
    ],
)
def test_readers_that_do_not_fit(window, change, error, message):
    case = window(T=42, B=BATCH, tokens=False)
    reader = Reader(case.inputs)
    schedule = plan(case, "optimal")
    vars(reader).update(change)
    with pytest.raises(error, match=message):
        mb.bptt(case.cell, reader, case.head, schedule)
    assert reader.reads == []


def test_what_is_a_reader(window):
    array = np.arange(6).reshape(3, 2)
    assert sequence("inputs", array) is not None and type(sequence("inputs", array)) is np.ndarray
    assert type(sequence("inputs", array.tolist())) is np.ndarray
    assert type(sequence("inputs", array.view(np.memmap))) is np.ndarray
    blocks = sequence("inputs", Reader(array), 6)
    assert isinstance(blocks, Blocks) and sequence("inputs", blocks) is blocks
    assert [row.tolist() for row in blocks] == array.tolist()
    assert (np.asarray(blocks) == array).all() and np.asarray(blocks, float).dtype == float
    with pytest.raises(IndexError, match="inputs have 3 steps; there is no index 3"):
        blocks[3]


def test_gradients_of_what_is_read_are_checked(window):
    case = window(T=6, tokens=False, head="linear")
    head = case.head.head.with_targets(Reader(case.head.targets))
    assert mb.check_gradients(case.cell, Reader(case.inputs), head).ok
