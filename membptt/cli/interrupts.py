"""Ctrl-C while training: the update under way is finished, so that what is saved is whole."""

import contextlib
import os
import signal
import threading

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nstopping after this update; once more to end at once\n"


class Deferred:
    """Notes the first SIGINT or SIGTERM inside ``with``; the second one ends the process at once.

    Attributes
    ----------
    asked : bool
        Whether a signal has come.
    """

    def __init__(self):
        self.asked = False
        self.kept = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self.kept = {number: signal.signal(number, self.note) for number in SIGNALS}
        return self

    def __exit__(self, *_):
        for number, handler in self.kept.items():
            signal.signal(number, handler)

    def note(self, number, frame):
        """Remember it; leave the next signal to the system, which needs no turn of Python's."""
        self.asked = True
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            os.write(2, NOTICE)
