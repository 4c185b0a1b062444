"""One batch over several processes, with the same bits however many there are.

The rows of a batch are cut into P parts. Every part is back-propagated on its own, within the
budget, and the gradients are added up in a binary tree over the parts:

    sum(i, i + 1) = g_i        sum(i, j) = sum(i, m) + sum(m, j),  m = (i + j) / 2

N processes take P / N neighbouring parts each. A process adds its own parts up as they come; then,
in log2 N rounds, partners exchange their sums and both add them: every process ends with the same
sum, and its bits depend on P alone, since the tree does and an addition of two numbers does not
depend on their order. The usual all-reduce may move fewer bytes, 2 (N - 1) / N
gradients for each process instead of log2 N, and adds in an order that depends on N.

The gradient of a recurrent network's weights is complete only when the first step has been
back-propagated, so there is nothing that could be sent before the end of a part; what is sent while
the next part runs would save at most one of log2 N rounds where P > N, and nothing where P = N.
"""

import os
from dataclasses import replace

import numpy as np

from membptt.arrays import from_host, namespace, on_device, synchronize, to_host
from membptt.checks import integer, one_of
from membptt.kernels.threads import most_stated

# Set by mpirun of Open MPI, MPICH and others, and by srun.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")
REDUCTIONS = ("tree", "all-reduce")
CUDA_AWARE = "MEMBPTT_MPI_CUDA"


def communicator():
    """Return MPI's communicator of all processes where several were started, else None.

    Raises
    ------
    ValueError
        If several were started and mpi4py is missing.
    """
    started = most_stated(SIZES)
    if started == 1:
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ValueError(
            f"{started} processes were started by MPI, and mpi4py cannot be loaded ({error}); "
            "pip install 'membptt[mpi]', or start one process"
        ) from None
    return MPI.COMM_WORLD


def reads_devices():
    """Return whether MPI is said to read a device's memory itself: it cannot be asked.

    Raises
    ------
    ValueError
        If the variable holds neither 0 nor 1.
    """
    stated = os.environ.get(CUDA_AWARE, "0")
    if stated not in ("0", "1"):
        raise ValueError(f"{CUDA_AWARE} is {stated!r}; give 1 if MPI is CUDA-aware, else 0")
    return stated == "1"


