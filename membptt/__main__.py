"""``python -m membptt``: the command line."""

import sys

from membptt.cli import main

if __name__ == "__main__":
    sys.exit(main())
