"""Several processes: the same bits for any number of them, and one failure ends all."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import membptt as mb
from membptt import arrays
from membptt.kernels.threads import thread_count
from membptt.training.parallel import Parts, communicator


class Threads:
    """MPI's calls that are used here, between threads of this process."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.board = {}
        self.kinds = set()

    def run(self, work):
        """Call work(comm) in every thread; return what each returned."""
        found = [None] * self.size

        def one(rank):
            found[rank] = work(Rank(self, rank))

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


class Rank:
    def __init__(self, world, rank):
        self.world, self.rank = world, rank

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.world.size

    def seen(self, array):
        """Note whose arrays MPI is given."""
        self.world.kinds.add(type(array))

    def allgather(self, thing):
        self.world.board[self.rank] = thing
        self.world.barrier.wait()
        found = [self.world.board[rank] for rank in range(self.world.size)]
        self.world.barrier.wait()
        return found

    def Sendrecv(self, array, partner, recvbuf, source):
        assert partner == source and type(array) is type(recvbuf)
        self.seen(array)
        recvbuf[...] = self.allgather(array.copy())[partner]

    def Allreduce(self, array, found):
        assert type(array) is type(found)
        self.seen(array)
        found[...] = sum(reversed(self.allgather(array.copy())))


def ran(size, work):
    """Return what `work` gives on each of so many processes."""
    return [work(None)] if size == 1 else Threads(size).run(work)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 2**32))
def test_sums_do_not_depend_on_the_number_of_processes(parts, seed):
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.integers(-6, 6, (parts, 1))
    shares = (generator.standard_normal((parts, 7)) * scale).astype(np.float32)
    found = []
    size = 1
    while size <= parts:

        def work(comm):
            mine = Parts(parts, parts, comm)
            return mine.total({"g": shares[rows][0].copy()} for rows in mine.mine)["g"]

        found += ran(size, work)
        size *= 2
    assert all(array.tobytes() == found[0].tobytes() for array in found)
    np.testing.assert_allclose(found[0], shares.sum(axis=0, dtype=np.float64), rtol=1e-4, atol=1e-1)


def problem():
    generator = np.random.default_rng(1)
    cell, head = mb.LSTM(9, 7), mb.SoftmaxHead(7, 9)
    text = generator.integers(9, size=(21, 8))
    state = tuple(generator.standard_normal((8, 7)).astype(np.float32) for _ in range(2))
    return cell, head, text[:-1], text[1:], state


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("reduction", ["tree", "all-reduce"])
def test_the_gradient_is_that_of_the_whole_batch(size, reduction):
    cell, head, inputs, targets, state = problem()
    whole = mb.full_bptt(cell, inputs, head.with_targets(targets), state)

    def work(comm):
        parts = Parts(4, 8, comm, reduction)
        executor = mb.Executor(cell, mb.schedule(20, "700", cell=cell, batch=2), 2)
        mine = tuple(array[parts.own] for array in state)
        result = parts.run(executor, head, inputs, targets, mine)
        rows = [parts.gathered(array) for array in result.state]
        return result, rows, parts.agreed(parts.rank == parts.size - 1)

    found = ran(size, work)
    for result, rows, agreed in found:
        assert agreed
        assert result.loss == pytest.approx(whole.loss, rel=1e-6)
        for name, gradient in whole.grads.items():
            np.testing.assert_allclose(result.grads[name], gradient, rtol=2e-5, atol=1e-7)
            assert (result.grads[name] == found[0][0].grads[name]).all()
        for mine, all_rows in zip(rows, whole.state, strict=True):
            assert (mine == all_rows).all()


def test_bits_for_one_two_and_four_processes():
    cell, head, inputs, targets, state = problem()

    def work(comm):
        parts = Parts(4, 8, comm)
        executor = mb.Executor(cell, mb.schedule(20, "700", cell=cell, batch=2), 2)
        mine = tuple(array[parts.own] for array in state)
        result = parts.run(executor, head, inputs, targets, mine)
        grads = b"".join(result.grads[name].tobytes() for name in sorted(result.grads))
        return result.loss, grads

    found = {outcome for size in (1, 2, 4) for outcome in ran(size, work)}
    assert len(found) == 1


@pytest.mark.parametrize("aware", ["0", "1"])
@pytest.mark.parametrize("reduction", ["tree", "all-reduce"])
def test_gradients_on_a_device_go_by_way_of_the_host_or_as_they_are(monkeypatch, reduction, aware):
    import standin

    monkeypatch.setenv("MEMBPTT_MPI_CUDA", aware)
    monkeypatch.setattr(arrays, "device_module", standin.device_module)
    *_, inputs, targets, state = problem()

    def work(comm, backend):
        cell, head = mb.LSTM(9, 7, backend=backend), mb.SoftmaxHead(7, 9, backend=backend)
        parts = Parts(4, 8, comm, reduction)
        executor = mb.Executor(cell, mb.schedule(20, "700", cell=cell, batch=2), 2)
        xp = arrays.array_module(backend)
        mine = tuple(arrays.from_host(array[parts.own], xp) for array in state)
        result = parts.run(executor, head, inputs, targets, mine)
        found = [*result.grads.values(), *result.state]
        assert all(isinstance(array, xp.ndarray) for array in found)
        return [arrays.to_host(array).tobytes() for array in found]

    wanted = ran(2, lambda comm: work(comm, "numpy"))
    world = Threads(2)
    assert world.run(lambda comm: work(comm, "cupy")) == wanted
    on_host = {np.ndarray}
    assert world.kinds == ({arrays.array_module("cupy").ndarray} if aware == "1" else on_host)


def test_what_mpi_can_read_is_0_or_1(monkeypatch):
    monkeypatch.setenv("MEMBPTT_MPI_CUDA", "yes")
    with pytest.raises(ValueError, match="MEMBPTT_MPI_CUDA is 'yes'; give 1 if MPI is CUDA-aware"):
        Parts(2, 8)


@pytest.mark.parametrize(
    ("parts", "batch", "size", "message"),
    [
        (3, 12, 1, "parts is 3; give a power of two"),
        (8, 12, 1, "parts is 8, batch 12"),
        (2, 8, 4, "parts is 2 for 4 processes"),
        (0, 8, 1, "parts is 0"),
    ],
)
def test_parts_that_do_not_fit(parts, batch, size, message):
    comm = None if size == 1 else Rank(Threads(size), 0)
    with pytest.raises(ValueError, match=message):
        Parts(parts, batch, comm)


def test_mpi_without_mpi4py_is_named(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ValueError, match=r"2 processes were started by MPI, .*membptt\[mpi\]"):
        communicator()
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    assert communicator() is None


def test_an_unknown_reduction_is_named():
    with pytest.raises(ValueError, match="reduction is 'sum'; give one of tree, all-reduce"):
        Parts(2, 8, None, "sum")


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", " "])
def test_a_number_of_threads_that_is_none(monkeypatch, number):
    monkeypatch.setenv("MEMBPTT_NUM_THREADS", number)
    with pytest.raises(ValueError, match=f"MEMBPTT_NUM_THREADS is '{number}'; give a whole number"):
        thread_count()
    monkeypatch.setenv("MEMBPTT_NUM_THREADS", "3")
    assert thread_count() == 3


def test_processes_on_one_machine_share_its_cores(monkeypatch):
    monkeypatch.delenv("MEMBPTT_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert thread_count() == 8
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    assert thread_count() == 2
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})  # bound to a core
    assert thread_count() == 1
