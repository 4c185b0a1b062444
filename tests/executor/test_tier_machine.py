"""Both tiers of slow storage under any legal use: what comes back is what went out, or one error.

A state machine stores, prefetches, fetches and drops states of any steps, damages the file, closes
the tier and opens another one over the same arena. Nothing is left behind, whatever happened.
"""

import os
import tempfile

import numpy as np
import pytest
import standin
from handles import handles, handles_once
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from membptt.executor import _spill
from membptt.executor._spill import Spill
from membptt.executor.tier import HostTier

END = 16  # of a record: its step and its checksum


class Tiers(RuleBasedStateMachine):
    """What is true of a tier, whatever it is made of.

    `stored` has the bytes of every step that went out; `buffered` the steps that take a buffer.
    """

    @initialize(
        interval=st.integers(1, 3),
        records=st.integers(1, 9),
        nbytes=st.sampled_from([1, 8, 24, 4097]),
        buffers=st.integers(2, 4),
        seed=st.integers(0, 2**32 - 1),
    )
    def begin(self, interval, records, nbytes, buffers, seed):
        self.interval, self.records = interval, records
        self.nbytes, self.buffers = nbytes, buffers
        self.random = np.random.default_rng(seed)
        self.sizes = records * interval + 1, interval, nbytes
        self.rest = self.random.bytes(37)  # what else is in the arena
        self.make_arena(self.rest + bytes(buffers * nbytes))
        self.before = handles()
        self.open()

    def open(self):
        self.tier = self.make_tier()
        self.stored, self.buffered, self.fetched = {}, [], set()

    def steps(self, among):
        return st.sampled_from(sorted(among))

    @property
    def unstored(self):
        steps = {self.interval * number for number in range(1, self.records + 1)}
        return steps - set(self.stored)

    @property
    def a_buffer_is_free(self):
        return len(self.buffered) < self.buffers

    @precondition(lambda self: self.unstored and self.a_buffer_is_free)
    @rule(data=st.data())
    def store(self, data):
        step = data.draw(self.steps(self.unstored))
        at = self.tier.acquire(step)
        assert at in self.places()
        state = self.random.bytes(self.nbytes)
        self.write(at, state)
        self.tier.store(step, at)
        self.stored[step] = state

    @precondition(lambda self: set(self.stored) - set(self.buffered) and self.a_buffer_is_free)
    @rule(data=st.data())
    def prefetch(self, data):
        step = data.draw(self.steps(set(self.stored) - set(self.buffered)))
        self.tier.prefetch(step)
        self.buffered.append(step)

    @precondition(lambda self: self.buffered)
    @rule(data=st.data())
    def fetch(self, data):
        step = data.draw(self.steps(self.buffered))
        at = self.tier.fetch(step)
        assert self.read(at) == self.stored[step]
        assert self.tier.find(step) == at
        self.fetched.add(step)

    @precondition(lambda self: self.fetched)
    @rule(data=st.data())
    def drop(self, data):
        step = data.draw(self.steps(self.fetched))
        self.tier.drop(step)
        self.buffered.remove(step)
        self.fetched.remove(step)
        assert self.tier.find(step) == -1

    @rule(data=st.data())
    def what_is_in_no_buffer_is_said(self, data):
        steps = self.unstored | set(self.stored) - set(self.buffered)
        step = data.draw(self.steps(steps | {self.interval * (self.records + 1)}))
        assert self.tier.find(step) == -1
        with pytest.raises(LookupError, match=f"the state of step {step} is in no buffer"):
            self.tier.drop(step)

    @rule()
    def use_again(self):
        self.close()
        self.open()

    @invariant()
    def what_was_fetched_stays_and_the_rest_is_untouched(self):
        if not hasattr(self, "tier"):
            return
        places = [self.tier.find(step) for step in self.fetched]
        assert len(set(places)) == len(places) and set(places) <= set(self.places())
        for step, at in zip(self.fetched, places, strict=True):
            assert self.read(at) == self.stored[step]
        assert self.read(0, len(self.rest)) == self.rest

    def places(self):
        return [len(self.rest) + number * self.nbytes for number in range(self.buffers)]

    def close(self):
        self.tier.close()
        self.tier.close()  # a second time does nothing
        report = self.tier.report()
        assert report["disk_busy_seconds"] >= 0 and report["disk_waited_seconds"] >= 0
        self.nothing_is_left()

    def nothing_is_left(self):
        assert handles_once(self.before) == self.before

    def teardown(self):
        if hasattr(self, "tier"):
            self.close()


