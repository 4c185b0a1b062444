"""Build the pages of every released version side by side, and of this tree, with a list of them.

    python .ci/versions.py [DIR]        by default docs/_build/versions

A release is a tag such as v1.2.0. Each version is installed from its own sources with its extra
`docs`, in an environment of its own, and its pages are built by its own docs/conf.py: what they
show is what that version does. DIR/index.html lists all, and every page of a version that knows
of it links there. A version that is there already is not built again, save this tree's. Links go
from page to page, so that DIR can be copied to any server, or read from a disk.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from release import ROOT, run

RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)$")
LATEST = "latest"  # the folder of this tree's pages
INDEX = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>membptt: versions of the documentation</title>
<style>body {{ font: 1.1em/1.6 system-ui, sans-serif; max-width: 36em; margin: 3em auto }}</style>
<h1>membptt: versions of the documentation</h1>
<ul>
{}
</ul>
</html>
"""


def releases(tags):
    """Return those of the tags that name a release, the newest version first."""
    found = [tag for tag in tags if RELEASE.match(tag)]
    return sorted(found, key=lambda tag: [*map(int, RELEASE.match(tag).groups())], reverse=True)


def build(sources, out):
    """Build the pages of the version whose sources are in a folder; `out` appears when all are."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", f"{folder}/venv")
        run(f"{folder}/venv/bin/pip", "-q", "install", f"{sources}[docs]")
        sphinx = [f"{folder}/venv/bin/sphinx-build", "-q", "-W", "--keep-going", "-b", "html"]
        run(*sphinx, "-A", "versions_page=index.html", f"{sources}/docs", f"{folder}/html")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(f"{folder}/html", out, ignore=shutil.ignore_patterns(".*"))


def index(tags):
    """Return the page that lists this tree's pages and those of each release."""
    links = [(LATEST, "the sources as they are now"), *((tag, tag[1:]) for tag in tags)]
    items = (f'<li><a href="{path}/index.html">{escape(text)}</a></li>' for path, text in links)
    return INDEX.format("\n".join(items))


def main():
    """Build what is not there yet, then the list."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/_build/versions").resolve()
    out.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", ROOT]
    tags = releases(run(*git, "tag", stdout=subprocess.PIPE, text=True).stdout.split())
    for tag in tags:
        if not (out / tag).exists():
            with tempfile.TemporaryDirectory() as folder:
                run(*git, "archive", "-o", f"{folder}/sources.tar", tag)
                run("tar", "-xf", f"{folder}/sources.tar", "-C", folder)
                build(folder, out / tag)
    build(ROOT, out / LATEST)
    (out / "index.html").write_text(index(tags), encoding="utf-8")
    print(out / "index.html")


if __name__ == "__main__":
    main()
