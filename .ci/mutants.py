"""Mutation tests: change one operator, number or condition, and see whether the tests notice.

    python .ci/mutants.py [--every N] [MODULE ...]

by default all modules of `TESTS`, in the current folder, which must hold a built copy of the
sources: files are changed in place, one mutant at a time, and put back. `tox run -e mutate` makes
such a copy. The mutants are those of Cosmic Ray. A mutant is killed when the tests named beside
its module fail, or take ten times as long as without it; the others are printed as a diff. With
--every N only each N-th is tried. Exit status 1 says that the tests fail without any mutant.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db

# Tests that fail soon stand first: pytest stops at the first failure.
SOLVER = "tests/solver/test_twins.py tests/solver/test_costs.py"
CELLS = "tests/cells/test_cells.py tests/cells/test_array_api.py"
TESTS = {
    "membptt/schedules/replay.py": "tests/schedules/test_replay.py",
    "membptt/solver/recurrences.py": "tests/solver/test_twins.py",
    "membptt/solver/bounds.py": "tests/solver/test_bounds.py",
    "membptt/solver/chains.py": "tests/solver/test_chains.py",
    "membptt/solver/disk.py": "tests/executor/test_disk.py",
    "membptt/solver/expand.py": "tests/executor/test_expand.py",
    "membptt/solver/lookahead.py": "tests/executor/test_lookahead.py",
    "membptt/solver/strategies.py": f"{SOLVER} tests/solver/test_bounds.py tests/schedules "
    "tests/executor/test_disk.py",
    "membptt/cells/base.py": f"{CELLS} tests/cells/test_noise.py tests/cells/test_custom.py "
    "tests/executor/test_misuse.py",
    "membptt/cells/custom.py": "tests/cells/test_custom.py",
    "membptt/cells/gru.py": CELLS,
    "membptt/cells/lstm.py": CELLS,
    "membptt/cells/noise.py": "tests/cells/test_noise.py",
    "membptt/cells/normalised.py": "tests/cells/test_normalised.py",
    "membptt/cells/packing.py": "tests/cells/test_packing.py",
    "membptt/cells/reduced.py": "tests/cells/test_reduced.py tests/executor/test_reduced.py",
    "membptt/cells/rnn.py": CELLS,
    "membptt/cells/stack.py": "tests/cells/test_stack.py tests/cells/test_noise.py",
}

# Each arithmetic operator becomes one other; Cosmic Ray has eleven for it, all noticed alike.
ARITHMETIC = {
    f"core/ReplaceBinaryOperator_{pair}"
    for pair in (
        "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Add", "Pow_Mul",
        "BitAnd_BitOr", "BitOr_BitAnd", "BitXor_BitOr", "LShift_RShift", "RShift_LShift",
    )
}  # fmt: skip
IDENTITY = re.compile(r"core/ReplaceComparisonOperator_\w+_Is(Not)?$")  # a comparison of numbers


def wanted(operator):
    """Return whether an operator of Cosmic Ray makes mutants that are worth their time."""
    if operator.startswith("core/ReplaceBinaryOperator"):
        return operator in ARITHMETIC
    return not IDENTITY.match(operator)


def mutants(module):
    """Return the mutants of a module in the order of their places."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        with use_db(file.name, WorkDB.Mode.open) as database:
            init([Path(module)], database, {})
            found = [item.mutations for item in database.pending_work_items]
    found = [item for item in found if wanted(item[0].operator_name)]
    return sorted(found, key=lambda item: (item[0].start_pos, item[0].operator_name))


def try_module(module, every):
    """Try the mutants of one module; print the survivors; return how many there were of each."""
    command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider {TESTS[module]}"
    start = time.monotonic()
    subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL)
    limit = 10 * (time.monotonic() - start)
    tried = mutants(module)[::every]
    survivors = 0
    for number, mutations in enumerate(tried, 1):
        result = mutate_and_test(mutations, command, limit)
        if not result.is_killed:
            survivors += 1
            print(f"{module}: {mutations[0].operator_name} survives\n{result.diff}", flush=True)
        print(f"{module}: {number} of {len(tried)}, {survivors} survive", end="\r", file=sys.stderr)
    print(f"{module}: {len(tried) - survivors} of {len(tried)} mutants killed", flush=True)
    return len(tried) - survivors, len(tried)


def main():
    """Try the modules that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    arguments = parser.parse_args()
    unknown = [module for module in arguments.modules if module not in TESTS]
    if unknown:
        parser.error(f"{unknown[0]} has no tests here; give some of {', '.join(TESTS)}")
    counts = [try_module(module, arguments.every) for module in arguments.modules or TESTS]
    killed, tried = map(sum, zip(*counts, strict=True))
    print(f"{killed} of {tried} mutants killed, {100 * killed / tried:.1f} %")


if __name__ == "__main__":
    main()
