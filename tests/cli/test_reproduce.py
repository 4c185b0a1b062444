"""``membptt reproduce`` from its arguments to its output."""

import json

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
    (tmp_path / "file").write_text("")
    words = ["reproduce", "--out", str(tmp_path / "file")]
    assert main([*words, "--hidden", "0"]) == 2
    assert "hidden_size is 0" in capsys.readouterr().err
