"""MLflow: one of its runs a seed in the experiment "mpt"; metrics are METHOD.READOUT.NAME."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mpt.base.errors import ConfigError
from mpt.federation.measurement import Measurement
from mpt.runs.config import RunConfig
from mpt.runs.logged import (
    curves_of,
    files_of,
    keep_runs,
    known_runs,
    parameters,
    prefixed,
    summary_of,
    tags,
    why,
    without_password,
)
from mpt.runs.result import RunResult

EXPERIMENT = "mpt"
_IN_FILE = "sqlite:///"
_BATCH = 500
"""Metrics of one request; MLflow takes a thousand."""


def client_of(module: Any, place: str) -> Any:
    """A client of a store; `ConfigError` where one on this machine cannot be opened.

    A server may be down and come back, so of one that cannot be reached nothing is said here.
    """
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    uri = place or module.get_tracking_uri()
    if place and ":" not in place and place != "databricks":
        raise ConfigError(f"track: {place!r} is no address, should be such as sqlite:///{place} or http://HOST:5000")
    try:
        client = module.MlflowClient(tracking_uri=uri)
        if not uri.startswith(("http://", "https://", "databricks")):
            client.search_experiments(max_results=1)
    except Exception as error:  # MLflow's and SQLAlchemy's many
        raise ConfigError(f"track: MLflow cannot open {without_password(uri)} ({why(error)})") from None
    return client


class MlflowLogger:
    """A run's seeds in MLflow; a run that is resumed goes on in the same ones."""

    def __init__(self, module: Any, place: str, config: RunConfig, out: Path | None) -> None:
        self.module, self.config, self.out = module, config, out
        self.place = place or str(module.get_tracking_uri())
        self.client = client_of(module, place)
        self.tags: dict[str, str] = {}
        self.runs: dict[int, str] = {}
        self.described: set[int] = set()
        self.fresh: dict[int, set[int]] = {}  # by seed whose run was made here: its rounds that have been logged
        self.finished = False

    @cached_property
    def experiment(self) -> str:
        """Its id."""
        return experiment_of(self.client, self.place)

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """The tags of all runs."""
        self.tags = tags(manifest)

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """One round."""
        self._log(self._run(seed), [(number, prefixed(rows))])
        self.fresh.get(seed, set()).add(number)

    def finish(self, result: RunResult) -> None:
        """Summaries of all seeds, and the files with the first; curves too where they were computed before."""
        self.tags = self.tags or tags(result.manifest)
        for seed in result.figures.seeds:
            run = self._run(seed)
            if seed in self.fresh:
                logged = self.fresh.pop(seed)
                self._log(run, (point for point in curves_of(result, seed) if point[0] not in logged))
            self._log(run, [(self.config.rounds, summary_of(result, seed))])
        for path in files_of(result):
            self.client.log_artifact(self._run(result.figures.seeds[0]), str(path))
        self.finished = True

    def close(self) -> None:
        """End them: finished, or killed."""
        for run in self.runs.values():
            self.client.set_terminated(run, "FINISHED" if self.finished else "KILLED")

    def _run(self, seed: int) -> str:
        """The id of a seed's run, which is made where there is none."""
        if seed not in self.runs:
            found = there(self.module, self.client, known_runs(self.out, "mlflow", self.place).get(seed))
            if found is None:
                name = f"{self.config.dataset} {self.config.rare} seed {seed}"
                found = self.client.create_run(self.experiment, run_name=name, tags=self.tags).info.run_id
                self.fresh[seed] = set()
            else:
                self.client.update_run(found, status="RUNNING")
                self.described.add(seed)
            self.runs[seed] = found
            every = known_runs(self.out, "mlflow", self.place) | self.runs
            keep_runs(self.out, "mlflow", self.place, every)
        if seed not in self.described:
            entities = self.module.entities
            params = [entities.Param(name, str(value)) for name, value in parameters(self.config, seed).items()]
            self.client.log_batch(self.runs[seed], params=params)
            self.described.add(seed)
        return self.runs[seed]

    def _log(self, run: str, rounds: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        now, metric = int(time.time() * 1000), self.module.entities.Metric
        points = [metric(name, value, now, number) for number, values in rounds for name, value in values.items()]
        for first in range(0, len(points), _BATCH):
            self.client.log_batch(run, metrics=points[first : first + _BATCH])


def there(module: Any, client: Any, run: str | None) -> str | None:
    """An earlier run; None where there is none, or somebody has deleted it."""
    if run is None:
        return None
    try:
        return run if client.get_run(run).info.lifecycle_stage == "active" else None
    except module.MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def experiment_of(client: Any, place: str) -> str:
    """The id of the experiment "mpt", which is made where there is none; its files are beside a database in a file."""
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    database = Path(place.removeprefix(_IN_FILE)) if place.startswith(_IN_FILE) and place != _IN_FILE else None
    beside = None if database is None else (database.resolve().parent / "mlruns").as_uri()
    return str(client.create_experiment(EXPERIMENT, artifact_location=beside))
