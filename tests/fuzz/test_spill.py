"""States on disk that are damaged while they are in use: an error that names one, or right bits."""

import errno
import os
import resource

import numpy as np

import membptt as mb
from membptt.executor import _spill

T, B, D, H = 40, 2, 5, 4

TRAIN = "train --text=text --steps=50 --batch=2 --hidden=3 --updates=9 --valid=valid --eval-every=2"
LINES = [
    f"{TRAIN} --save=new.npz --log=new.jsonl --save-best=best.npz",
    f"{TRAIN} --save=new.npz --log=new.csv --strategy=disk --disk=.",
    "train --resume=model.npz --text=text --updates=9 --save=model.npz --log=log.csv",
    "schedule --steps=9 --units=9 --html=new.html",
    "schedule --steps=9 --alpha=3 --curve=new.svg",
]


class Meddling:
    """A head that does something at one step of the backward sweep."""

    kernel = None

    def __init__(self, head, step, act):
        self.bound, self.params, self.step, self.act = head, head.params, step, act

    def forward_backward(self, step, h, grads):
        if step == self.step:
            self.act()
        return self.bound.forward_backward(step, h, grads)


def problem(rng):
    generator = np.random.default_rng(rng.randrange(100))
    cell = rng.choice([mb.RNN, mb.GRU, mb.LSTM])(D, H)
    tokens = generator.integers(D, size=(T + 1, B))
    return cell, tokens[:-1], mb.SoftmaxHead(H, D).with_targets(tokens[1:])


def damages(rng, fd, size):
    """Return what can happen to the file."""
    at = rng.randrange(size)
    return rng.choice(
        [
            lambda: os.pwrite(fd, rng.randbytes(rng.choice([1, 8, 40])), at),
            lambda: os.pwrite(fd, bytes(rng.choice([1, 100, size])), at),
            lambda: os.pwrite(fd, os.pread(fd, size, 0)[at:], rng.randrange(size)),
            lambda: os.ftruncate(fd, at),
            lambda: os.ftruncate(fd, 3 * size),
            lambda: os.fsync(fd),
        ]
    )


def test_damage_while_in_use(rng, tmp_path):
    cell, inputs, head = problem(rng)
    hidden, internal = cell.hidden_nbytes(B), cell.internal_nbytes(B)
    interval = rng.choice([1, 2, 3, 4, 7])
    schedule = mb.schedule(T, 4 * internal + 3 * hidden, "disk", cell, B, interval)
    executor = mb.Executor(cell, schedule, B, step_through=rng.random() < 0.5, disk=tmp_path)
    size = (T - 1) // interval * (hidden + 16)
    opened = len(os.listdir("/proc/self/fd"))

    def act():
        for _ in range(rng.choice([1, 2])):
            damages(rng, executor.spill.fd, size)()

    calm = Meddling(head, 0, None)
    full = mb.full_bptt(cell, inputs, calm)
    try:
        result = executor.run(inputs, Meddling(head, rng.randrange(1, T + 1), act))
    except OSError as error:
        assert "state of step " in str(error) and "\n" not in str(error)
    else:
        assert all((result.grads[name] == full.grads[name]).all() for name in full.grads)
    again = executor.run(inputs, calm)
    assert all((again.grads[name] == full.grads[name]).all() for name in full.grads)
    assert len(os.listdir("/proc/self/fd")) == opened and os.listdir(tmp_path) == []


def test_a_disk_that_is_full(rng, program, monkeypatch):
    """No file grows beyond a size: of what is saved, logged, drawn, and of states on disk."""
    words = rng.choice(LINES).split()
    if rng.random() < 0.2:
        monkeypatch.setattr(_spill.os, "posix_fallocate", no_room)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(10 ** rng.uniform(1, 6)), hard))
    try:
        program.run(words, full=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def no_room(fd, at, nbytes):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
