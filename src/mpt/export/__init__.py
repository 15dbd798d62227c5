"""A backbone and a readout as one file, for deployment, with a manifest, and what they say about images."""

from mpt.export.formats import EXTENSIONS, ExportError, write_model
from mpt.export.manifest import ClassStanding, Origin, ReleaseManifest, read_release
from mpt.export.model import DeployableModel, Metadata, Prediction
from mpt.export.release import Release, write_release

__all__ = [
    "EXTENSIONS",
    "ClassStanding",
    "DeployableModel",
    "ExportError",
    "Metadata",
    "Origin",
    "Prediction",
    "Release",
    "ReleaseManifest",
    "read_release",
    "write_model",
    "write_release",
]
