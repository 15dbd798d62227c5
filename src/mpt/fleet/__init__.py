"""A real fleet: vehicles leave, vanish and return, and the server knows what that does to its classes.

Nothing here needs torch or Flower; `docs/reference/fleet.md` has the protocol on a page.
"""

from mpt.fleet.log import DecisionLog
from mpt.fleet.store import Checkpoint, FileStore, SqliteStore, Store, StoreError, open_store
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision, Member, Roster
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.tracker import Outcome, Tracker

__all__ = [
    "Checkpoint",
    "Decision",
    "DecisionLog",
    "FileStore",
    "FleetError",
    "Member",
    "Outcome",
    "Question",
    "Roster",
    "SqliteStore",
    "StatisticsRequest",
    "Store",
    "StoreError",
    "Tracker",
    "TrackerSettings",
    "open_store",
]
