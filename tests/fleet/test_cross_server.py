"""The method "mpt-x" in a whole fleet in one process: beside the one-machine engine, and through losses of memory."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.fleet import Tracker
from mpt.fleet.exchange import Ask, Failure, fingerprint, nbytes
from mpt.fleet.local import LocalTransport
from mpt.fleet.local_data import shared
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.server import Server
from mpt.fleet.store import FileStore
from mpt.fleet.vehicle import Vehicle, arrays, tensors
from mpt.methods.mpt_x import MptX
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.question import Question, parts
from tests.fleet.served import AS_TRAINED, OWNER, TRAINING, TRUCK, VEHICLES, answering, fresh

ROUNDS = 5
pytestmark = pytest.mark.usefixtures("one_thread", "in_float32")


@pytest.fixture(scope="module")
def local_data(dataset):
    return [shared(dataset, v, VEHICLES, rare="truck", remaining=0.1, seed=0) for v in range(VEHICLES)]


def new_vehicles(dataset, local_data):
    """Vehicles that remember nothing."""
    model = fresh(dataset)
    return [Vehicle(str(v), model, samples, TRAINING) for v, samples in enumerate(local_data)]


def server(dataset, answers, **given):
    model = fresh(dataset)
    tracker = Tracker(num_classes=dataset.num_classes, dim=model.dim, watch=(TRUCK,), grace=1, method="mpt-x")
    given = {"policy": RoundPolicy(timeout=0.2, max_attempts=2), **given}
    return Server(model, arrays(model.state_dict()), tracker, LocalTransport(answers), **given)


def everybody(vehicles, **changed):
    """All vehicles by node; the owner of the trucks leaves after round 2, with a word."""
    made = {f"node {v.name}": answering(v, leaves_after=2 if v.name == str(OWNER) else None) for v in vehicles}
    return made | {f"node {name[1:]}": answer for name, answer in changed.items()}


def vanishing(vehicle, rounds):
    def answer(ask):
        return Failure("no answer") if ask.round in rounds else vehicle.answer(ask)

    return answer


@pytest.fixture(scope="module")
def calm(dataset, local_data):
    """Undisturbed rounds after an announced leave."""
    return list(server(dataset, everybody(new_vehicles(dataset, local_data))).rounds(ROUNDS))


@dataclass(frozen=True)
class Noted(MptX):
    """The method mpt-x of `mpt run`, and what it gave by round."""

    given: dict = field(default_factory=dict)

    def track(self, state, context):
        state, prototype = super().track(state, context)
        self.given[context.round] = prototype, context.notes
        return state, prototype


def test_it_gives_what_the_one_machine_engine_gives(dataset, calm):
    """With the same global models; the engine sends float32 about other origins."""
    plan = Plan(
        rare=TRUCK, methods=("mpt-x",), vehicles=VEHICLES, remaining=0.1, rounds=ROUNDS, depart_at=2, eval_every=1,
        **AS_TRAINED, engine="plain",
    )  # fmt: skip
    method = Noted()
    federation = Federation(dataset, plan, torch.device("cpu"), methods=[method])
    state = federation.start()
    for finished in calm:
        state, _ = federation.finish(state, federation.made(federation.jobs(state), [tensors(finished.model)]))
    assert sorted(method.given) == [3, 4, 5]
    for finished in calm[2:]:
        made = finished.outcome.reconstructions[TRUCK]
        prototype, notes = method.given[finished.round]
        assert np.linalg.norm(made.prototype - prototype) < 1e-5 * np.linalg.norm(prototype)
        assert made.expected_error == pytest.approx(notes["expected_error"], rel=1e-3)
        assert made.verdict is not None
        np.testing.assert_array_equal(finished.outcome.prototypes[TRUCK], made.prototype)


def test_reference_models_go_only_to_those_who_lack_them(dataset, local_data, calm):
    """One vehicle forgets everything before round 4, another joins in it."""
    vehicles, asked = new_vehicles(dataset, local_data), []

    def recording(vehicle, *, after=0, forgets=0):
        def answer(ask):
            if ask.round <= after:
                return Failure("not there yet")
            if ask.kind == "report":
                asked.append((ask.round, vehicle.name, sorted(ask.models)))
                if ask.round == forgets:
                    vehicle.memory.clear()
            return vehicle.answer(ask)

        return answer

    late = replace(vehicles[0], name="9", memory={})
    changed = {"_1": recording(vehicles[1], forgets=4), "_9": recording(late, after=3), "_2": recording(vehicles[2])}
    running = server(dataset, everybody(vehicles, **changed))
    rounds = list(running.rounds(ROUNDS))
    assert {(number, name) for number, name, models in asked if models} == {(5, "1"), (5, "9")}
    assert all(models == [2] for number, name, models in asked if number == 5 and name != "2")
    down = [f.bytes_down for f in rounds]
    assert down[4] - down[3] == 2 * nbytes(calm[0].model)
    trucks = [int((samples.labels == TRUCK).sum()) for samples in local_data]
    stay = sum(trucks[:OWNER])
    expected = [stay, stay - trucks[1], stay + trucks[0]]
    assert [f.outcome.reconstructions[TRUCK].samples for f in rounds[2:]] == expected
    assert all("cross" not in problem for f in rounds for problem in f.outcome.problems)
    assert running.tracker.lacking == {}


def test_one_that_returns_gets_the_model_that_it_has_missed(dataset, local_data):
    vehicles = new_vehicles(dataset, local_data)
    rounds = list(server(dataset, everybody(vehicles, _1=vanishing(vehicles[1], [2]))).rounds(4))
    trucks = [int((samples.labels == TRUCK).sum()) for samples in local_data]
    found = [f.outcome.reconstructions[TRUCK] for f in rounds[2:]]
    assert [made.samples for made in found] == [trucks[0] + trucks[2], sum(trucks[:OWNER])]
    assert all(made.verdict is not None for made in found)
    down = [f.bytes_down for f in rounds]
    assert down[3] - down[2] == nbytes(rounds[0].model)


def test_one_that_forgot_is_in_again_as_if_it_had_not(dataset, local_data, calm):
    vehicles = new_vehicles(dataset, local_data)

    def forgetful(ask):
        if ask.kind == "report" and ask.round == 4:
            vehicles[1].memory.clear()
        return vehicles[1].answer(ask)

    rounds = list(server(dataset, everybody(vehicles, _1=forgetful)).rounds(ROUNDS))
    for number in (3, 5):
        np.testing.assert_array_equal(rounds[number - 1].outcome.prototypes, calm[number - 1].outcome.prototypes)
    assert not np.array_equal(rounds[3].outcome.prototypes[TRUCK], calm[3].outcome.prototypes[TRUCK])
    assert rounds[3].outcome.reconstructions[TRUCK].verdict is not None


def test_where_all_have_forgotten_it_is_as_in_mpt_for_one_round(dataset, local_data, calm):
    vehicles = new_vehicles(dataset, local_data)

    def forgetful(vehicle):
        def answer(ask):
            if ask.kind == "report" and ask.round == 4:
                vehicle.memory.clear()
            return vehicle.answer(ask)

        return answer

    rounds = list(server(dataset, everybody(vehicles, **{f"_{v}": forgetful(vehicles[v]) for v in range(3)})).rounds(5))
    assert any("as by mpt in this round" in problem for problem in rounds[3].outcome.problems)
    np.testing.assert_array_equal(rounds[4].outcome.prototypes, calm[4].outcome.prototypes)


def without_a_word(vehicles):
    """The owner of the trucks does not answer after round 2."""
    return everybody(vehicles, **{f"_{OWNER}": vanishing(vehicles[OWNER], range(3, 99))})


@pytest.fixture(scope="module")
def silent(dataset, local_data):
    """Undisturbed rounds after a departure without a word."""
    return list(server(dataset, without_a_word(new_vehicles(dataset, local_data))).rounds(ROUNDS))


@pytest.mark.parametrize(
    ("crash", "leave", "forget"),
    [(3, "announced", True), (3, "silent", True), (4, "silent", True), (4, "silent", False)],
)
def test_killed_it_resumes_to_the_same_result(dataset, local_data, calm, silent, tmp_path, crash, leave, forget):
    """Also where the vehicles have lost all they kept, as in a new run of Flower; round `crash` is redone."""
    whole, answers = (calm, everybody) if leave == "announced" else (silent, without_a_word)

    class CrashError(Exception):
        pass

    class Crashing:
        def __init__(self):
            self.store = FileStore(tmp_path)

        def save(self, number, payload):
            if number == crash:
                raise CrashError
            self.store.save(number, payload)

        def latest(self):
            return self.store.latest()

    assert whole[-1].outcome.reconstructions[TRUCK].verdict is not None
    vehicles = new_vehicles(dataset, local_data)
    with pytest.raises(CrashError):
        list(server(dataset, answers(vehicles), store=Crashing()).rounds(ROUNDS))
    if forget:
        vehicles = new_vehicles(dataset, local_data)
    again = server(dataset, answers(vehicles), store=FileStore(tmp_path))
    assert again.resume() == crash - 1
    for resumed, undisturbed in zip(again.rounds(ROUNDS), whole[crash - 1 :], strict=True):
        np.testing.assert_array_equal(resumed.outcome.prototypes, undisturbed.outcome.prototypes)
        assert resumed.outcome.decisions == undisturbed.outcome.decisions
        assert resumed.outcome.problems == undisturbed.outcome.problems


def report(dataset, vehicle, number, model, references, models=()):
    """What a vehicle says of truck when asked for cross moments, and whether it had the model."""
    running = Tracker(num_classes=dataset.num_classes, dim=vehicle.model.dim)
    question = running.question(number)
    ones, zeros = np.ones(dataset.num_classes), np.zeros(vehicle.model.dim)
    cross = {c: CrossRequest(number, r, ones, zeros, zeros) for c, r in enumerate(sorted(references))}
    question = Question(question.statistics, cross)
    named = {r: fingerprint(m) for r, m in references.items()}
    ask = Ask("report", number, model, request=question.to_bytes(), keep=True, references=named, models=dict(models))
    return parts(vehicle.answer(ask).answer)[1]


def test_a_round_that_was_done_twice_has_one_model(dataset, local_data, calm):
    """A server that went back trains round 3 again; features under the first round 3 are not those."""
    vehicle = new_vehicles(dataset, local_data)[0]
    first, second = calm[2].model, calm[3].model
    report(dataset, vehicle, 3, first, {})
    assert report(dataset, vehicle, 4, calm[4].model, {3: second}) == {}
    (right,) = report(dataset, vehicle, 5, calm[4].model, {3: second}, {3: second}.items()).values()
    vehicle.memory.clear()
    report(dataset, vehicle, 3, second, {})
    assert report(dataset, vehicle, 5, calm[4].model, {3: second}) == {0: right}


def test_other_samples_are_not_those_that_were_embedded(dataset, local_data, calm):
    vehicle = new_vehicles(dataset, local_data)[0]
    report(dataset, vehicle, 3, calm[2].model, {})
    samples = vehicle.samples
    changed = replace(vehicle, samples=replace(samples, images=255 - samples.images))
    assert changed.memory is vehicle.memory
    assert report(dataset, changed, 4, calm[3].model, {3: calm[2].model}) == {}
    assert report(dataset, changed, 5, calm[3].model, {3: calm[2].model}, {3: calm[2].model}.items())


def test_a_vehicle_keeps_no_more_than_it_may_be_asked_for(dataset, local_data, calm):
    vehicle = new_vehicles(dataset, local_data)[0]
    for number in range(1, 6):
        report(dataset, vehicle, number, calm[number - 1].model, {1: calm[0].model} if number > 1 else {})
    assert len(vehicle.memory) == 3
    for number in range(6, 8):
        report(dataset, vehicle, number, calm[number - 6].model, {})
    assert len(vehicle.memory) == 2
    assert all(kept.dtype == np.float32 for kept in vehicle.memory.values())


def test_without_cross_nothing_is_kept(dataset, local_data):
    vehicles = new_vehicles(dataset, local_data)
    running = server(dataset, everybody(vehicles))
    running.tracker = Tracker(num_classes=dataset.num_classes, dim=vehicles[0].model.dim, watch=(TRUCK,))
    list(running.rounds(3))
    assert running.models.kept == {}
    assert all(not v.memory for v in vehicles)
    assert sorted(running.checkpoint()) == ["key", "model", "nodes", "scores", "tracker", "updates"]


def test_the_checkpoint_has_the_reference_models_once(dataset, local_data):
    running = server(dataset, everybody(new_vehicles(dataset, local_data)))
    list(running.rounds(4))
    assert sorted(running.checkpoint()) == ["key", "model", "model of round 2", "nodes", "scores", "tracker", "updates"]
