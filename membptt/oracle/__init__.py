"""Independent answers to compare with: full BPTT, differences, exhaustive search."""
