"""What a sceptical user tried: each of these crashed, hung, or gave wrong numbers in silence."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import membptt as mb
from membptt.schedules import actions, chain_schedule
from membptt.solver.chains import Chain

BACKENDS = ["numpy", "cython"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_parameters_in_fortran_order(window, bits, cell, dtype, backend):
    case = window(cell, T=9, dtype=dtype, backend=backend, tokens=False)
    wanted = bits(mb.full_bptt(*case.arguments()))
    for params in (case.cell.params, case.head.head.params):
        for name in params:
            params[name] = np.asfortranarray(params[name])
    result = mb.full_bptt(*case.arguments())
    if backend == "cython":
        assert bits(result) == wanted
    assert mb.check_gradients(*case.arguments()).ok
    assert all(grad.flags.c_contiguous for grad in result.grads.values()) or backend == "numpy"


DUPLICATES = [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]


@pytest.mark.parametrize("duplicate", DUPLICATES)
@pytest.mark.parametrize(
    "strategy", ["full", "hsm", "msm", "optimal", "near-optimal", "lookahead", "disk"]
)
def test_schedules_can_be_copied_and_pickled(strategy, duplicate):
    budget = mb.Units(130 if strategy == "full" else 40, alpha=3)
    schedule = mb.schedule(40, budget, strategy)
    again = duplicate(schedule)
    assert again == schedule and list(again) == list(schedule)
    assert again.lanes == schedule.lanes and again.buffers == schedule.buffers
    assert again.lower_bound == schedule.lower_bound


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, DUPLICATES[1]])
def test_schedules_of_given_actions_can_be_copied_and_pickled(tmp_path, duplicate):
    planned = mb.schedule(20, mb.Units(12, alpha=3), "expand")
    planned.save(tmp_path / "plan.json")
    for schedule in (
        mb.Schedule.load(tmp_path / "plan.json"),
        mb.Schedule.from_actions(list(planned), 20, 1, 3),
        chain_schedule(Chain.even(20, 1, 3), 12),
        mb.packed_schedule([3, 5, 2], "64 KiB", mb.LSTM(3, 4)),
    ):
        again = duplicate(schedule)
        assert again == schedule and list(again) == list(schedule)
        assert vars(again).keys() == vars(schedule).keys()


def test_a_copy_keeps_the_certificate():
    schedule = mb.schedule(20_000, mb.Units(100, alpha=3), "near-optimal")
    assert copy.deepcopy(schedule).lower_bound == schedule.lower_bound is not None


def test_one_executor_takes_heads_of_several_sizes(window, bits):
    case = window(T=20, B=3, I=4)
    schedule = mb.schedule(20, "1 MiB", cell=case.cell, batch=3)
    executor = mb.Executor(case.cell, schedule, 3)
    for outputs in (4, 20, 3000, 4):
        head = mb.SoftmaxHead(4, outputs).with_targets(case.inputs.astype(int) % outputs)
        result = executor.run(case.inputs, head)
        assert bits(result) == bits(mb.full_bptt(case.cell, case.inputs, head))
        assert result.grads["W_y"].shape == (4, outputs)
    squared = mb.LinearHead(4, 2).with_targets(np.zeros((20, 3, 2), np.float32))
    assert executor.run(case.inputs, squared).grads["W_y"].shape == (4, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda c: c.head.params.update(W_y=np.zeros((4, 2), "f4")), ValueError, "W_y has shape"),
        (lambda c: c.head.params.update(b_y=np.zeros(9999, "f4")), ValueError, "b_y has shape"),
        (lambda c: c.head.targets.fill(10**9), ValueError, "targets hold 1000000000"),
        (lambda c: setattr(c, "head", c.head.head), TypeError, "give head.with_targets"),
        (lambda c: setattr(c.head, "kernel", "fast"), ValueError, "kernel is 'fast'"),
        (lambda c: c.cell.params.update(V=np.zeros(3, "f4")), ValueError, "params hold 'V'"),
        (lambda c: c.head.params.update(W_h=np.zeros(3, "f4")), ValueError, "parameter W_h"),
    ],
)
def test_what_does_not_fit_is_refused(window, backend, change, error, message):
    case = window(backend=backend)
    change(case)
    with pytest.raises(error, match=message):
        mb.full_bptt(*case.arguments())


@pytest.mark.parametrize("dtype", [">f4", ">f8"])
def test_parameters_have_the_machines_byte_order(dtype):
    assert mb.LSTM(3, 4, dtype).params["W_h"].dtype.isnative


@pytest.mark.parametrize("backend", BACKENDS)
def test_infinite_inputs_and_states_are_named(window, backend):
    case = window(T=6, backend=backend, tokens=False)
    case.inputs[3, 1, 0] = np.inf
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"inputs hold .* at step 4"):
        mb.full_bptt(*case.arguments())
    case = window(T=6, backend=backend)
    case.state[0][0, 0] = np.inf
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="state h holds"):
        mb.full_bptt(*case.arguments(), case.state)


class Own:
    """A head of the user's own."""

    kernel = None

    def __init__(self, act):
        self.params = {}
        self.act = act

    def forward_backward(self, step, h, grads):
        return 0.0, self.act(step, h)


@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_that_return_another_shape(window, backend):
    case = window(backend=backend)
    for act in (lambda step, h: 1.0, lambda step, h: h[0]):
        case.head = Own(act)
        with pytest.raises(ValueError, match=r"dh has shape .* at step 5; give \(2, 4\)"):
            mb.full_bptt(*case.arguments())


