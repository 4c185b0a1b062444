"""Everything that only a GPU can show, in one run of at most eight minutes.

    python benchmarks/gpu.py --out gpu.json     with a CUDA device and membptt[cupy,test]
    python benchmarks/gpu.py                    without one: says what it would measure
    python benchmarks/gpu.py --dry              without one: runs what can run

In this order: the tests marked `gpu`; the bits of every strategy against full BPTT on the device
and against backend "cython"; memory under a limit of the pool of 1.1 times the predicted peak, and
how often the second iteration asks the pool; seconds of strategies at three sizes, interleaved; the
kernels against the cells' own code, and graphs against single launches; launches a step; the share
of the device's peak. Parts that would begin after the time is over are left out, and named; one
that fails is named with its error, the others run, and the exit code is 1. What is known is written
after every part: a machine may be taken away.

--dry puts the stand-in of the tests (tests/standin.py) in the place of CuPy and takes small sizes:
the same code runs, but for what asks the device itself. Its seconds say nothing about a GPU.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from statistics import median

import numpy as np

import membptt as mb
from membptt import arrays
from membptt.executor.executor import HOST_ONLY
from membptt.files import replacing
from membptt.kernels.cuda.chain import CudaChain
from membptt.solver import STRATEGIES

ROOT = Path(__file__).parents[1]
SECONDS = 480
ALPHABET = 64
SIZES = [(64, 512, 1000), (256, 1024, 1000), (1, 256, 10_000)]  # batch, hidden, steps
SMALL = [(2, 8, 30), (3, 5, 20), (1, 6, 40)]
TIMED = ("full", "hsm", "ism", "optimal", "expand")
SHARE = 0.05  # of full BPTT's memory
ROUNDS = 3
LANES, OPERATIONS = 128, 2  # of a multiprocessor (sm_80 and later), of a fused multiply-add


class Case:
    """An LSTM, a window of tokens, and a head with targets, on one backend."""

    def __init__(self, backend, batch, hidden, steps, kind=mb.LSTM):
        self.cell = kind(ALPHABET, hidden, backend=backend)
        self.head = mb.SoftmaxHead(hidden, ALPHABET, backend=backend)
        text = np.random.default_rng(0).integers(ALPHABET, size=(steps + 1, batch), dtype=np.int32)
        self.window = text[:-1], self.head.with_targets(text[1:])
        self.batch, self.steps = batch, steps
        self.full = steps * self.cell.internal_nbytes(batch)

    def executor(self, strategy):
        """Return an executor at 5 % of full BPTT's memory, or at what the strategy needs."""
        memory = self.full if strategy == "full" else int(self.full * SHARE)
        while True:
            try:
                plan = mb.schedule(self.steps, memory, strategy, self.cell, self.batch)
            except ValueError:
                memory = 2 * memory
                continue
            return mb.Executor(self.cell, plan, self.batch)

    def run(self, executor):
        return executor.run(*self.window)


def tests(_):
    """Run the tests marked `gpu`."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-m", "gpu", "-rs", "tests/gpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS / 2,
    )
    if ran.returncode:
        print(ran.stdout, ran.stderr)
        raise RuntimeError(f"pytest ends with {ran.returncode}")
    return {"last_line": ran.stdout.strip().splitlines()[-1]}


def bits(_):
    """Compare every strategy with full BPTT on the device, and that with backend "cython"."""
    found = {}
    for kind in (mb.RNN, mb.GRU, mb.LSTM):
        case, host = (Case(backend, 8, 96, 64, kind) for backend in ("cupy", "cython"))
        full = case.run(case.executor("full"))
        wanted = {name: arrays.to_host(value) for name, value in full.grads.items()}
        ours = host.run(host.executor("full")).grads
        same = {"cython": all((ours[name] == wanted[name]).all() for name in wanted)}
        for strategy in STRATEGIES:
            if strategy not in HOST_ONLY:
                grads = case.run(case.executor(strategy)).grads
                same[strategy] = all(
                    arrays.to_host(grads[name]).tobytes() == wanted[name].tobytes()
                    for name in wanted
                )
        found[kind.__name__] = same
    return found


def memory(device):
    """Run inside a pool of 1.1 times the predicted peak; count what a second run asks of it."""
    batch, hidden, steps = device.sizes[0]
    case = Case("cupy", batch, hidden, steps)
    executor = case.executor("optimal")
    predicted = case.run(executor).stats.device_peak_bytes
    found = {"predicted_peak_bytes": predicted, "budget_bytes": executor.schedule.budget}
    if device.dry:
        return found
    pool = device.xp.get_default_memory_pool()
    with device.counted() as count:
        case.run(executor)
    found["pool_requests_of_the_second_run"] = count.requests
    del case, executor
    gc.collect()
    pool.free_all_blocks()
    pool.set_limit(size=int(1.1 * predicted))
    try:
        case = Case("cupy", batch, hidden, steps)
        case.run(case.executor("optimal"))
        found["pool_bytes_under_the_limit"] = pool.total_bytes()
    finally:
        pool.set_limit(size=0)
    return found


def strategies(device):
    """Time iterations of each strategy, interleaved, over full BPTT's."""
    found = []
    for batch, hidden, steps in device.sizes:
        case = Case("cupy", batch, hidden, steps)
        executors = {strategy: case.executor(strategy) for strategy in TIMED}
        rounds = []
        for _ in range(ROUNDS + 1):
            rounds.append({name: device.seconds(case, ex) for name, ex in executors.items()})
        seconds = {name: median(row[name] for row in rounds[1:]) for name in executors}
        # three products with W_h a step: forward, back, and its gradient
        operations = 3 * 2 * steps * batch * 4 * hidden * hidden
        found.append(
            {
                "batch": batch,
                "hidden": hidden,
                "steps": steps,
                "seconds": seconds,
                "over_full": {name: value / seconds["full"] for name, value in seconds.items()},
                "flops_full": operations / seconds["full"],
                "share_of_peak": device.share(operations / seconds["full"]),
                **device.launches(executors["full"], steps),
            }
        )
    return found


