"""What a benchmark compares with, or one line that says how to get it."""

import importlib
import sys
from pathlib import Path


def needed(module, install):
    """Return a module by its name; where it is not installed, end with the command to do that."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        sys.exit(f"{Path(sys.argv[0]).name} needs {module.split('.')[0]}: {install}")
