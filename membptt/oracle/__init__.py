"""Independent answers to compare with: full BPTT, forward mode, differences, exhaustive search."""
