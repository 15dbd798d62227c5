"""What a vehicle that lies does to a tracker: little with the gate, and much without it."""

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from mpt.fleet import Tracker
from mpt.tracking import state as states
from tests.tracking import lies
from tests.tracking.fleets import RARE, C, Fleet, tracker, whats
from tests.tracking.lies import ALL, EVEN, STAYING, World, answers, apart, decided, fleet_of, play, rounds, truth

BEFORE = Path(__file__).parent / "data" / "before_rolls.tracker"
VARIANTS = ("mpt", "cross")
NEAR = 0.25
"""Of prototypes: a sample is about 2.8 from its class's, and the classes are 8 to 12 from each other."""
TOLD = {
    "shift": lies.shifted(20.0),
    "far shift": lies.shifted(1000.0),
    "scale": lies.stretched(100.0),
    "outlier": lies.outlier(1e17),
    "scatter": lies.rank_one(1e6),
    "swap": lies.swapped(),
    "cross": lies.no_map(1.0),
    "long cross": lies.no_map(5.0),
}
HARM = {"shift": 3, "far shift": 100, "scale": 100, "outlier": 1e10, "swap": 1.5, "cross": 0.3, "long cross": 0.3}
"""How far some prototype is off at least, without the gate."""


def lied(made, variant, lie, *, gate=True, few=2, **options):
    """ "b" lies from the first round on, "a" leaves after three: the outcomes, and the tracker."""
    fleet, server = fleet_of(made, few=few), tracker(variant, grace=0, gate=gate, **options)
    told = {} if lie is None else {"b": lie}
    return play(fleet, server, *rounds(3, ALL, told), *rounds(4, STAYING, told)), server


@pytest.fixture(scope="module")
def honest():
    """The same fleets without a lie."""
    return {(made, variant): lied(made, variant, None)[0] for made in (Fleet, World) for variant in VARIANTS}


def margin(fleet, round):
    """How far the rare class is from the nearest other one."""
    rare = truth(fleet, RARE, round)
    return min(np.linalg.norm(truth(fleet, c, round) - rare) for c in EVEN)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize("name", TOLD)
def test_one_liar_moves_no_prototype_far(name, made, variant, honest):
    found, server = lied(made, variant, TOLD[name])
    assert apart(found, honest[made, variant]).max() < NEAR
    assert sorted(server.state.tracked) == [RARE]
    begins = [] if variant == "mpt" and "cross" in name else [5 if "cross" in name else 1]
    assert [d.round for d in decided(found, "clipped") if d.vehicle == "b"] == begins
    assert ("b" in server.state.clipped) is bool(begins)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize("name", HARM)
def test_without_the_gate_it_does(name, made, variant, honest):
    found, server = lied(made, variant, TOLD[name], gate=False)
    off = apart(found, honest[made, variant]).max()
    assert off > HARM[name] if variant == "cross" or "cross" not in name else off == 0
    assert decided(found, "clipped") == []
    assert server.state.clipped == ()


@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize("name", ["scale", "outlier", "scatter"])
def test_a_false_scatter_does_not_stretch_the_covariance(name, made, honest):
    """Of the directions, none has more than a tenth more of the honest variance; without the gate, 10^4 times it."""

    def most(outcomes):
        pairs = zip(outcomes, honest[made, "mpt"], strict=True)
        return max(scipy.linalg.eigh(a.covariance, b.covariance, eigvals_only=True)[-1] for a, b in pairs)

    assert most(lied(made, "mpt", TOLD[name])[0]) < 1.1
    assert most(lied(made, "mpt", TOLD[name], gate=False)[0]) > 1e4


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("by", [1000, 10**6])
@pytest.mark.parametrize("gate", [True, False])
def test_who_multiplies_its_samples_does_not_take_the_holders_class(variant, by, gate):
    """It has none of the rare class, and says that it has very many of all others, which lie off."""
    fleet, told = fleet_of(remaining="cdefgh"), {"b": lies.many(by, shift=2.0)}
    calm, server = (tracker(variant, grace=0, gate=gate, watch=(RARE,), most_watched=1) for _ in range(2))
    honest = play(fleet, calm, *rounds(3, ALL), *rounds(4, STAYING))
    found = play(fleet, server, *rounds(3, ALL, told))
    assert "a" in server.holders
    assert "a" in server.state.snapshot.holders
    found += play(fleet, server, *rounds(4, STAYING, told))
    (made,) = decided(found, "deposited")
    assert (made.vehicle, made.classes, made.round) == ("a", (RARE,), 4)
    off = apart(found, honest)
    assert np.all(off < 0.5) if gate else np.delete(off, RARE, axis=1).max() > 5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("by", [1000, 10**6])
