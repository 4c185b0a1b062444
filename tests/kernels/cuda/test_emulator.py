"""The emulated device finds the mistakes that it is there to find."""

import numpy as np
import pytest

SHARED = """
#define KERNEL __global__ void
KERNEL __launch_bounds__(THREADS) own(int64_t *out)
{
    __shared__ int64_t value[32];
    const int x = threadIdx.x;
    value[x] = x;
    %s
    out[x] = value[(x + 1) %% 32];
}
"""


def outcome(device, barrier, size=32):
    """Run the kernel with this barrier on new memory; return what it wrote."""
    module, _ = device.compiler.compiled(SHARED % barrier, {})
    out = device.take(8 * size)
    device.launch(("own", module, 1), (1, 1), 32, (out,))
    return device.fetch(out, size, np.int64)


def test_a_barrier_orders_threads(emulated):
    for backwards in (False, True):
        found = outcome(emulated(backwards=backwards), "__syncthreads();")
        assert (found == np.roll(range(32), -1)).all()


def test_a_race_gives_other_bits_backwards(emulated):
    forwards, backwards = (outcome(emulated(backwards=order), "") for order in (False, True))
    assert (forwards != backwards).any()


def test_a_barrier_that_some_threads_miss_is_an_error(emulated):
    with pytest.raises(RuntimeError, match="own: threads wait at a barrier"):
        outcome(emulated(), "if (x < 7) __syncthreads();")


def test_writing_beyond_a_buffer_is_found(emulated):
    device = emulated()
    outcome(device, "__syncthreads();", size=31)
    with pytest.raises(AssertionError):
        device.check_guards()


def test_memory_begins_as_nan_and_work_waits_until_something_is_fetched(emulated):
    device = emulated()
    at = device.take(40)
    assert np.isnan(device.fetch(at, 5, np.float64)).all()
    host = np.arange(5.0)
    device.upload(at, host, np.float64)
    host[:] = 7  # the copy has not run yet, but the host may go on
    assert len(device.queue) == 2
    assert (device.fetch(at, 5, np.float64) == np.arange(5)).all()


def test_a_graph_holds_kernels_alone(emulated):
    device = emulated()
    at = device.take(8)
    with pytest.raises(AssertionError, match="a graph cannot hold this"):
        device.capture(lambda: device.clear(at, 8))
