"""Vehicles of one protocol version back are understood, and understand; of two back they are refused by name."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from mpt.core.wire import VERSION
from mpt.protocol.further import Further
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from mpt.tracking import Tracker

RECORDED = Path(__file__).with_name("data") / "version-1.zip"
"""Four rounds of three fleets as release 0b73cd5 sent and answered them, protocol 1: `c` leaves after round 2."""
C, D = 5, 6


@pytest.fixture(scope="module")
def recorded():
    with zipfile.ZipFile(RECORDED) as file:
        return {name: file.read(name) for name in file.namelist()}


def version_of(message):
    return struct.unpack_from("<H", message, 4)[0]


def of_version(message, version):
    """The message as another version would have written it."""
    body = message[:4] + struct.pack("<H", version) + message[6:-4]
    return body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize("method", ["mpt", "mpt-lite:one-message", "mpt-x"])
def test_one_version_back_is_read_and_can_read(recorded, method):
    tracker = Tracker(num_classes=C, dim=D, watch=(2,), method=method, grace=1)
    folder = method.replace(":", "-")
    for number in range(1, 5):
        assert tracker.question().to_bytes() == recorded[f"{folder}/{number}/question"]
        vehicles = "abc" if number <= 2 else "ab"
        answers = {v: recorded[f"{folder}/{number}/{v}"] for v in vehicles}
        assert {version_of(answer) for answer in answers.values()} == {VERSION - 1}
        outcome = tracker.close(answers, leaving=["c"] if number == 2 else [])
        assert outcome.answered == tuple(vehicles)
    expected = np.load(io.BytesIO(recorded[f"{folder}/prototypes.npy"]))
    np.testing.assert_allclose(outcome.prototypes, expected, rtol=1e-12)


def test_two_versions_back_are_refused_by_name(recorded):
    tracker = Tracker(num_classes=C, dim=D, watch=(2,), grace=1)
    answers = {v: recorded[f"mpt/1/{v}"] for v in "abc"}
    answers["b"] = of_version(answers["b"], VERSION - 2)
    outcome = tracker.close(answers, names={"b": "van 7"})
    assert outcome.answered == ("a", "c")
    (refused,) = [decision for decision in outcome.decisions if decision.what == "refused"]
    assert "van 7" in str(refused)
    assert (
        f"version {VERSION - 2} of the protocol, this release of mpt reads {VERSION - 1} and {VERSION}" in refused.why
    )
    assert "update the sender" in refused.why


def test_what_came_with_this_version_says_so():
    request = StatisticsRequest(3, C, unit=True)
    assert version_of(Question(request).to_bytes()) == VERSION - 1
    further = Further(3, (request,))
    assert version_of(further.to_bytes()) == version_of(Question(request, further=further).to_bytes()) == VERSION
