"""Any words on the command line end in a result or in one line."""

import random

from fuzz.arguments import command_line, options, parsers


def test_arguments(rng, program):
    program.run(command_line(rng))


def test_much_of_what_fits_is_done(program):
    """The cases above go beyond the parser, or they would try nothing."""
    lines = [command_line(random.Random(number), "train", nasty=0) for number in range(20)]
    codes = [program.run(words).code for words in lines]
    assert codes.count(0) >= 7


def test_every_option_is_drawn():
    drawn = set()
    for number in range(1000):
        for word in command_line(random.Random(number)):
            drawn.add(word.split("=")[0])
    for name, parser in parsers().items():
        for action in options(parser):
            assert drawn.intersection(action.option_strings), f"{name} {action.option_strings}"
