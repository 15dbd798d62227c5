"""The method "mpt-duo" in a whole fleet in one process, on digits: rounds, evidence, bytes, a restart, its files."""

from dataclasses import replace

import numpy as np
import pytest

for package in ("torch", "typer", "rich"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.core.two_views import JoinedViews
from mpt.data import load as load_dataset
from mpt.export import write_model
from mpt.export.formats import second_file
from mpt.fleet import Tracker
from mpt.fleet.evaluation import evaluate_readout
from mpt.fleet.exchange import Ask, Failure, nbytes
from mpt.fleet.export import deployable
from mpt.fleet.local import LocalTransport
from mpt.fleet.local_data import samples, shared
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.server import Server
from mpt.fleet.store import FileStore, StoreError
from mpt.fleet.vehicle import Vehicle, arrays, load, set_aside
from mpt.learning import build, embed
from mpt.protocol.question import JOINT, Question, packed, parts
from tests.fleet.served import OWNER, TRAINING, VEHICLES, everybody

EIGHT, SHARE, ROUNDS = 8, 0.4, 5
POLICY = RoundPolicy(timeout=0.2, max_attempts=2, evaluate_every=1, validation=SHARE)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits").limited(60)


def fresh(digits):
    _, channels, size, _ = samples(digits.train).images.shape
    return build("cnn3", num_classes=digits.num_classes, in_channels=channels, image_size=size, seed=0)


def new_vehicles(digits):
    made, model = [], fresh(digits)
    for v in range(VEHICLES):
        held = shared(digits, v, VEHICLES, rare="8", remaining=0.2, seed=0)
        kept, aside = set_aside(held, SHARE, np.random.default_rng(v))
        made.append(Vehicle(str(v), model, kept, TRAINING, validation=aside))
    return made


def server(digits, answers, method="mpt-duo", **given):
    model = fresh(digits)
    tracker = Tracker(num_classes=digits.num_classes, dim=model.dim, watch=(EIGHT,), grace=1, method=method)
    images = samples(digits.train).images
    key = {"backbone": "cnn3", "class_names": list(digits.classes), "in_channels": images.shape[1]}
    given = {"policy": POLICY, "key": {**key, "image_size_used": images.shape[2]}, **given}
    return Server(model, arrays(model.state_dict()), tracker, LocalTransport(answers), **given)


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def calm(digits, where):
    """Five rounds, all evaluated; the owner of the eights leaves after the second, with a word."""
    return list(server(digits, everybody(new_vehicles(digits)), store=FileStore(where)).rounds(ROUNDS))


def both(digits, finished, images):
    """(N, 2 d): features under the round's model and the one of the departure."""
    model, views = fresh(digits), []
    for one in (finished.model, *finished.earlier):
        load(model, one)
        views.append(embed(model, images).double().numpy())
    return np.concatenate(views, axis=1)


def test_the_readout_is_of_two_models_from_the_first_round_after_the_departure(calm):
    assert [f.outcome.references for f in calm] == [(), (), (2,), (2,), (2,)]
    for finished in calm[2:]:
        assert isinstance(finished.outcome.readout, JoinedViews)
        assert finished.outcome.tracked == (EIGHT,)
        assert [nbytes(one) for one in finished.earlier] == [nbytes(finished.model)]
        assert not [p for p in finished.outcome.problems if not p.endswith("it has left")]


def test_the_evidence_is_what_both_models_give(digits, calm):
    there = new_vehicles(digits)[:OWNER]
    for finished in calm[2:]:
        expected = np.zeros((digits.num_classes,) * 2, dtype=int)
        for vehicle in there:
            predicted = finished.outcome.readout.predict(both(digits, finished, vehicle.validation.images))
            np.add.at(expected, (vehicle.validation.labels.numpy(), predicted), 1)
        np.testing.assert_array_equal(finished.evidence.counts, expected)
        assert (finished.evidence.vehicles, finished.evidence.alone) == (len(there), 0)


def test_test_samples_of_the_servers_own_go_through_both_models(digits, calm):
    last, test = calm[-1], samples(digits.test)
    about = (fresh(digits), last.model, last.outcome.readout, test, digits.classes)
    predicted = last.outcome.readout.predict(both(digits, last, test.images))
    accuracy = float(np.mean(predicted == test.labels.numpy()))
    assert evaluate_readout(*about, last.earlier)["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    current = last.outcome.readout.current.predict(both(digits, last, test.images)[:, : about[0].dim])
    alone = float(np.mean(current == test.labels.numpy()))
    assert evaluate_readout(*about)["accuracy"] == pytest.approx(alone, abs=1e-6)


def test_bytes_count_what_joint_moments_add(digits, calm):
    """Beside the same rounds of mpt-x, in which models and statistics are the same."""

    def played(method):
        added, counted, vehicles = [], [], new_vehicles(digits)

        def watched(vehicle):
            def answer(ask: Ask):
                reply = vehicle.answer(ask)
                if ask.kind == "report" and ask.round == 4:
                    reported, moments, _ = parts(reply.answer)
                    without = {key: part for key, part in moments.items() if key < JOINT}
                    added.append(len(reply.answer) - len(packed(reported, without)))
                if ask.kind == "evaluate" and ask.round == 4:
                    counted.append(len(reply.answer))
                return reply

            return answer

        changed = {f"_{v.name}": watched(v) for v in vehicles[:OWNER]}
        return list(server(digits, everybody(vehicles, **changed), method).rounds(4)), added, sum(counted)

    (duo, added, evidence), (plain, nothing, less) = played("mpt-duo"), played("mpt-x")
    for one, other in zip(duo, plain, strict=True):
        np.testing.assert_array_equal(one.outcome.prototypes, other.outcome.prototypes)
    assert (len(added), nothing) == (OWNER, [0] * OWNER)
    assert duo[3].bytes_up - plain[3].bytes_up == sum(added) + evidence - less
    assert [one.bytes_up for one in duo[:2]] == [one.bytes_up for one in plain[:2]]
    assert [one.bytes_down for one in duo[:2]] == [one.bytes_down for one in plain[:2]]
    d, classes = 128, digits.num_classes
    assert max(added) < 2 * d * d + 4 * (2 * classes * d + d * (d + 1) // 2) + 200


def test_features_of_validation_samples_are_kept_only_where_they_are_asked_for(digits):
    asked = {}
    for every in (0, 3):
        policy = replace(POLICY, evaluate_every=every)

        def recording(vehicle, every=every):
            def answer(ask):
                asked.setdefault(every, set()).add((ask.kind, ask.aside))
                return vehicle.answer(ask)

            return answer

        vehicles = new_vehicles(digits)
        last = list(server(digits, everybody(vehicles, _1=recording(vehicles[1])), policy=policy).rounds(3))[-1]
        assert last.outcome.references == (2,)
    assert asked[0] == {("train", False), ("report", False)}
    assert asked[3] == {("train", False), ("report", True), ("evaluate", True)}


def test_one_that_forgets_and_one_that_joins_late_get_the_model(digits):
    vehicles = new_vehicles(digits)
    late, got = replace(vehicles[0], name="9", memory={}), []

    def recording(vehicle, *, after=0, forgets=0):
        def answer(ask):
            if ask.round <= after:
                return Failure("not there yet")
            if ask.kind == "report" and ask.round == forgets:
                vehicle.memory.clear()
            got.extend((ask.round, vehicle.name) for _ in ask.models)
            return vehicle.answer(ask)

        return answer

    changed = {"_1": recording(vehicles[1], forgets=5), "_9": recording(late, after=3)}
    rounds = list(server(digits, everybody(vehicles, **changed)).rounds(6))[3:]
    assert got == [(5, "9"), (6, "1")]
    assert [(f.evidence.vehicles, f.evidence.alone) for f in rounds] == [(4, 1), (4, 1), (4, 0)]
    said = "evaluate: 1 of 4 vehicles have no features under the earlier model yet, the current one decided there alone"
    assert [said in f.outcome.problems for f in rounds] == [True, True, False]
    assert [f.outcome.references for f in rounds] == [(2,)] * 3


def test_a_resumed_server_gives_the_same(digits, calm, tmp_path):
    list(server(digits, everybody(new_vehicles(digits)), store=FileStore(tmp_path)).rounds(3))
    again = server(digits, everybody(new_vehicles(digits)), store=FileStore(tmp_path))
    assert again.resume() == 3
    for finished, expected in zip(again.rounds(ROUNDS), calm[3:], strict=True):
        assert finished.outcome.readout == expected.outcome.readout
        np.testing.assert_array_equal(finished.evidence.counts, expected.evidence.counts)


def test_the_exported_files_and_their_rule_give_the_servers_decisions(digits, calm, where, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    path, last, images = tmp_path / "model.onnx", calm[-1], samples(digits.test).images
    about = write_model(deployable(FileStore(where)), "onnx", path)
    assert (about.round, about.earlier_round, about.ask_below) == (ROUNDS, 2, "inf")
    current, earlier = (runtime.InferenceSession(str(one)) for one in (path, second_file(path)))
    logits, partial, ask = current.run(["logits", "partial", "ask"], {"images": images.numpy()})
    predicted = logits.argmax(axis=1)
    predicted[ask] = earlier.run(None, {"images": images.numpy()[ask], "partial": partial[ask]})[0].argmax(axis=1)
    expected = last.outcome.readout.predict(both(digits, last, images))
    assert ask.all()
    assert np.mean(predicted == expected) > 0.98, "in float32 a tie may go the other way"


def test_a_cascade_of_the_fleets_models(digits, calm, where, tmp_path):
    last, images = calm[-1], np.ascontiguousarray(np.moveaxis(samples(digits.test).images.numpy(), 1, 3))
    features = both(digits, last, samples(digits.test).images)
    limit = float(np.median(last.outcome.readout.hesitation(features[:, : features.shape[1] // 2])))
    expected, asked = last.outcome.readout.cascade(features, limit)
    assert 0 < asked.mean() < 1
    model = deployable(FileStore(where), hesitation=limit)
    assert np.mean(model.logits(images).argmax(axis=1) == expected) > 0.98
    done = CliRunner().invoke(
        app, ["export", str(where), "--out", str(tmp_path / "model.pt"), "--hesitation", f"{limit}"]
    )
    assert done.exit_code == 0, done.output
    assert "the model of round 2; where ask is true" in " ".join(done.output.split())
    with pytest.raises(StoreError, match="hesitation: -1, should be 0 or more"):
        deployable(FileStore(where), hesitation=-1)


def test_a_joint_question_is_read_as_it_was_asked(calm, where):
    tracker = Tracker.from_bytes(FileStore(where).latest().payload["tracker"])
    question = tracker.question()
    assert Question.from_bytes(question.to_bytes()).references == (2,)
    assert tracker.models_needed == (2, ROUNDS)
