"""Files are whole or not there, whoever writes them."""

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from handles import handles

import membptt as mb
from membptt import files
from membptt.files import replacing
from membptt.schedules import trade_off
from membptt.view.curve import save_curve
from membptt.view.viewer import save_page

SCHEDULE = mb.schedule(5, mb.Units(6, 3))

WRITERS = {
    "text": lambda path: write(path, "new"),
    "schedule": SCHEDULE.save,
    "page": lambda path: save_page(path, SCHEDULE),
    "curve": lambda path: save_curve(trade_off(5, alpha=3), path),
}


def write(path, text):
    with replacing(path) as file:
        file.write(text)


def test_a_new_file_and_an_older_one(tmp_path):
    path = tmp_path / "état"
    write(path, "α")
    assert path.read_text(encoding="utf-8") == "α"
    path.chmod(0o640)
    with replacing(str(path), "wb") as file:
        file.write(b"\0\1")
    assert path.read_bytes() == b"\0\1"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == [path.name]


def test_the_file_of_before_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_failed_write_leaves_the_file_of_before(tmp_path, monkeypatch, name, call, fault):
    path = tmp_path / "file.svg"
    path.write_text("old")

    def fail(*_):
        raise fault

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(type(fault)):
        WRITERS[name](path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_an_exception_while_writing(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file") as file:
        file.write("half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path):
    write(tmp_path / "file", "old")
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_pipe_is_written_to_as_it_is(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    reader.start()
    write(path, "through")
    reader.join()
    assert found == ["through"] and path.is_fifo()


def test_standard_output(tmp_path):
    """As a pipe, and as a file that somebody holds open."""
    code = "from membptt.files import replacing\nwith replacing('/dev/stdout') as f: f.write('out')"
    command = [sys.executable, "-P", "-c", code]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"out"
    with open(tmp_path / "file", "w") as file:
        subprocess.run(command, stdout=file, check=True)
        assert os.fstat(file.fileno()).st_nlink == 1
    assert (tmp_path / "file").read_text() == "out"


def test_errors_name_the_users_path(tmp_path):
    path = tmp_path / "no" / "folder"
    with pytest.raises(FileNotFoundError) as caught:
        write(path, "x")
    assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        write(tmp_path, "x")


def test_a_saved_schedule_is_what_it_was(tmp_path):
    SCHEDULE.save(tmp_path / "schedule")
    assert mb.Schedule.load(tmp_path / "schedule") == SCHEDULE
    assert json.loads((tmp_path / "schedule").read_text())["steps"] == 5


def test_nobody_writes_in_another_way():
    package = Path(mb.__file__).parent
    direct = re.compile(r"""(?<![.\w])open\([^)]*["'][wax]|write_text|write_bytes|savefig\(path""")
    for path in package.rglob("*.py"):
        if path.name != "files.py":
            found = direct.search(path.read_text(encoding="utf-8"))
            assert not found, f"{path} writes with {found[0]}; use membptt.files.replacing"


def test_a_log_is_cut_and_grows_where_it_stands(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\nhal")
    with files.appending(path, 8) as file:
        file.write(b"three\n")
        assert path.read_text() == "one\ntwo\nthree\n"  # before it is closed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_log_that_cannot_be_cut_is_closed():
    before = handles()
    with pytest.raises(OSError):
        files.appending("/dev/full", 8)
    assert handles() == before


def test_arrays_are_written_without_pickle():
    file = io.BytesIO()
    files.write_arrays(file, {"a": np.arange(3), "file": np.float32(2)})
    found = files.read_arrays(file)
    assert found["a"].tolist() == [0, 1, 2] and found["file"] == 2
    with pytest.raises(ValueError, match="cannot be saved when allow_pickle=False"):
        files.write_arrays(io.BytesIO(), {"a": np.array([{}])})
