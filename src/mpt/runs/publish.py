"""A released model in MLflow or Weights & Biases: its file and manifest, under a name and an alias if wanted."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from mpt.base.errors import ConfigError
from mpt.export.formats import ExportError
from mpt.export.manifest import ReleaseManifest
from mpt.runs.logbook import address, module_of
from mpt.runs.logged import known_runs, plain, why
from mpt.runs.mlflow_log import client_of, experiment_of, there
from mpt.runs.wandb_log import LONGEST, artifact_name, started, upload_hint

_NAME = re.compile(r"\w[\w.\-]*(@[\w.\-]+)?")
_PACKAGES = {"mlflow": "MLflow", "wandb": "Weights & Biases"}
_LONGEST = {"mlflow": 255, "wandb": LONGEST}
"""How long a name or an alias may be there."""
_OWN = {"mlflow": re.compile(r"(?i:latest)|[vV]\d+"), "wandb": re.compile(r"v\d+")}
"""Aliases that they give by themselves, and refuse or misread where somebody else gives them."""
FOLDER = "model"
"""Of MLflow's artifacts; every release has a folder of its own in it, see `folder_of`."""


class Registered(NamedTuple):
    """`--register NAME[@ALIAS]`."""

    name: str
    alias: str


class Publication:
    """Where a model is to be published; everything that can be wrong beforehand is said when it is made.

    Args:
        track: as after `--track`.
        register: as after `--register`; None: under no name.
        folder: of the run that the model is of, whose seeds may be known there already; None for a fleet.
        say: takes a sentence for the user.
    """

    def __init__(self, track: str, register: str | None, folder: Path | str | None, say: Callable[[str], None]) -> None:
        self.where, self.folder, self.say = address(track), None if folder is None else Path(folder), say
        if self.where.name == "tensorboard":
            raise ConfigError("track: tensorboard keeps no models, should be mlflow[:URI] or wandb[:PROJECT]")
        self.register = None if register is None else registered(register)
        if self.register is not None:
            check_rules(self.register, self.where.name)
        self.module = module_of(self.where.name)
        self.client: Any = client_of(self.module, self.where.place) if self.where.name == "mlflow" else None

    def __call__(self, model: Path | str, manifest: ReleaseManifest) -> str:
        """Publish it, and say where it is.

        Raises:
            ExportError: that failed; the files are written all the same.
        """
        try:
            return self._mlflow(Path(model), manifest) if self.client else self._wandb(Path(model), manifest)
        except ExportError:
            raise
        except Exception as error:  # another package's, and whatever it meets
            raise ExportError(
                f"track: {model} is written, but could not be published to {self.where.name} ({why(error)})"
            ) from None

    def _mlflow(self, model: Path, manifest: ReleaseManifest) -> str:
        client, place = self.client, self.where.place or str(self.module.get_tracking_uri())
        known = known_runs(self.folder, "mlflow", place)
        run = there(self.module, client, known.get(-1 if manifest.origin.seed is None else manifest.origin.seed))
        made = run is None
        if run is None:
            name = f"release of {manifest.origin.method} after round {manifest.round}"
            run = str(client.create_run(experiment_of(client, place), run_name=name, tags=_tags(manifest)).info.run_id)
        for path in manifest.files(model):
            client.log_artifact(run, str(path), folder_of(manifest))
        if made:
            client.set_terminated(run)
        if self.register is None:
            return f"in MLflow's run {run} as {folder_of(manifest)}"
        return self._version(run, model, manifest, self.register)

    def _version(self, run: str, model: Path, manifest: ReleaseManifest, wanted: Registered) -> str:
        """A version of a registered model, under its alias where one is wanted."""
        client = self.client
        try:
            source = f"{client.get_run(run).info.artifact_uri}/{folder_of(manifest)}"
            if not client.search_registered_models(f"name = '{wanted.name}'"):
                client.create_registered_model(wanted.name)
            version = client.create_model_version(wanted.name, source, run, tags=_tags(manifest)).version
            if wanted.alias:
                client.set_registered_model_alias(wanted.name, wanted.alias, version)
        except Exception as error:
            raise ExportError(
                f"register: {model} is written and in MLflow's run {run}, but could not be registered; "
                f"the store should have a model registry ({why(error)})"
            ) from None
        called = f", which {wanted.alias!r} means from now on" if wanted.alias else ""
        return f"in MLflow's registry as version {version} of {wanted.name}{called}"

    def _wandb(self, model: Path, manifest: ReleaseManifest) -> str:
        run = started(self.module, self.where.place, self.folder or model.parent, job_type="release")
        hint = upload_hint(run)
        try:
            name = self.register.name if self.register else artifact_name(f"mpt-{manifest.origin.method}")
            made = self.module.Artifact(name, type="model", metadata=json.loads(json.dumps(asdict(manifest))))
            for path in manifest.files(model):
                made.add_file(str(path))
            alias = [self.register.alias] if self.register and self.register.alias else []
            run.log_artifact(made, aliases=list(dict.fromkeys([*alias, "latest"])))
        finally:
            run.finish()
        if hint:
            self.say(f"track: {hint}")
        return f"in Weights & Biases as {name}:{alias[0] if alias else 'latest'}"