class Files(Tiers):
    """The tier of a file, which can be damaged; after a fault it only says so again."""

    def make_arena(self, held):
        self.folder = tempfile.TemporaryDirectory()
        self.arena = np.frombuffer(bytearray(held), np.uint8)

    def make_tier(self):
        self.damaged = set()
        return Spill(self.folder.name, *self.sizes, self.arena, self.buffers, record=True)

    def write(self, at, state):
        self.arena[at : at + self.nbytes] = np.frombuffer(state, np.uint8)

    def read(self, at, count=None):
        return self.arena[at : at + (count or self.nbytes)].tobytes()

    @precondition(lambda self: set(self.stored) - set(self.buffered) and self.a_buffer_is_free)
    @rule(data=st.data(), cut=st.booleans())
    def damage(self, data, cut):
        """One bit is another one, or the file ends in the middle of the state."""
        step = data.draw(self.steps(set(self.stored) - set(self.buffered)))
        size = self.nbytes + END
        begin = (step // self.interval - 1) * size
        self.settle(step)
        fd = self.tier.fd
        if cut:
            os.ftruncate(fd, begin + data.draw(st.integers(0, size - 1)))
        else:
            at = begin + data.draw(st.integers(0, size - 1))
            mask = 1 << data.draw(st.integers(0, 7))
            os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ mask]), at)
        self.tier.prefetch(step)
        words = "is cut short" if cut else "was changed: its checksum fails"
        self.faulty(f"state of step {step} on disk {words}", step)

    @precondition(lambda self: set(self.stored) - set(self.buffered) and self.a_buffer_is_free)
    @rule(data=st.data())
    def lose_the_file(self, data):
        """The system refuses a transfer."""
        step = data.draw(self.steps(set(self.stored) - set(self.buffered)))
        self.settle(step)
        null = os.open("/dev/null", os.O_WRONLY)
        os.dup2(null, self.tier.fd)
        os.close(null)
        self.tier.prefetch(step)
        self.faulty(f"state of step {step} on disk: Bad file descriptor", step)

    def settle(self, step):
        """Wait until all that was asked for is done."""
        for other in self.buffered:
            self.tier.fetch(other)
            self.fetched.add(other)
        self.tier.prefetch(step)
        self.tier.fetch(step)
        self.tier.drop(step)

    def faulty(self, message, step):
        """Every wait ends with the same error from now on; then the tier is closed."""
        for use in (self.tier.fetch, self.tier.acquire, self.tier.prefetch, self.tier.fetch):
            with pytest.raises(OSError, match=message):
                use(step)
        self.use_again()

    def close(self):
        super().close()
        log, report = self.tier.log(), self.tier.report()
        for number, name in enumerate(("disk_written_bytes", "disk_read_bytes")):
            moved = (log[:, 0] == number).sum() * (self.nbytes + END)
            assert report[name] >= moved  # the log has room for one write and one read of each
        assert os.listdir(self.folder.name) == []

    def teardown(self):
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


class Pinned(Tiers):
    """The tier of a device, on the stand-in, which finds a copy whose source changes under way."""

    def make_arena(self, held):
        self.arena = standin.array(np.frombuffer(held, np.uint8))

    def make_tier(self):
        return HostTier(*self.sizes, self.arena, self.buffers, standin, standin.stream)

    def write(self, at, state):
        self.arena[at : at + self.nbytes] = standin.array(np.frombuffer(state, np.uint8))

    def read(self, at, count=None):
        return self.arena[at : at + (count or self.nbytes)].get().tobytes()

    @precondition(lambda self: not self.a_buffer_is_free)
    @rule()
    def no_buffer_is_free(self):
        for use in (self.tier.acquire, self.tier.prefetch):
            with pytest.raises(LookupError, match=f"all {self.buffers} buffers are taken"):
                use(self.interval)


@pytest.mark.parametrize("machine", [Files, Pinned])
def test_what_comes_back_is_what_went_out(machine):
    limits = settings(max_examples=40, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(machine, settings=limits)


def test_a_tier_that_is_only_dropped_or_never_made_leaves_nothing(monkeypatch, tmp_path):
    arena, before = np.zeros(64, np.uint8), handles()
    tier = Spill(tmp_path, 10, 2, 8, arena, 2)
    assert handles() == (before[0] + 1, before[1] + 1)
    del tier
    assert handles_once(before) == before

    def no_room(folder, nbytes):
        raise ValueError("no room")

    monkeypatch.setattr(_spill, "spill_file", no_room)
    with pytest.raises(ValueError, match="no room"):
        Spill(tmp_path, 10, 2, 8, arena, 2)
    with pytest.raises(AttributeError):
        Spill(tmp_path, 10, 2, 8, None, 2)
    os.fstat(0)  # standard input was not taken for the file
    assert handles_once(before) == before
