"""Gruslys et al. (2016) once more: its figures and numbers, with this program's beside them."""

from membptt.paper.costs import all_costs
from membptt.paper.measured import measure
from membptt.paper.report import write_report

__all__ = ["all_costs", "measure", "write_report"]
