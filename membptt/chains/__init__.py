"""Chains: a cell, a head and the inputs of one window, with the moves that an executor makes."""