def registered(text: str) -> Registered:
    """What is written after `--register`.

    Example:
        >>> registered("trucks@production")
        Registered(name='trucks', alias='production')
    """
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"register: {text!r}, should be NAME or NAME@ALIAS, of letters, digits, '.', '_' and '-', and should begin "
            "with a letter, a digit or '_'"
        )
    name, _, alias = text.partition("@")
    return Registered(name, alias)


def check_rules(wanted: Registered, package: str) -> None:
    """`ConfigError` where a package would not take a name or an alias, which it says only after an upload."""
    whose, longest, alias = _PACKAGES[package], _LONGEST[package], wanted.alias
    for what, text in (("name", wanted.name), ("alias", alias)):
        if len(text) > longest:
            raise ConfigError(f"register: the {what} has {len(text)} characters, should have at most {longest}")
    if package == "mlflow" and "." in alias:
        raise ConfigError(f"register: the alias {alias!r}, should be of letters, digits, '_' and '-' for {whose}")
    if package == "wandb" and not wanted.name.isascii():
        raise ConfigError(f"register: the name {wanted.name!r}, should be of the letters a to z and A to Z for {whose}")
    if _OWN[package].fullmatch(alias):
        raise ConfigError(
            f"register: the alias {alias!r} is one that {whose} gives by itself, should be another, such as production"
        )


def folder_of(manifest: ReleaseManifest) -> str:
    """Where a release is among an MLflow run's artifacts, so that no other is ever written over it.

    By the model's hash and that of the manifest, which also says what was required and what the files are called: the
    same release has the same folder, and any other another.
    """
    own = hashlib.sha256(manifest.to_json().encode()).hexdigest()
    return f"{FOLDER}/{manifest.sha256[:12]}-{own[:8]}"


def publication(
    track: str | None, register: str | None, folder: Path | None, say: Callable[[str], None]
) -> Publication | None:
    """What is asked for; None where nothing is."""
    if track is None:
        if register is not None:
            raise ConfigError(
                "register: should come with --track mlflow[:URI] or wandb[:PROJECT], whose registry it is"
            )
        return None
    return Publication(track, register, folder, say)


def _tags(manifest: ReleaseManifest) -> dict[str, str]:
    """What can be searched for: the model's hash, and the verdict of every class that is not measured."""
    origin = manifest.origin
    about = {"sha256": manifest.sha256, "round": manifest.round, "method": origin.method, "required": manifest.required}
    classes = {f"class.{plain(c.name)}": c.verdict or c.state for c in origin.classes if c.state != "measured"}
    return {f"mpt.{name}": str(value) for name, value in {**about, **classes}.items()}
