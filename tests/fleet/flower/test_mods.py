"""The vehicle's side in a user's own Flower app."""

import random
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from mpt import StatisticsError
from mpt.fleet import FleetError, StatisticsRequest
from mpt.fleet.exchange import Ask
from mpt.fleet.flower.mods import HELD_OUT, answer_statistics, held_out, statistics_mod
from mpt.fleet.flower.records import TYPES, ask_content, read_reply
from mpt.fleet.leave import LeaveFile
from tests.fleet.flower.grids import identified

MODEL = {"shift": np.arange(3.0), "steps": np.array(7)}
ROWS, LABELS = np.random.default_rng(0).standard_normal((12, 3)), np.arange(12) % 3


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


def embed(arrays, context):
    assert arrays["steps"].numpy() == 7
    return ROWS + arrays["shift"].numpy(), LABELS


def question(round=4):
    request = StatisticsRequest(round, 3, watched=(1,))
    return request, Message(ask_content(Ask("report", round, MODEL, request=request.to_bytes())), 5, TYPES["report"])


def context(**node_config):
    return Context(1, 5, node_config, RecordDict(), {})


def read(message):
    return read_reply(message.content, MODEL, 10**6)


def test_the_mod_answers_the_statistics_query():
    request, message = question()
    found = read(statistics_mod(embed)(message, context(), None))
    assert (found.vehicle, found.round, found.leaving, found.model) == ("5", 4, False, None)
    assert found.answer == request.answer(ROWS + MODEL["shift"], LABELS)


def test_the_mod_passes_everything_else_on():
    message, there = Message(RecordDict(), 5, "train"), context()
    assert statistics_mod(embed)(message, there, lambda *given: given) == (message, there)


@pytest.mark.parametrize("kind", ["query", "mod"])
def test_in_an_app(kind):
    app = ClientApp(mods=[statistics_mod(embed)] if kind == "mod" else None)
    app.query("class_stats")(answer_statistics(embed) if kind == "query" else lambda *_: None)
    request, message = question()
    assert read(app(message, context())).answer == request.answer(ROWS + MODEL["shift"], LABELS)


def test_in_an_app_with_a_client_fn():
    def client_fn(context: Context):
        raise NotImplementedError

    request, message = question()
    found = read(ClientApp(client_fn, mods=[statistics_mod(embed)])(message, context()))
    assert found.answer == request.answer(ROWS + MODEL["shift"], LABELS)


@pytest.mark.parametrize(
    ("place", "name"), [({"partition-id": 3, "name": "x"}, "3"), ({"name": "anna"}, "anna"), ({}, "5")]
)
def test_by_what_a_vehicle_calls_itself(place, name):
    assert read(answer_statistics(embed)(question()[1], context(**place))).vehicle == name


def test_classes_with_too_few_samples_are_not_reported():
    """`min-samples` in the node config protects in an app of one's own too, and the app may ask for more."""
    request, message = question()
    labels = np.array([0] * 5 + [1] * 4 + [2] * 3)

    def few(arrays, context):
        return ROWS, labels

    def counts(answer, **place):
        return request.read(read(answer(message, context(**place))).answer).counts.tolist()

    assert counts(answer_statistics(few)) == [5, 4, 3]
    assert counts(answer_statistics(few), **{"min-samples": 4}) == [5, 4, 0]
    assert counts(answer_statistics(few, min_samples=5), **{"min-samples": 4, "camera": 1}) == [5, 0, 0]
    mod = statistics_mod(few, min_samples=5)
    assert counts(lambda *given: mod(*given, None)) == [5, 0, 0]
    for wrong in ("five", 0, 1.5):
        with pytest.raises(FleetError, match=r"node config: min-samples = .*, should be a whole number"):
            counts(answer_statistics(few), **{"min-samples": wrong})


def test_a_vehicle_that_leaves_says_so(tmp_path):
    leave = LeaveFile(tmp_path / "leave")
    place = {"leave-file": str(leave.path)}
    assert not read(answer_statistics(embed)(question()[1], context(**place))).leaving
    leave.ask()
    assert read(answer_statistics(embed)(question()[1], context(**place))).leaving
    assert leave.done


def test_a_leave_that_cannot_be_noted_is_said_all_the_same(tmp_path, caplog):
    leave = LeaveFile(tmp_path / "leave")
    leave.ask()
    (tmp_path / ".leave.partial").mkdir()
    assert read(answer_statistics(embed)(question()[1], context(**{"leave-file": str(leave.path)}))).leaving
    assert "leave cannot be written (Is a directory)" in caplog.text
    assert not leave.done


def test_a_failed_embed_is_no_answer_and_no_leave(tmp_path):
    leave = LeaveFile(tmp_path / "leave")
    leave.ask()
    with pytest.raises(StatisticsError):
        answer_statistics(lambda *_: (ROWS, LABELS[:3]))(question()[1], context(**{"leave-file": str(leave.path)}))
    assert not leave.done


def test_held_out_classes_of_a_training_message():
    def message(**config):
        return Message(RecordDict({"config": ConfigRecord(config), "more": ConfigRecord()}), 5, "train")

    assert held_out(message(**{HELD_OUT: [2, 7]})) == (2, 7)
    assert held_out(message(**{HELD_OUT: []})) == ()
    assert held_out(message(lr=0.1)) == ()
    for wrong in (3, ["truck"], [0.5]):
        with pytest.raises(FleetError, match="should be a list of classes"):
            held_out(message(**{HELD_OUT: wrong}))


def test_neither_side_needs_torch():
    code = "import sys, mpt.fleet.flower.mods, mpt.fleet.flower.tracking; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_embed_draws_changes_nothing_that_is_drawn_after_it():
    """Building a model draws; a vehicle that answers in the process that trains must train the same."""
    torch = pytest.importorskip("torch", reason="the extra sim is not installed")

    def drawn():
        return random.random(), np.random.random(), float(torch.rand(1))  # noqa: NPY002

    def drawing(arrays, context):
        drawn()
        return embed(arrays, context)

    def seed():
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)

    seed()
    expected = drawn()
    seed()
    answer_statistics(drawing)(question()[1], context())
    assert drawn() == expected
    seed()
    with pytest.raises(ZeroDivisionError):
        answer_statistics(lambda *_: drawn()[0] / 0)(question()[1], context())
    assert drawn() == expected
