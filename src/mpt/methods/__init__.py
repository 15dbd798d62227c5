"""Methods that keep a departed class alive, one file each, behind one protocol."""

from mpt.methods.method import Asks, Cost, FleetMethod, JoiningMethod, Method, Readout, RoundContext, Traits
from mpt.methods.registry import (
    FLEET_METHODS,
    METHODS,
    OnFleet,
    calibrated,
    find_method,
    find_methods,
    find_on_fleet,
    find_part,
    find_space,
)
from mpt.methods.spaces import Log, OneOf, Space, Uniform
from mpt.methods.trainings import TRAININGS, MethodError, Training, find_training
from mpt.protocol.local import Local

__all__ = [
    "FLEET_METHODS",
    "METHODS",
    "TRAININGS",
    "Asks",
    "Cost",
    "FleetMethod",
    "JoiningMethod",
    "Local",
    "Log",
    "Method",
    "MethodError",
    "OnFleet",
    "OneOf",
    "Readout",
    "RoundContext",
    "Space",
    "Training",
    "Traits",
    "Uniform",
    "calibrated",
    "find_method",
    "find_methods",
    "find_on_fleet",
    "find_part",
    "find_space",
    "find_training",
]
