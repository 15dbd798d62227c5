"""A backbone and a readout as one file, for deployment, and what they say about images."""

from mpt.export.formats import EXTENSIONS, ExportError, write_model
from mpt.export.model import DeployableModel, Metadata, Prediction

__all__ = ["EXTENSIONS", "DeployableModel", "ExportError", "Metadata", "Prediction", "write_model"]
