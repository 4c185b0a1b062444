"""Heads: output layers with a loss, and the interface of every head that a run calls."""

from membptt.heads.outputs import BoundHead, Head, LinearHead, SoftmaxHead

__all__ = ["BoundHead", "Head", "LinearHead", "SoftmaxHead"]
