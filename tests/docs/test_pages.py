"""The reference names all that is public, and every page can be reached."""

import re
from pathlib import Path

import pytest

import membptt

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no docs beside the tests")


def test_the_reference_has_every_public_name():
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    found = set(re.findall(r"^\.\. auto(?:class|function|data):: membptt\.(\w+)$", text, re.M))
    assert found == set(membptt.__all__)


def test_no_page_asks_for_something_from_a_network():
    for page in DOCS.glob("*.md"):
        for address in re.findall(r"!\[[^]]*\]\((.*?)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / address).exists(), f"{page.name}: {address}"
