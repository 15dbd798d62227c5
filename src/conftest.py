"""Doctests of the modules that need the extra `sim` are left out where it is not installed."""

from importlib.util import find_spec

_TORCH = ["mpt/learning/*", "mpt/federation/engine.py", "mpt/federation/plan.py", "mpt/federation/trainings.py"]
_COMMANDS = ["mpt/config.py", "mpt/commands.py", "mpt/fleet/commands.py", "mpt/simulation.py"]

collect_ignore_glob = []
if not find_spec("torch"):
    collect_ignore_glob += [*_TORCH, "mpt/simulation.py"]
if not all(map(find_spec, ("pydantic", "rich", "typer"))):
    collect_ignore_glob += _COMMANDS
