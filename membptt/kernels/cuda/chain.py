"""A cell, a head and the inputs of one window on a CUDA device: what the executor drives.

The twin of membptt.chains.plain.PlainChain on kernels of our own; the moves are the same. Nothing
waits for the device before `finish`: a move asks for copies and kernels, in order, and returns.

Forward steps and the working state. There are two state buffers, left and right; a step reads one
and writes the other. Beside each stands, on the device, the number of steps behind it, so that a
run of 2, 4, 8, ... steps is a graph whose arguments never change: it is captured once for each
length and for each side to begin on. A step that saves its internal state, or follows a restart, is
launched on its own.

Blocks. As in membptt/kernels/_layer.pyx the weight gradients are formed from blocks of steps that
are aligned to multiples of their length, and so are the projected inputs. Inputs come from the host
a block at a time.
"""

import numpy as np

from membptt.cells import GRU, LSTM, RNN
from membptt.kernels.cuda import sources
from membptt.kernels.cuda.device import CudaDevice
from membptt.sequences.blocks import Blocks

# Where `restart` takes the working hidden state from (membptt.chains.plain has the same).
INITIAL = 0
LEAVING = 2  # an internal state: the hidden state after its step

CELLS = (RNN, LSTM, GRU)
HEADS = ("softmax", "squared_error")
LONGEST_RUN = 64  # steps in one graph at most
# The words of real.h
NOW_WORDS, BAD_STEP = 3, 2
WORD = 8  # bytes of a word, an address and a double


