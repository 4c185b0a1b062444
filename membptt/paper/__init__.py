"""Gruslys et al. (2016) and Kukreja et al. (2018) once more: their numbers, and ours beside."""

from membptt.paper.costs import all_costs
from membptt.paper.disk import disk_costs, measure_disk
from membptt.paper.measured import measure
from membptt.paper.report import write_report

__all__ = ["all_costs", "disk_costs", "measure", "measure_disk", "write_report"]
