"""The chain of CUDA kernels, run on the emulated device: the bits of the compiled chain.

The schedules, blocks, graphs and copies are those of a real device; only the kernels run elsewhere.
"""

import numpy as np
import pytest

import membptt as mb
from membptt.chains.registry import make_chain
from membptt.executor import readable
from membptt.executor.arena import Arena
from membptt.kernels import _kernels
from membptt.kernels._sums import Sums
from membptt.kernels.cuda.chain import CudaChain
from membptt.sequences.blocks import Blocks

pytestmark = pytest.mark.skipif(
    _kernels.available() == ["portable"], reason="without a fused multiply-add here: other bits"
)

STRATEGIES = ["hsm", "ism", "msm", "optimal", "expand"]
# (T, B, I, H, V): ones, odd sizes, several blocks, a batch beyond one block
SHAPES = [
    (1, 1, 1, 1, 1),
    (13, 3, 5, 37, 6),
    (40, 20, 4, 9, 19),
    (2, 520, 5, 16, 9),
]
TASKS = [(True, "softmax"), (False, "linear")]
CELLS = [("rnn", "float32"), ("lstm", "float32"), ("lstm", "float64"), ("gru", "float64")]


def named(cell, loss, bad_step, grads, state, state_grad):
    """Return all that a chain gives back, by name."""
    values = {"loss": loss, "bad step": bad_step, **grads}
    for name, last, first in zip(cell.hidden_names, state, state_grad, strict=True):
        values |= {f"{name}_T": last, f"d{name}_0": first}
    return values


def everything_stored(case, chain, arena):
    """Run full BPTT on a chain."""
    cell, steps, batch = case.cell, *case.inputs.shape[:2]
    size = cell.internal_nbytes(batch)
    chain.begin(case.inputs, case.head, case.state, arena)
    for step in range(1, steps + 1):
        chain.forward(step - 1, step, (step - 1) * size)
    for step in range(steps, 0, -1):
        chain.backward(step, (step - 1) * size)
    return named(cell, *chain.finish())


def compiled_bits(case):
    """Return what the compiled chain gives with everything stored."""
    steps, batch = case.inputs.shape[:2]
    chain = make_chain(case.cell, case.head, steps, batch)
    arena = np.zeros(steps * case.cell.internal_nbytes(batch), np.uint8)
    return everything_stored(case, chain, arena)


def under_schedule(case, device, schedule, chain=None):
    """Run a schedule on the emulated device."""
    steps, batch = case.inputs.shape[:2]
    cell = case.cell
    chain = chain or CudaChain(cell, case.head, steps, batch, device=device)
    sizes = cell.hidden_nbytes(batch), cell.internal_nbytes(batch)
    arena = Arena(0, *sizes)
    arena.buffer = device.guarded(schedule.peak_bytes)
    chain.begin(case.inputs, case.head, case.state, arena.buffer)
    forward_steps, backward_steps, *_ = readable.run(schedule, chain, arena)
    assert (forward_steps, backward_steps) == (schedule.forward_steps, steps)
    result = named(cell, *chain.finish())
    device.check_guards()
    return result


def equal(result, wanted):
    """Assert that two results have the same bits (and a zero no sign)."""
    assert result.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.array_equal(result[name], value), name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tokens, head", TASKS)
@pytest.mark.parametrize("cell, dtype", CELLS)
def test_bits_of_the_compiled_chain(window, emulated, cell, tokens, head, dtype, shape):
    T, B, I, H, V = shape  # noqa: E741
    case = window(cell, T, B, I, H, V, dtype, tokens=tokens, head=head, seed=T)
    wanted = compiled_bits(case)
    for backwards in (False, True):
        device = emulated(backwards=backwards)
        schedule = mb.schedule(T, T * case.cell.internal_nbytes(B), "full", case.cell, B)
        equal(under_schedule(case, device, schedule), wanted)