class CudaChain:
    """The chain of backend "cupy" for the cells in `CELLS` with the package's own heads.

    Parameters
    ----------
    cell : membptt.Cell
        Its parameters may stand on the host or on the device.
    bound : membptt.heads.BoundHead
    steps, batch : int
    ledger : membptt.memory.Ledger, optional
        Where memory on the device is entered.
    device : Device, optional
        The current CUDA device by default.

    Attributes
    ----------
    nbytes : dict of str to int
        The bytes of each buffer.
    captures : bool
        Whether launches are captured as graphs and replayed; no bit depends on it.
    """

    captures = True

    def __init__(self, cell, bound, steps, batch, ledger=None, device=None):
        self.device = device = CudaDevice(ledger) if device is None else device
        self.ledger = device.ledger
        self.cell, self.kind = cell, type(cell).__name__.lower()
        self.dtype, self.itemsize = cell.dtype, cell.dtype.itemsize
        self.steps, self.batch = steps, batch
        self.hidden_size, self.input_size = cell.hidden_size, cell.input_size
        self.columns = cell.gates * cell.hidden_size
        self.has_b_h = "b_h" in cell.param_shapes()
        self.outputs, self.loss_kernel = bound.params["b_y"].size, bound.kernel
        self.block_steps = max(1, 512 // batch)
        self.head_steps = head_steps(self.outputs, batch)
        self.array_size = batch * cell.hidden_size  # elements of one array of a state
        self.state_nbytes = cell.hidden_nbytes(batch)
        self.internal_nbytes = cell.internal_nbytes(batch)
        self.sums = None  # of the hidden states (kernels/_sums.pyx), to check what is run again
        self.graphs = {}
        self.take_buffers()
        self.choose_kernels()

    @classmethod
    def fits(cls, cell, bound):
        """Return whether there are kernels for this cell and this head.

        A subclass may compute something else than its base, and options of a cell have none; a
        head that leaves rows out runs in its own code.
        """
        if type(cell) not in CELLS or cell.own_code or getattr(bound, "kernel", None) not in HEADS:
            return False
        return bound.mask is None and bound.ends is None

    @property
    def workspace_nbytes(self):
        """Bytes on the device: constant, whatever the number of steps."""
        return self.device.nbytes

    # -- once a chain -----------------------------------------------------------------------------

    def take_buffers(self):
        """Reserve everything whose size the cell, the head and the batch determine."""
        H, V, N, I = self.hidden_size, self.outputs, self.columns, self.input_size  # noqa: E741
        rows, head_rows = self.block_steps * self.batch, self.head_steps * self.batch
        reals = {
            "W_x": I * N,
            "W_h": H * N,
            "b": N,
            "W_y": H * V,
            "b_y": V,
            "da": rows * N,
            "h_rows": rows * H,
            "dy": head_rows * V,
            "head_h_rows": head_rows * H,
            "head_state": self.array_size,
        }
        doubles = {
            "W_x sums": I * N,
            "W_h sums": H * N,
            "b sums": N,
            "W_y sums": H * V,
            "b_y sums": V,
            "losses": self.batch,
            "scale": 1,
            "loss": 1,
        }
        if self.has_b_h:
            reals |= {"b_h": H, "du": rows * N}
            doubles["b_h sums"] = N  # of all gates' deltas; those of the last are the gradient
        wanted = {name: count * self.itemsize for name, count in reals.items()}
        wanted |= {name: count * WORD for name, count in doubles.items()}
        states = ("initial", "left", "right", "last", "dstate")
        wanted |= dict.fromkeys(states, self.state_nbytes)
        wanted |= {f"{name} done": WORD for name in ("left", "right", "entering", "leaving")}
        wanted["now"] = NOW_WORDS * WORD
        wanted["targets"] = rows * (4 if self.loss_kernel == "softmax" else V * self.itemsize)
        self.nbytes, self.at = {}, {}
        for name, nbytes in wanted.items():
            self.take(name, nbytes)
        self.du = self.at["du" if self.has_b_h else "da"]  # deltas of h_prev W_h, by rows as da

    def take_inputs(self, tokens):
        """Reserve what only dense inputs, or only tokens, need."""
        rows = self.block_steps * self.batch
        if tokens:
            wanted = {"tokens": rows * 4, "back tokens": rows * 4}
        else:
            x = rows * self.input_size * self.itemsize
            wanted = {"x": x, "back x": x, "projected": rows * self.columns * self.itemsize}
        for name, nbytes in wanted.items():
            self.take(name, nbytes)

    def take(self, name, nbytes):
        """Reserve a buffer, unless there is one already."""
        if name not in self.at:
            self.nbytes[name] = nbytes
            self.at[name] = self.device.take(nbytes)

    def choose_kernels(self):
        """Compile the kernels for tiles that suit the shapes; note how each is launched."""
        B, H, V, N = self.batch, self.hidden_size, self.outputs, self.columns
        rows = self.block_steps * B
        self.kernels, self.tiles = {}, {}
        self.tiled("forward", "forward", sources.FORWARD_TILES, B, H)
        self.tiled("project", "project", sources.TILES, rows, N)
        self.tiled("outputs", "outputs", sources.TILES, B, V)
        self.tiled("deltas", "deltas", sources.TILES, B, H)
        self.tiled("back", "back", sources.TILES, B, H)
        for name, K, columns in (("W_h", H, N), ("W_x", self.input_size, N), ("W_y", H, V)):
            self.tiled(name, "gradient", sources.TILES, K, columns)
        self.flat("hidden", "hidden", "hidden")
        self.flat("loss", "loss", self.loss_kernel)
        for name in sources.KERNELS["sums"]:
            self.flat(name, "sums", name)

    def tiled(self, name, file, tiles, rows, columns):
        """Note the kernel of a product [rows, columns]: kernel, grid, threads."""
        tile = sources.choose_tile(tiles, rows, columns, self.device.multiprocessors)
        (function,) = sources.KERNELS[file]
        kernel = self.device.kernel(file, function, self.kind, self.itemsize, tile)
        across, down = tile.grid(rows, columns)
        if name == "back":
            across += 1  # the blocks that add up the loss
        self.kernels[name] = kernel, (across, down), tile.threads
        self.tiles[name] = tile

    def flat(self, name, file, function):
        """Note a kernel without a tile; its grid is given when it is launched."""
        kernel = self.device.kernel(file, function, self.kind, self.itemsize)
        self.kernels[name] = kernel, None, sources.FLAT

    def launch(self, name, *arguments, grid=None):
        """Launch one of the kernels noted."""
        kernel, usual, threads = self.kernels[name]
        self.device.launch(kernel, usual if grid is None else grid, threads, arguments)

    def across(self, count):
        """Return the grid of a kernel without a tile, one thread for each of `count`."""
        return (-(-count // sources.FLAT), 1)

    # -- once a window ----------------------------------------------------------------------------

    def begin(self, inputs, bound, state, arena):
        """Bind the inputs [T, B] or [T, B, I], upload the weights, clear all sums."""
        self.device.follow()
        self.inputs, self.tokens = inputs, inputs.ndim == 2
        self.take_inputs(self.tokens)
        parameters = sum(value.nbytes for value in (self.cell.params | bound.params).values())
        self.ledger.hold("arena", arena.nbytes)
        self.ledger.hold("parameters", parameters)
        self.ledger.hold("gradients", parameters)
        for name in self.cell.param_shapes():
            self.device.put(self.at[name], self.cell.params[name], self.dtype)
        sums = [name for name in self.at if name.endswith(" sums")]
        for name in (*sums, "loss", "now", "dstate"):
            self.clear(name)
        for index, array in enumerate(state):
            offset = index * self.array_size * self.itemsize
            self.device.put(self.at["initial"] + offset, array, self.dtype)
        self.arena, self.arena_at = arena, self.device.address(arena)
        self.ready = set()  # steps whose inputs stand in the block for forward steps
        self.ready_block = self.back_block = None
        self.side, self.other = "left", "right"
        self.bind_head(bound)
        self.restart(INITIAL)

    def bind_head(self, bound):
        """Upload the head's weights, and remember its targets."""
        self.targets = bound.targets
        for name in ("W_y", "b_y"):
            self.device.put(self.at[name], bound.params[name], self.dtype)
        self.device.put(self.at["scale"], np.array([bound.scale]), np.float64)

    def extend(self, inputs):
        """Go on with more steps: `inputs` holds those of before too, as they were in `begin`."""
        self.device.follow()
        self.inputs, self.steps = inputs, len(inputs)

    def end(self, bound):
        """Learn the targets of all steps, before the first backward."""
        self.device.follow()
        self.bind_head(bound)

    def finish(self):
        """Return loss, first step whose loss is not finite or 0, gradients, state, its gradient.

        The arrays are on the device and the caller's own. Waits until everything is done.
        """
        self.device.follow()
        shapes = self.cell.param_shapes() | {
            "W_y": (self.hidden_size, self.outputs),
            "b_y": (self.outputs,),
        }
        grads = {}
        for name, shape in shapes.items():
            grads[name] = self.device.empty(shape, self.dtype)
            count = int(np.prod(shape))
            to, sums = self.device.address(grads[name]), self.at[f"{name} sums"]
            if name == "b_h":
                sums += (self.columns - count) * WORD
            self.launch("round_sums", sums, to, count, grid=self.across(count))
        last, dstate = self.state_arrays("last"), self.state_arrays("dstate")
        bad_step = self.device.fetch(self.at["now"], NOW_WORDS, np.int64)[BAD_STEP]
        loss = self.device.fetch(self.at["loss"], 1, np.float64)[0]
        return float(loss), int(bad_step), grads, last, dstate

    def state_arrays(self, name):
        """Return copies of the arrays of a hidden state."""
        arrays = []
        for index, shape in enumerate(self.cell.hidden_shapes(self.batch)):
            arrays.append(self.device.empty(shape, self.dtype))
            nbytes = self.array_size * self.itemsize
            self.device.copy(
                self.device.address(arrays[-1]), self.at[name] + index * nbytes, nbytes
            )
        return tuple(arrays)

    def clear(self, name):
        """Set a buffer to zero."""
        self.device.clear(self.at[name], self.nbytes[name])

    # -- the moves --------------------------------------------------------------------------------

    @property
    def stream(self):
        """What the steps run in."""
        return self.device.stream

    def restart(self, source, at=0, place=0):
        """Make the working hidden state that after step `place`: see membptt.chains.plain."""
        to, from_ = self.at[self.side], self.arena_at + at
        self.counted = False  # the device does not know how many steps are behind this state
        if source == LEAVING:
            size = self.array_size
            self.launch("hidden", from_, to, size, grid=self.across(size))
        else:  # a hidden state, or the first part of an internal state, which entered its step
            self.device.copy(
                to, self.at["initial"] if source == INITIAL else from_, self.state_nbytes
            )

    def save_hidden(self, at):
        """Copy the working hidden state into the arena."""
        self.device.copy(self.arena_at + at, self.at[self.side], self.state_nbytes)

    def forward(self, start, stop, internal_at=-1):
        """Run the steps start+1 ... stop; save the internal state of `stop` unless at < 0."""
        alone = stop - 1 if internal_at >= 0 else stop  # steps up to here save nothing
        step = start
        while step < stop:
            end = min(stop, (step // self.block_steps + 1) * self.block_steps)
            self.prepare_inputs(step + 1, end)
            while step < end:
                run = min(alone, end) - step
                if run >= 2 and self.captures and self.counted and self.sums is None:
                    run = min(LONGEST_RUN, 1 << (run.bit_length() - 1))
                    self.device.replay(self.run_graph(run))
                    step += run
                else:
                    step += 1
                    internal = self.arena_at + internal_at if step > alone else 0
                    self.forward_step(step, internal)
                    self.check(step, self.at[self.side])
        if stop == self.steps:
            self.keep_last(self.at[self.side])

    def keep_last(self, address):
        """Keep the hidden state after the last step, for `finish` and for the head."""
        self.device.copy(self.at["last"], address, self.state_nbytes)
        self.device.copy(self.at["head_state"], address, self.nbytes["head_state"])

    def expand(self, start, stop, source, at, hidden_at, internal_at):
        """Compute the internal states of the steps start+1 ... stop out of those before them.

        The steps of one block of inputs are one launch; from the last block to the first, so that
        what is written never covers what is still to be read.
        """
        state, end = self.state_nbytes, stop
        self.take("entering", self.block_steps * state)
        self.take("leaving", self.block_steps * state)
        while end > start:
            begin = max(start, (end - 1) // self.block_steps * self.block_steps)
            self.prepare_inputs(begin + 1, end)
            to, first = self.at["entering"], begin
            if begin == start:
                self.restart(source, at, start)
                self.device.copy(to, self.at[self.side], state)
                to, first = to + state, begin + 1
            if first < end:
                from_ = self.arena_at + hidden_at + (first - start - 1) * state
                self.device.copy(to, from_, (end - first) * state)
            internal = self.arena_at + internal_at + (begin - start) * self.internal_nbytes
            self.launch_forward("entering", "leaving", internal, begin + 1, end - begin)
            for step in range(begin + 1, end + 1):
                self.check(step, self.at["leaving"] + (step - begin - 1) * state)
            if end == self.steps:
                self.keep_last(self.at["leaving"] + (end - begin - 1) * state)
            end = begin
        self.counted = False

    def check(self, step, address):
        """Compare the hidden state after a step with that of its first run, if that is wanted."""
        if self.sums is not None:
            self.sums.check(step, [self.device.fetch(address, self.state_nbytes, np.uint8)])

    def forward_step(self, step=0, internal=0):
        """Launch one step, from one side to the other; `step` is 0 inside a graph."""
        self.side, self.other = self.other, self.side
        self.launch_forward(self.other, self.side, internal, step)
        self.counted = True

    def launch_forward(self, from_, to, internal, step, count=1):
        """Launch `count` steps at once, from states side by side to states side by side."""
        at, (across, down) = self.at, self.kernels["forward"][1]
        self.launch(
            "forward", at[from_], at[f"{from_} done"], at[to], at[f"{to} done"], internal,
            at["W_h"], at["W_x" if self.tokens else "projected"],
            at["tokens"] if self.tokens else 0, at["b"], at.get("b_h", 0), step,
            self.block_steps, self.batch, self.hidden_size, self.state_nbytes // self.itemsize,
            self.internal_nbytes // self.itemsize, grid=(across, down, count),
        )  # fmt: skip

    def run_graph(self, run):
        """Return the graph of an even number of steps, which ends on the side it begins on."""
        key = run, self.side, self.tokens
        if key not in self.graphs:
            self.graphs[key] = self.device.capture(
                lambda: [self.forward_step() for _ in range(run)]
            )
        return self.graphs[key]

    def prepare_inputs(self, first, last):
        """Have the inputs of these steps of one block on the device, projected."""
        block, B = (first - 1) // self.block_steps, self.batch
        if block != self.ready_block:
            self.ready, self.ready_block = set(), block
        missing = [step for step in range(first, last + 1) if step not in self.ready]
        if not missing:
            return
        first, last = missing[0], missing[-1]
        self.ready.update(missing)
        row, count = (first - 1) % self.block_steps * B, (last - first + 1) * B
        if self.tokens:
            self.load("tokens", self.inputs, np.int32, first, last)
            return
        self.load("x", self.inputs, self.dtype, first, last)
        self.launch(
            "project",
            self.at["x"] + row * self.input_size * self.itemsize,
            self.at["W_x"],
            self.at["b"],
            self.at["projected"] + row * self.columns * self.itemsize,
            count,
            self.input_size,
            self.columns,
            grid=self.tiles["project"].grid(count, self.columns),
        )

    def load(self, name, source, dtype, first, last):
        """Copy steps first ... last, which lie in one block, to their place in a buffer."""
        row = self.nbytes[name] // self.block_steps
        at = self.at[name] + (first - 1) % self.block_steps * row
        if isinstance(source, Blocks):
            steps = np.empty((last - first + 1, *source.shape[1:]), source.dtype)
            source.read(first - 1, steps)
        else:
            steps = source[first - 1 : last]
        self.device.put(at, steps, dtype)

    def backward(self, step, at):
        """Back-propagate one step: the head, the cell, and the weights at a block's end."""
        block = (step - 1) // self.block_steps
        if block != self.back_block:
            self.back_block = block
            self.prepare_backward(block * self.block_steps + 1, step)
        self.launch(
            "outputs",
            self.at["head_state"],
            self.at["W_y"],
            self.at["b_y"],
            self.at["dy"],
            self.at["head_h_rows"],
            self.at["now"],
            step,
            self.arena_at + at,
            self.head_steps,
            self.batch,
            self.hidden_size,
            self.outputs,
        )
        if not self.captures:
            self.backward_rest()
        elif "backward" in self.graphs:
            self.device.replay(self.graphs["backward"])
        else:  # once outside of a graph: by then every kernel is loaded
            self.backward_rest()
            self.graphs["backward"] = self.device.capture(self.backward_rest)
        if (step - 1) % self.head_steps == 0:
            self.flush_head(min(self.head_steps, self.steps - step + 1) * self.batch)
        if (step - 1) % self.block_steps == 0:
            self.flush(min(self.block_steps, self.steps - step + 1) * self.batch)

    def prepare_backward(self, first, last):
        """Have the inputs and targets of these steps on the device."""
        if self.tokens:
            self.load("back tokens", self.inputs, np.int32, first, last)
        else:
            self.load("back x", self.inputs, self.dtype, first, last)
        dtype = np.int32 if self.loss_kernel == "softmax" else self.dtype
        self.load("targets", self.targets, dtype, first, last)

    def backward_rest(self):
        """Launch what follows `outputs` in a backward step; reads the step from the device."""
        at, B, H, V = self.at, self.batch, self.hidden_size, self.outputs
        steps = self.head_steps, self.block_steps
        grid = (B, 1)
        self.launch(
            "loss", at["dy"], at["targets"], at["losses"], at["scale"], at["now"], *steps, B, V,
            grid=grid,
        )  # fmt: skip
        self.launch(
            "deltas", at["now"], at["dstate"], at["dy"], at["W_y"], at["da"], self.du, at["h_rows"],
            at["head_state"], *steps, B, H, V,
        )  # fmt: skip
        self.launch(
            "back", at["now"], self.du, at["W_h"], at["dstate"], at["losses"], at["scale"],
            at["loss"], self.block_steps, B, H, self.columns,
        )  # fmt: skip

    def flush_head(self, rows):
        """Add a block to the gradients of the head."""
        self.gradient("W_y", "b_y", "head_h_rows", "dy", rows, self.hidden_size, self.outputs)

    def flush(self, rows):
        """Add a block to the gradients of the cell."""
        at, N = self.at, self.columns
        self.launch("W_h", at["h_rows"], self.du, at["W_h sums"], rows, self.hidden_size, N)
        if self.has_b_h:
            self.launch("column_sums", self.du, at["b_h sums"], rows, N, grid=self.across(N))
        if self.tokens:
            grid = (self.across(N)[0], rows)
            tokens = at["back tokens"]
            self.launch("token_gradient", tokens, at["da"], at["W_x sums"], rows, N, grid=grid)
            self.launch("column_sums", at["da"], at["b sums"], rows, N, grid=self.across(N))
        else:
            self.gradient("W_x", "b", "back x", "da", rows, self.input_size, N)

    def gradient(self, weights, bias, a, d, rows, K, N):
        """Add a block to the gradients of a matrix [K, N] and its bias."""
        at = self.at
        self.launch(weights, at[a], at[d], at[f"{weights} sums"], rows, K, N)
        self.launch("column_sums", at[d], at[f"{bias} sums"], rows, N, grid=self.across(N))


def head_steps(outputs, batch):
    """Return the steps of a block of the head, as membptt/kernels/_head.pyx has it."""
    return max(1, min(512, (1 << 22) // outputs) // batch)
