"""``membptt check``: every schedule against full BPTT to the bit, and both against differences."""

import json
import math
from argparse import SUPPRESS

import numpy as np

from membptt.arrays import BACKENDS, to_host, usable
from membptt.cells import GRU, LSTM, Stack
from membptt.checks import DTYPES
from membptt.executor import bptt
from membptt.executor.executor import HOST_ONLY
from membptt.heads import LinearHead, SoftmaxHead
from membptt.oracle.differences import check_gradients
from membptt.oracle.full import full_bptt
from membptt.schedules import schedule
from membptt.solver import STRATEGIES
from membptt.solver.strategies import Sizes
from membptt.training.settings import CELLS

BATCH, INPUTS, HIDDEN, OUTPUTS = 3, 4, 7, 5
STACK = "stack"  # a GRU with an LSTM on it
KINDS = (*CELLS, STACK)
USUAL = ("lstm", "rnn", "gru", STACK)  # layer normalisation takes as long again, if asked for
LENGTHS = (1, 2, 3, 13)


def add_arguments(subparsers):
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "check",
        help="check gradients: every schedule against full BPTT, and against differences",
        description="Compare loss, gradients and last state of every schedule with full BPTT, bit "
        "for bit, and the gradients with central differences in float64. Exit code 1 if one fails.",
    )
    parser.add_argument(
        "--cell", choices=KINDS, default=SUPPRESS, help=f"default: {', '.join(USUAL)}"
    )
    parser.add_argument(
        "--strategy", choices=tuple(STRATEGIES), default=SUPPRESS, help="default: all"
    )
    parser.add_argument(
        "--backend", choices=("auto", *BACKENDS), default="auto", help="default: all that run here"
    )
    parser.add_argument("--json", action="store_true", help="report as JSON, the last line")


def run(args, out):
    """Check, print what people read to `out`, and the JSON object to standard output.

    Returns
    -------
    int
        The exit code: 0, or 1 if a case failed.
    """
    cells = [args.cell] if "cell" in args else list(USUAL)
    strategies = [args.strategy] if "strategy" in args else list(STRATEGIES)
    backends = [args.backend]
    if args.backend == "auto":
        backends = [backend for backend in BACKENDS if usable(backend)]
    cases = failures = 0
    largest = 0.0
    for cell in cells:
        for backend in backends:
            for title, differences, tolerance in groups(cell, strategies, backend):
                failed = sum(not difference <= tolerance for difference in differences)
                worst = float(np.max(differences))
                verdict = "FAIL" if failed else "ok  "
                print(
                    f"{verdict} {cell:<7} {backend:<7} {title:<32} {len(differences):>4} cases, "
                    f"{failed} failed, largest difference {worst:.1e}",
                    file=out,
                )
                cases += len(differences)
                failures += failed
                largest = float(np.maximum(largest, worst))
    print(f"{cases} cases, {failures} failed, largest difference {largest:.1e}", file=out)
    if args.json:
        out.flush()
        report = {"ok": failures == 0, "cases": cases, "failures": failures}
        number = largest if math.isfinite(largest) else None  # JSON has no NaN
        print(json.dumps(report | {"max_difference": number}))
    return 1 if failures else 0


def groups(cell, strategies, backend):
    """Yield title, differences and tolerance of each group of cases."""
    for strategy in strategies:
        if backend == "cupy" and strategy in HOST_ONLY and len(strategies) > 1:
            continue  # asked for alone, it is refused with the reason
        for dtype in DTYPES:
            title = f"{strategy}, {dtype}: to the bit"
            yield title, list(bit_differences(cell, strategy, backend, dtype)), 0.0
        yield f"{strategy}, float64: differences", list(slopes(cell, strategy, backend)), 1e-6


def bit_differences(cell, strategy, backend, dtype):
    """Yield the largest difference from full BPTT of each schedule: 0.0 where all bits agree."""
    for steps in LENGTHS:
        for dense in (False, True):
            model, inputs, head, state = problem(cell, backend, dtype, steps, dense)
            full = full_bptt(model, inputs, head, state)
            for budget in budgets(model, strategy, steps):
                plan = schedule(steps, budget, strategy, model, BATCH)
                yield difference(bptt(model, inputs, head, plan, state), full)


def slopes(cell, strategy, backend):
    """Yield the largest relative difference from central differences, at the least budget."""
    for dense in (False, True):
        model, inputs, head, state = problem(cell, backend, "float64", 7, dense)
        plan = schedule(7, budgets(model, strategy, 7)[0], strategy, model, BATCH)
        yield check_gradients(model, inputs, head, plan, state, samples=12).max_difference


def problem(cell, backend, dtype, steps, dense):
    """Return a small cell, inputs, a head with targets, and an initial state, all random."""
    generator = np.random.default_rng(steps)
    if cell == STACK:
        beneath = GRU(INPUTS, HIDDEN - 2, dtype, steps, backend)
        model = Stack([beneath, LSTM(HIDDEN - 2, HIDDEN, dtype, steps + 1, backend)])
    else:
        model = CELLS[cell](INPUTS, HIDDEN, dtype, seed=steps, backend=backend)
    state = tuple(
        generator.standard_normal(shape).astype(dtype) for shape in model.hidden_shapes(BATCH)
    )
    if dense:
        inputs = generator.standard_normal((steps, BATCH, INPUTS)).astype(dtype)
        targets = generator.standard_normal((steps, BATCH, OUTPUTS)).astype(dtype)
        head = LinearHead(HIDDEN, OUTPUTS, dtype, backend=backend)
        return model, inputs, head.with_targets(targets), state
    inputs = generator.integers(INPUTS, size=(steps, BATCH))
    targets = generator.integers(OUTPUTS, size=(steps, BATCH))
    head = SoftmaxHead(HIDDEN, OUTPUTS, dtype, backend=backend)
    return model, inputs, head.with_targets(targets), state


def budgets(model, strategy, steps):
    """Return the least budget in bytes, four above it, and one above every need."""
    sizes = Sizes(model.hidden_nbytes(BATCH), model.internal_nbytes(BATCH))
    least = STRATEGIES[strategy].least_budget(steps, sizes)
    most = steps * sizes.internal
    between = [least + (most - least) * part // 5 for part in range(5)]
    return [*sorted(set(between)), most + sizes.hidden]


def difference(result, full):
    """Return the largest absolute difference of two results; NaN where one is NaN."""
    pairs = [(result.loss, full.loss)]
    pairs += [(result.grads[name], full.grads[name]) for name in full.grads]
    pairs += zip(result.state + result.state_grad, full.state + full.state_grad, strict=True)
    differences = [
        np.abs(np.subtract(to_host(mine), to_host(theirs))).max() for mine, theirs in pairs
    ]
    return float(np.max(differences))  # Python's max drops a NaN that is not the first