def test_nor_where_its_claims_fill_the_watched_classes(variant, by):
    """From the first round on it has most of every class but one, and that is watched all the same."""
    fleet, server = fleet_of(remaining="cdefgh"), tracker(variant, grace=0)
    found = play(fleet, server, *rounds(3, ALL, {"b": lies.many(by)}))
    assert [d.classes for d in decided(found[:1], "watched") if d.vehicle == "a"] == [(RARE,)]
    assert {d.vehicle for d in decided(found, "watched")} == {"a", "b"}
    found = play(fleet, server, *rounds(2, STAYING, {"b": lies.many(by)}))
    assert [(d.vehicle, d.classes) for d in decided(found, "deposited")] == [("a", (RARE,))]


def test_a_claim_beside_it_does_not_make_a_holder_a_small_one():
    """ "b" says that it has 2,000 of the rare class: by share of all "a" holds 5%, besides "b" nearly all."""
    fleet, found = fleet_of(few=2), {}
    for gate in (True, False):
        server = tracker(grace=0, gate=gate)
        play(fleet, server, *rounds(2, ALL), *rounds(1, ALL, {"b": lies.many(1000)}))
        found[gate] = server.state.snapshot
    assert set(found[True].holders) >= {"a", "b"}
    assert "a" not in found[False].holders
    assert found[True].held("a", 0.4, besides=True) == (RARE,)
    assert found[True].held("a", 0.4) == ()
    assert RARE in found[True].held("b", 0.4, besides=True)
    assert found[True].held("c", 0.4, besides=True) == ()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_holder_that_is_late_is_not_outweighed_by_claims(variant):
    """ "b" multiplies its samples, of other classes; the rare one is reconstructed from what "a" answered last."""
    fleet, told = fleet_of(World, remaining="cdefgh"), {"b": lies.many(1000)}
    server = tracker(variant, watch=(RARE,), most_watched=1)
    play(fleet, server, *rounds(3, ALL, told))
    outcome = server.close(answers(fleet, server.question(), STAYING, told), late={"a": ""})
    assert any("and was trusted last in round 3; the class is reconstructed from it" in p for p in outcome.problems)
    assert np.linalg.norm(outcome.prototypes[RARE] - truth(fleet, RARE, 4)) < 2
    assert server.state.tracked == {}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_others_have_enough_of_is_not_deposited(variant):
    """ "x" says that it has most of three classes, and leaves. Without the gate they are held out of training."""
    for gate in (True, False):
        fleet, server = Fleet({v: dict.fromkeys(range(C), 20) for v in ALL}), tracker(variant, grace=0, gate=gate)
        play(fleet, server, *rounds(1, ALL))
        fleet.add("x", dict.fromkeys((0, 1, 3), 5000))
        play(fleet, server, *rounds(5, [*ALL, "x"]))
        assert set(server.request().watched) & {0, 1, 3}
        (last,) = play(fleet, server, ([*ALL, "x"], {}, "x"))
        assert bool(server.state.tracked) is not gate
        assert ("carried" in whats(last, "x")) is gate


def parted(made, variant, remaining, by, gate=True, since=3):
    """ "a" lies from a round on, and leaves with its answer in round 3."""
    fleet, server = fleet_of(made, remaining), tracker(variant, grace=0, gate=gate)
    told = {"a": lies.shifted(by)}
    found = play(fleet, server, *rounds(since - 1, ALL), *rounds(3 - since, ALL, told), (ALL, told, "a"))
    return fleet, server, found + play(fleet, server, *rounds(3, STAYING))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize("remaining", [STAYING, "bc", "b", ""])
