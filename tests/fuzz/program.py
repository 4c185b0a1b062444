"""The program under the fuzzer: run one command in this process, and judge what came of it.

It ends with 0, 1 where a check failed, 2 with one line of its own, or 130 after a Ctrl-C, and
soon; no file but those that it was asked to write is changed, and those are whole.
"""

import contextlib
import faulthandler
import io
import json
import os
import re
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from fuzz.arguments import parsers

from membptt.cli import check, main, reproduce
from membptt.cli.log import HEADER, KEYS
from membptt.training.checkpoint import load_checkpoint

PATIENCE = 4  # seconds until Ctrl-C: some commands are asked for more work than that
LIMIT = 60  # seconds after which a command hangs, on a machine with other work too
MEMORY = 3 * 2**30  # bytes that a command may take

MAY_FAIL = ("check", "reproduce", "schedule")  # whose exit code may be 1
OUTPUTS = ("--save", "--save-best", "--log", "--html", "--curve", "--out")


class Hung(BaseException):
    """A command did not end, not even by Ctrl-C."""


@dataclass
class Outcome:
    """What a command did."""

    words: list
    code: int
    out: str | None
    err: str
    seconds: float = 0.0


class Program:
    """Runs commands in a folder.

    Parameters
    ----------
    folder : path
        The current one.
    monkeypatch : pytest.MonkeyPatch
    """

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        monkeypatch.setattr(check, "LENGTHS", (1, 3))
        monkeypatch.setattr(reproduce, "all_costs", self.stopped)  # minutes of work begin there

    @staticmethod
    def stopped():
        raise KeyboardInterrupt

    def run(self, words, outputs=None, full=False):
        """Run a command and judge it; return the `Outcome`.

        `outputs` are paths and options of what it is asked to write, by default those on the
        command line. On a full disk a line of a log may be cut short.
        """
        before = contents(self.folder)
        outcome = run(words)
        judge(outcome)
        outputs = set(named(words) if outputs is None else outputs)
        after = contents(self.folder)
        for place in {**before, **after}:
            if before.get(place) != after.get(place):
                option = next((name for path, name in outputs if leads(path, place)), None)
                assert option, f"{place} was changed by {words}: {outcome.err}"
                whole(option, self.folder / place, outcome, full)
        return outcome


def run(words):
    """Return the `Outcome` of a command."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    started = time.monotonic()
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        with limits(started) as watch:
            code = main(list(words))
            watch.over = True
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return Outcome(list(words), code, out, err, time.monotonic() - started)


@contextlib.contextmanager
def limits(started):
    """Press Ctrl-C once after a while, raise `Hung` long after; bound the memory."""

    watch = SimpleNamespace(over=False)

    def alarm(*_):
        if watch.over:  # at the last moment
            return
        if time.monotonic() - started > LIMIT:
            raise Hung
        os.kill(os.getpid(), signal.SIGINT)

    faulthandler.dump_traceback_later(2 * LIMIT, exit=True, file=sys.__stderr__)
    kept = signal.signal(signal.SIGALRM, alarm)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, LIMIT)
    try:
        yield watch
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, kept)
        faulthandler.cancel_dump_traceback_later()


def judge(outcome):
    """Assert that a command ended as it may."""
    words, code, out, err = outcome.words, outcome.code, outcome.out, outcome.err
    told = f"membptt {' '.join(map(ascii, words))[:3000]}: {code} after {outcome.seconds:.1f} s"
    told = f"{told}\n{err[-3000:]}"
    assert code in (0, 2, 130) or (code == 1 and words[0] in MAY_FAIL), told
    assert "Traceback" not in err + (out or "") and "Warning:" not in err, told
    lines = err.split("\n")
    assert lines.pop() == "" or code == 0, told
    own = [line for line in lines if re.match("membptt(?! train: warning)", line)]
    if code == 2:
        assert len(own) == 1 and own[0] == lines[-1], told
        begun = any("; strategy " in line for line in lines)  # what is going to be trained
        begun |= "--json" in words and "[Errno" in own[0]  # what people read cannot be written
        assert begun or lines == own, told
        assert re.match(r"membptt( [a-z]+)?: error: .", own[0]), told
        assert names_what_is_wrong(own[0]), told
    elif code in (0, 1):
        assert own == [], told
        if out is not None and "--json" in words and not {"--help", "-h"} & set(words):
            strict(out.splitlines()[-1])


def names_what_is_wrong(line):
    """Return whether an error names an option or a file, or says what ran out and when."""
    dests = {action.dest for parser in parsers().values() for action in parser._actions}
    known = {*dests, *(dest.replace("_", "-") for dest in dests), "checkpoint", "hidden_size"}
    words = rf"(?<![\w-])(--)?({'|'.join(map(re.escape, known))})(?![\w-])"
    others = r"COMMAND|file '|unrecognized arguments|out of memory|\[Errno \d+\]|update \d+: "
    return re.search(f"{words}|{others}", line.partition("; see membptt")[0]) is not None


def strict(text):
    """Return what stands in JSON, without the words NaN and Infinity, which it has not."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON: {text[:3000]}")

    return json.loads(text, parse_constant=refuse)


def contents(folder):
    """Return what every file in a folder holds, None for a folder, by its path from there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        place = str(path.relative_to(folder))
        if path.is_symlink():
            found[place] = os.readlink(path)
        else:
            found[place] = path.read_bytes() if path.is_file() else None
    return found


def named(words):
    """Yield the path and the option of every output that is asked for."""
    for name, following in zip(words, [*words[1:], ""], strict=True):
        option, _, path = name.partition("=")
        for output in OUTPUTS:
            # An option may be shortened, as long as it is no other one.
            if option == output or (len(option) > 3 and output.startswith(option)):
                yield (path if "=" in name else following), output
    if words[0] == "reproduce":
        yield "reproduced", "--out"


def leads(path, place):
    """Return whether an output's path leads to a place in the current folder."""
    try:
        real = os.path.realpath(path)
    except ValueError:
        return False
    place = os.path.realpath(place)
    return real == place or place.startswith(real + os.sep)


def whole(option, path, outcome, full=False):
    """Assert that a file that was written is complete."""
    if option in ("--save", "--save-best"):
        load_checkpoint(path)
    elif option == "--log":
        records(path, cut=full)
    elif option in ("--html", "--curve"):
        end = path.read_bytes().strip()[-12:]
        assert end.endswith((b"</html>", b"</svg>", b"IEND\xaeB`\x82")), (path, end)
    else:
        assert outcome.code == 130 and path.is_dir() and not any(path.iterdir()), path


def records(path, cut=False):
    """Return the number of records of a log: whole ones, but for a last one if `cut`."""
    lines = path.read_text().split("\n")
    assert lines.pop() == "" or cut, f"{path} ends within a line"
    if path.suffix == ".csv":
        assert lines[:1] == [HEADER[:-1]] or (cut and not lines)
        del lines[:1]
        assert all(line.count(",") == len(KEYS) - 1 for line in lines)
    else:
        assert all(strict(line)["kind"] in ("update", "evaluation") for line in lines)
    return len(lines)
