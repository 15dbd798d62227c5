"""Numbers and names as texts: fractions as the paper writes them, bytes, lists, and what a user may have meant."""

import difflib
import math
from collections.abc import Iterable, Sequence


def score(value: float, digits: int = 3) -> str:
    """.405, -.020, 1.000: a fraction without its leading zero; a dash for NaN.

    Example:
        >>> score(0.4054), score(1)
        ('.405', '1.000')
    """
    if math.isnan(value):
        return "\N{EN DASH}"
    text = f"{abs(value):.{digits}f}"
    sign = "\N{MINUS SIGN}" if value < 0 and float(text) else ""
    return sign + text.removeprefix("0")


def signed(value: float, digits: int = 3) -> str:
    """The same with a sign in any case."""
    text = score(value, digits)
    if math.isnan(value):
        return text
    return text if text.startswith("\N{MINUS SIGN}") or not float(text) else f"+{text}"


def quantity(value: float) -> str:
    """A number of bytes: 364 B, 3.9 kB, 1.9 MB."""
    for limit, unit in ((1e3, "B"), (1e6, "kB"), (1e9, "MB")):
        if value < 0.9995 * limit or (unit == "B" and value < limit):
            scaled = value / (limit / 1e3)
            return f"{scaled:.0f} {unit}" if unit == "B" or scaled >= 99.95 else f"{scaled:.1f} {unit}"
    return f"{value / 1e9:.1f} GB"


def listed(names: Sequence[str], last: str = "and") -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def did_you_mean(given: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """What to say of a name that is none: the nearest of those that are known, or `otherwise`.

    Example:
        >>> did_you_mean("mtp", ["mpt", "frozen"], "should be one of mpt, frozen")
        'did you mean mpt?'
    """
    near = difflib.get_close_matches(given, list(known), 1, cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def installs(extra: str) -> str:
    """The command that installs an extra of this package: no index has it, so from a clone.

    Example:
        >>> installs("sim")
        "pip install -c constraints.txt '.[sim]' in the repository"
    """
    return f"pip install -c constraints.txt '.[{extra}]' in the repository"
