"""``membptt reproduce`` from its arguments to its output."""

import json

import pytest

from membptt.cli import main, reproduce


def test_files_and_json(tmp_path, capsys, monkeypatch):
    small = reproduce.measure
    monkeypatch.setattr(
        reproduce, "measure", lambda *sizes, progress: small(*sizes, (90,), 1, progress)
    )
    small_disk = reproduce.measure_disk
    monkeypatch.setattr(reproduce, "measure_disk", lambda: small_disk(8, 2, (90,), 90, 1))
    words = ["reproduce", "--out", str(tmp_path / "out"), "--hidden", "8", "--batch", "2"]
    assert main([*words, "--json"]) == 0
    streams = capsys.readouterr()
    report = json.loads(streams.out)  # nothing but that line
    assert report["ok"] and report["headline"]["forward_steps"] == 1999
    assert "report.html" in report["files"] and (tmp_path / "out" / "report.html").exists()
    assert report["measured"]["rows"][0]["strategy"] == "full"
    assert report["disk_measured"]["by_length"][0]["steps"] == 90
    assert len(report["disk"]["claims"]) == 3
    assert "Claims" in streams.err and "Kukreja" in streams.err


def test_bad_use_is_one_line(tmp_path, capsys):
    words = ["reproduce", "--out", str(tmp_path / "out")]
    assert main([*words, "--hidden", "0"]) == 2
    assert "hidden is 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_no_folder_is_refused_before_minutes_of_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reproduce, "all_costs", lambda: pytest.fail("began to work"))
    taken = tmp_path / "file"
    taken.write_text("kept")
    assert main(["reproduce", "--out", str(taken)]) == 2
    assert "which can be no folder" in capsys.readouterr().err
    assert taken.read_text() == "kept"
