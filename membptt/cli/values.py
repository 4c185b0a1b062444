"""The values of options: what argparse reports when one is wrong."""

from argparse import ArgumentTypeError


def whole(text):
    """Return the whole number that an option's value states."""
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number; give one, like 16") from None


def held_out(text):
    """Return a fraction where the option's value is a number, else the path of a file."""
    try:
        return float(text)
    except ValueError:
        return text


def real(text):
    """Return the number that an option's value states."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number; give one, like 0.01") from None
