"""Replies are pulled one by one: what one of them does to Flower is its own."""

import threading

import pytest

pytest.importorskip("flwr", reason="the extra fleet is not installed")

from mpt.fleet.flower import transport
from mpt.fleet.flower.transport import Pulled


class Grid:
    """One reply cannot be parsed, one is announced and never sent, the others come at the second look."""

    def __init__(self):
        self.looks, self.end = dict.fromkeys("abcd", 0), threading.Event()

    def pull_messages(self, numbers):
        (number,) = numbers
        self.looks[number] += 1
        if number == "a":
            raise ValueError("Error parsing message with type 'flwr.proto.ConfigRecord'")
        if number == "b":
            self.end.wait(60)
        return [f"reply {number}"] if number in "cd" and self.looks[number] > 1 else []


def test_a_reply_that_cannot_be_parsed_and_one_that_never_comes_hold_up_nobody(monkeypatch):
    monkeypatch.setattr(transport, "_HANGS", 0.2)
    grid = Grid()
    pulled, found = Pulled(grid, list("abcd"), 0.01), {}
    try:
        while len(found) < 3:
            found.update(pulled.take())
    finally:
        pulled.stop()
        grid.end.set()
    assert isinstance(found.pop("a"), ValueError)
    assert found == {"c": "reply c", "d": "reply d"}


def test_what_is_wrong_with_the_connection_is_raised():
    class Broken:
        def pull_messages(self, numbers):
            raise ConnectionError("no SuperLink there")

    pulled = Pulled(Broken(), ["a"], 60.0)
    with pytest.raises(ConnectionError):
        list(pulled.take())
