"""What travels between a server and its vehicles, and what a vehicle answers: requests, answers, messages.

It is the same on one machine and on Flower. Every question and every answer is bytes, versioned and without pickle.
"""

from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.evaluation import EvaluationRequest, Evidence
from mpt.protocol.further import Further
from mpt.protocol.labelled import LabelledQuestion
from mpt.protocol.local import Local
from mpt.protocol.messages import pack, unpack
from mpt.protocol.parts import Asked, PartRequest, on_vehicle
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest

__all__ = [
    "Asked",
    "CrossRequest",
    "EvaluationRequest",
    "Evidence",
    "Further",
    "LabelledQuestion",
    "Local",
    "PartRequest",
    "Question",
    "StatisticsRequest",
    "on_vehicle",
    "pack",
    "unpack",
]