def variants(device):
    """Time the kernels against the cells' own code, and with graphs against without."""
    found = []
    for batch, hidden, steps in device.sizes:
        steps = min(steps, 1000)
        case = Case("cupy", batch, hidden, steps)
        rows = []
        for _ in range(ROUNDS + 1):
            row = {}
            for name in ("graphs", "launches", "own code"):
                CudaChain.captures = name == "graphs"
                os.environ["MEMBPTT_CUDA_KERNELS"] = "0" if name == "own code" else "1"
                executor = case.executor("optimal")
                case.run(executor)  # compiles and captures
                row[name] = device.seconds(case, executor)
            rows.append(row)
        CudaChain.captures = True
        del os.environ["MEMBPTT_CUDA_KERNELS"]
        seconds = {name: median(row[name] for row in rows[1:]) for name in rows[0]}
        found.append({"batch": batch, "hidden": hidden, "steps": steps, "seconds": seconds})
    return found


class Device:
    """The CUDA device, or the stand-in for it."""

    def __init__(self, dry):
        self.dry = dry
        self.sizes = SMALL if dry else SIZES
        if dry:
            sys.path.insert(0, str(ROOT / "tests"))
            import standin

            arrays.device_module = standin.device_module
        self.xp = arrays.device_module()

    @property
    def name(self):
        """What it is."""
        if self.dry:
            return "a stand-in: nothing here was measured on a GPU"
        number = self.xp.cuda.Device().id
        return self.xp.cuda.runtime.getDeviceProperties(number)["name"].decode()

    def seconds(self, case, executor):
        """Return what a run takes until the device has nothing more to do."""
        started = time.perf_counter()
        case.run(executor)
        if not self.dry:
            self.xp.cuda.Device().synchronize()
        return time.perf_counter() - started

    def share(self, rate):
        """Return operations a second as a share of what all multiplying lanes can do."""
        if self.dry:
            return None
        attributes = self.xp.cuda.Device().attributes
        lanes = attributes["MultiProcessorCount"] * LANES
        return rate / (lanes * OPERATIONS * attributes["ClockRate"] * 1000)

    def launches(self, executor, steps):
        """Return kernels, and calls from the host, per step of the runs so far of full BPTT."""
        chain = executor.chain
        if not isinstance(chain, CudaChain):
            return {"kernels_per_step": None, "calls_per_step": None}
        steps *= ROUNDS + 1
        device = chain.device
        return {
            "kernels_per_step": device.launches / steps,
            "calls_per_step": device.calls / steps,
        }

    def counted(self):
        """Return a hook that counts what is asked of CuPy's pool, as a context."""

        class Count(self.xp.cuda.MemoryHook):
            name = "count"
            requests = 0

            def malloc_preprocess(self, **_):
                self.requests += 1

        return Count()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="gpu.json", help="where the numbers go (gpu.json)")
    parser.add_argument("--dry", action="store_true", help="without a device: what can run, runs")
    args = parser.parse_args()
    parts = [tests, bits, memory, strategies, variants]
    try:
        device = Device(args.dry)
    except ValueError as error:
        print(f"no device: {error}\nOn one, this command would, in {SECONDS} s at most:")
        for part in parts:
            print(f"  {part.__name__:<11} {part.__doc__}")
        print("--dry runs the same code on the stand-in of the tests, with small sizes.")
        return 0
    started = time.monotonic()
    found = {"device": device.name, "membptt": mb.__version__, "left_out": [], "failed": []}
    for part in parts:
        if time.monotonic() - started > SECONDS * 0.8:
            found["left_out"].append(part.__name__)
            continue
        try:
            found[part.__name__] = part(device)
        except Exception as error:
            traceback.print_exc()
            found[part.__name__] = {"error": f"{type(error).__name__}: {error}"}
            found["failed"].append(part.__name__)
        print(f"{part.__name__}: {json.dumps(found[part.__name__])}", flush=True)
        found["seconds"] = time.monotonic() - started
        with replacing(args.out) as file:
            json.dump(found, file, indent=1)
    print(f"{found['device']}; written to {args.out} after {found['seconds']:.0f} s")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
