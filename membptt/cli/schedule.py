"""``membptt schedule``: plan within a budget, and show the plan."""

import json
from dataclasses import asdict
from math import isnan

from membptt.cells.packing import FORMATS
from membptt.checks import DTYPES, integer
from membptt.cli.values import real, whole
from membptt.files import replacing
from membptt.heads import SoftmaxHead
from membptt.kernels.threads import useful_threads
from membptt.memory import Units
from membptt.oracle.proof import MOST_STEPS, prove
from membptt.schedules import cheapest_budget, schedule, trade_off
from membptt.solver import STRATEGIES
from membptt.solver.expand import ExpandCost
from membptt.solver.strategies import Sizes
from membptt.timing.moves import measure, plan_in_seconds, run_seconds
from membptt.training.corpus import Corpus
from membptt.training.settings import CELLS, Settings, make_cell
from membptt.view.curve import curve_table, save_curve
from membptt.view.svg import draw
from membptt.view.text import summary, table
from membptt.view.viewer import page

LONGEST_RUN = 30  # seconds; a schedule that is predicted to take longer is not run by --measure

# What a budget in bytes is counted with; the same defaults as `membptt train`.
CELL_DEFAULTS = {
    name: getattr(Settings, name)
    for name in ("cell", "hidden", "layers", "batch", "dtype", "internal")
}


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
    budget.add_argument("--memory", metavar="BYTES", help='for saved states, such as "2 MiB"')
    budget.add_argument("--units", type=whole, help="memory as the strategy counts it")
    budget.add_argument(
        "--max-slowdown",
        type=real,
        metavar="X",
        help="the least memory for at most X times the time of full BPTT, such as 1.33",
    )
    budget.add_argument(
        "--curve",
        nargs="?",
        const="",
        metavar="FILE",
        help="time against memory for every strategy; FILE.svg or FILE.png: drawn",
    )
    parser.add_argument(
        "--alpha", type=whole, help="count in units: internal over hidden state (1)"
    )
    sizes = parser.add_argument_group("what bytes are counted with, unless --units or --alpha")
    sizes.add_argument("--cell", choices=tuple(CELLS), help="kind of cell (lstm)")
    sizes.add_argument("--hidden", type=whole, help="hidden size (256)")
    sizes.add_argument("--layers", type=whole, help="layers on one another (1)")
    sizes.add_argument("--batch", type=whole, help="sequences side by side (16)")
    sizes.add_argument("--dtype", choices=DTYPES, help="of the states (float32)")
    sizes.add_argument(
        "--internal", choices=FORMATS, help="of reduced internal states; gradients approximate"
    )
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), default="optimal")
    parser.add_argument(
        "--expand-cost",
        nargs=2,
        type=real,
        metavar=("FIXED", "PER_STEP"),
        help="with --strategy expand: computing q steps at once costs FIXED + PER_STEP q forward "
        "steps (default: 0 0.5; --measure finds out)",
    )
    parser.add_argument("--actions", action="store_true", help="print every action")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page that plays the actions and explains them (FILE.svg: a drawing alone)",
    )
    parser.add_argument(
        "--compare",
        nargs="+",
        choices=tuple(STRATEGIES),
        metavar="S",
        default=[],
        help="with --html: these strategies beside it, at the same budget",
    )
    parser.add_argument(
        "--prove",
        action="store_true",
        help=f"execute it, and compare with every schedule there is (up to {MOST_STEPS} steps)",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="time the cell on this machine, plan for seconds, and run the plan once",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def run(args, out):
    """Plan, print what people read to `out`, and the JSON object to standard output.

    Returns
    -------
    int
        The exit code: 0, or 1 where a proof fails.
    """
    if args.curve is not None:
        return run_curve(args, out)
    if args.prove:
        check_provable(args.steps)
    planned, timed = plan(args), None
    if args.measure:  # after planning: wrong arguments are told at once
        timed = Timed(args)
        planned = plan(args, timed)
    if args.html == "":
        raise ValueError("--html is ''; give a file, such as schedule.html")
    if args.html or args.compare:  # before anything is printed: it may not be possible
        write_html(args, planned)
    if args.actions:
        for line in table(planned):
            print(line, file=out)
    print(summary(planned), file=out)
    result, code = report(planned), 0
    if timed is not None:
        result |= timed.report(planned, out)
    if args.prove:
        proof = proved(args, planned)
        print(proof, file=out)
        code = 0 if proof.holds else 1
        result["executed"], result["exhaustive"] = proof.executed, proof.exhaustive
        result["network"], result["same_bits"] = proof.network, proof.same_bits
    write_json(args, out, result)
    return code


def write_html(args, planned):
    """Write the page, or the drawing alone."""
    if not args.html or (args.compare and args.html.endswith(".svg")):
        raise ValueError(
            f"--compare is {' '.join(args.compare)} without a page; give --html FILE.html too"
        )
    others = [beside(planned, name, args) for name in args.compare]
    if args.html.endswith(".svg"):
        text = draw(planned)
    else:
        sizes = counted_with(args)
        text = page(
            planned,
            others,
            cell=sizes.get("cell"),
            batch=sizes.get("batch", 1),
            command=args.line,
        )
    with replacing(args.html) as file:
        file.write(text)


def beside(planned, name, args):
    """Return the schedule of another strategy that may use as much memory as `planned`."""
    if planned.unit == "bytes":
        sizes = counted_with(args)
        return schedule(planned.steps, planned.budget, name, sizes["cell"], sizes["batch"])
    sizes = Sizes(planned.hidden, planned.internal)
    least = STRATEGIES[name].least_budget(planned.steps, sizes)
    if planned.budget < least:
        raise ValueError(
            f"--compare is {name}, which needs {least} hidden states' memory for {planned.steps} "
            f"steps; {planned.strategy} was given {planned.budget}: give more, or leave it out"
        )
    units = STRATEGIES[name].units(planned.steps, planned.budget, sizes)
    return schedule(planned.steps, Units(units, planned.internal), name)


def run_curve(args, out):
    """Print the trade-off of time and memory, and draw it if a file was named."""
    for name in ("actions", "html", "prove", "compare", "measure"):
        if getattr(args, name):
            raise ValueError(f"--{name} was given with --curve; leave it out, or give a budget")
    curve = trade_off(args.steps, **counted_with(args))
    if args.curve:
        save_curve(curve, args.curve)
    for line in curve_table(curve):
        print(line, file=out)
    costs = {
        name: [None if isnan(cost) else int(cost) for cost in row.tolist()]
        for name, row in curve.forward_steps.items()
    }
    result = {
        "steps": curve.steps,
        f"memory_{curve.unit}": curve.memory.tolist(),
        "forward_steps": costs,
    }
    write_json(args, out, result)
    return 0


def write_json(args, out, result):
    """Print `result` as the last line, if it was asked for."""
    if args.json:
        out.flush()
        print(json.dumps(result))


def check_provable(steps):
    """Raise unless a schedule of so many steps is small enough to be proved."""
    if steps > MOST_STEPS:
        raise ValueError(
            f"--steps is {steps} with --prove, which looks at every schedule; give at most "
            f"{MOST_STEPS}"
        )


def proved(args, planned):
    """Return the proof of a small schedule, on the user's cell if there is one."""
    sizes = counted_with(args)
    return prove(planned, sizes.get("cell"), sizes.get("batch", 1))


def plan(args, timed=None):
    """Return the schedule that the arguments ask for; for seconds where times were measured."""
    sizes = counted_with(args)
    memory = args.memory
    if args.units is not None:
        memory = Units(args.units, sizes["alpha"])
    elif args.max_slowdown is not None:
        memory = cheapest_budget(args.steps, args.max_slowdown, args.strategy, **sizes)
    asked = args.steps, memory, args.strategy, sizes.get("cell"), sizes.get("batch", 1)
    if timed is not None:
        return timed.plan(*asked)
    return schedule(*asked, expand_cost=expand_cost(args))


def expand_cost(args):
    """Return the price of an expansion that was given, or None."""
    if args.expand_cost is None:
        return None
    try:
        return ExpandCost(*args.expand_cost)
    except ValueError as error:  # it has the names of the two numbers
        raise ValueError(f"--expand-cost: {error}") from None


class Timed:
    """The cell as `membptt train` would make it, and what its moves take on this machine."""

    def __init__(self, args):
        sizes = counted_with(args)
        if "cell" not in sizes:
            option = "--units" if args.units is not None else "--alpha"
            raise ValueError(f"--measure was given with {option}; give --memory, and a cell")
        outputs = len(Corpus.default().alphabet)
        self.cell = asked_cell(args, outputs)
        self.head = SoftmaxHead(self.cell.hidden_size, outputs, self.cell.dtype)
        self.batch = sizes["batch"]
        self.times = measure(self.cell, self.head, self.batch)
        self.in_seconds = False

    def plan(self, *asked):
        """Return the schedule for the least seconds."""
        planned, self.in_seconds = plan_in_seconds(self.times, *asked)
        return planned

    def report(self, planned, out):
        """Print what was measured, predicted and run; return it for the JSON object."""
        times, predicted = self.times, self.times.seconds(planned)
        full = times.full_seconds(planned.steps)
        threads = useful_threads(self.cell, self.batch)
        print(
            f"measured on {threads} thread{'s' * (threads > 1)}: forward {_time(times.forward)}, "
            f"backward {_time(times.backward)}; saving a hidden state {_time(times.save_hidden)}, "
            f"an internal one {_time(times.save_internal)}, restore {_time(times.restore)}; "
            f"{_time(times.run)} once a run\n"
            f"planned for {'seconds' if self.in_seconds else 'forward steps'}: predicted "
            f"{_time(predicted)}, full BPTT {_time(full)}, factor {predicted / full:.3f}",
            file=out,
        )
        found = None
        if predicted <= LONGEST_RUN:
            found = run_seconds(planned, self.cell, self.head, self.batch)
            print(
                f"one run took {_time(found)}, {abs(found / predicted - 1):.1%} "
                f"{'more' if found >= predicted else 'less'} than predicted",
                file=out,
            )
        else:
            print(f"not run: it would take more than {LONGEST_RUN} s", file=out)
        return {
            "measured": asdict(times),
            "planned_for": "seconds" if self.in_seconds else "forward_steps",
            "predicted_seconds": predicted,
            "predicted_full_seconds": full,
            "run_seconds": found,
        }


def _time(seconds):
    """Return a time for people, three digits."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def counted_with(args):
    """Return what memory is counted with: alpha for units, else a cell and its batch."""
    given = {name: getattr(args, name) for name in CELL_DEFAULTS}
    if args.memory is None and (args.units is not None or args.alpha is not None):
        option = "--units" if args.units is not None else "--alpha"
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"--{name} is {value} with {option}; leave it out, or give --memory"
                )
        return {"alpha": 1 if args.alpha is None else args.alpha}
    if args.alpha is not None:
        raise ValueError(f"--alpha is {args.alpha} with --memory; leave it out: the cell fixes it")
    # The input size does not matter to the size of the states.
    batch = CELL_DEFAULTS["batch"] if args.batch is None else args.batch
    return {"cell": asked_cell(args, inputs=1), "batch": batch}


def asked_cell(args, inputs):
    """Return the cell that the arguments ask for, with so many inputs."""
    names = "cell", "hidden", "layers", "dtype", "internal"
    given = {name: getattr(args, name) for name in names}
    kind, hidden, layers, dtype, internal = (
        CELL_DEFAULTS[name] if value is None else value for name, value in given.items()
    )
    layers = integer("--layers", layers, minimum=1)
    return make_cell(kind, inputs, hidden, layers, dtype, internal=internal)


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
        **({} if planned.lower_bound is None else {"lower_bound": planned.lower_bound}),
        **({} if planned.expand_cost is None else expansions(planned)),
    }


def expansions(planned):
    """Return what a schedule of strategy expand does beside forward steps."""
    price = planned.expand_cost
    return {
        "expansions": planned.expansions,
        "expanded_steps": planned.expanded_steps,
        "expand_cost": [price.fixed, price.per_step],
    }
