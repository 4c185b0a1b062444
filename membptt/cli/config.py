"""Options from a TOML file: the keys are the long names of the options, without their dashes.

    memory = "4MiB"
    learning-rate = 0.01
    json = true

The values have TOML's types: numbers without quotes, text with them. What stands on the command
line wins, before or behind ``--config``.
"""

import argparse
import tomllib

from membptt.cli.values import held_out, real, whole
from membptt.files import is_device

# What an option takes in a file, by the function that reads its value on the command line.
TYPES = {
    whole: ((int,), "a whole number"),
    real: ((int, float), "a number"),
    held_out: ((float, str), "a fraction, or the path of a file in quotes"),
    None: ((str,), "text in quotes"),
}
AMOUNT = ((int, str), "a whole number, or text in quotes")
FLAG = ((bool,), "true or false")


class Config(argparse.Action):
    """Sets the options that a file has and the command line has not, and lists the files."""

    def __call__(self, parser, namespace, path, option_string=None):
        """Read the file, or end with one line that names the key."""
        options = {
            option[2:]: action
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--") and action.dest not in ("help", self.dest)
        }
        try:
            for key, value in load(path).items():
                if key not in options:
                    raise ValueError(
                        f"key {key!r} of {path!r} is no option; give the long name of one, without "
                        "its dashes"
                    )
                action = options[key]
                value = checked(key, value, action, path)
                # Absent, or still what the parser begins with: not given on the command line.
                if getattr(namespace, action.dest, action.default) == action.default:
                    setattr(namespace, action.dest, value)
            setattr(namespace, self.dest, [*getattr(namespace, self.dest, []), path])
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def load(path):
    """Return what a TOML file has, or raise a ValueError that says why it cannot be read."""
    if is_device(path):
        raise ValueError(f"{path!r} is a device; give a file in TOML")
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path!r} is not UTF-8; give a file in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path!r} is not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{path!r} is nested too deeply; give one key a line") from None


def checked(key, value, action, path):
    """Return the value as the option's, or raise a ValueError unless it is of its type."""
    if action.nargs == 0:
        types, wanted = FLAG
    elif action.metavar == "BYTES":
        types, wanted = AMOUNT
    else:
        types, wanted = TYPES[action.type]
    # A truth value is a whole number for Python, and for nobody else.
    fits = isinstance(value, types) and (types == (bool,) or not isinstance(value, bool))
    if action.choices is not None:
        fits, wanted = value in action.choices, f"one of {', '.join(action.choices)}"
    if not fits:
        raise ValueError(f"key {key!r} of {path!r} is {value!r}; give {wanted}")
    return float(value) if action.type is real else value
