"""``membptt reproduce``: the figures and numbers of two papers, with this program's beside them."""

import json
import os

from membptt.checks import integer
from membptt.cli.values import whole
from membptt.paper import all_costs, disk_costs, measure, measure_disk, write_report
from membptt.paper.report import text


def add_arguments(subparsers):
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "reproduce",
        help="the papers' figures and numbers, with this program's beside them",
        description="Compute the figures and numbers of Gruslys et al. (2016) and Kukreja et al. "
        "(2018) that this program can state, measure time and memory on this machine, with and "
        "without a disk, and write figures, a report and all numbers. One to two minutes.",
    )
    parser.add_argument(
        "--out", metavar="DIR", default="reproduced", help="folder for the report (reproduced)"
    )
    parser.add_argument("--hidden", type=whole, default=128, help="LSTM that is measured (128)")
    parser.add_argument("--batch", type=whole, default=16, help="its batch (16)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def run(args, out):
    """Compute, measure, write; print what people read to `out`, and the JSON object to stdout.

    Returns
    -------
    int
        The exit code: 1 if a claim does not hold.
    """
    say = lambda line: print(line, file=out, flush=True)  # noqa: E731
    for name in ("hidden", "batch"):  # before minutes of work
        integer(name, getattr(args, name), minimum=1)
    make_folder(args.out)
    say("costs ...")
    numbers = all_costs()
    say("time and memory ...")
    numbers["measured"] = measure(args.hidden, args.batch, progress=say)
    say("states on disk ...")
    numbers["disk"] = disk_costs()
    numbers["disk_measured"] = measure_disk()
    files = write_report(args.out, numbers)
    for line in text(numbers):
        say(line)
    say(f"{args.out}: {', '.join(files)}")
    ok = all(one["holds"] for one in numbers["claims"] + numbers["disk"]["claims"])
    if args.json:
        report = {"ok": ok, "out": args.out, "files": files}
        report |= {name: value for name, value in numbers.items() if name != "figures"}
        report["disk"] = {"claims": numbers["disk"]["claims"]}
        print(json.dumps(report))
    return 0 if ok else 1


def make_folder(path):
    """Make the folder for the report, or raise a ValueError that says why that cannot be."""
    try:
        os.makedirs(path, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ValueError(
            f"out is {path!r}, which can be no folder ({getattr(error, 'strerror', error)}); give "
            "another place"
        ) from None
    if not os.access(path, os.W_OK):
        raise ValueError(f"out is {path!r}, where nothing can be written; give another place")
