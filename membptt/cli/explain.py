"""``membptt explain``: the dynamic programme at work, split by split."""

import json

from membptt.cli.values import whole
from membptt.view.explain import (
    FORMULAS,
    MOST_STEPS,
    PROGRAMMES,
    as_json,
    explain,
    node_lines,
    table_lines,
)
from membptt.view.text import summary, table, words


def add_arguments(subparsers):
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "explain",
        help="show the dynamic programme at work: every split, what else it could be, and why",
        description="Show how a schedule comes about: the candidate splits with their costs, why "
        "this one, the table of costs with the path through it, and the actions.",
    )
    parser.add_argument(
        "--steps", type=whole, required=True, help=f"T, the length, up to {MOST_STEPS}"
    )
    parser.add_argument(
        "--units", type=whole, required=True, help="memory as the strategy counts it"
    )
    parser.add_argument(
        "--alpha", type=whole, default=1, help="internal over hidden state (default: 1; LSTM 3)"
    )
    parser.add_argument("--strategy", choices=PROGRAMMES, default="optimal")
    parser.add_argument(
        "--all",
        action="store_true",
        help="every split in the order of execution, not only those of the first sweep",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def run(args, out):
    """Explain to people on `out`, and write the JSON object to standard output.

    Returns
    -------
    int
        The exit code.
    """
    found = explain(args.steps, args.units, args.strategy, args.alpha)
    for line in lines(found, args.all):
        print(line, file=out)
    if args.json:
        out.flush()
        report = {
            "steps": args.steps,
            "units": args.units,
            "alpha": args.alpha,
            "strategy": args.strategy,
            "forward_steps": found.schedule.forward_steps,
            "nodes": as_json(found),
            "actions": [words(action) for action in found.schedule],
        }
        print(json.dumps(report))
    return 0


def lines(found, everything):
    """Yield what people read."""
    yield summary(found.schedule)
    yield ""
    formula = FORMULAS[found.programme].replace("m-1-α", f"m-{1 + found.alpha}")
    yield formula.replace("α", str(found.alpha))
    if found.programme != found.schedule.strategy:
        yield "With α = 1 internal states always serve better, and optimal is ism."
    shown = [node for node in found.nodes if everything or node.sweep]
    title = "Every split, in the order of execution" if everything else "Splits of the first sweep"
    yield f"\n{title}: first run + the steps right of the saved state + those left of it\n"
    for node in shown:
        yield from node_lines(node)
    rest = len(found.nodes) - len(shown)
    if rest:
        yield f"{rest} more on the way back: --all shows them"
    yield "\nThe table; a star marks what the schedule goes through\n"
    yield from table_lines(found)
    yield "\nThe actions\n"
    yield from table(found.schedule)
