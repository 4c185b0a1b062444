"""Files that were damaged, or made up, end in a result or in one line, and nothing runs."""

import json
import tomllib

import numpy as np
import pytest
from fuzz import damage
from fuzz.arguments import FITTING, NASTY, OWN, kind, options, parsers
from fuzz.program import records

import membptt as mb

RESUME = ["train", "--resume=model.npz", "--text=text", "--updates=4", "--save=model.npz"]


def damaged_archive(rng, data, made):
    """Return the file after one of the three kinds of damage."""
    change = rng.choice([damage.altered, damage.members, made, made])
    return change(rng, data)


def test_checkpoints(rng, folder, program):
    path = folder / "model.npz"
    path.write_bytes(damaged_archive(rng, path.read_bytes(), damage.checkpoint))
    if rng.random() < 0.5:
        program.run(["sample", "--resume=model.npz", "--length=3", "--json"])
    else:
        more = ["--valid=valid"] if rng.random() < 0.5 else []
        program.run([*RESUME, *more, "--log=log.csv", "--json"])


def test_logs(rng, folder, program):
    """What is no log is kept; what is gone on with is one, and nothing but its end is lost."""
    name = rng.choice(["log.csv", "log.jsonl"])
    path = folder / name
    before = damage.altered(rng, path.read_bytes())
    path.write_bytes(before)
    outcome = program.run([*RESUME, f"--log={name}"])
    if outcome.code == 2:
        assert path.read_bytes() == before
    else:
        assert outcome.code == 0
        records(path)


def toml(rng, nasty):
    """Return a TOML file of options of `membptt train`."""
    lines = []
    for action in options(parsers()["train"]):
        if rng.random() > 0.25:
            continue
        name = action.option_strings[-1]
        if rng.random() < nasty:
            value = rng.choice(NASTY[rng.choice(sorted(NASTY))])
            text = rng.choice([value, repr(value), f"[{value}]", "true", "1979-05-27", '"""\n"""'])
        elif action.nargs == 0:
            text = "true"
        else:
            value = rng.choice(list(action.choices or OWN.get(name, FITTING[kind(action)])))
            text = value if kind(action) in ("whole", "real") else f'"{value}"'
        lines.append(f"{name[2:]} = {text}")
    return "\n".join(lines) + "\n"


def test_settings(rng, folder, program):
    content = toml(rng, rng.choice([0, 0.1, 0.3])).encode("utf-8", "surrogateescape")
    if rng.random() < 0.4:
        content = damage.altered(rng, content)
    (folder / "run.toml").write_bytes(content)
    try:
        given = tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        given = {}
    named = [(given.get(name), f"--{name}") for name in ("save", "save-best", "log")]
    words = ["--text=text", "--steps=5", "--batch=2", "--hidden=3", "--updates=2"]
    outputs = [(path, option) for path, option in named if isinstance(path, str)]
    program.run(["train", *words, "--config=run.toml"], outputs)


def test_texts(rng, folder, program):
    for name in ("text", "valid"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(damage.altered(rng, data * rng.choice([1, 5])))
    words = ["--steps=4", "--batch=2", "--hidden=3", "--updates=2", "--valid=valid"]
    program.run(["train", "--text=text", *words, "--save=new.npz", "--save-best=best.npz"])


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_weights(rng, ending, tmp_path):
    """All of them are read, or none is changed and the file is named."""
    if ending == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is not installed")
    path = tmp_path / f"weights.{ending}"
    cell = mb.GRU(3, 4)
    mb.save_params(path, cell.params)
    whole = path.read_bytes()
    if ending == "npz":
        path.write_bytes(damaged_archive(rng, whole, damage.weights))
    else:
        path.write_bytes(safetensors(rng, whole))
    before = {name: value.copy() for name, value in cell.params.items()}
    try:
        mb.load_params(path, cell.params)
    except ValueError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        assert all(np.array_equal(before[name], cell.params[name]) for name in before)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def safetensors(rng, data):
    """Return the file altered, or with another header before the same bytes."""
    if rng.random() < 0.5:
        return damage.altered(rng, data)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensor = header[rng.choice(sorted(set(header) - {"__metadata__"}))]
    values = [[], [-1], [2**40], [4, 12], [2**63, 2], "F64", "F32", "BF16", "X", None, {}, 10**30]
    tensor[rng.choice(sorted(tensor))] = rng.choice(values)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def test_schedules(rng, tmp_path):
    """A schedule that is read is a legal one; anything else is refused and named."""
    path = tmp_path / "schedule.json"
    strategy = rng.choice(["optimal", "hsm", "disk", "lookahead", "expand", "uniform"])
    mb.schedule(rng.choice([1, 2, 9, 30]), mb.Units(20, alpha=3), strategy).save(path)
    text = path.read_text()
    if rng.random() < 0.5:
        path.write_bytes(damage.altered(rng, text.encode()))
    else:
        path.write_text(json.dumps(other_schedule(rng, json.loads(text))))
    try:
        loaded = mb.Schedule.load(path)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert loaded.replay().forward_steps == loaded.forward_steps
        assert loaded.replay().peak == loaded.peak_bytes <= loaded.budget


def other_schedule(rng, data):
    """Return the content of a file of a schedule with something replaced."""
    values = [-1, 0, 1, 2, 3, 2**31, 2**63, 10**30, 1.5, 1e308, None, True, "", "hsm", [], {}]
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(sorted(data))
        if name == "actions" and data["actions"]:
            row = rng.choice(data["actions"])
            row[rng.randrange(len(row))] = rng.choice(values)
        else:
            data[name] = rng.choice(values)
    return data
