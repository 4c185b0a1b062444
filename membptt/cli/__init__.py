"""The command line: ``membptt`` and the commands in COMMANDS.

Exit codes: 0 fine, 1 a check failed, 2 wrong usage or bad input (one line on stderr), 130 on
Ctrl-C.
"""

import argparse
import os
import shlex
import signal
import sys
import threading

from membptt._version import __version__
from membptt.cli import check, explain, reproduce, sample, schedule, train

FINE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
COMMANDS = {
    "train": train,
    "sample": sample,
    "schedule": schedule,
    "explain": explain,
    "check": check,
    "reproduce": reproduce,
}


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def _get_values(self, action, arg_strings):
        """Return an option's values; argparse would drop the one of ``--option=--``."""
        if action.option_strings and "--" in arg_strings:
            raise argparse.ArgumentError(action, "'--' is no value; give another one")
        return super()._get_values(action, arg_strings)

    def error(self, message):
        """End with exit code 2 and one line."""
        self.exit(WRONG, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def make_parser():
    """Return the parser of all commands."""
    parser = Parser(
        prog="membptt",
        description="Train recurrent networks on long sequences inside a memory budget in bytes, "
        "with the exact gradients of full backpropagation through time.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS.values():
        command.add_arguments(subparsers)
    return parser


def ready(name):
    """See that a standard stream takes what is written, be it closed or of few letters."""
    stream = getattr(sys, name)
    if stream is None:
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    elif hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def main(argv=None):
    """Run one command.

    Parameters
    ----------
    argv : list of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code.
    """
    for stream in ("stdout", "stderr"):
        ready(stream)
    argv = join_negative_values(sys.argv[1:] if argv is None else argv)
    name = "membptt"
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread:  # a SIGTERM ends like a Ctrl-C
        kept = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        args = make_parser().parse_args(argv)
        args.line = shlex.join(["membptt", *argv])
        name = f"membptt {args.command}"
        # With --json the last line of stdout is for programs, all else is for people.
        code = COMMANDS[args.command].run(args, sys.stderr if args.json else sys.stdout)
        sys.stdout.flush()
        return code
    except SystemExit as ending:  # argparse: --help, --version, wrong usage
        return ending.code or FINE
    except KeyboardInterrupt:
        return fail(f"{name}: interrupted", INTERRUPTED)
    except BrokenPipeError:  # whoever reads the output has seen enough
        silence(sys.stdout)
        return FINE
    except MemoryError as error:
        reason = str(error) or "the system has none left"
        return fail(f"{name}: error: out of memory ({reason}); make the problem smaller")
    except OSError as error:
        silence(sys.stdout)
        return fail(f"{name}: error: {error}; make room for it, or give another place")
    except (ValueError, ArithmeticError) as error:
        return fail(f"{name}: error: {error}")
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, kept)


def join_negative_values(argv):
    """Write ``--memory -2MiB`` as ``--memory=-2MiB``, which argparse takes for a value too.

    Examples
    --------
    >>> join_negative_values(["--memory", "-2MiB", "--json"])
    ['--memory=-2MiB', '--json']
    """
    joined = []
    for argument in argv:
        option = joined[-1] if joined else ""
        if argument[:1] == "-" and argument[1:2].isdigit() and option[:2] == "--":
            joined[-1] = f"{option}={argument}"
        else:
            joined.append(argument)
    return joined


def fail(line, code=WRONG):
    """Say why in one line and return the exit code."""
    try:
        print(" ".join(line.split()), file=sys.stderr)
    except OSError:
        silence(sys.stderr)
    return code


def silence(stream):
    """Let what is still buffered go nowhere: flushing it at the exit would fail once more."""
    try:
        target = stream.fileno()
    except (OSError, ValueError):  # not a real file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