@pytest.mark.parametrize("by", [3.0, 20.0, 1000.0])
def test_who_lies_in_its_last_report_leaves_a_deposit_that_is_near(made, variant, remaining, by):
    """By the samples that stay, or by where its class was before; without the gate it is as far off as it likes."""
    fleet, server, found = parted(made, variant, remaining, by)
    assert server.state.tracked[RARE].round == 3
    assert "a" in {d.vehicle for d in decided(found[2:3], "clipped") if RARE in d.classes}
    calm = play(fleet, tracker(variant, grace=0), *rounds(2, ALL), (ALL, {}, "a"), *rounds(3, STAYING))
    off = np.linalg.norm(found[-1].prototypes[RARE] - calm[-1].prototypes[RARE])
    assert off < 2.5
    assert off < 0.45 * margin(fleet, 6)
    _, _, harmed = parted(made, variant, remaining, by, gate=False)
    assert np.linalg.norm(harmed[-1].prototypes[RARE] - calm[-1].prototypes[RARE]) > 0.6 * by


@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize(("remaining", "by"), [("b", 20.0), ("b", 1000.0)])
def test_a_deposit_that_the_samples_that_stay_contradict_is_disputed(made, remaining, by):
    """ "a" lies all the time, so that its class is where it was. One witness outvotes nobody, and knows better."""
    _, server, found = parted(made, "mpt", remaining, by, since=1)
    (said,) = decided(found, "disputed")
    assert (said.round, said.vehicle, said.classes) == (3, "a", (RARE,))
    assert said.why.startswith("the deposit is off the samples that stay by ")
    assert said.why.endswith(" times what chance explains; there is no other")
    assert RARE in server.state.tracked
    assert {outcome.reconstructions[RARE].verdict for outcome in found[3:]} == {"disputed"}
    _, _, plain = parted(made, "mpt", remaining, by, gate=False, since=1)
    assert decided(plain, "disputed") == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize("by", [0.0, 20.0])
def test_no_class_is_called_good_on_the_word_of_its_departed_holder_alone(made, variant, by):
    """Nobody has a sample of it any more, whether the holder has lied or not."""
    _, _, found = parted(made, variant, "", by, since=1)
    assert "good" not in {outcome.reconstructions[RARE].verdict for outcome in found[3:]}


def brought_back(variant, by, gate=True):
    """ "a" is suspected, three samples stay with "b"; a newcomer "x" brings many that lie off, and says goodbye."""
    fleet, server = fleet_of(World, "b"), tracker(variant, grace=6, gate=gate, watch=(RARE,))
    fleet.add("x", {**EVEN, RARE: 100})
    told = {"x": lies.shifted(by)}
    play(fleet, server, *rounds(3, ALL), *rounds(2, STAYING))
    first = server.state.tracked[RARE]
    found = play(fleet, server, *rounds(2, [*STAYING, "x"], told), ([*STAYING, "x"], told, "x"), *rounds(1, STAYING))
    return fleet, server, first, found


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_deposit_that_contradicts_the_samples_does_not_replace_the_first(variant):
    fleet, server, first, found = brought_back(variant, 20.0)
    (said,) = decided(found, "disputed")
    assert (said.round, said.vehicle, said.classes) == (8, "x", (RARE,))
    assert said.why.endswith("the one that there is stays")
    assert server.state.tracked[RARE].deposit == first.deposit
    assert server.state.tracked[RARE].owners == ("a",)
    for outcome in (*found[:2], found[-1]):
        assert np.linalg.norm(outcome.prototypes[RARE] - truth(fleet, RARE, outcome.round)) < 2.5
    _, plain, first, found = brought_back(variant, 20.0, gate=False)
    assert plain.state.tracked[RARE].deposit != first.deposit
    assert np.linalg.norm(found[-1].prototypes[RARE] - truth(fleet, RARE, 9)) > 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_samples_that_contradict_the_forecast_do_not_bring_a_class_back(variant):
    """It stays reconstructed, and the verdict names the deposit's owner and who has the samples."""
    _, _, _, found = brought_back(variant, 20.0)
    assert [outcome.reconstructions[RARE].verdict for outcome in found[:2]] == ["disputed"] * 2
    (said,) = decided(found[:2], "verdict")
    assert (said.round, said.classes) == (6, (RARE,))
    assert "x" in said.vehicle.split(", ")
    assert said.why.startswith("disputed: the remaining samples and the forecast from the deposit of a contradict")
    _, _, _, plain = brought_back(variant, 20.0, gate=False)
    assert [sorted(outcome.reconstructions) for outcome in plain[:2]] == [[], []]


