"""The pages of several versions: which there are, and the list that leads to them."""

import re
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "versions.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="no .ci beside the tests")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return runpy.run_path(str(SCRIPT))


def test_releases_by_number_not_by_letter(script):
    tags = ["v0.9.0", "nightly", "v0.10.0", "v1.0.0rc1", "w1.0.0", "v0.9.11", "v1.0"]
    assert script["releases"](tags) == ["v0.10.0", "v0.9.11", "v0.9.0"]


def test_the_list_leads_to_every_version(script):
    page = script["index"](["v0.2.0", "v0.1.0"])
    assert re.findall(r'<a href="(.*?)/index.html">', page) == ["latest", "v0.2.0", "v0.1.0"]


def test_each_is_built_from_its_own_sources_once(script, tmp_path, monkeypatch):
    """With commands that only leave a trace: what a release is built from is the tag's archive."""
    ran = []

    def run(*command, **options):
        ran.append(" ".join(map(str, command)))
        if command[-1] == "tag":
            return type("Done", (), {"stdout": "v0.1.0\nv0.2.0\n"})
        if "sphinx-build" in str(command[0]):
            Path(command[-1]).mkdir(parents=True)
            (Path(command[-1]) / "index.html").write_text(str(command[-2]))
        return None

    main = script["main"]
    monkeypatch.setitem(main.__globals__, "run", run)
    monkeypatch.setattr("sys.argv", ["versions.py", str(tmp_path)])
    (tmp_path / "v0.1.0").mkdir()  # built before
    main()
    assert sum("archive" in line for line in ran) == 1
    archive, unpack = (next(line for line in ran if word in line) for word in ("archive", "tar -x"))
    sources = (tmp_path / "v0.2.0/index.html").read_text().removesuffix("/docs")
    assert archive.endswith(f"{sources}/sources.tar v0.2.0") and unpack.endswith(f"-C {sources}")
    assert (tmp_path / "latest/index.html").read_text() == str(SCRIPT.parents[1] / "docs")
    assert {"latest", "v0.1.0", "v0.2.0", "index.html"} == {p.name for p in tmp_path.iterdir()}
