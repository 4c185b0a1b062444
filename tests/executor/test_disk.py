"""Strategy disk: the same bits, nothing left behind, every damage an error naming the step."""

import errno
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import membptt as mb
from membptt.executor import _spill
from membptt.schedules import actions, replay
from membptt.solver.disk import shortest_interval
from membptt.timing import disk


def plan(case, budget=None, interval=None):
    steps, batch = case.inputs.shape[:2]
    hidden, internal = case.cell.hidden_nbytes(batch), case.cell.internal_nbytes(batch)
    budget = budget or 4 * internal + 3 * hidden
    return mb.schedule(steps, budget, "disk", case.cell, batch, interval)


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("size", [(1, 1, 3), (2, 1, 3), (3, 2, 5), (10, 2, 5), (53, 3, 8)], ids=str)
def test_bits_budget_and_trace(window, bits, tmp_path, cell, size, backend):
    steps, batch, hidden = size
    case = window(cell, steps, batch, 5, hidden, 6, backend=backend, tokens=steps % 2 == 0)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    sizes = case.cell.hidden_nbytes(batch), case.cell.internal_nbytes(batch)
    for slots in (1, 2, 3, 7):
        budget = slots * sizes[1] + 3 * sizes[0]
        for interval in (None, 1, 2, 5, 13):
            schedule = plan(case, budget, interval)
            proved = schedule.replay()
            assert proved.forward_steps == schedule.forward_steps
            assert proved.peak == schedule.peak_bytes <= budget
            for slow in (False, True):
                executor = mb.Executor(
                    case.cell, schedule, batch, record=True, step_through=slow, disk=tmp_path
                )
                result = executor.run(case.inputs, case.head, case.state)
                assert bits(result) == wanted
                assert result.stats.forward_steps == schedule.forward_steps
                assert result.stats.peak_bytes == schedule.peak_bytes == result.trace[:, 3].max()
                assert (result.trace[:, :3] == np.concatenate(list(schedule.codes()))).all()
                check_transfers(schedule, result)
    assert list(tmp_path.iterdir()) == []


def check_transfers(schedule, result):
    """Every stored state is written once and read once, and the bytes are those."""
    if schedule.intervals is None:
        assert result.stats.disk_written_bytes == 0
        return
    interval = schedule.intervals.interval
    stored = [interval * i for i in range(1, schedule.intervals.count - 1)]
    written = result.transfers[result.transfers[:, 0] == 0, 1].tolist()
    read = result.transfers[result.transfers[:, 0] == 1, 1].tolist()
    assert written == stored and read == stored[::-1]
    each = schedule.hidden + 16
    assert result.stats.disk_written_bytes == result.stats.disk_read_bytes == each * len(stored)
    assert schedule.disk_bytes == schedule.hidden * len(stored)


def test_slow_storage_slows_down_and_loses_nothing(window, bits, tmp_path):
    case = window(T=40)
    wanted = bits(mb.full_bptt(*case.arguments()))
    schedule = plan(case, interval=2)
    rate = (schedule.hidden + 16) / 0.005  # five milliseconds a state: far more than two steps take
    slow = mb.Executor(case.cell, schedule, 2, record=True, disk=tmp_path, disk_rate=rate)
    result = slow.run(case.inputs, case.head)
    assert bits(result) == wanted
    assert result.stats.peak_bytes <= schedule.budget
    assert result.stats.disk_waited_seconds > 0
    assert result.stats.disk_hidden_fraction < 0.5
    assert (result.transfers[:, 3] - result.transfers[:, 2] >= 0.0035).all()


class AtStep:
    """A head without parameters that does something at one step."""

    kernel = None

    def __init__(self, step, act):
        self.params = {}
        self.step = step
        self.act = act

    def forward_backward(self, step, h, grads):
        if step == self.step:
            self.act()
        return float((h * h).sum()) / 2, h


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda fd, at: os.pwrite(fd, b"\x55", at + 3), "step 12 on disk was changed"),
        (lambda fd, at: os.pwrite(fd, b"\x55", at + 64), "step 12 on disk was changed"),
        (lambda fd, at: os.pwrite(fd, os.pread(fd, 80, 0), at), "step 12 on disk was changed"),
        (lambda fd, at: os.ftruncate(fd, at + 10), r"step \d+ on disk is cut short"),
    ],
)
def test_damaged_states_are_named(window, tmp_path, slow, damage, message):
    case = window(T=40)
    schedule = plan(case, interval=4)
    executor = mb.Executor(case.cell, schedule, 2, step_through=slow, disk=tmp_path)
    place = (12 // 4 - 1) * (schedule.hidden + 16)  # of the state after step 12
    head = AtStep(30, lambda: damage(executor.spill.fd, place))
    with pytest.raises(OSError, match=message):
        executor.run(case.inputs, head)
    executor.run(case.inputs, AtStep(30, lambda: None))  # the next run works
    assert list(tmp_path.iterdir()) == []


def test_every_single_flipped_bit_is_found(window, tmp_path):
    case = window(T=20)
    schedule = plan(case, interval=4)
    executor = mb.Executor(case.cell, schedule, 2, disk=tmp_path)
    record = schedule.hidden + 16
    for bit in range(0, 8 * record, 37):

        def flip(at=bit // 8, mask=1 << bit % 8):
            fd = executor.spill.fd
            os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ mask]), at)

        with pytest.raises(OSError, match="state of step 4 on disk was changed"):
            executor.run(case.inputs, AtStep(18, flip))