@pytest.mark.parametrize("variant", VARIANTS)
def test_honest_samples_bring_it_back(variant):
    _, server, first, found = brought_back(variant, 0.0)
    assert [sorted(outcome.reconstructions) for outcome in found[:2]] == [[], []]
    assert server.state.tracked[RARE].deposit != first.deposit
    assert decided(found, "disputed") == []


def witnessing(made, variant, remaining, liars, by, gate=True):
    """ "a" was honest and has left; some of those with remaining samples lie from round 6 on."""
    fleet, server = fleet_of(made, remaining), tracker(variant, grace=0, gate=gate)
    told = {v: lies.shifted(by) for v in liars}
    return play(fleet, server, *rounds(3, ALL), *rounds(2, STAYING), *rounds(3, STAYING, told))[5:]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize(("remaining", "liars"), [("b", "b"), ("bc", "b"), ("bc", "bc"), ("bcd", "b")])
@pytest.mark.parametrize("by", [3.0, 20.0, 1000.0])
def test_one_or_two_witnesses_do_not_carry_a_class_away(made, variant, remaining, liars, by):
    """Nobody outvotes them, and still the prototype stays near; without the gate it goes where they say."""
    honest = witnessing(made, variant, remaining, "", 0.0)
    found = witnessing(made, variant, remaining, liars, by)
    assert apart(found, honest)[:, RARE].max() < 1
    assert apart(witnessing(made, variant, remaining, liars, by, gate=False), honest)[:, RARE].max() > 0.4 * by
    fleet = fleet_of(made, remaining)
    for outcome in found:
        off = np.linalg.norm(outcome.prototypes[RARE] - truth(fleet, RARE, outcome.round))
        assert outcome.reconstructions[RARE].verdict != "good" or off < 0.45 * margin(fleet, outcome.round)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("made", [Fleet, World])
@pytest.mark.parametrize("by", [20.0, 1000.0])
def test_two_liars_outvote_one_witness_and_the_class_is_disputed(made, variant, by):
    found = witnessing(made, variant, "bcd", "bc", by)
    assert {outcome.reconstructions[RARE].verdict for outcome in found} == {"disputed"}
    (said,) = decided(found, "verdict")
    assert {"b", "c"} <= set(said.vehicle.split(", "))
    assert " the deposit of a contradict each other, " in said.why


def test_of_many_witnesses_the_one_that_is_furthest_off_is_named():
    """ "h" lies by as much as the gate lets pass, which cross moments of an exact map contradict."""
    found = witnessing(Fleet, "cross", STAYING, "h", 1.0)
    (said,) = decided(found, "verdict")
    assert found[0].reconstructions[RARE].verdict == "disputed"
    named = said.vehicle.split(", ")
    assert "h" in named
    assert len(named) == 3


@pytest.mark.parametrize(("variant", "verdict"), [("mpt", "degraded"), ("cross", "good")])
def test_what_was_learned_in_doubt_is_not_called_good(variant, verdict):
    """The prototypes are the same, and other verdicts stay; a new one that is no worse is no decision."""
    fleet, server = fleet_of(Fleet), tracker(variant, grace=0)
    play(fleet, server, *rounds(3, ALL), *rounds(2, STAYING))
    again, told = Tracker.from_bytes(server.to_bytes()), answers(fleet, server.question(), STAYING, {})
    plain, doubted = server.close(told), again.close(told, doubted=True)
    assert plain.reconstructions[RARE].verdict == verdict
    assert doubted.reconstructions[RARE].verdict == ("unconfirmed" if verdict == "good" else verdict)
    assert again.state.health[RARE].verdict == doubted.reconstructions[RARE].verdict
    np.testing.assert_array_equal(doubted.prototypes, plain.prototypes)
    assert decided([doubted], "verdict") == []


