"""The cells' steps compiled: the same mathematics as membptt.cells, made fast. See kernels.h."""
