"""One command run by several processes of MPI: one of them speaks, and a failure ends all."""

import contextlib
import os
import sys

from membptt.training.parallel import communicator


@contextlib.contextmanager
def ranks():
    """Yield MPI's communicator of all processes, or None where there is one.

    All but the first write to nowhere. An exception in one of them, wherever that is, ends all of
    them with its reason; otherwise the others would wait for it for ever.
    """
    comm = communicator()
    if comm is None:
        yield None
        return
    rank, speaks = comm.Get_rank(), sys.stderr
    with contextlib.ExitStack() as stack:
        if rank > 0:
            nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            stack.enter_context(nowhere)
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        try:
            yield comm
        except Together as error:  # all have it, and end by themselves; one says it
            if rank > 0:
                raise SystemExit(2) from error
            raise
        except BaseException as error:
            reason = str(error) or type(error).__name__
            print(f"membptt train: process {rank}: {reason}", file=speaks, flush=True)
            comm.Abort(2 if isinstance(error, ValueError) else 1)


class Together(ValueError):
    """What is wrong in one process, raised in all of them."""


@contextlib.contextmanager
def together(comm):
    """Raise in every process what is wrong in the first one that has something."""
    problem = None
    try:
        yield
    except (ValueError, OSError, ArithmeticError, MemoryError) as error:
        if comm is None:
            raise
        problem = str(error)
    if comm is None:
        return
    problems = [found for found in comm.allgather(problem) if found is not None]
    if problems:
        raise Together(problems[0])
