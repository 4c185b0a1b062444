"""Command lines from the parser itself, so that a new option is tried as soon as it is there."""

import argparse
import functools

from membptt.cli import COMMANDS, make_parser
from membptt.cli.values import held_out, real, whole
from membptt.training.settings import DEPENDENT

# What makes a command small enough to be tried often; what is drawn comes behind it, and wins.
USUAL = {
    "train": ["--text=text", "--steps=5", "--batch=2", "--hidden=3", "--updates=2"],
    "sample": ["--resume=model.npz", "--length=5"],
    "schedule": ["--steps=9"],
    "explain": ["--steps=7", "--units=5"],
    "check": ["--cell=rnn", "--strategy=hsm", "--backend=numpy"],
    "reproduce": ["--out=out"],
}

FITTING = {
    "whole": ["1", "2", "3", "4", "6", "9"],
    "real": ["0.1", "0.25", "0.5", "0.9", "1", "2.5"],
    "bytes": ["600", "1kB", "4 KiB", "2MiB", "100000"],
    "path": "text valid model.npz run.toml log.csv link sub new.npz sub/new.csv dangling".split(),
    "text": ["", "a", "dé", "abc"],
}
# For options that want more of a value than the parser knows; others take one of the above.
PATHS = {
    "--config": ["run.toml"],
    "--text": ["text", "link"],
    "--valid": ["valid", "text", "0.2"],
    "--resume": ["model.npz"],
    "--save": ["new.npz", "model.npz", "dangling", "sub/new"],
    "--save-best": ["best.npz", "sub/best"],
    "--log": ["new.csv", "new.jsonl", "log.csv", "log.jsonl", "sub/new.csv"],
    "--disk": ["sub", "."],
    "--html": ["new.svg", "new.html", "text"],
    "--curve": ["new.svg", "new.png", "text"],
    "--out": ["sub", "out", "sub/out/new"],
}
OWN = PATHS | {
    "--max-slowdown": ["1", "1.33", "2.5"],
    "--dropout": ["0", "0.5"],
    "--recurrent-dropout": ["0", "0.5"],
    "--zoneout": ["0", "0.5"],
    "--momentum": ["0", "0.5"],
    "--decay-to": ["0.5", "1"],
    "--parts": ["1", "2"],
    "--units": ["9", "12", "40"],
    "--expand-cost": ["0", "0.5"],
}
# Options that mean something only beside others.
BESIDE = {
    f"--{name}".replace("_", "-"): [f"--{other}={values[0]}"]
    for name, (other, values, _) in DEPENDENT.items()
} | {
    "--eval-every": ["--valid=valid"],
    "--patience": ["--valid=valid"],
    "--save-best": ["--valid=valid"],
    "--dropout": ["--layers=2"],
    "--compare": ["--html=new.html"],
    "--expand-cost": ["--strategy=expand"],
}

NASTY = {
    "whole": [
        *"0 -1 -0 +2 1_0 ١ 1.0 1e3 0x10 nan inf true 65536 1000000 2147483648".split(),
        *"9223372036854775807 9223372036854775808 18446744073709551616".split(),
        *[" 3 ", "9" * 60, "9" * 5000],
    ],
    "real": ["-1", "-0.0", "1e-320", "1e-400", "1e20", "1e400", "nan", "inf", "-inf", "0x1", "1,5"],
    "bytes": [
        *"0 -1 1 -2MiB 1EiB 1e30B 1e400B nanB infMiB ½MiB 2apples MiB 2MiBMiB 1e-3B 0x10 ²".split(),
        *["1.5 B", "2 mib", "9999999999 GiB", "9" * 400 + "B"],
    ],
    "path": [
        *"empty bytes nowhere no/such/file no/such/new.csv loop . / ~ - sub/ text/x".split(),
        *"text/new.csv /dev/null /dev/full /dev/zero /proc/self/mem /proc/self/new.csv".split(),
        *["n" * 300, "n" * 251 + ".csv", "é☃.csv", "a\nb.csv"],
    ],
    "text": ["x", "☃", "a" * 10_000],
}
ALWAYS_NASTY = ["", " ", "\0", "a\0b", "\udcff", "a\nb", "a\r\nb", "\x1b[31m", "--", "--json", "-1"]


def kind(action):
    """Return what an option takes, as far as the parser knows."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.type in (whole, int):
        return "whole"
    if action.type in (real, float):
        return "real"
    if action.type is held_out or "FILE" in metavar or "DIR" in metavar:
        return "path"
    return {"BYTES": "bytes"}.get(metavar, "text")


def value(rng, action, nasty):
    """Return one value for an option: one that fits, or a nasty one with this probability."""
    if rng.random() >= nasty:
        own = OWN.get(action.option_strings[-1], FITTING[kind(action)])
        return rng.choice(list(action.choices or own))
    if rng.random() < 0.2:
        return rng.choice(ALWAYS_NASTY)
    other = rng.random() < 0.2 or action.choices is not None
    return rng.choice(NASTY[rng.choice(sorted(NASTY)) if other else kind(action)])


def counted(rng, action):
    """Return how many values an option is given."""
    if action.nargs in ("+", "*"):
        return rng.randint(1, 3)
    if action.nargs == "?":
        return rng.randint(0, 1)
    return 1 if action.nargs is None else action.nargs


def words_of(rng, action, nasty):
    """Return the words of one option, and those that it means something beside."""
    name = rng.choice(action.option_strings)
    values = [value(rng, action, nasty) for _ in range(counted(rng, action))]
    beside = [] if rng.random() < nasty else BESIDE.get(name, [])
    if rng.random() < nasty / 10:  # too few or too many
        values = values[1:] if rng.random() < 0.5 else [*values, "more"]
    if len(values) == 1 and rng.random() < 0.5:
        return [*beside, f"{name}={values[0]}"]
    return [*beside, name, *values]


@functools.cache
def parsers():
    """Return the parser of each command by its name."""
    (found,) = (
        action
        for action in make_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert set(found.choices) == set(COMMANDS)
    return found.choices


def options(parser):
    """Return the options of a command's parser but --help."""
    return [action for action in parser._actions if action.dest != "help"]


def drawn(rng, parser, given, nasty):
    """Return the options that a command line has, in any order."""
    share = rng.choice([0.04, 0.1, 0.2])
    chosen = []
    for action in options(parser):
        missing = action.required and not given.intersection(action.option_strings)
        if rng.random() < (1 - nasty / 10 if missing else share):
            chosen.append(action)
    for group in parser._mutually_exclusive_groups:  # one of them, most of the time
        if rng.random() >= nasty / 2:
            chosen = [action for action in chosen if action not in group._group_actions]
            chosen.append(rng.choice(group._group_actions))
    rng.shuffle(chosen)
    return chosen


def command_line(rng, command=None, nasty=None):
    """Return a command and words for it.

    Parameters
    ----------
    rng : random.Random
    command : str, optional
        By default any.
    nasty : float, optional
        The probability that a value is one that nobody should give; by default several.
    """
    known = parsers()
    weights = [4 if name == "train" else 3 if name == "schedule" else 1 for name in known]
    command = command or rng.choices(list(known), weights)[0]
    nasty = rng.choice([0, 0.05, 0.2, 0.5]) if nasty is None else nasty
    words = list(USUAL.get(command, ()))
    if rng.random() < nasty / 5:
        words = words[1:]
    given = {word.split("=")[0] for word in words}
    for action in drawn(rng, known[command], given, nasty):
        words += words_of(rng, action, nasty)
    return [command, *words]
