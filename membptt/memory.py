"""Amounts of memory as people write them, and who holds how much of a device's.

``"2 MiB"`` is 2,097,152 bytes and ``"2 MB"`` is 2,000,000: prefixes with an ``i`` are powers of
1024, the others powers of 1000 (IEC 80000-13). Nothing here knows about cells or schedules.
"""

import math
import re
from dataclasses import dataclass

from membptt.checks import integer, shown

_PREFIXES = "KMGTP"
_FACTORS = {"": 1, "B": 1}
for _power, _prefix in enumerate(_PREFIXES, start=1):
    _FACTORS[f"{_prefix}B"] = 1000**_power
    _FACTORS[f"{_prefix}IB"] = 1024**_power

# Commas only between groups of three digits: "1,5 GB" means 1.5 to half of the world.
_AMOUNT = re.compile(r"\s*([+-]?(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(amount: str | int, name: str = "memory") -> int:
    """Return the number of bytes that `amount` states.

    Parameters
    ----------
    amount : str or int
        ``"2 MiB"``, ``"1.5GB"``, ``"2097152"`` or a whole number of bytes.
    name : str
        What the user calls the argument; it opens the error's line.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If the unit is unknown, or the amount is not a positive whole number of bytes.

    Examples
    --------
    >>> parse_bytes("2 MiB"), parse_bytes("2 MB"), parse_bytes(512), parse_bytes("1,536")
    (2097152, 2000000, 512, 1536)
    """
    if not isinstance(amount, str):
        return integer(f"{name} in bytes", amount, minimum=1)
    match = _AMOUNT.fullmatch(amount)
    if match is None or (factor := _FACTORS.get(match.group(2).upper())) is None:
        raise ValueError(
            f"{name} is {shown(amount)}; give bytes with one of the units B, kB, KiB, MB, MiB, GB, "
            'GiB, for example "2 MiB"'
        )
    number = match.group(1).replace(",", "").replace("_", "")
    whole, _, fraction = number.partition(".")
    scaled = int(whole + fraction) * factor  # exact: no float on the way
    nbytes, rest = divmod(scaled, 10 ** len(fraction))
    if rest:
        raise ValueError(f"{name} is {shown(amount)}, which is not a whole number of bytes")
    if nbytes < 1:
        raise ValueError(f"{name} is {shown(amount)}; give at least 1 byte")
    return nbytes


def format_bytes(nbytes):
    """Return `nbytes` for people: binary prefixes, about three digits, exact below 1 KiB.

    Examples
    --------
    >>> format_bytes(2097152), format_bytes(1000), format_bytes(1536)
    ('2.00 MiB', '1000 B', '1.50 KiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    power = min(int(math.log2(nbytes)) // 10, len(_PREFIXES))
    value = nbytes / 1024**power
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {_PREFIXES[power - 1]}iB"


@dataclass(frozen=True)
class Units:
    """A budget in states instead of bytes, for schedules without a cell.

    Attributes
    ----------
    count : int
        How many units, as the strategy counts them (see `membptt.forward_steps`).
    alpha : int
        Size of an internal state, in hidden states.
    """

    count: int
    alpha: int = 1

    def __post_init__(self):
        object.__setattr__(self, "count", integer("units", self.count))
        object.__setattr__(self, "alpha", integer("alpha", self.alpha, minimum=1))


class Ledger:
    """Who holds how many bytes of a device's memory, by name.

    tracemalloc sees what NumPy takes, but nothing on a GPU; and what a pool of memory holds says
    little about what is in use. So whoever takes memory there writes it down here.

    Attributes
    ----------
    held : dict of str to int
        Bytes in use now.
    peak : int
        The most bytes that were in use at once.
    allocations : int
        How often memory was taken.

    Examples
    --------
    >>> ledger = Ledger()
    >>> ledger.take("arena", 4096)
    >>> ledger.take("block", 1024)
    >>> ledger.give("block")
    >>> ledger.total, ledger.peak, ledger.allocations
    (4096, 5120, 2)
    """

    def __init__(self):
        self.held = {}
        self.peak = self.allocations = 0

    @property
    def total(self):
        """Bytes in use now."""
        return sum(self.held.values())

    def take(self, name, nbytes):
        """Write down that `nbytes` more are held under `name`."""
        self.held[name] = self.held.get(name, 0) + nbytes
        self.allocations += 1
        self.peak = max(self.peak, self.total)

    def hold(self, name, nbytes):
        """Write down that `nbytes` in all are held under `name`, in place of what was before."""
        self.held.pop(name, None)
        self.take(name, nbytes)

    def give(self, name):
        """Write down that what `name` holds was given back; a KeyError if it holds nothing."""
        del self.held[name]

    def __str__(self):
        rows = [*self.held.items(), ("total", self.total), ("peak", self.peak)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}} {format_bytes(nbytes):>9}" for name, nbytes in rows)