@pytest.mark.parametrize("tokens, head", TASKS)
def test_bits_of_a_long_window(window, emulated, tokens, head):
    case = window("rnn", 530, 1, 3, 5, 4, tokens=tokens, head=head)  # 512 steps to a block
    schedule = mb.schedule(530, "8 KiB", "optimal", case.cell, 1)
    equal(under_schedule(case, emulated(), schedule), compiled_bits(case))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "cell, tokens, head", [("rnn", *TASKS[0]), ("lstm", *TASKS[1]), ("gru", *TASKS[0])]
)
def test_bits_do_not_depend_on_the_schedule(window, emulated, cell, tokens, head, strategy):
    T, B = 23, 40  # 12 steps to a block
    case = window(cell, T, B, 4, 7, 5, tokens=tokens, head=head)
    wanted = compiled_bits(case)
    hidden, internal = case.cell.hidden_nbytes(B), case.cell.internal_nbytes(B)
    ran = 0
    for budget in (internal, internal + 2 * hidden, 3 * internal, 9 * internal):
        try:
            schedule = mb.schedule(T, budget, strategy, case.cell, B)
        except ValueError:
            continue  # below the strategy's minimum
        equal(under_schedule(case, emulated(multiprocessors=1), schedule), wanted)
        ran += 1
    assert ran


@pytest.mark.parametrize(
    "multiprocessors, dtype", [(1, "float32"), (1, "float64"), (13, "float32"), (10**6, "float32")]
)
@pytest.mark.parametrize("tokens, head", TASKS)
def test_bits_do_not_depend_on_the_tile(window, emulated, tokens, head, dtype, multiprocessors):
    case = window("lstm", 5, 70, 35, 67, 70, dtype, tokens=tokens, head=head)
    device = emulated(multiprocessors=multiprocessors)
    arena = device.guarded(5 * case.cell.internal_nbytes(70))
    chain = CudaChain(case.cell, case.head, 5, 70, device=device)
    assert chain.tiles["forward"].rows == chain.tiles["back"].rows
    assert chain.tiles["back"].rows == {1: 64, 13: 16, 10**6: 4}[multiprocessors]
    equal(everything_stored(case, chain, arena), compiled_bits(case))


@pytest.mark.parametrize("tokens, head", TASKS)
def test_a_chain_is_begun_again_with_its_graphs(window, emulated, tokens, head):
    first = window(T=40, seed=1, tokens=tokens, head=head)
    second = window(T=40, seed=2, tokens=tokens, head=head)
    second.cell, device = first.cell, emulated()
    schedule = mb.schedule(40, 3 * first.cell.internal_nbytes(2), "optimal", first.cell, 2)
    chain = CudaChain(first.cell, first.head, 40, 2, device=device)
    kept = under_schedule(first, device, schedule, chain)
    before = {name: np.array(value) for name, value in kept.items()}
    ledger = device.ledger
    total, graphs, arrays = ledger.total, dict(chain.graphs), len(device.arrays)
    second.cell.params = window(T=40, seed=3).cell.params
    equal(under_schedule(second, device, schedule, chain), compiled_bits(second))
    equal(kept, before)  # results are the caller's own
    assert (len(device.arrays) - 1, ledger.total) == (arrays, total)  # but for another arena
    assert chain.graphs.keys() >= graphs.keys()
    assert all(chain.graphs[key] is graph for key, graph in graphs.items())


def test_workspace_does_not_grow_with_the_steps_and_every_byte_is_in_the_ledger(window, emulated):
    sizes = []
    for T in (3, 3000):
        case, device = window(T=T), emulated()
        chain = CudaChain(case.cell, case.head, T, 2, device=device)
        chain.begin(case.inputs, case.head, case.state, device.guarded(100))
        taken = sum(buffer.size for buffer in device.arrays) - 100  # the arena is not its own
        assert chain.workspace_nbytes == sum(chain.nbytes.values()) == taken
        parameters = sum(value.nbytes for value in (case.cell.params | case.head.params).values())
        assert device.ledger.held == {
            "workspace": taken,
            "arena": 100,
            "parameters": parameters,
            "gradients": parameters,
        }
        sizes.append(chain.workspace_nbytes)
    assert sizes[0] == sizes[1]


