"""
Release a model
===============

A run's model is exported with a manifest that says how far each class can be trusted, refused where that is not far
enough, and registered in MLflow with an alias. The notebook needs the extras ``data`` and ``track``; everything stays
on this machine.
"""

# %%
# Run and track
# -------------
#
# MLflow writes to a database in a file here. ``track="mlflow:http://HOST:5000"`` writes to a server, and
# ``track="wandb:PROJECT"`` to Weights & Biases. On the command line it is ``mpt run ... --track mlflow:URI``. Whatever
# goes wrong with it is a sentence, and the run goes on.

# sphinx_gallery_capture_repr = ("_repr_html_", "__repr__")

import json
import tempfile
from pathlib import Path

import mpt

temporary = tempfile.TemporaryDirectory()
here = Path(temporary.name)
store = f"sqlite:///{here / 'mlflow.db'}"  # its files are beside it, in mlruns
config = mpt.RunConfig(
    dataset="digits", rare="8", per_class=40, vehicles=5, rounds=4, depart_at=2, epochs=1, methods=("mpt", "mpt-x")
)
result = mpt.simulate(config, out=here / "run", track=f"mlflow:{store}")
result

# %%
# Export it
# ---------
#
# Beside the model stands its manifest. On the command line this is ``mpt export run --out model.pt``.

from mpt.export import ExportError, read_release, write_release
from mpt.runs.export import releasable

release = releasable(here / "run", method="mpt-x")
manifest = write_release(release, "torchscript", here / "model.pt")
print(json.dumps({"sha256": manifest.sha256, "round": manifest.round, "method": manifest.origin.method}, indent=2))
for one in manifest.origin.classes:
    print(one)

# %%
# Require a verdict
# -----------------
#
# ``mpt export run --require good`` leaves with an error, and writes nothing, where a class that is not measured is
# less than good. One sample of the eights remains here: too few to confirm anything.

try:
    write_release(release, "torchscript", here / "good.pt", require="good")
except ExportError as error:
    print(error)
print((here / "good.pt").exists())

# %%
# Register it
# -----------
#
# What is good enough gets a version and an alias in MLflow's registry, in the run that was tracked. On the command
# line: ``mpt export run --require unconfirmed --track mlflow:sqlite:///mlflow.db --register eights@candidate``.

from mpt.runs.publish import Publication

publish = Publication(f"mlflow:{store}", "eights@candidate", here / "run", print)
manifest = write_release(release, "torchscript", here / "model.pt", require="unconfirmed")
print(publish(here / "model.pt", manifest))

# %%
# Fetch it
# --------
#
# Whoever deploys asks for the alias, downloads what the version has as its source, and checks that the model is the one
# that the manifest was written for. Every release has a folder of its own, so no later export replaces it.

import mlflow

client = mlflow.MlflowClient(tracking_uri=store)
version = client.get_model_version_by_alias("eights", "candidate")
print({name: value for name, value in version.tags.items() if name != "mpt.sha256"})
fetched = mlflow.artifacts.download_artifacts(artifact_uri=version.source, dst_path=str(here), tracking_uri=store)
print(read_release(f"{fetched}/model.pt").sha256 == version.tags["mpt.sha256"])

# %%
# Read on: :doc:`/how-to/release` has every option and key, and :doc:`/how-to/export` how a vehicle runs the file.
