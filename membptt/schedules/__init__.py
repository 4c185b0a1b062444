"""Schedules: actions, the plans that produce them, and the machine that proves them legal."""

from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Drop,
    Expand,
    Fetch,
    Free,
    Prefetch,
    Restore,
    Store,
)
from membptt.schedules.online import OnlineSchedule, online_actions
from membptt.schedules.packed import PackedSchedule, packed_schedule
from membptt.schedules.replay import Replayed, ReplayError, replay
from membptt.schedules.schedule import Schedule, schedule
from membptt.schedules.tradeoff import TradeOff, cheapest_budget, trade_off
from membptt.schedules.uneven import ChainSchedule, chain_schedule

AnySchedule = Schedule | ChainSchedule | PackedSchedule  # what an executor runs

__all__ = [
    "Advance",
    "AdvanceSaveHidden",
    "AdvanceSaveInternal",
    "Backward",
    "ChainSchedule",
    "Drop",
    "Expand",
    "Fetch",
    "Free",
    "OnlineSchedule",
    "PackedSchedule",
    "Prefetch",
    "ReplayError",
    "Replayed",
    "Restore",
    "Schedule",
    "Store",
    "TradeOff",
    "chain_schedule",
    "cheapest_budget",
    "online_actions",
    "packed_schedule",
    "replay",
    "schedule",
    "trade_off",
]
