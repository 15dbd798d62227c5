"""Methods that keep a departed class alive, one file each, behind one protocol."""

from mpt.methods.method import Asks, Cost, FleetMethod, Method, Now, Readout, Traits
from mpt.methods.registry import FLEET_METHODS, METHODS, MethodError, file_of, find_method
from mpt.protocol.local import Local

__all__ = [
    "FLEET_METHODS",
    "METHODS",
    "Asks",
    "Cost",
    "FleetMethod",
    "Local",
    "Method",
    "MethodError",
    "Now",
    "Readout",
    "Traits",
    "file_of",
    "find_method",
]
