"""The reference names all that is public, and no picture comes from a network."""

import re
from pathlib import Path

import pytest

import membptt
import membptt.schedules

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no docs beside the tests")


@pytest.mark.parametrize("module", [membptt, membptt.schedules], ids=["membptt", "schedules"])
def test_the_reference_has_every_public_name(module):
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    found = set(re.findall(r"^\.\. auto(?:class|function|data):: (membptt[\w.]*)$", text, re.M))
    for where, names in re.findall(r"automodule:: (.*)\.\w+\n   :members: (.*)", text):
        found |= {f"{where}.{name}" for name in names.split(", ")}
    for name in module.__all__:
        known = f"{module.__name__}.{name}", f"membptt.{name}"
        assert not found.isdisjoint(known), f"docs/reference.md does not have {known[0]}"


def test_pictures_lie_beside_the_pages():
    for page in DOCS.glob("*.md"):
        for address in re.findall(r"!\[[^]]*\]\((.*?)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / address).exists(), f"{page.name}: {address}"
