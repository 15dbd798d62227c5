"""Thirty thousand mutated answers and updates through whole rounds: no exception, and a refused one changes nothing."""

import hashlib
import io
import struct
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

for package in ("torch", "flwr"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mpt.fleet import server as module
from mpt.fleet.exchange import Node
from mpt.fleet.flower.records import MODEL, REPLY, reply_content
from mpt.fleet.flower.transport import FlowerTransport
from mpt.fleet.phase import Phase
from mpt.fleet.vehicle import arrays, tensors
from mpt.learning import RunningAverage
from tests.fleet.served import new_vehicles, server
from tests.tracking.fleets import paper_fleet, tracker

ANSWERS, UPDATES = 8_000, 6_000
"""Of each of three methods; in all."""
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e18, 1e36, 3e38, -3e38, 1e-45)


def sealed(message):
    """With the length and the checksum that a message of its size should have, so that it is read beyond them."""
    if len(message) < 24:
        return message
    body = message[:8] + struct.pack("<Q", len(message)) + message[16:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def mutated(data, rng):
    """Bytes with some of them changed, cut, doubled, or a number in place of another."""
    changed = bytearray(data)
    kind = rng.integers(6)
    if kind == 0:
        for _ in range(rng.integers(1, 9)):
            changed[rng.integers(len(changed))] = rng.integers(256)
    elif kind == 1:
        changed = changed[: rng.integers(len(changed))]
    elif kind == 2:
        at = rng.integers(len(changed))
        changed[at:at] = bytes(rng.integers(0, 256, rng.integers(1, 64), dtype=np.uint8))
    elif kind == 3:
        size = int(rng.choice([4, 8]))
        at = 4 * rng.integers(max(1, (len(changed) - size) // 4))
        changed[at : at + size] = struct.pack("<f" if size == 4 else "<d", rng.choice(NUMBERS))
    elif kind == 4:
        at = 4 * rng.integers(max(1, min(16, len(changed) // 4 - 1)))
        changed[at : at + 4] = struct.pack("<I", int(rng.choice([0, 1, 7, 2**16, 2**25, 2**31, 2**32 - 1])))
    else:
        a, b = sorted(rng.integers(0, len(changed), 2))
        changed[a:b] = changed[a:b][::-1]
    return sealed(bytes(changed)) if rng.random() < 0.8 else bytes(changed)


def digest(intake):
    """Of all that has been merged so far."""
    taken, state = intake.taken({}), hashlib.blake2b()
    for stats in (taken.snapshot.everybody, *taken.cross.values()):
        state.update(stats.to_bytes())
    for vehicle in sorted(taken.counts):
        state.update(f"{vehicle} {taken.counts[vehicle].tolist()}".encode())
    return state.digest()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["mpt", "lite", "cross"])
def test_answers(variant):
    rng, fleet, made = np.random.default_rng(7), paper_fleet(), tracker(variant, grace=1)
    for there in ("abcd", "abcd", "bcd", "bcd"):
        made.close(fleet.cross_answers(made.question(), there))
    question = made.question()
    honest = fleet.cross_answers(question, "bcd")

    def begun():
        made.begin()
        for vehicle in "cd":
            made.receive(vehicle, honest[vehicle])
        return digest(made._heard.intake)

    before, refused = begun(), 0
    for number in range(ANSWERS):
        if made.receive(f"m{number}", mutated(honest["b"], rng), round=question.round):
            refused += 1
            assert digest(made._heard.intake) == before
        else:
            before = begun()
    assert refused > 0.7 * ANSWERS
    made.receive("b", honest["b"])
    outcome = made.take()
    assert np.isfinite(outcome.prototypes).all()
    assert {"b", "c", "d"} <= set(outcome.answered)


def mutated_content(content, rng):
    """A reply as Flower's records, with one of them changed."""
    config, record = dict(content[REPLY]), dict(content[MODEL])
    name = list(record)[rng.integers(len(record))]
    array, kind = record[name], rng.integers(7)
    if kind <= 2:
        array = Array(array.dtype, array.shape, array.stype, mutated(array.data, rng))
    elif kind == 3:
        array = Array("float64", (2**40,), "numpy.ndarray", array.data[: rng.integers(200)])
    elif kind == 4:
        values = np.array(np.load(io.BytesIO(array.data)))
        values.flat[rng.integers(max(1, values.size))] = rng.choice(NUMBERS) if values.dtype.kind == "f" else -(2**40)
        array = Array(values)
    elif kind == 5:
        key = list(config)[rng.integers(len(config))]
        config[key] = [b"", "text" * 1000, -1, 2**40, True, [1, 2], 0.5][rng.integers(7)]
    else:
        record.pop(name)
        name = f"{name}x" if rng.random() < 0.5 else name
    if kind != 6 or name not in content[MODEL]:
        record[name] = array
    return RecordDict({REPLY: ConfigRecord(config), MODEL: ArrayRecord(record)})


class Mutating:
    """A transport with three honest vehicles, and as many mutants of a fourth's updates as are wanted."""

    def __init__(self, vehicles, mutants, rng):
        self.vehicles, self.mutants, self.rng = vehicles, mutants, rng
        self.reader = FlowerTransport(None)
        self.taken = []

    def nodes(self):
        return {str(100 + i): Node() for i in range(3)}

    def ask(self, ask, nodes, left):
        for node in nodes:
            yield node, self._read(reply_content(self.vehicles[int(node) - 100].answer(ask)), ask, node)
        if ask.kind == "train":
            right = reply_content(self.vehicles[3].answer(ask))
            for number in range(self.mutants):
                node = str(1000 + number)
                yield node, self._read(mutated_content(right, self.rng), ask, node)

    def _read(self, content, ask, node):
        message = SimpleNamespace(has_error=lambda: False, content=content)
        reply = self.reader._read(message, ask, node)
        self.taken.append((node, reply))
        return reply


@pytest.mark.slow
def test_updates(dataset):
    rounds, rng = 3, np.random.default_rng(8)
    transport = Mutating(new_vehicles(dataset), UPDATES // rounds, rng)
    running = server(dataset, {"x": None}, log=lambda said: None)
    running.transport = transport
    for number in range(1, rounds + 1):
        transport.taken = []
        (finished,) = running.rounds(number)
        assert set(finished.outcome.answered) == {"100", "101", "102"}
        assert 3 <= finished.updated < 3 + 0.6 * transport.mutants
        assert all(np.isfinite(array).all() for array in finished.model.values())
        assert max(map(len, running.tracker.state.problems)) <= 300
    assert sum(running.tracker.state.refusals.values()) > 0.4 * UPDATES


def test_the_average_is_that_of_the_updates_that_were_taken(dataset, monkeypatch):
    """A refused update changes nothing: the model is, bit for bit, the average of the others in their order."""
    taken = []

    class Recording(Phase):
        def _take_update(self, reply):
            super()._take_update(reply)
            taken.append(reply)

    transport = Mutating(new_vehicles(dataset), 60, np.random.default_rng(9))
    running = server(dataset, {"x": None})
    running.transport = transport
    monkeypatch.setattr(module, "Phase", Recording)
    (finished,) = running.rounds(1)
    taken = taken[-finished.updated :]
    by_hand = RunningAverage(running.architecture)
    for reply in taken:
        by_hand.add(tensors(reply.model), reply.samples)
    expected = arrays(by_hand.state())
    assert 3 <= len(taken) < 63
    assert all(np.array_equal(finished.model[name], expected[name]) for name in expected)
