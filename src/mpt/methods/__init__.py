"""Methods that keep a departed class alive, one file each, behind one protocol."""

from mpt.methods.protocol import Cost, Local, Method, Now, Readout
from mpt.methods.registry import METHODS, MethodError, file_of, find_method, version_of

__all__ = [
    "METHODS",
    "Cost",
    "Local",
    "Method",
    "MethodError",
    "Now",
    "Readout",
    "file_of",
    "find_method",
    "version_of",
]
