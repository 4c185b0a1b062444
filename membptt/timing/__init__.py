"""Measures what this machine takes for each move, and plans for that."""

from membptt.timing.disk import disk_schedule
from membptt.timing.expand import expand_schedule

__all__ = ["disk_schedule", "expand_schedule"]