def test_a_run_of_steps_is_a_few_graphs_and_a_backward_step_two_calls(window, emulated):
    case, device = window(T=200, B=2), emulated()
    size = case.cell.internal_nbytes(2)
    chain = CudaChain(case.cell, case.head, 200, 2, device=device)
    chain.begin(case.inputs, case.head, case.state, device.guarded(2 * size))

    def cost(move, *arguments):
        before = device.launches, device.calls
        move(*arguments)
        return device.launches - before[0], device.calls - before[1]

    assert cost(chain.forward, 0, 101) == (101, 4)  # alone, then 64, 32, 4
    assert cost(chain.forward, 101, 199) == (98, 3)  # 64, 32, 2
    assert cost(chain.forward, 199, 200, 0) == (1, 1)  # saves its internal state: alone
    assert cost(chain.restart, 3, 0) == (0, 0)  # a copy
    assert cost(chain.restart, 2, 0) == (1, 1)
    assert cost(chain.backward, 200, 0) == (4, 4)  # the first, which is captured then
    assert cost(chain.backward, 199, 0) == (4, 2)
    assert cost(chain.backward, 1, 0) == (9, 7)  # a block ends: five gradients
    assert sum(key[0] in (2, 4, 32, 64) for key in chain.graphs) == 4


@pytest.mark.parametrize("tokens, head", TASKS)
def test_a_loss_that_is_not_finite_is_found_at_its_first_step(window, emulated, tokens, head):
    case, device = window(T=9, tokens=tokens, head=head), emulated()
    if tokens:
        case.inputs[:4], case.inputs[4, 1] = 0, 2
        case.cell.params["W_x"][2] = np.nan
    else:
        case.inputs[4, 1] = np.nan
    chain = CudaChain(case.cell, case.head, 9, 2, device=device)
    arena = device.guarded(9 * case.cell.internal_nbytes(2))
    assert everything_stored(case, chain, arena)["bad step"] == 5


@pytest.mark.parametrize("strategy", ["hsm", "expand"])
def test_a_hidden_state_that_changes_when_it_is_run_again_is_found(window, emulated, strategy):
    case, device = window(T=20, tokens=False, head="linear"), emulated()
    schedule = mb.schedule(20, 3 * case.cell.internal_nbytes(2), strategy, case.cell, 2)
    chain = CudaChain(case.cell, case.head, 20, 2, device=device)
    chain.begin(case.inputs, case.head, case.state, device.guarded(schedule.peak_bytes))
    chain.sums = Sums(20)
    arena = Arena(0, case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2))
    arena.buffer = chain.arena
    readable.run(schedule, chain, arena)
    chain.inputs = case.inputs + np.float32(1)
    chain.ready = set()
    chain.restart(0)
    with pytest.raises(ValueError, match="step 1 gave another hidden state"):
        chain.forward(0, 2)


@pytest.mark.parametrize("tokens, head", TASKS)
def test_inputs_and_targets_come_from_readers(window, emulated, tokens, head):
    case, device = window(T=20, B=60, tokens=tokens, head=head), emulated()
    wanted = compiled_bits(case)
    case.inputs = Blocks("inputs", case.inputs, case.inputs.dtype, 3 if tokens else None)
    targets = case.head.targets
    case.head.targets = Blocks("targets", targets, targets.dtype, 6 if tokens else None)
    chain = CudaChain(case.cell, case.head, 20, 60, device=device)
    arena = device.guarded(20 * case.cell.internal_nbytes(60))
    equal(everything_stored(case, chain, arena), wanted)


@pytest.mark.parametrize("tokens, head", TASKS)
def test_steps_are_added_as_a_stream_brings_them(window, emulated, tokens, head):
    case, device = window(T=20, B=60, tokens=tokens, head=head), emulated()
    size = case.cell.internal_nbytes(60)
    partial = case.head.head.with_targets(case.head.targets[:3])
    chain = CudaChain(case.cell, partial, 3, 60, device=device)
    chain.begin(case.inputs[:3], partial, case.state, device.guarded(20 * size))
    for step in range(1, 21):
        if step > 3:
            chain.extend(case.inputs[:step])
        chain.forward(step - 1, step, (step - 1) * size)
    chain.end(case.head)
    for step in range(20, 0, -1):
        chain.backward(step, (step - 1) * size)
    equal(named(case.cell, *chain.finish()), compiled_bits(case))


def test_only_cells_and_heads_with_kernels_fit(window):
    case = window()
    assert CudaChain.fits(case.cell, case.head)
    subclass = type("LSTM", (mb.LSTM,), {})(3, 4)
    assert not CudaChain.fits(subclass, case.head)
    case.head.kernel = None
    assert not CudaChain.fits(case.cell, case.head)
