"""The server's state machine: who is there, which classes hang on one vehicle, what departed ones look like now.

It knows no transport, no training and no files: answers go in as bytes, decisions and a readout come out.
"""

from mpt.tracking.errors import FleetError
from mpt.tracking.labelled import LabelledTracker
from mpt.tracking.labelled_outcome import LabelledOutcome, LabelledReadout
from mpt.tracking.roster import Decision, Member, Roster
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import TrackerState
from mpt.tracking.tracker import Outcome, Tracker

__all__ = [
    "Decision",
    "FleetError",
    "LabelledOutcome",
    "LabelledReadout",
    "LabelledTracker",
    "Member",
    "Outcome",
    "Roster",
    "Tracker",
    "TrackerSettings",
    "TrackerState",
]
