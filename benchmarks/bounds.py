"""The bounds of the paper beside the exact costs of hsm: a table, and a drawing.

    python benchmarks/bounds.py                    the table
    python benchmarks/bounds.py --plot bounds.png  drawn too; needs matplotlib (extra: plot)

C(t, m) <= m t^(1 + 1/m), Gruslys et al. (2016), section 3.1. The exact forward steps per step grow
by regimes: from binomial(m + r - 1, m) to binomial(m + r, m) steps, one more step costs r + 1. For
long sequences the bound is above by a factor that tends to (m + 1) / (m!)^(1/m), between 2 and e;
for short ones by much more. tests/solver/test_bounds.py asserts bound and regimes.
"""

import argparse
from math import comb

import numpy as np

from membptt.solver import forward_steps

UNITS = (1, 2, 3, 5, 10, 20, 50)


def rows(longest):
    """Yield (t, m, C / t, bound / t, r) for lengths spaced geometrically."""
    for m in UNITS:
        for t in np.unique(np.geomspace(1, longest, 40).round().astype(int)).tolist():
            regime = next(r for r in range(t + 1) if comb(m + r, m) >= t)
            yield t, m, forward_steps(t, m, "hsm") / t, m * t ** (1 / m), regime


def plot(table, path):
    """Draw exact costs as lines and bounds as dashes, one colour for each m."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.8), dpi=144)
    axes = figure.subplots()
    for number, m in enumerate(UNITS):
        t, exact, bound = np.array([(r[0], r[2], r[3]) for r in table if r[1] == m]).T
        axes.plot(t, exact, color=f"C{number}", label=f"m = {m}")
        axes.plot(t, bound, color=f"C{number}", linestyle="--", linewidth=0.8)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(1, 1000),
        xlabel="steps t",
        ylabel="forward steps per step; dashed: m t^(1/m)",
        title="hsm and the bound of the paper",
    )
    axes.legend()
    figure.savefig(path)


def main():
    """Print every fifth row, and draw all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=int, default=1_000_000)
    parser.add_argument("--plot", metavar="FILE")
    args = parser.parse_args()
    table = list(rows(args.longest))
    print(f"{'t':>9}{'m':>5}{'C / t':>12}{'bound / t':>12}{'r':>7}")
    for t, m, exact, bound, regime in table[::5]:
        print(f"{t:>9}{m:>5}{exact:>12.3f}{bound:>12.3f}{regime:>7}")
    if args.plot:
        plot(table, args.plot)


if __name__ == "__main__":
    main()
