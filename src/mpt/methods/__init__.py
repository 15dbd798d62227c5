"""Methods that keep a departed class alive, one file each, behind one protocol."""

from mpt.methods.method import Asks, Cost, FleetMethod, Method, Now, Readout, Traits
from mpt.methods.registry import (
    FLEET_METHODS,
    METHODS,
    MethodError,
    OnFleet,
    file_of,
    find_method,
    find_on_fleet,
    find_part,
)
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
    "OnFleet",
    "Readout",
    "Traits",
    "file_of",
    "find_method",
    "find_on_fleet",
    "find_part",
]