def test_an_exception_in_a_head_leaves_nothing(window, tmp_path):
    def fail():
        raise RuntimeError("at step 23")

    case = window(T=40)
    executor = mb.Executor(case.cell, plan(case, interval=3), 2, disk=tmp_path)
    threads_before = threading.active_count()
    open_before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(RuntimeError, match="at step 23"):
            executor.run(case.inputs, AtStep(23, fail))
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert threading.active_count() == threads_before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slow", [False, True])
def test_a_write_that_fails_is_an_error(window, tmp_path, monkeypatch, slow):
    def read_only(folder, nbytes):
        path = tmp_path / "fixed"
        path.write_bytes(bytes(nbytes))
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(_spill, "spill_file", read_only)
    case = window(T=40)
    executor = mb.Executor(case.cell, plan(case, interval=4), 2, step_through=slow, disk=tmp_path)
    with pytest.raises(OSError, match="state of step 4 on disk: Bad file descriptor"):
        executor.run(case.inputs, case.head)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_is_refused_before_anything_runs(window, tmp_path, monkeypatch, number):
    def full(fd, at, nbytes):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", full)
    case = window(T=40)
    executor = mb.Executor(case.cell, plan(case, interval=4), 2, disk=tmp_path)
    with pytest.raises(ValueError, match=r"disk is '.*': needs \d+ bytes, \d+ are free"):
        executor.run(case.inputs, case.head)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_used(window, tmp_path):
    case = window(T=40)
    schedule = plan(case, interval=4)
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(ValueError, match="give a folder that exists and can be written to"):
            mb.Executor(case.cell, schedule, 2, disk=folder).run(case.inputs, case.head)
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(ValueError, match="Permission denied"):
            mb.Executor(case.cell, schedule, 2, disk=tmp_path).run(case.inputs, case.head)


