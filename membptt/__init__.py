"""Train recurrent networks on sequences of any length inside a memory budget in bytes.

>>> import membptt as mb
>>> import numpy as np
>>> cell = mb.LSTM(input_size=50, hidden_size=32)
>>> head = mb.SoftmaxHead(hidden_size=32, outputs=50)
>>> text = np.random.default_rng(0).integers(50, size=(1001, 4))  # 1000 steps, batch 4
>>> schedule = mb.schedule(1000, "77 KiB", cell=cell, batch=4)
>>> result = mb.bptt(cell, text[:-1], head.with_targets(text[1:]), schedule)
>>> full = mb.full_bptt(cell, text[:-1], head.with_targets(text[1:]))
>>> all((result.grads[name] == full.grads[name]).all() for name in full.grads)
True
>>> f"{result.stats.peak_bytes:,} bytes in place of {full.stats.peak_bytes:,}"
'78,848 bytes in place of 3,072,000'
>>> f"{result.stats.forward_steps} forward steps in place of {full.stats.forward_steps}"
'1999 forward steps in place of 1000'

The words and the mathematics stand beside the code; a newcomer follows ``membptt.cells``,
``membptt.solver``, ``membptt.schedules``, ``membptt.executor``.
"""

import importlib.util

if importlib.util.find_spec("membptt.kernels._kernels") is None:
    raise ImportError(
        "membptt's compiled modules are missing: this is its source tree, not an installation. Run "
        "`pip install .` and start Python elsewhere, or `pip install -e .` to work on the source."
    )

from membptt import _moved
from membptt._version import __version__
from membptt.baselines.truncated import truncated_bptt
from membptt.cells import (
    GRU,
    LSTM,
    RNN,
    Cell,
    Custom,
    LayerNormGRU,
    LayerNormLSTM,
    LayerNormRNN,
    Reduced,
    Stack,
)
from membptt.executor import (
    BidirectionalResult,
    Executor,
    Result,
    Stats,
    bptt,
    bptt_bidirectional,
    bptt_stream,
    evaluate,
)
from membptt.interchange import from_torch, load_params, save_params, to_torch
from membptt.memory import Units, parse_bytes
from membptt.oracle.approximation import GradientError, gradient_error
from membptt.oracle.differences import check_gradients, check_step
from membptt.oracle.full import full_bptt
from membptt.oracle.rtrl import rtrl
from membptt.schedules import PackedSchedule, Schedule, packed_schedule, schedule
from membptt.solver.expand import ExpandCost
from membptt.solver.strategies import forward_steps
from membptt.timing import disk_schedule, expand_schedule
from membptt.training import (
    SGD,
    Adam,
    AdamW,
    Corpus,
    LearningRate,
    LinearHead,
    SoftmaxHead,
    Trainer,
)

_moved.register()

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "SGD",
    "Adam",
    "AdamW",
    "BidirectionalResult",
    "Cell",
    "Corpus",
    "Custom",
    "Executor",
    "ExpandCost",
    "GradientError",
    "LayerNormGRU",
    "LayerNormLSTM",
    "LayerNormRNN",
    "LearningRate",
    "LinearHead",
    "PackedSchedule",
    "Reduced",
    "Result",
    "Schedule",
    "SoftmaxHead",
    "Stack",
    "Stats",
    "Trainer",
    "Units",
    "__version__",
    "bptt",
    "bptt_bidirectional",
    "bptt_stream",
    "check_gradients",
    "check_step",
    "disk_schedule",
    "evaluate",
    "expand_schedule",
    "forward_steps",
    "from_torch",
    "full_bptt",
    "gradient_error",
    "load_params",
    "packed_schedule",
    "parse_bytes",
    "rtrl",
    "save_params",
    "schedule",
    "to_torch",
    "truncated_bptt",
]
