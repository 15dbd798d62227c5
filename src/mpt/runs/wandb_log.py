"""Weights & Biases: one of its runs a seed; nothing leaves this machine unless WANDB_MODE=online says so."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpt.federation.measurement import Measurement
from mpt.runs.config import RunConfig
from mpt.runs.logged import (
    curves_of,
    files_of,
    keep_runs,
    known_runs,
    parameters,
    plain,
    prefixed,
    summary_of,
    tags,
)
from mpt.runs.result import RunResult

PROJECT = "mpt"
LONGEST = 128
"""How long names may be there."""


def started(module: Any, project: str, folder: Path | None, **given: Any) -> Any:
    """A run of theirs, which prints nothing and looks at neither the code nor the machine."""
    quiet = module.Settings(
        silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
    )
    return module.init(
        project=project or os.environ.get("WANDB_PROJECT") or PROJECT,
        dir=None if folder is None or "WANDB_DIR" in os.environ else str(folder),
        reinit="create_new",
        settings=quiet,
        **given,
    )


def artifact_name(text: str) -> str:
    """A text as Weights & Biases takes it for an artifact's name, of which it takes fewer than MLflow.

    Example:
        >>> artifact_name("run-folder:photos/größe-8")
        'run-folder-photos-gr-e-8'
    """
    return re.sub(r"[^\w.]+", "-", text, flags=re.ASCII).strip("-")[:LONGEST]


def upload_hint(run: Any) -> str:
    """How what was written offline is uploaded; empty where it is online."""
    offline = getattr(run, "offline", False)
    return (
        f"wandb is offline; wandb sync {Path(run.dir).parent} uploads it, WANDB_MODE=online does so at once"
        if offline
        else ""
    )


class WandbLogger:
    """A run's seeds in Weights & Biases."""

    def __init__(
        self, module: Any, project: str, config: RunConfig, out: Path | None, say: Callable[[str], None]
    ) -> None:
        self.module, self.project, self.config, self.out, self.say = module, project, config, out, say
        self.tags: dict[str, str] = {}
        self.runs: dict[int, Any] = {}
        self.fresh: set[int] = set()
        self.finished = False

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """What stands in every run's configuration besides the settings."""
        self.tags = tags(manifest)

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """One round."""
        self._run(seed).log(prefixed(rows), step=number)
        self.fresh.discard(seed)

    def finish(self, result: RunResult) -> None:
        """Summaries of all seeds, and the files with the first; curves too where they were computed before."""
        self.tags = self.tags or tags(result.manifest)
        for seed in result.figures.seeds:
            run = self._run(seed)
            if seed in self.fresh:
                for number, values in curves_of(result, seed):
                    run.log(values, step=number)
            run.summary.update(summary_of(result, seed))
        paths = files_of(result)
        if paths:
            made = self.module.Artifact(artifact_name(f"run-{self.config.dataset}-{self.config.rare}"), type="run")
            for path in paths:
                made.add_file(str(path))
            self._run(result.figures.seeds[0]).log_artifact(made)
        self.finished = True

    def close(self) -> None:
        """End them: finished, or killed."""
        hints = [upload_hint(run) for run in self.runs.values()]
        for run in self.runs.values():
            run.finish(exit_code=0 if self.finished else 1)
        for hint in filter(None, hints):
            self.say(f"track: {hint}")

    def _run(self, seed: int) -> Any:
        if seed not in self.runs:
            known = known_runs(self.out, "wandb", self.project).get(seed)
            online = os.environ.get("WANDB_MODE") == "online"
            config, rare = parameters(self.config, seed), self.config.rare
            self.runs[seed] = started(
                self.module,
                self.project,
                self.out,
                name=f"{self.config.dataset} {rare} seed {seed}",
                group=plain(f"{self.config.dataset}-{rare}"),
                config={**config, **self.tags},
                **({"id": known, "resume": "allow"} if known and online else {}),
            )
            self.fresh.add(seed)
            every = known_runs(self.out, "wandb", self.project) | {s: r.id for s, r in self.runs.items()}
            keep_runs(self.out, "wandb", self.project, every)
        return self.runs[seed]
