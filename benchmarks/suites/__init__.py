"""asv suites: seconds, bytes and counts, each with a baseline in the same table.

Inputs are seeded. What is not installed is skipped (asv shows n/a). Everything runs on one thread.
asv imports NumPy before it comes here, so NumPy's threads are set outside: in asv.conf.json for the
environments that asv makes, by OPENBLAS_NUM_THREADS=1 before a command with --python=same.
"""

import importlib
import os

os.environ.setdefault("MEMBPTT_NUM_THREADS", "1")


def pytorch():
    """Return torch on one thread, or skip the benchmark that asks for it."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise NotImplementedError("PyTorch is not installed") from None
    torch.set_num_threads(1)
    return torch