@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_may_keep_and_change_h(window, backend):
    case = window(T=9, backend=backend)
    kept = []

    def act(step, h):
        kept.append(h)
        h *= 2
        return np.zeros_like(h)

    case.head = Own(act)
    schedule = mb.schedule(9, 3 * case.cell.internal_nbytes(2), "optimal", case.cell, 2)
    mb.bptt(*case.arguments(), schedule)
    assert len({array.tobytes() for array in kept}) == 9


@pytest.mark.parametrize("strategy", ["optimal", "lookahead", "disk"])
def test_an_executor_that_runs_is_not_run_again(window, strategy):
    case = window(T=60)
    schedule = mb.schedule(60, 20 * case.cell.internal_nbytes(2), strategy, case.cell, 2)
    executor = mb.Executor(case.cell, schedule, 2)
    case.head = Own(lambda step, h: executor.run(case.inputs, case.head) and h)
    with pytest.raises(RuntimeError, match="running already"):
        executor.run(case.inputs, case.head)
    errors = []

    def again():
        try:
            executor.run(case.inputs, Own(lambda step, h: h))
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    executor.run(case.inputs, Own(lambda step, h: h))  # and then it runs again


def test_hand_made_schedules_may_need_more_than_full_bptt(window, bits):
    case = window("lstm", T=2)
    rows = [
        actions.AdvanceSaveHidden(0, 1),
        actions.Restore(0),
        actions.AdvanceSaveInternal(0, 1),
        actions.AdvanceSaveInternal(1, 2),
        actions.Backward(2),
        actions.Free(2, True),
        actions.Backward(1),
        actions.Free(1, True),
        actions.Free(1, False),
    ]
    sizes = case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2)
    schedule = mb.Schedule.from_actions(rows, 2, *sizes, "bytes")
    assert schedule.peak_bytes > schedule.full_bytes
    result = mb.bptt(*case.arguments(), schedule)
    assert bits(result) == bits(mb.full_bptt(*case.arguments()))


@pytest.mark.parametrize("strategy", ["disk", "lookahead"])
def test_plans_that_turned_out_full_are_saved_and_loaded(window, tmp_path, strategy):
    case = window(T=6)
    schedule = mb.schedule(6, "1 MiB", strategy, case.cell, 2)
    schedule.save(tmp_path / "plan.json")
    loaded = mb.Schedule.load(tmp_path / "plan.json")
    assert loaded == schedule
    mb.bptt(*case.arguments(), loaded)


@pytest.mark.parametrize(
    "old, new",
    [
        ('"steps": 40', '"steps": null'),
        ('"hidden": 1', '"hidden": "abc"'),
        ('"internal": 3', '"internal": 1e300'),
        ('"hidden": 1', '"hidden": 0'),
        ('"steps": 40', '"steps": 1000000000000'),
        ('"strategy": "lookahead"', '"strategy": {}'),
        ("[2, 39, 40]", "[0, 0, Infinity]"),
    ],
)
def test_altered_schedule_files_are_one_line(tmp_path, old, new):
    path = tmp_path / "plan.json"
    mb.schedule(40, mb.Units(40, 3), "lookahead").save(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match="not a schedule that membptt saved") as caught:
        mb.Schedule.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_a_head_of_ones_own_needs_no_more_than_its_protocol(window, backend):
    """`params` and `forward_backward`, as membptt.types.LossHead says."""

    class Mine:
        def __init__(self, head):
            self.params, self.forward_backward = head.params, head.forward_backward

    case = window("lstm", backend=backend)
    schedule = mb.schedule(5, 3 * case.cell.internal_nbytes(2), cell=case.cell, batch=2)
    for run in (mb.full_bptt, lambda *arguments: mb.bptt(*arguments, schedule)):
        mine = run(case.cell, case.inputs, Mine(case.head))
        assert mine.loss == pytest.approx(mb.full_bptt(*case.arguments()).loss)


INTERRUPTED = """
import sys
import numpy as np
import membptt as mb

cell = mb.LSTM(5, 64)
x = np.zeros((300_000, 1), np.uint8)
head = mb.SoftmaxHead(64, 5).with_targets(x)
schedule = mb.schedule(300_000, 300_000, sys.argv[1], cell, 1)
executor = mb.Executor(cell, schedule, 1)
print("running", flush=True)
try:
    executor.run(x, head)
except KeyboardInterrupt:
    print("interrupted", flush=True)
else:
    print("finished", flush=True)
"""


@pytest.mark.parametrize(
    ("strategy", "steps"), [("full", 1300), ("hsm", 100_000)], ids=["many actions", "one advance"]
)
def test_signals_are_served_all_the_time(strategy, steps):
    """Also where all actions are one chunk, or one action goes over most of the sequence."""
    cell = mb.LSTM(5, 256)
    x = np.zeros((steps, 64), np.uint8)
    head = mb.SoftmaxHead(256, 5).with_targets(x)
    memory = (steps if strategy == "full" else 2) * cell.internal_nbytes(64)
    executor = mb.Executor(cell, mb.schedule(steps, memory, strategy, cell, 64), 64)
    served = []

    def serve(number, frame):
        served.append(number)
        if len(served) == 3:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, serve)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.run(x, head)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("strategy", ["hsm", "lookahead", "disk"])
def test_ctrl_c_is_served_in_the_middle_of_a_run(strategy):
    budget = {"lookahead": "8_000_000"}.get(strategy, "300_000")
    program = INTERRUPTED.replace("300_000, sys", f"{budget}, sys")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, strategy],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        assert process.stdout.readline() == "running\n"
        threading.Event().wait(0.2)
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(30) == 0
