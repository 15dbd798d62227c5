"""Doctests of the modules that need the extra `sim` or `fleet` are left out where that is not installed."""

from importlib.util import find_spec

_TORCH = ("learning", "federation", "export", "runs", "report", "experiments", "checking", "fleet", "cli")
_TERMINAL = ("experiments", "cli")

collect_ignore_glob = []
if not find_spec("torch"):
    collect_ignore_glob += [f"mpt/{room}/*" for room in _TORCH]
if not all(map(find_spec, ("rich", "typer"))):
    collect_ignore_glob += [f"mpt/{room}/*" for room in _TERMINAL]
if not all(map(find_spec, ("flwr", "torch"))):
    collect_ignore_glob += ["mpt/fleet/flower/*", "mpt/cli/*"]
