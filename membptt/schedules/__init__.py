"""Schedules: actions, the plans that produce them, and the machine that proves them legal."""

from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Free,
    Restore,
)
from membptt.schedules.replay import Replayed, ReplayError, replay
from membptt.schedules.schedule import Schedule, schedule
from membptt.schedules.tradeoff import TradeOff, cheapest_budget, trade_off

__all__ = [
    "Advance",
    "AdvanceSaveHidden",
    "AdvanceSaveInternal",
    "Backward",
    "Free",
    "ReplayError",
    "Replayed",
    "Restore",
    "Schedule",
    "TradeOff",
    "cheapest_budget",
    "replay",
    "schedule",
    "trade_off",
]
