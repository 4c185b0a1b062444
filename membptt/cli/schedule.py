"""``membptt schedule``: plan within a budget, and show the plan."""

import json

from membptt.checks import DTYPES
from membptt.cli.values import whole
from membptt.memory import Units
from membptt.schedules import schedule
from membptt.solver import STRATEGIES
from membptt.training.settings import CELLS, Settings
from membptt.view.svg import draw, page
from membptt.view.text import summary, table

# What a budget in bytes is counted with; the same defaults as `membptt train`.
CELL_DEFAULTS = {name: getattr(Settings, name) for name in ("cell", "hidden", "batch", "dtype")}


def add_arguments(subparsers):
    """Add the command to the parser of all commands."""
    parser = subparsers.add_parser(
        "schedule",
        help="plan within a memory budget, and show the plan",
        description="Plan one training iteration within a memory budget: how many forward steps "
        "it takes, what it saves, and each of its actions.",
    )
    parser.add_argument("--steps", type=whole, required=True, help="T, the length of the sequence")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--memory", help='bytes for saved states, such as "2 MiB"')
    budget.add_argument("--units", type=whole, help="memory as the strategy counts it")
    parser.add_argument("--alpha", type=whole, help="with --units: internal over hidden state (1)")
    sizes = parser.add_argument_group("with --memory, what the bytes are counted with")
    sizes.add_argument("--cell", choices=tuple(CELLS), help="kind of cell (lstm)")
    sizes.add_argument("--hidden", type=whole, help="hidden size (256)")
    sizes.add_argument("--batch", type=whole, help="sequences side by side (16)")
    sizes.add_argument("--dtype", choices=DTYPES, help="of the states (float32)")
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), default="optimal")
    parser.add_argument("--actions", action="store_true", help="print every action")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page with the drawing and every action (FILE.svg: the drawing alone)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def run(args, out):
    """Plan, print what people read to `out`, and the JSON object to standard output.

    Returns
    -------
    int
        The exit code: 0.
    """
    planned = plan(args)
    if args.actions:
        for line in table(planned):
            print(line, file=out)
    print(summary(planned), file=out)
    if args.html:
        write = draw if args.html.endswith(".svg") else page
        text = write(planned)
        with open(args.html, "w", encoding="utf-8") as file:
            file.write(text)
    if args.json:
        out.flush()
        print(json.dumps(report(planned)))
    return 0


def plan(args):
    """Return the schedule that the arguments ask for."""
    given = {name: getattr(args, name) for name in CELL_DEFAULTS}
    if args.memory is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"--{name} is {value} with --units; leave it out, or give --memory"
                )
        units = Units(args.units, 1 if args.alpha is None else args.alpha)
        return schedule(args.steps, units, args.strategy)
    if args.alpha is not None:
        raise ValueError(f"--alpha is {args.alpha} with --memory; leave it out: the cell fixes it")
    given = {name: CELL_DEFAULTS[name] if value is None else value for name, value in given.items()}
    # The input size does not matter to the size of the states.
    cell = CELLS[given["cell"]](1, given["hidden"], given["dtype"])
    return schedule(args.steps, args.memory, args.strategy, cell, given["batch"])


def report(planned):
    """Return the schedule's numbers as the JSON object has them."""
    return {
        "steps": planned.steps,
        "strategy": planned.strategy,
        "forward_steps": planned.forward_steps,
        "forward_steps_per_step": planned.forward_steps / planned.steps,
        f"peak_{planned.unit}": planned.peak_bytes,
        f"full_{planned.unit}": planned.full_bytes,
        "saved_fraction": planned.saved_fraction,
        "time_factor": planned.time_factor(),
    }
