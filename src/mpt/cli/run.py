"""`mpt run`: its options are the fields of `RunConfig`."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from mpt.base.settings import default_of, kinds_of, rules_of
from mpt.base.text import quantity
from mpt.cli.progress import Reporter
from mpt.cli.render import console, note, say
from mpt.runs.config import ConfigError, RunConfig, for_features, make_config, read_toml
from mpt.runs.scenario_config import ScenarioConfig

FILES = ("config.toml", "manifest.json", "samples.png", "metrics.csv", "diagnostics.csv", "confusion.csv")


def add_to(app: typer.Typer) -> None:
    """Add it to `mpt`."""
    app.command("run")(run)


def run(config: Path | None, out: Path | None, overwrite: bool, track: str | None, **options: Any) -> None:
    """Simulate a federation that a vehicle leaves, and read out every method."""
    settings = {**(read_toml(config) if config else {}), **{k: v for k, v in options.items() if v is not None}}
    if "scenario" in settings:
        from mpt.cli.scenario import run_scenario

        run_scenario(settings, out, overwrite, track)
        return
    for name in _of_scenarios():
        if name in settings:
            raise ConfigError(f"{name}: is for scenarios, should come with --scenario NAME|FILE.toml")
    chosen = make_config(for_features(settings, note))
    if overwrite and out is None:
        raise ConfigError("overwrite: there is no folder to overwrite, should come with --out DIR")
    with Reporter(chosen, console) as reporter:  # before torch, which takes seconds to come
        from mpt.cli.render.summary import print_summary
        from mpt.report.simulate import simulate
        from mpt.runs.logbook import track as logger_of

        reporter.logger = None if track is None else logger_of(track, chosen, out, reporter.say)
        result = simulate(
            chosen, out=out, overwrite=overwrite, begin=reporter.begin, progress=reporter, say=reporter.say
        )
        if reporter.logger is not None:
            reporter.logger.finish(result)
    if not result.computed:
        note(f"{out} holds the finished run of these settings: nothing was computed")
    print_summary(result.figures, chosen.dataset)
    if out is not None:
        there = [name for name in FILES if (out / name).exists()]
        say(f"\nin {out}: {', '.join((*there, *_larger(out)))}")
        say(str(out / "report.html"))


def _larger(out: Path) -> list[str]:
    """The folders that take room, with how much."""
    from mpt.runs.models import ModelFolder
    from mpt.runs.record import Record

    sizes = {"models": ModelFolder.of(out).size, "record": Record.of(out).size}
    return [f"{name} ({quantity(size)})" for name, size in sizes.items() if size]


def _of_scenarios() -> list[str]:
    """The options that only scenarios have."""
    return [name for name in rules_of(ScenarioConfig) if name not in rules_of(RunConfig)]


def _signature() -> inspect.Signature:
    path = Annotated[Path | None, typer.Option("--config", help="TOML file with the same settings")]
    out = Annotated[Path | None, typer.Option("--out", help="folder for the results; a killed run resumes from there")]
    overwrite = Annotated[bool, typer.Option("--overwrite", help="begin anew, whatever run is in that folder")]
    track = Annotated[
        str | None, typer.Option("--track", help="log every round to tensorboard, mlflow[:URI] or wandb[:PROJECT] too")
    ]
    given: list[tuple[str, Any, Any]] = [
        ("config", None, path),
        ("out", None, out),
        ("overwrite", False, overwrite),
        ("track", None, track),
    ]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in given
    ]
    owners = dict.fromkeys(rules_of(RunConfig), RunConfig) | dict.fromkeys(_of_scenarios(), ScenarioConfig)
    for name, owner in owners.items():
        rule, kind, default = rules_of(owner)[name], kinds_of(owner)[name][0], default_of(owner, name)
        default = None if name == "scenario" else default
        shown = ", ".join(default) if isinstance(default, tuple) else default
        plain = default is None or default == "" or isinstance(default, bool)
        said = rule.about if plain else f"{rule.about} (default: {shown})"
        flag = f"--{name.replace('_', '-')}"
        names = f"{flag}/--no-{name.replace('_', '-')}" if default is True else flag
        option = typer.Option(names, help=said, show_default=False)
        shape: Any = kind if kind in (int, float, bool) else str
        annotation = Annotated[shape | None, option]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return inspect.Signature(parameters)


run.__signature__ = _signature()  # type: ignore[attr-defined]
