"""The program as a process: streams that are closed or full, other letters, signals at any time."""

import os
import signal
import subprocess
import sys
import time

from fuzz.arguments import command_line
from fuzz.program import Outcome, judge, records

from membptt.training.checkpoint import load_checkpoint

ONE_OF = 8  # cases: each is a process of its own
COMMAND = [sys.executable, "-P", "-X", "faulthandler", "-m", "membptt"]


def process(words, **options):
    return subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options
    )


def ended(started):
    """Return what a process wrote until it ended, or fail with where all its threads are."""
    try:
        return started.communicate(timeout=120)[1].decode()
    except subprocess.TimeoutExpired:
        started.send_signal(signal.SIGABRT)  # faulthandler
        raise AssertionError(started.communicate()[1].decode()) from None


def usable(words):
    """Leave out what no argument of a process can hold."""
    return [word.replace("\0", "") for word in words]


def test_streams(rng, folder):
    """Whoever reads the output may have gone, and its letters may be few."""
    words = usable(command_line(rng, rng.choice(["train", "sample", "schedule", "explain"]), 0.02))
    env = os.environ | {"PYTHONIOENCODING": rng.choice(["ascii", "latin-1", "utf-8"])}
    output = rng.choice(["/dev/full", "/dev/null", "closed"])
    with open(os.devnull if output == "closed" else output, "w") as target:
        with process(words, env=env, stdout=target) as started:
            err = started.communicate(timeout=120)[1].decode("utf-8", "replace")
    if output == "/dev/full" and started.returncode == 2:
        assert "No space left on device" in err or "error: " in err
    judge(Outcome(words, started.returncode, None, err))


def test_signals(rng, folder):
    """After a signal in training, what is saved can be gone on with, and nothing else is left."""
    before = set(os.listdir(folder))
    words = ["train", "--text=text", "--steps=20", "--batch=2", "--hidden=8", "--updates=1000000"]
    words += ["--save=new.npz", "--log=new.jsonl", "--valid=valid", "--eval-every=3"]
    words += ["--save-best=best.npz", *rng.choice([[], ["--strategy=disk", "--disk=."]])]
    number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    with process(words, stdout=subprocess.DEVNULL) as started:
        assert b"; strategy " in started.stderr.readline()  # all is imported
        time.sleep(rng.uniform(0, 1))
        started.send_signal(number)
        err = ended(started)
    left = set(os.listdir(folder)) - before
    for name in left & {"new.npz", "best.npz"}:
        load_checkpoint(folder / name)
    if number == signal.SIGKILL:  # a file may have been half written, beside its place
        return
    assert left <= {"new.npz", "best.npz", "new.jsonl"}
    # Python ends by SIGINT, 130 to a shell, if that came while it was defining a class.
    assert started.returncode in (130, -signal.SIGINT), err
    assert "interrupted" in err and "Traceback" not in err, err
    records(folder / "new.jsonl")