def test_that_a_vehicle_is_clipped_is_said_when_it_begins():
    fleet, server = fleet_of(), tracker(class_names=("car", "van", "truck", "bus", "bike", "tram"))
    told, seen = {"b": lies.shifted(20.0)}, []
    for lying in (False, True, True, True, False, True):
        (outcome,) = play(fleet, server, (ALL, told if lying else {}, ""))
        seen.append((whats(outcome, "b").count("clipped"), server.state.clipped))
        server = Tracker.from_bytes(server.to_bytes())
        assert server.state.clipped == seen[-1][1]
    assert seen == [(0, ()), (1, ("b",)), (0, ("b",)), (0, ("b",)), (0, ()), (1, ("b",))]
    (said,) = decided([outcome], "clipped")
    assert (said.round, said.classes, said.class_names) == (6, (RARE,), ("truck",))
    assert said.why.startswith("its mean of truck (")
    assert said.why.endswith(" times the bound) is far off")
    server.close({})
    assert server.state.clipped == ("b",), "nobody has answered since"


def test_states_from_before_there_was_a_gate(monkeypatch):
    fleet, server = fleet_of(), tracker(grace=0)
    play(fleet, server, *rounds(3, ALL, {"b": lies.shifted(20.0)}))
    about = states._about

    def earlier(*given):
        made = about(*given)
        del made["clipped"], made["settings"]["gate"]
        return made

    monkeypatch.setattr(states, "_about", earlier)
    again = Tracker.from_bytes(server.to_bytes())
    assert (again.state.clipped, again.settings.gate) == ((), True)
    told = answers(fleet, server.question(), STAYING, {})
    np.testing.assert_array_equal(again.close(told).prototypes, server.close(told).prototypes)
    assert Tracker.from_bytes(BEFORE.read_bytes()).state.clipped == ()


SIZES = st.floats(-3, 17).map(lambda power: 10.0**power)
LIES = st.one_of(
    st.none(),
    st.builds(lies.shifted, SIZES, st.lists(st.integers(0, C - 1), min_size=1, unique=True)),
    st.builds(lies.stretched, SIZES | st.just(0.0)),
    st.builds(lies.outlier, SIZES),
    st.builds(lies.rank_one, st.floats(-3, 12).map(lambda power: 10.0**power)),
    st.builds(lies.many, st.integers(1, 10**6), st.floats(-5, 5)),
    st.builds(lies.no_map, st.floats(0, 1e6)),
    st.just(lies.swapped()),
    st.just(lies.all_rare()),
)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore:to_bytes")
@settings(max_examples=30)
@given(told=st.lists(LIES, min_size=6, max_size=6))
def test_whatever_one_vehicle_says_the_others_classes_stay_near(variant, told, honest_six):
    """In any mixture of lies and truth nothing fails; no class that others have is off by half a sample's length."""
    fleet, expected = honest_six[variant]
    server = tracker(variant, grace=0)
    for number, lie in enumerate(told, 1):
        (outcome,) = play(fleet, server, (ALL[:6] if number <= 3 else ALL[1:6], {"b": lie} if lie else {}, ""))
        assert np.isfinite(outcome.prototypes).all()
        assert all(np.isfinite(made.prototype).all() for made in outcome.reconstructions.values())
        off = apart([outcome], [expected[number - 1]])[0]
        assert np.delete(off, RARE).max() < np.sqrt(8) / 2
        assert {"a", "c", "d", "e", "f"}.isdisjoint(server.state.clipped)
        server = Tracker.from_bytes(server.to_bytes())


@pytest.fixture(scope="module")
def honest_six():
    """Six vehicles, of which nobody lies."""
    fleet = Fleet({"a": {**EVEN, RARE: 100}} | {v: {**EVEN, RARE: 3} for v in ALL[1:6]})
    made = {v: play(fleet, tracker(v, grace=0), *rounds(3, ALL[:6]), *rounds(3, ALL[1:6])) for v in VARIANTS}
    return {v: (fleet, outcomes) for v, outcomes in made.items()}