class Parts:
    """The parts of a batch, and which of them this process has.

    Parameters
    ----------
    parts : int
        P, a power of two that divides the batch.
    batch : int
        B, the rows of all processes together.
    comm : mpi4py.MPI.Comm, optional
        By default this process is alone and has all parts.
    reduction : {"tree", "all-reduce"}
        How the processes' sums are added.

    Attributes
    ----------
    rows : int
        Rows of one part.
    mine : list of slice
        The rows of each part that this process has.

    Raises
    ------
    ValueError
        If P is no power of two, does not divide the batch, or the processes do not divide P; or
        see `reads_devices`.
    """

    def __init__(self, parts, batch, comm=None, reduction="tree"):
        parts = integer("parts", parts, minimum=1)
        self.comm, self.exact = comm, reduction == "tree"
        self.rank, self.size = (0, 1) if comm is None else (comm.Get_rank(), comm.Get_size())
        if parts & (parts - 1):
            raise ValueError(f"parts is {parts}; give a power of two")
        if batch % parts:
            raise ValueError(f"parts is {parts}, batch {batch}; give parts that divide the batch")
        one_of("reduction", reduction, REDUCTIONS)
        if parts % self.size:
            raise ValueError(
                f"parts is {parts} for {self.size} processes; give as many parts, or a multiple"
            )
        self.direct = reads_devices()
        self.count = parts
        self.rows = batch // parts
        each = parts // self.size
        first = self.rank * each
        self.mine = [
            slice(part * self.rows, (part + 1) * self.rows) for part in range(first, first + each)
        ]

    def total(self, shares):
        """Return the sum of what all parts of all processes have, the same everywhere.

        Parameters
        ----------
        shares : iterable of dict of array
            Of each part of this process, in order; their arrays are written over.

        Returns
        -------
        dict of array
        """
        waiting = []  # (parts in it, sum), each at least twice as large as the next
        for share in shares:
            count = 1
            while waiting and waiting[-1][0] == count:
                _, earlier = waiting.pop()
                share = added(earlier, share)
                count *= 2
            waiting.append((count, share))
        ((_, mine),) = waiting
        if self.size == 1:
            return mine
        if not self.exact:
            return {name: self.all_reduced(array) for name, array in mine.items()}
        distance = 1
        while distance < self.size:
            partner = self.rank ^ distance
            mine = added(mine, {name: self.exchanged(a, partner) for name, a in mine.items()})
            distance *= 2
        return mine

    def run(self, executor, head, inputs, targets, state):
        """Back-propagate this process's parts, one after the other, and add up with all others.

        Parameters
        ----------
        executor : membptt.Executor
            For a batch of `rows`.
        head : membptt.SoftmaxHead
        inputs, targets : numpy.ndarray
            [T, B], of all processes.
        state : tuple of array
            The hidden state of this process's rows.

        Returns
        -------
        Result
            loss and grads of the whole batch, the same in every process; state of this process's
            rows; stats of its last part.
        """
        if self.count == 1:
            return executor.run(inputs, head.with_targets(targets), state)
        first, done, losses = self.mine[0].start, [], []

        def shares():
            for rows in self.mine:
                own = slice(rows.start - first, rows.stop - first)
                bound = head.with_targets(np.ascontiguousarray(targets[:, rows]))
                window = np.ascontiguousarray(inputs[:, rows])
                executor.cell.set_noise(executor.cell.noise.draw, rows.start)
                result = executor.run(window, bound, tuple(array[own] for array in state))
                losses.append(result.loss)
                done.append(replace(result, grads={}))  # the sum may write over them
                yield result.grads

        grads = self.total(shares())
        for array in grads.values():
            array *= 1 / self.count  # exact: a power of two
        if self.size > 1:
            losses = [loss for part in self.comm.allgather(losses) for loss in part]
        after = tuple(
            namespace(arrays[0]).concat(arrays)
            for arrays in zip(*(r.state for r in done), strict=True)
        )
        return replace(done[-1], loss=tree(losses) / self.count, grads=grads, state=after)

    def exchanged(self, array, partner):
        """Give `partner` the array and return the one that it has."""
        mine = self.readable(array)
        theirs = namespace(mine).empty_like(mine)
        self.comm.Sendrecv(mine, partner, recvbuf=theirs, source=partner)
        return from_host(theirs, namespace(array))

    def all_reduced(self, array):
        """Return the sum over the processes in whatever order MPI adds."""
        mine = self.readable(array)
        found = namespace(mine).empty_like(mine)
        self.comm.Allreduce(mine, found)
        return from_host(found, namespace(array))

    def readable(self, array):
        """Return the array where MPI can read it: few can on a device, which is waited for."""
        if not (self.direct and on_device(array)):
            return to_host(array)
        synchronize(namespace(array))
        return array

    @property
    def own(self):
        """The rows of this process, as a slice of the batch."""
        return slice(self.mine[0].start, self.mine[-1].stop)

    def gathered(self, array):
        """Return the rows [B, ...] of all processes, from the rows of this one."""
        if self.size == 1:
            return array
        return np.concatenate(self.comm.allgather(array))

    def of_first(self, compute):
        """Return what `compute()` gives in the first process; the others wait for it."""
        found = compute() if self.rank == 0 else None
        return found if self.size == 1 else self.comm.bcast(found)

    def agreed(self, flag):
        """Return whether `flag` is set in any process."""
        return flag if self.size == 1 else any(self.comm.allgather(flag))


def tree(numbers):
    """Return the sum of 2^k numbers in the order of the binary tree."""
    while len(numbers) > 1:
        numbers = [a + b for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers[0]


def added(left, right):
    """Return left + right, written over left."""
    for name, array in left.items():
        array += right[name]
    return left
