"""Questions and replies as Flower's records; what does not fit is refused before it is parsed."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mpt.fleet import FleetError
from mpt.fleet.exchange import Ask, Reply
from mpt.fleet.flower.records import absence, ask_content, read_ask, read_reply, reply_content

MODEL = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "seen": np.array(7, dtype=np.int64)}
UPDATE = {name: array + 1 for name, array in MODEL.items()}


def equal(left, right):
    return left.keys() == right.keys() and all(
        left[k].dtype == right[k].dtype and np.array_equal(left[k], right[k]) for k in right
    )


@pytest.mark.parametrize("kind", ["train", "report", "evaluate"])
def test_a_question_comes_back(kind):
    ask = Ask(kind, 3, MODEL, (2, 5), b"request")
    back = read_ask(ask_content(ask), kind)
    assert (back.kind, back.round, back.held_out, back.request) == (kind, 3, (2, 5), b"request")
    assert equal(back.model, MODEL)


@pytest.mark.parametrize("loss", ["cross-entropy", "fedlc", "mine.py:focal(gamma=2)"])
def test_the_loss_comes_back_and_is_understood_of_a_server_of_the_release_before(loss):
    content = ask_content(Ask("train", 3, MODEL, loss=loss))
    assert read_ask(content, "train").loss == loss
    assert content["mpt.ask"]["calibrates"] == (loss == "fedlc")
    del content["mpt.ask"]["loss"]
    assert read_ask(content, "train").loss == ("fedlc" if loss == "fedlc" else "cross-entropy")


@pytest.mark.parametrize(
    "reply",
    [
        Reply("7", 3, samples=12, model=UPDATE),
        Reply("7", 3, answer=b"statistics"),
        Reply("7", 3, leaving=True),
    ],
)
def test_a_reply_comes_back(reply):
    back = read_reply(reply_content(reply), MODEL, 100)
    assert (back.vehicle, back.round, back.leaving, back.samples) == ("7", 3, reply.leaving, reply.samples)
    assert back.answer == reply.answer
    assert back.model is None if reply.model is None else equal(back.model, UPDATE)


def test_a_vehicle_is_known_by_its_node_where_the_server_says_so():
    assert read_reply(reply_content(Reply("somebody else", 3)), MODEL, 100, "node 5").vehicle == "node 5"


def reply_with(model=None, **config):
    records = {"mpt.reply": ConfigRecord({"vehicle": "7", "round": 3, "samples": 1, **config})}
    return RecordDict(records | ({} if model is None else {"model": model}))


def huge():
    array = Array(np.zeros((2, 3), np.float32))
    array.data = bytes(10_000)
    return ArrayRecord({"weight": array, "seen": Array(MODEL["seen"])})


def pickled():
    array = Array(np.zeros((2, 3), np.float32))
    array.data = b"\x80\x04N."
    return ArrayRecord({"weight": array, "seen": Array(MODEL["seen"])})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RecordDict({}), r"it has no mpt\.reply"),
        (RecordDict({"mpt.reply": ArrayRecord({})}), r"it has no mpt\.reply"),
        (reply_with(answer=bytes(101)), "101 bytes, should be at most 100"),
        (reply_with(answer="text"), "answer: str, should be bytes"),
        (reply_with(leaving=1), "leaving: 1, should be true or false"),
        (reply_with(round="3"), "round: '3', should be an integer"),
        (reply_with(samples=1.5), "samples: 1.5, should be an integer"),
        (reply_with(vehicle=7), "vehicle: 7, should be a string"),
        (reply_with(model=ConfigRecord({})), "model is not an array record"),
        (reply_with(model=ArrayRecord({"weight": Array(MODEL["weight"])})), "seen is missing"),
        (reply_with(model=huge()), "weight has 10000 bytes, should have 24"),
        (reply_with(model=pickled()), "weight is no .npy array"),
        (
            reply_with(
                model=ArrayRecord({"weight": Array(np.zeros((3, 2), np.float32)), "seen": Array(MODEL["seen"])})
            ),
            r"weight is float32 of shape \(3, 2\), should be float32 of shape \(2, 3\)",
        ),
        (absence(), "absent"),
    ],
)
def test_what_is_wrong_is_refused(content, message):
    with pytest.raises(FleetError, match=message):
        read_reply(content, MODEL, 100)


def test_names_that_are_no_text_are_said_all_the_same():
    """A folder's name may be any bytes, of which Python makes surrogates, which no message can carry."""
    reply = Reply("7", 3, unknown={"l\udcf6we\n": 2, "x" * 1000: 1})
    content = reply_content(reply)
    content["mpt.reply"]["unknown"][0].encode()
    assert read_reply(content, MODEL, 100).unknown == {r"l\udcf6we\n": 2, "x" * 200: 1}
