"""The real MLflow on a store of SQLite, and the real Weights & Biases offline: a run's figures, and its model."""

import importlib
import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.export import ClassStanding, Origin, ReleaseManifest, read_release, write_release
from mpt.report.simulate import simulate
from mpt.runs.config import ConfigError, make_config
from mpt.runs.export import releasable
from mpt.runs.interrupts import Stopped
from mpt.runs.logbook import track
from mpt.runs.mlflow_log import client_of
from mpt.runs.publish import Publication, Registered, check_rules, folder_of, registered
from mpt.runs.wandb_log import artifact_name

SETTINGS = {
    "dataset": "road?train=20&test=8", "image_size": 28, "vehicles": 3, "remaining": 0.1, "rounds": 3, "depart_at": 1,
    "eval_every": 1, "epochs": 1, "batch_size": 16, "methods": ("frozen", "mpt"),
}  # fmt: skip
ORIGIN = Origin(
    "run", "mpt", "mahalanobis", "a" * 64, "road", "f0", 0, "0.1.0", None, (ClassStanding("car", "measured"),)
)
RELEASE = ReleaseManifest(
    "m.pt", "torchscript", "b" * 64, 12, None, 3, "cnn3", 3, 28, (3, 28, 28), "0.1.0", "good", ORIGIN
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("MLFLOW_DISABLE_TELEMETRY", "true"), ("WANDB_MODE", "offline")):
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run, which nobody has tracked."""
    where = tmp_path_factory.mktemp("run")
    simulate(make_config(SETTINGS), out=where)
    return where


@pytest.fixture
def mlflow():
    pytest.importorskip("sqlalchemy", reason="the extra track is not installed")
    return pytest.importorskip("mlflow", reason="the extra track is not installed")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return tmp_path_factory.mktemp("mlflow") / "mlflow.db"


@pytest.fixture
def store(mlflow, database, monkeypatch):
    """One for all tests, for it takes seconds to make; artifacts are beside it."""
    monkeypatch.chdir(database.parent)
    return f"sqlite:///{database}"


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    return pytest.importorskip("wandb", reason="the extra track is not installed")


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def fetched(mlflow, store, version, where):
    """What a version of a registered model has, as the docs say."""
    there = mlflow.artifacts.download_artifacts(artifact_uri=version.source, dst_path=str(where), tracking_uri=store)
    return Path(there)


def exported(folder, where):
    """A release of a run, as `where`/m.pt."""
    return write_release(releasable(folder, "mpt"), "torchscript", where / "m.pt")


def run_again(folder, logger, **changed):
    """A run whose rounds a logger gets, as the command has it."""
    config = make_config({**SETTINGS, **changed})
    try:
        result = simulate(config, out=folder, begin=logger.begin, progress=logger)
        logger.finish(result)
    finally:
        logger.close()
    return result


def test_mlflow_has_settings_curves_summary_and_report(mlflow, store, tmp_path):
    said, out = [], tmp_path / "run"
    result = run_again(out, track(f"mlflow:{store}", make_config(SETTINGS), out, said.append))
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = map(client.get_run, json.loads((out / "tracking.json").read_text())["mlflow"]["runs"].values())
    assert (run.info.status, run.data.params["epochs"], run.data.params["seed"]) == ("FINISHED", "1", "0")
    assert run.data.tags["mpt.dataset_fingerprint"] == result.manifest["dataset_fingerprint"]
    curve = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "mpt.mahalanobis.f1")}
    (series,) = [s for s in result.figures.series if s.method == "mpt"]
    assert curve == pytest.approx({n: p.mean for n, p in result.figures.curve(series).points.items()}, abs=1e-6)
    assert sorted(curve) == [1, 2, 3]
    assert run.data.metrics["summary.mpt.mahalanobis.last_f1"] == pytest.approx(result.figures.last(series)[0])
    assert run.data.metrics["summary.mpt.mahalanobis.mean_f1"] == pytest.approx(result.figures.mean(series)[0])
    logged = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "config.toml", "metrics.csv", "manifest.json"} <= logged
    assert said == []
    run_again(out, track(f"mlflow:{store}", make_config(SETTINGS), out, said.append))
    name = run.info.run_name
    more = [one for one in client.search_runs([run.info.experiment_id]) if one.info.run_name == name]
    assert [one.info.run_id for one in more] == [run.info.run_id], "a run that is there is gone on with"


def test_a_finished_run_is_tracked_afterwards_and_its_model_registered(mlflow, store, folder, tmp_path):
    for _ in range(2):
        done = call("export", folder, "--method", "mpt", "--out", tmp_path / "m.pt", "--track", f"mlflow:{store}",
                    "--register", "trucks@production")  # fmt: skip
        assert done.exit_code == 0, done.stderr
    assert "as version 2 of trucks, which 'production' means from now on" in done.stdout
    client = mlflow.MlflowClient(tracking_uri=store)
    version = client.get_model_version_by_alias("trucks", "production")
    release = read_release(tmp_path / "m.pt")
    assert (str(version.version), version.tags["mpt.sha256"]) == ("2", release.sha256)
    (truck,) = [one for one in release.origin.classes if one.name == "truck"]
    assert version.tags["mpt.class.truck"] == truck.verdict
    assert read_release(fetched(mlflow, store, version, tmp_path) / "m.pt") == release


def test_a_version_keeps_its_model_whatever_is_exported_later(mlflow, store, folder, tmp_path):
    """From one tracked run, in files of one name: a method, another one, and the other one once more."""
    tracked = shutil.copytree(folder, tmp_path / "run")
    run_again(tracked, track(f"mlflow:{store}", make_config(SETTINGS), tracked, print))
    made = {}
    for alias, method in (("production", "mpt"), ("experiment", "frozen")):
        done = call("export", tracked, "--method", method, "--out", tmp_path / "m.pt", "--track", f"mlflow:{store}",
                    "--register", f"cars@{alias}")  # fmt: skip
        assert done.exit_code == 0, done.stderr
        made[alias] = read_release(tmp_path / "m.pt")
    made["again"] = made["experiment"]
    Publication(f"mlflow:{store}", "cars@again", tracked, print)(tmp_path / "m.pt", made["again"])
    client = mlflow.MlflowClient(tracking_uri=store)
    versions = {alias: client.get_model_version_by_alias("cars", alias) for alias in made}
    assert len({one.run_id for one in versions.values()}) == 1, "all are of one run, or this shows nothing"
    assert versions["again"].source == versions["experiment"].source != versions["production"].source
    for alias, release in made.items():
        there = fetched(mlflow, store, versions[alias], tmp_path / alias)
        assert sorted(path.name for path in there.iterdir()) == ["m.pt", "m.pt.manifest.json"]
        assert read_release(there / "m.pt") == release
        assert versions[alias].tags["mpt.sha256"] == release.sha256


def test_a_run_that_somebody_has_deleted_is_made_anew(mlflow, store, folder, tmp_path):
    tracked = shutil.copytree(folder, tmp_path / "run")
    said, client = [], mlflow.MlflowClient(tracking_uri=store)

    def ids():
        run_again(tracked, track(f"mlflow:{store}", make_config(SETTINGS), tracked, said.append))
        return json.loads((tracked / "tracking.json").read_text())["mlflow"]["runs"]["0"]

    first = ids()
    client.delete_run(first)
    second = ids()
    assert (second != first, said) == (True, [])
    assert client.get_run(second).data.metrics["summary.mpt.mahalanobis.last_f1"] > 0
    client.delete_run(second)
    Publication(f"mlflow:{store}", "deleted", tracked, print)(Path(tmp_path, "m.pt"), exported(tracked, tmp_path))
    (version,) = client.search_model_versions("name = 'deleted'")
    assert client.get_run(version.run_id).info.lifecycle_stage == "active"


def test_a_run_that_is_tracked_only_once_it_is_resumed_has_all_rounds(mlflow, store, tmp_path):
    out, said = tmp_path / "run", []

    def stop(seed, number, rows):
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        simulate(make_config(SETTINGS), out=out, progress=stop)
    run_again(out, track(f"mlflow:{store}", make_config(SETTINGS), out, said.append))
    (run,) = json.loads((out / "tracking.json").read_text())["mlflow"]["runs"].values()
    history = mlflow.MlflowClient(tracking_uri=store).get_metric_history(run, "mpt.mahalanobis.f1")
    assert sorted(point.step for point in history) == [1, 2, 3]


def test_a_release_has_a_place_of_its_own():
    other = replace(RELEASE, required=None)
    places = [folder_of(one) for one in (RELEASE, other, replace(RELEASE, file="o.pt"), replace(RELEASE, round=4))]
    assert len(set(places)) == 4
    assert folder_of(replace(RELEASE)) == places[0]
    assert places[0].startswith(f"model/{RELEASE.sha256[:12]}-")


@pytest.mark.parametrize(
    ("package", "text", "sentence"),
    [
        ("mlflow", "eights@latest", "register: the alias 'latest' is one that MLflow gives by itself, should be anoth"),
        ("mlflow", "eights@LATEST", "register: the alias 'LATEST' is one that MLflow gives by itself"),
        ("mlflow", "eights@v1", "register: the alias 'v1' is one that MLflow gives by itself"),
        ("mlflow", "eights@V12", "register: the alias 'V12' is one that MLflow gives by itself"),
        ("mlflow", "eights@a.b", "register: the alias 'a.b', should be of letters, digits, '_' and '-' for MLflow"),
        ("mlflow", f"{'n' * 256}@a", "register: the name has 256 characters, should have at most 255"),
        ("mlflow", f"n@{'a' * 256}", "register: the alias has 256 characters, should have at most 255"),
        ("mlflow", "..@a", "register: '..@a', should be NAME or NAME@ALIAS"),
        ("wandb", "eights@v3", "register: the alias 'v3' is one that Weights & Biases gives by itself"),
        ("wandb", "n" * 129, "register: the name has 129 characters, should have at most 128"),
        (
            "wandb",
            "größen",
            "register: the name 'größen', should be of the letters a to z and A to Z for Weights & Bia",
        ),
    ],
)
def test_what_a_registry_would_refuse_is_refused_before_anything_is_written(package, text, sentence, folder, tmp_path):
    pytest.importorskip(package, reason="the extra track is not installed")
    place = f"mlflow:sqlite:///{tmp_path}/mlflow.db" if package == "mlflow" else package
    done = call("export", folder, "--out", tmp_path / "m.pt", "--track", place, "--register", text)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"mpt: {sentence}" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_rules_are_mlflows(mlflow):
    """What passes here passes there, and what is refused here is refused there."""
    theirs = importlib.import_module("mlflow.utils.validation")
    for alias in ("a", "A-1", "v", "v1a", "1", "latest1", "v_1", "é", "a" * 255, "latest", "Latest", "v0", "V3", "a.b"):
        try:
            check_rules(Registered("n", alias), "mlflow")
            ours = None
        except ConfigError as error:
            ours = error
        try:
            theirs._validate_model_alias_name(alias)
            theirs._validate_model_alias_name_reserved(alias)
        except mlflow.MlflowException:
            assert ours, alias
        else:
            assert ours is None, alias
    for name in ("a", "a.b", "a-b", "1", "_", "a..b"):
        theirs._validate_model_name(registered(name).name)


def test_a_store_without_a_registry_is_said_and_so_is_one_that_is_none(mlflow, store, folder, tmp_path, monkeypatch):
    out = tmp_path / "m.pt"
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "nothing://there")
    done = call("export", folder, "--out", out, "--track", f"mlflow:{store}", "--register", "trucks")
    assert (done.exit_code, out.exists()) == (2, True)
    assert "could not be registered; the store should have a model registry" in done.stderr
    out.unlink()
    for arguments, sentence in (
        (("--track", "tensorboard"), "track: tensorboard keeps no models"),
        (("--register", "trucks"), "register: should come with --track"),
        (("--track", f"mlflow:{store}", "--register", "a/b"), "register: 'a/b', should be NAME or NAME@ALIAS"),
        (("--track", "mlflow:here"), "track: 'here' is no address, should be such as sqlite:///here"),
        (("--track", "mlflow:ftp://me:secret@x"), "track: MLflow cannot open ftp://x ("),
    ):
        done = call("export", folder, "--out", out, *arguments)
        assert (done.exit_code, done.stderr.count("\n"), out.exists()) == (2, 1, False), done.stderr
        assert sentence in done.stderr
        assert "secret" not in done.stderr
    with pytest.raises(ConfigError, match="register: 'x@', should be"):
        registered("x@")


def test_databricks_is_an_address_although_it_is_one_word(mlflow):
    assert client_of(mlflow, "databricks").tracking_uri == "databricks"


def test_a_server_that_is_down_stops_no_run(mlflow, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    said = []
    logger = track(f"mlflow:http://127.0.0.1:{port}", make_config(SETTINGS), tmp_path, said.append)
    result = run_again(tmp_path, logger)
    assert result.figures.last_evaluated == 3
    assert said[0].startswith("track: mlflow cannot be written to, the run goes on without it (")
    assert said[-1] == "track: the last 4 of this run's entries were not logged to mlflow"
    assert len(said) == 3


def test_names_are_as_weights_and_biases_takes_them(wandb):
    for name in ("run-folder:photos/größe-8", "run-parquet:" + "long/" * 40 + "-卡车", "mpt-mpt(ridge=0.3)"):
        assert wandb.Artifact(artifact_name(name), type="run")
        with pytest.raises(ValueError, match="Artifact name"):
            wandb.Artifact(name, type="run")
    for project in ("team/eights", "p" * 129):
        with pytest.raises(ConfigError, match="should be wandb:PROJECT with at most 128 characters"):
            track(f"wandb:{project}", make_config(SETTINGS), None, print)
        with pytest.raises(wandb.errors.UsageError, match="Invalid project name"):
            wandb.init(project=project)


def test_wandb_has_them_offline(wandb, tmp_path):
    said, out = [], tmp_path / "run"
    run_again(out, track("wandb:testing", make_config(SETTINGS), out, said.append))
    wandb.teardown()  # waits until its own process has written everything
    (written,) = (out / "wandb").glob("offline-run-*/run-*.wandb")
    data = written.read_bytes()
    for name in (b"mpt.mahalanobis.f1", b"summary.mpt.mahalanobis.mean_f1", b"dataset_fingerprint", b"report.html"):
        assert name in data
    (sentence,) = said
    assert sentence.startswith(f"track: wandb is offline; wandb sync {written.parent} uploads it")
    assert list(json.loads((out / "tracking.json").read_text())["wandb"]["runs"]) == ["0"]
    done = call("export", out, "--out", tmp_path / "m.pt", "--track", "wandb:testing", "--register", "trucks@good")
    assert done.exit_code == 0, done.stderr
    assert "in Weights & Biases as trucks:good" in done.stdout
    wandb.teardown()
    (release,) = set((out / "wandb").glob("offline-run-*/run-*.wandb")) - {written}
    assert read_release(tmp_path / "m.pt").sha256.encode() in release.read_bytes()
