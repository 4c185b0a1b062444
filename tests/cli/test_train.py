"""``membptt train`` from its arguments to its report."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from membptt.cli import main, train
from membptt.cli.interrupts import Deferred
from membptt.training import checkpoint
from membptt.training.loop import Trainer
from membptt.training.measure import PeakMeter

KEYS = [
    "updates",
    "loss_first",
    "loss_last",
    "bits_per_char_last",
    "budget_bytes",
    "arena_peak_bytes",
    "measured_peak_bytes",
    "full_bytes",
    "forward_steps_per_update",
    "seconds_per_update",
    "parameters_sha256",
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    letters = np.random.default_rng(0).choice(list("abc dé\n"), 3000)
    path.write_text("".join(letters), encoding="utf-8")
    return str(path)


@pytest.fixture
def run(text, capsys):
    """Return a function that trains on a small text and returns code, stdout and stderr."""

    def run(*words, small=True):
        sizes = "--text", text, "--steps", "20", "--batch", "3", "--hidden", "8"
        code = main(["train", *(sizes if small else ()), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def report(run):
    """Return a function that trains and returns the JSON report."""

    def report(*words):
        code, out, err = run(*words, "--json")
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    return report


@pytest.mark.parametrize("more", [(), ("--layers", "2"), ("--batch", "4", "--parts", "2")])
def test_reduced_internal_states_report_their_error(run, report, more):
    words = "--memory", "6 kB", "--updates", "3", *more
    exact = report(*words)
    found = report(*words, "--internal", "int8")
    assert list(found) == [*KEYS, "gradient_error_first", "gradient_error_last"]
    assert 0 < found["gradient_error_first"] < 0.03 and 0 < found["gradient_error_last"] < 0.03
    assert found["full_bytes"] < exact["full_bytes"]
    assert found["forward_steps_per_update"] < exact["forward_steps_per_update"]
    assert abs(found["loss_first"] - exact["loss_first"]) < 1e-6  # compiled and plain code differ
    assert found["parameters_sha256"] != exact["parameters_sha256"]
    code, out, err = run(*words, "--internal", "int8")
    assert code == 0 and err.count("internal states in int8, gradient error ") == 2
    assert f"gradient error {found['gradient_error_first']:.1e} before the first update, " in out


def test_bits_of_reduced_training_do_not_depend_on_budget_or_resuming(report, tmp_path):
    words = "--internal", "float16", "--updates", "4"
    path = str(tmp_path / "saved.npz")
    whole = report(*words, "--memory", "20 kB")
    report("--internal", "float16", "--updates", "2", "--memory", "4 kB", "--save", path)
    resumed = report("--resume", path, "--updates", "4", "--strategy", "hsm", "--memory", "3 kB")
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    assert resumed["gradient_error_last"] == whole["gradient_error_last"]


def test_the_measured_peak_is_that_of_training_alone(make):
    """Not of the exact gradients that the error is measured with."""
    meter = PeakMeter()
    try:
        trainer = make(meter, internal="int8", steps=100, batch=1, hidden=64, memory="100 kB")
        trainer.measure_error()
        now, peak = tracemalloc.get_traced_memory()
        assert peak - now < 10_000  # an arena of 100 kB came and went
        trainer.update()
        trainer.measure_error()
        assert meter.peak_bytes is not None  # what update 1 took
    finally:
        meter.stop()


def test_the_text_is_not_in_the_measured_peak(report, tmp_path):
    letters = "abc dé\n"
    found = []
    for size in (3000, 3_000_000):
        path = tmp_path / str(size)
        path.write_text(letters * (size // len(letters)), encoding="utf-8")
        words = "--text", str(path), "--memory", "6 kB", "--updates", "3"
        found.append(report(*words)["measured_peak_bytes"])
    assert found[1] - found[0] < 200_000  # the first run may import what the second finds


@pytest.mark.parametrize("backend", ["auto", "cython"])
def test_an_import_for_a_backend_is_not_in_the_measured_peak(tmp_path, text, backend):
    """In place of CuPy stands a module that takes 20 MB, and finds no device."""
    device = "cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 0))"
    lines = ["import sys", "from types import SimpleNamespace", "concat = None", device]
    lines += ["held = bytearray(20_000_000)", "print('heavy', file=sys.stderr)"]
    (tmp_path / "cupy.py").write_text("\n".join(lines))
    words = ["--text", text, "--steps", "20", "--batch", "3", "--hidden", "8", "--memory", "6 kB"]
    words += ["--updates", "3", "--backend", backend, "--json"]
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "membptt", "train", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("heavy" in done.stderr) == (backend == "auto")  # who names a backend needs no other
    assert json.loads(done.stdout)["measured_peak_bytes"] < 5_000_000


def test_json_is_all_of_stdout(run):
    code, out, err = run("--memory", "4 kB", "--updates", "3", "--json")
    assert code == 0
    found = json.loads(out)
    assert list(found) == KEYS
    assert found["updates"] == 3
    assert found["budget_bytes"] == 4000 >= found["arena_peak_bytes"] > 0
    assert found["full_bytes"] == 20 * 3 * 8 * 6 * 4
    assert found["measured_peak_bytes"] > found["arena_peak_bytes"]
    assert found["bits_per_char_last"] == found["loss_last"] / math.log(2)
    for words in ("bits/char", "forward steps", "of 3.91 KiB", "after 3 updates"):
        assert words in err
    assert not tracemalloc.is_tracing()


def test_report_for_people(run):
    code, out, err = run("--memory", "4 kB", "--updates", "2", "--strategy", "hsm")
    assert code == 0
    assert [line.split("  ")[1] for line in out.splitlines()[1:]] == [
        "budget",
        "arena used",
        "full BPTT",
        "saved",
        "measured peak",
        "forward steps",
        "time",
        "bits per char",
        "parameters",
    ]
    assert "2/2" in err
    assert "strategy hsm, budget 3.91 KiB" in err


def test_what_is_learnt_depends_on_the_seed_alone(report):
    def parameters(*words):
        return report("--updates", "3", *words)["parameters_sha256"]

    reference = parameters()
    assert parameters("--strategy", "full") == reference
    assert parameters("--strategy", "ism", "--memory", "1200") == reference
    assert parameters("--memory", "5kB", "--backend", "auto") == reference
    for words in (
        ("--seed", "1"),
        ("--cell", "rnn"),
        ("--dtype", "float64"),
        ("--learning-rate", "0.5"),
        ("--clip", "0.001"),
        ("--optimizer", "adamw"),
        ("--optimizer", "sgd"),
        ("--decay", "cosine"),
        ("--warmup", "2"),
    ):
        assert parameters(*words) != reference
    assert parameters("--clip", "inf") == parameters("--clip", "1e9")


def test_default_memory_of_full_is_all_it_needs(report):
    found = report("--updates", "1", "--strategy", "full")
    assert found["budget_bytes"] == found["full_bytes"] == found["arena_peak_bytes"]
    assert found["forward_steps_per_update"] == 20
    assert report("--updates", "1")["budget_bytes"] == 2 * 2**20


def test_save_and_resume(report, tmp_path, text):
    path = str(tmp_path / "state")
    uninterrupted = report("--updates", "7", "--memory", "4kB")
    first = report("--updates", "3", "--memory", "4kB", "--save", path)
    assert first["loss_first"] == uninterrupted["loss_first"]
    same = report("--resume", path)
    assert same["parameters_sha256"] == first["parameters_sha256"]
    assert same["seconds_per_update"] is same["measured_peak_bytes"] is None
    assert (same["updates"], same["budget_bytes"]) == (3, 4000)
    resumed = report("--updates", "7", "--resume", path, "--strategy", "hsm")
    assert resumed["budget_bytes"] == 4000  # as saved, whatever the strategy
    for name in ("updates", "loss_first", "loss_last", "parameters_sha256"):
        assert resumed[name] == uninterrupted[name]


def test_the_budget_stays_under_another_strategy_unless_it_has_a_need_of_its_own(report, tmp_path):
    path, full = str(tmp_path / "state"), str(tmp_path / "full")
    folder = ("--disk", str(tmp_path), "--disk-budget", "1 MB")
    report("--updates", "1", "--memory", "4kB", "--strategy", "disk", *folder, "--save", path)
    found = report("--updates", "2", "--resume", path, "--strategy", "optimal", "--save", path)
    assert found["budget_bytes"] == 4000
    whole = report("--resume", path, "--strategy", "full", "--save", full)
    assert whole["budget_bytes"] == whole["full_bytes"] == 11520
    assert report("--resume", full, "--strategy", "hsm")["budget_bytes"] == 2 * 2**20
    assert report("--resume", full, "--strategy", "hsm", "--memory", "3 kB")["budget_bytes"] == 3000


def test_a_decay_ends_where_it_was_to_end_at_the_start(report, tmp_path):
    path = str(tmp_path / "state")
    decay = ("--decay", "cosine", "--optimizer", "sgd")
    whole = report("--updates", "6", *decay, "--decay-updates", "4")
    report("--updates", "4", *decay, "--save", path)
    resumed = report("--resume", path, "--updates", "6")
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]


def test_resume_takes_the_settings_along(tmp_path, text, capsys):
    path = str(tmp_path / "state")
    sizes = ["--text", text, "--steps", "9", "--batch", "2", "--hidden", "5", "--cell", "rnn"]
    assert main(["train", *sizes, "--updates", "2", "--save", path]) == 0
    assert main(["train", "--updates", "4", "--resume", path, "--save", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["full_bytes"] == 9 * 2 * 5 * 2 * 4
    settings, arrays = checkpoint.load_checkpoint(path)
    assert (settings["updates"], arrays["updates"]) == (4, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hidden", "9"], "hidden is 9, the checkpoint '.*' was trained with 8; leave --hidden"),
        (["--learning-rate", "1"], "leave --learning-rate out, or begin anew"),
        (["--cell", "rnn"], "cell is 'rnn'"),
        (["--backend", "numpy"], "backend is 'numpy'"),
        (["--seed", "4"], "seed is 4"),
        (["--updates", "1"], "updates is 1, checkpoint '.*' has made 2 already; give --updates 2"),
        (["--text", os.devnull], "text '/dev/null' is a device; give a text file"),
        (["--text", __file__], "does not fit: it was trained on another text"),
        (["--memory", "100"], "needs at least 576 bytes"),
    ],
)
def test_resume_refuses_other_settings(run, tmp_path, words, message):
    path = str(tmp_path / "state")
    assert run("--updates", "2", "--save", path)[0] == 0
    code, out, err = run("--resume", path, *words, small=False)
    assert (code, out) == (2, "")
    assert_one_line(err, message)


def assert_one_line(err, message):
    assert err.count("\n") == 1, err
    assert err.startswith("membptt")
    assert re.search(message, err), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory", "0"], "memory is '0'; give at least 1 byte"),
        (["--memory", "-2MiB"], "memory is '-2MiB'; give at least 1 byte"),
        (["--memory", "1 B"], "needs at least 576 bytes for 20 steps"),
        (["--memory", "1 kB", "--strategy", "full"], "needs at least 11520 bytes"),
        (["--memory", "2 apples"], "memory is '2 apples'; give bytes with one of the units B, kB"),
        (["--memory", "1.5 B"], "not a whole number of bytes"),
        (["--memory", ""], "memory is ''; give bytes"),
        (["--steps", "0"], "steps is 0; give at least 1"),
        (["--steps", "-5"], "steps is -5; give at least 1"),
        (["--steps", "1e3"], "--steps: '1e3' is not a whole number; give one, like 16"),
        (["--batch", "0"], "batch is 0; give at least 1"),
        (["--hidden", "0"], "hidden is 0; give at least 1"),
        (["--layers", "1000000000"], "layers is 1000000000; give at most 1000"),
        (["--cell", "ln-gru", "--internal", "int8"], "internal is 'int8' with cell ln-gru; it is"),
        (["--updates", "0"], "updates is 0; give at least 1"),
        (["--seed", "-1"], "seed is -1; give at least 0"),
        (["--learning-rate", "0"], "learning_rate is 0.0; give a number above 0"),
        (["--learning-rate", "nan"], "learning_rate is nan"),
        (["--learning-rate", "inf"], "learning_rate is inf"),
        (["--learning-rate", "fast"], "--learning-rate: 'fast' is not a number"),
        (["--clip", "-1"], "clip is -1.0; give a number above 0"),
        (["--momentum", "0.5"], "momentum is 0.5 with optimizer adam; it is for optimizer sgd"),
        (["--weight-decay", "1"], "weight_decay is 1.0 with optimizer adam; it is for"),
        (["--optimizer", "adamw", "--weight-decay", "-1"], "weight_decay is -1.0; give a number"),
        (["--optimizer", "rprop"], "--optimizer: invalid choice: 'rprop'"),
        (["--decay-to", "0.5"], "decay_to is 0.5 with decay constant; it is for decay cosine or"),
        (["--decay", "cosine", "--decay-to", "2"], "decay_to is 2.0; give a number above 0 and at"),
        (["--decay", "cosine", "--warmup", "3"], "warmup is 3 and the decay ends at update 3"),
        (["--cell", "gnu"], "--cell: invalid choice: 'gnu'"),
        (["--strategy", "best"], "--strategy: invalid choice: 'best'"),
        (["--dtype", "int8"], "--dtype: invalid choice: 'int8'"),
        (["--backend", "abacus"], "--backend: invalid choice: 'abacus'"),
        (["--steps", "1500"], r"has 3000 characters; batch 3 of steps 1500 needs 4503"),
        (["--text", "no/such/file"], "text 'no/such/file' does not exist"),
        (["--text", "/"], "text '/' is a directory"),
        (["--text", sys.executable], "is not UTF-8"),
        (["--save", "no/such/folder"], "save is 'no/such/folder', where no file can be written"),
        (["--save", "/"], "save is '/', a directory"),
        (["--save", ""], "save is '', where no file can be written (No such file"),
        (["--memory", "1,5 kB"], "memory is '1,5 kB'; give bytes"),
        (["--resume", "no/such/file"], "checkpoint 'no/such/file' does not exist"),
        (["--resume", __file__], "cannot be read (not a checkpoint"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--learning-rate", "1e38"], r"update 1: parameter W_x stops being finite at learning"),
    ],
)
def test_bad_input_is_one_line(run, words, message):
    code, out, err = run("--updates", "3", *words)
    assert (code, out) == (2, "")
    line = err.splitlines()[-1]  # behind the progress of those that begin
    assert_one_line(line + "\n", message.replace("(", r"\("))
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError("Unable to allocate 7 GiB"), 2, "out of memory .Unable to allocate 7 GiB.*;"),
        (MemoryError(), 2, "out of memory"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "membptt train: interrupted"),
    ],
)
def test_what_the_system_refuses_is_one_line(run, monkeypatch, error, code, message):
    def fail(*_):
        raise error

    monkeypatch.setattr(train, "load_corpus", fail)
    found, out, err = run()
    assert (found, out) == (code, "")
    assert_one_line(err, message)


def test_a_mistake_of_ours_is_not_hidden(run, monkeypatch):
    monkeypatch.setattr(train, "load_corpus", lambda settings: None.tokens)
    with pytest.raises(AttributeError):
        run()


def test_it_saves_once_a_minute(run, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "SAVE_SECONDS", -1)
    saved = []
    monkeypatch.setattr(
        train, "save_checkpoint", lambda path, settings, arrays: saved.append(arrays["updates"])
    )
    run("--updates", "3", "--save", str(tmp_path / "state"))
    assert saved == [1, 2, 3, 3]


def test_what_is_learnt_is_saved_before_the_last_error_is_measured(run, tmp_path, monkeypatch):
    """It takes as long as an update or two, and a Ctrl-C in it would lose all."""
    measured, path = [], tmp_path / "state"

    def interrupted(trainer, settings):
        measured.append(path.exists())
        if len(measured) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(train, "report_error", interrupted)
    code, out, _ = run("--updates", "2", "--internal", "int8", "--save", str(path), "--json")
    assert code == 130 and measured == [False, True]
    assert json.loads(out)["updates"] == 2


def test_a_failed_save_is_one_line_and_keeps_the_last_one(run, tmp_path, monkeypatch):
    path = tmp_path / "state"
    assert run("--updates", "1", "--save", str(path))[0] == 0
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    monkeypatch.setattr(train, "SAVE_SECONDS", -1)
    code, out, err = run("--updates", "3", "--save", str(path), "--json")
    assert code == 2
    message = r"save is '.*', which cannot be written \(No space left on device\); make room"
    assert_one_line(err.splitlines()[-1] + "\n", "error: " + message)
    assert len(re.findall("warning: " + message, err)) == 3  # training went on
    assert json.loads(out)["updates"] == 3  # and was reported
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_after_the_update_under_way(run, tmp_path, monkeypatch, number):
    path = str(tmp_path / "state")
    uninterrupted = json.loads(run("--updates", "9", "--json")[1])
    update = Trainer.update

    def interrupted(self):
        if self.updates == 3:
            os.kill(os.getpid(), number)
        return update(self)

    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", interrupted)
        code, out, err = run("--updates", "9", "--save", path, "--json")
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert code == 130
    assert json.loads(out)["updates"] == 4
    assert f"interrupted after update 4; saved in {path}" in err
    code, out, err = run("--resume", path, "--json", small=False)
    assert code == 0, err
    assert json.loads(out)["parameters_sha256"] == uninterrupted["parameters_sha256"]


def test_the_second_signal_is_left_to_the_system():
    before = signal.getsignal(signal.SIGINT)  # a parent may have had it ignored
    with Deferred() as interrupt:
        assert not interrupt.asked
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        assert signal.getsignal(signal.SIGINT) == signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == before


# -- as a process of its own ----------------------------------------------------------------------


def start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "membptt", "train", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_for_progress(process):
    """Read standard error until the first update is done."""
    seen = ""
    while "bits/char" not in seen:
        letter = process.stderr.read(1)
        assert letter, seen
        seen += letter
    return seen


def test_ctrl_c_then_resume(text, tmp_path):
    path = str(tmp_path / "state")
    sizes = ["--text", text, "--steps", "50", "--batch", "2", "--hidden", "16", "--json"]
    process = start(*sizes, "--updates", "1000000", "--save", path)
    wait_for_progress(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    report = json.loads(out.splitlines()[-1])
    assert 1 <= report["updates"] < 1_000_000
    more = str(report["updates"] + 5)
    resumed = start("--resume", path, "--updates", more, "--json").communicate(timeout=60)[0]
    whole = start(*sizes, "--updates", more, "--strategy", "full").communicate(timeout=60)[0]
    digests = {json.loads(out)["parameters_sha256"] for out in (resumed, whole)}
    assert len(digests) == 1


def test_nobody_reads_the_report(text):
    read, write = os.pipe()
    os.close(read)
    sizes = ["--text", text, "--steps", "9", "--batch", "2", "--hidden", "4", "--updates", "1"]
    process = subprocess.run(
        [sys.executable, "-P", "-m", "membptt", "train", *sizes],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert process.returncode == 0
    assert "Traceback" not in process.stderr
    assert "Broken" not in process.stderr


def test_layers_on_one_another(text, capsys, tmp_path):
    """Trained inside the budget, saved, and resumed to the same bits."""
    path = str(tmp_path / "model.npz")
    common = ["--text", text, "--steps", "40", "--batch", "3", "--hidden", "9", "--memory", "9KiB"]
    common += ["--layers", "2", "--cell", "gru"]

    def report(*more):
        assert main(["train", *common, "--json", *more]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    whole = report("--updates", "4")
    report("--updates", "2", "--save", path)
    resumed = report("--updates", "4", "--resume", path)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    assert whole["arena_peak_bytes"] <= 9 * 1024 < whole["full_bytes"]
    assert main(["train", "--layers", "0"]) == 2
    assert "layers is 0; give at least 1" in capsys.readouterr().err


def test_an_error_that_cannot_be_measured_ends_nothing(run, monkeypatch):
    """The update that fails for the same numbers says so; after the last there is none."""

    def fails(trainer):
        raise FloatingPointError("the loss is nan")

    monkeypatch.setattr(Trainer, "measure_error", fails)
    code, _, err = run("--updates", "2", "--internal", "int8")
    assert code == 0
    assert "internal states in int8, gradient error not measured: the loss is nan" in err
