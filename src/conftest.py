"""Doctests of the modules that need torch are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["mpt/learning/*"]
