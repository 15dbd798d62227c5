"""The release, and the bench's version: what every file that is written says it was made by."""

__version__ = "0.1.0"

ENGINE = 1
"""The bench's version: raised whenever the same settings and data give other numbers than before, beyond rounding."""

MADE_BY = f"mpt {__version__}, benchmark engine {ENGINE}"
"""Both, for people."""
