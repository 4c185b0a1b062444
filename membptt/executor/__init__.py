"""Runs schedules: states in an arena of exactly the budget, every step explicit."""

from membptt.executor.bidirectional import bptt_bidirectional
from membptt.executor.evaluate import evaluate
from membptt.executor.executor import Executor, bptt
from membptt.executor.result import BidirectionalResult, Result, Stats
from membptt.executor.stream import bptt_stream

__all__ = [
    "BidirectionalResult",
    "Executor",
    "Result",
    "Stats",
    "bptt",
    "bptt_bidirectional",
    "bptt_stream",
    "evaluate",
]
