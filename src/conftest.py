"""Doctests of the modules that need the extra `sim` or `fleet` are left out where that is not installed."""

from importlib.util import find_spec

_TORCH = ["mpt/learning/*", "mpt/federation/engine.py", "mpt/federation/plan.py", "mpt/federation/trainings.py"]
_TORCH += [f"mpt/fleet/{name}.py" for name in ("export", "holdings", "judge", "server", "vehicle")]
_COMMANDS = ["mpt/config.py", "mpt/commands.py", "mpt/fleet/commands.py", "mpt/simulation.py"]

collect_ignore_glob = []
if not find_spec("torch"):
    collect_ignore_glob += [*_TORCH, "mpt/simulation.py"]
if not all(map(find_spec, ("pydantic", "rich", "typer"))):
    collect_ignore_glob += _COMMANDS
if not all(map(find_spec, ("flwr", "torch"))):
    collect_ignore_glob += ["mpt/fleet/flower/*"]