def test_a_file_system_without_nameless_files(window, bits, tmp_path, monkeypatch):
    real = os.open

    def refuse(path, flags, *rest, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    case = window(T=40)
    result = mb.Executor(case.cell, plan(case, interval=4), 2, disk=tmp_path).run(
        case.inputs, case.head
    )
    assert bits(result) == bits(mb.full_bptt(*case.arguments()))
    assert list(tmp_path.iterdir()) == []


def test_two_runs_in_one_folder(window, bits, tmp_path):
    cases = [window(T=40, seed=seed) for seed in (1, 2)]
    executors = [mb.Executor(c.cell, plan(c, interval=2), 2, disk=tmp_path) for c in cases]
    results = [None, None]

    def run(i):
        for _ in range(10):
            results[i] = executors[i].run(cases[i].inputs, cases[i].head)

    threads = [threading.Thread(target=run, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for case, result in zip(cases, results, strict=True):
        assert bits(result) == bits(mb.full_bptt(*case.arguments()))


KILLED = """
import sys
import numpy as np
import membptt as mb

cell = mb.RNN(5, 8)
tokens = np.zeros((400, 1), np.uint8)
head = mb.SoftmaxHead(8, 5).with_targets(tokens)
schedule = mb.schedule(400, 1000, "disk", cell, 1, interval=2)
print("running", flush=True)
mb.Executor(cell, schedule, 1, disk=sys.argv[1], disk_rate=1000).run(tokens, head)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_nothing(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        assert process.wait(30) == -number
    assert list(tmp_path.iterdir()) == []


def test_rows_that_use_storage_wrongly_are_refused(window):
    store, prefetch, fetch, drop = (
        getattr(actions, name)(4) for name in ("Store", "Prefetch", "Fetch", "Drop")
    )
    run = actions.Advance(0, 4)
    for rows, reason in [
        ([store], "the working state is h_0"),
        ([run, prefetch], "h_4 was not stored"),
        ([run, store, fetch], "h_4 was not prefetched"),
        ([run, store, drop], "h_4 was not prefetched"),
        ([run, store, store], "h_4 is stored already"),
        ([run, store, prefetch, prefetch], "h_4 is in a buffer already"),
    ]:
        with pytest.raises(ValueError, match=reason):
            replay(rows, 9, buffers=2)
    with pytest.raises(ValueError, match="all 1 buffers are taken"):
        replay([run, store, prefetch, actions.Advance(4, 5), actions.Store(5)], 9, buffers=1)


def test_the_interval_follows_from_the_three_bounds():
    assert shortest_interval(1000, 3 + 30, 1, 3) == 10  # memory: ten internal states
    assert shortest_interval(1000, 3 + 30, 1, 3, disk_budget=50) == 20  # disk: fifty states
    assert shortest_interval(1000, 33, 1, 3, forward_seconds=1, transfer_seconds=39.5) == 40
    assert shortest_interval(5, 33, 1, 3) == 5


def test_forward_steps_a_step_do_not_depend_on_the_length():
    for strategy_budget in (4, 40):
        units = mb.Units(3 + 3 * strategy_budget, alpha=3)
        per_step = [mb.schedule(T, units, "disk").forward_steps / T for T in (1000, 10**5, 10**6)]
        assert max(per_step) <= 2 and min(per_step) > 1.9


@pytest.mark.parametrize("steps", [65_535, 65_536, 65_537])
def test_lengths_around_two_to_the_sixteenth(window, bits, tmp_path, steps):
    case = window("rnn", T=steps, B=1, H=2)
    wanted = bits(mb.full_bptt(*case.arguments()))
    executor = mb.Executor(case.cell, plan(case, interval=100), 1, disk=tmp_path)
    assert bits(executor.run(case.inputs, case.head)) == wanted


def test_planning_measures_the_folder_and_the_cell(window, tmp_path):
    case = window(T=400)
    _, speed = disk.disk_schedule(400, "2 KiB", case.cell, 2, tmp_path)
    assert speed.forward_seconds > 0 and speed.write_rate > 0 and speed.read_rate > 0
    assert speed.latency > 0
    fast = disk.DiskSpeed(1.0, 1e9, 1e9, 0.0)
    shortest, _ = disk.disk_schedule(400, "2 KiB", case.cell, 2, tmp_path, speed=fast)
    assert shortest.intervals.interval == (2048 - 3 * 64) // 192  # of internal states, no longer
    slow = disk.DiskSpeed(1.0, 1.0, 1.0, 0.0)
    waiting, _ = disk.disk_schedule(400, "2 KiB", case.cell, 2, tmp_path, speed=slow)
    assert waiting.intervals.interval == case.cell.hidden_nbytes(2)  # a second a byte and a step
    late = disk.DiskSpeed(1e-6, 1e9, 1e9, 5e-5)  # a transfer of any size takes fifty steps
    later, _ = disk.disk_schedule(400, "2 KiB", case.cell, 2, tmp_path, speed=late)
    assert later.intervals.interval == 51
    small, _ = disk.disk_schedule(400, "2 KiB", case.cell, 2, tmp_path, "1 KiB", speed)
    assert small.disk_bytes <= 1024


def test_saved_and_loaded(tmp_path):
    schedule = mb.schedule(100, mb.Units(40, alpha=3), "disk", interval=20)
    schedule.save(tmp_path / "plan.json")
    loaded = mb.Schedule.load(tmp_path / "plan.json")
    assert loaded == schedule and loaded.intervals.interval == 20


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"interval": 0}, "interval is 0; give at least 1"),
        ({"interval": 3, "strategy": "hsm"}, "interval is 3 with strategy hsm; it is for disk"),
        ({"memory": mb.Units(5, alpha=3)}, "strategy disk needs at least 6"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        mb.schedule(**({"steps": 9, "memory": mb.Units(9, 3), "strategy": "disk"} | arguments))


@pytest.fixture
def small_file_system(tmp_path):
    """Return a folder on a file system of one MiB in memory, where the system lets us have one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_file_system_that_is_really_full(small_file_system, window, bits):
    """Too little room is said before the run; what fits runs, and nothing stays behind."""
    case = window("lstm", T=400, B=4, H=32)
    hidden, budget = case.cell.hidden_nbytes(4), 8 * case.cell.internal_nbytes(4)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    (small_file_system / "other").write_bytes(bytes(2**20 - 40 * hidden))
    for interval, fits in ((4, False), (40, True)):
        planned = plan(case, budget, interval)
        executor = mb.Executor(case.cell, planned, 4, disk=small_file_system)
        if fits:
            assert bits(executor.run(case.inputs, case.head, case.state)) == wanted
        else:
            with pytest.raises(ValueError, match=r"needs \d+ bytes, \d+ are free; give another"):
                executor.run(case.inputs, case.head, case.state)
        assert [file.name for file in small_file_system.iterdir()] == ["other"]


def test_a_folder_that_goes_away_while_it_is_used(tmp_path, window, bits):
    """The file has no name there: the run goes on."""
    case = window("lstm", T=60, B=2, H=8)
    folder = tmp_path / "gone"
    folder.mkdir()

    class Head:
        kernel, params = None, case.head.params

        def forward_backward(self, step, h, grads):
            if step == 60 and folder.exists():
                folder.rmdir()
            return case.head.forward_backward(step, h, grads)

    budget = 8 * case.cell.internal_nbytes(2)
    executor = mb.Executor(case.cell, plan(case, budget, 6), 2, disk=folder)
    result = executor.run(case.inputs, Head(), case.state)
    assert not folder.exists() and result.stats.disk_written_bytes > 0
    assert bits(result) == bits(mb.full_bptt(case.cell, case.inputs, Head(), case.state))
