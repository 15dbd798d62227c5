"""Methods that keep a departed class alive, one file each, behind one protocol."""

from mpt.methods.method import Cost, Method, Now, Readout, Traits
from mpt.methods.registry import METHODS, MethodError, file_of, find_method
from mpt.protocol.local import Local

__all__ = [
    "METHODS",
    "Cost",
    "Local",
    "Method",
    "MethodError",
    "Now",
    "Readout",
    "Traits",
    "file_of",
    "find_method",
]
