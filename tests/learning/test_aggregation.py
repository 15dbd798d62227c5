"""How updates become one model: against Flower's rules and SciPy's, and for a class's only holder."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from scipy.stats import trim_mean

from mpt.learning import LearningError
from mpt.learning.aggregation import AGGREGATIONS, Updates, find_aggregation, gathering

from .updates import NORM, RUNNING, averaged, close, fleet, lying, same, weights, with_a_holder


def flat(updates):
    """As Flower has them: arrays with sample counts; its rules take BatchNorm's statistics for weights like others."""
    names = [name for name in updates.start if updates.start[name].is_floating_point() and name not in RUNNING]
    results = [([one[n].numpy() for n in names], s) for one, s in zip(updates.states, updates.samples, strict=True)]
    return names, results


def check_flower(made, names, arrays):
    for name, array in zip(names, arrays, strict=True):
        np.testing.assert_allclose(made[name], array, rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def flower():
    return pytest.importorskip("flwr.server.strategy.aggregate", reason="Flower is not installed")


@pytest.mark.parametrize("vehicles", [1, 2, 9, 10])
def test_average_and_median_are_flowers(flower, vehicles):
    updates = fleet(vehicles)
    names, results = flat(updates)
    check_flower(find_aggregation("average")(updates), names, flower.aggregate(results))
    check_flower(find_aggregation("median")(updates), names, flower.aggregate_median(results))
    assert same(find_aggregation("average")(updates), averaged(updates))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.34, 0.49])
def test_the_trimmed_mean_is_flowers_and_scipys(flower, share):
    updates = fleet(11)
    names, results = flat(updates)
    made = find_aggregation(f"trimmed-mean(share={share})")(updates)
    check_flower(made, names, flower.aggregate_trimmed_avg(results, share))
    check_flower(made, names, [trim_mean([r[0][i] for r in results], share, axis=0) for i in range(2)])
    if share == 0.2:
        assert same(made, find_aggregation("trimmed-mean")(updates))


@pytest.mark.parametrize(("vehicles", "hostile"), [(5, 1), (9, 1), (9, 3), (11, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_krum_is_flowers(flower, vehicles, hostile, seed):
    """Flower's `to_keep=0` is Krum, our `keep=1`; with several both average by samples. Flower asks for no number of

    vehicles, we for the 2 f + 3 of the paper; Flower measures distances with BatchNorm's statistics, we without.
    """
    updates = lying(fleet(vehicles, seed=seed), 2, -3.0)
    names, results = flat(updates)
    made = find_aggregation(f"krum(hostile={hostile})")(updates)
    check_flower(made, names, flower.aggregate_krum(results, hostile, 0))
    several = find_aggregation(f"krum(hostile={hostile}, keep=3)")(updates)
    check_flower(several, names, flower.aggregate_krum(results, hostile, 3))
    for place, one in enumerate(updates.states):
        one[RUNNING[0]] += 100 * place
    check_flower(find_aggregation(f"krum(hostile={hostile})")(updates), names, [made[n].numpy() for n in names])


@pytest.mark.parametrize(("vehicles", "hostile"), [(7, 1), (10, 1), (11, 2), (12, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_bulyan_is_flowers(flower, vehicles, hostile, seed):
    updates = lying(fleet(vehicles, seed=seed), 1, 20.0)
    names, results = flat(updates)
    theirs = flower.aggregate_bulyan(list(results), hostile, flower.aggregate_krum, to_keep=0)
    check_flower(find_aggregation(f"bulyan(hostile={hostile})")(updates), names, theirs)


def test_what_is_held_may_be_overwritten():
    updates = fleet(9)
    for text in ("clipped", "median"):
        taking, mine = gathering(text, NORM, updates.start, quorum=20), {}
        for place, (one, samples) in enumerate(zip(updates.states, updates.samples, strict=True)):
            mine = mine or {name: tensor.clone() for name, tensor in one.items()}
            for name, tensor in one.items():
                mine[name].copy_(tensor)
            taking.add(str(place), mine, samples)
        for tensor in mine.values():
            tensor.zero_()
        assert same(taking.state(), find_aggregation(text)(updates))


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum", "krum(keep=3)", "bulyan"])
def test_rules_that_choose_throw_away_what_the_only_holder_has_learned(rule):
    updates = with_a_holder()
    assert weights(find_aggregation(rule)(updates))[9] == 0
    kept = weights(find_aggregation("clipped")(updates))
    assert kept[9] == pytest.approx(np.sqrt(8) / 9)
    assert same(find_aggregation("clipped")(updates), averaged(updates))


def test_dtypes_stay_and_of_integers_the_largest_counts():
    updates = lying(fleet(7), 1, 50.0)
    single = [{n: t.float() if t.is_floating_point() else t for n, t in one.items()} for one in updates.states]
    start = {n: t.float() if t.is_floating_point() else t for n, t in updates.start.items()}
    for name in AGGREGATIONS:
        made = find_aggregation(name)(Updates(start, single, updates.samples, NORM))
        assert {n: t.dtype for n, t in made.items()} == {n: t.dtype for n, t in start.items()}
        wide = find_aggregation(name)(updates)
        close({n: t.double() for n, t in made.items()}, {n: t.double() for n, t in wide.items()}, 1e-5)
        assert name in ("krum", "bulyan") or int(wide["n.num_batches_tracked"]) == 9


@pytest.mark.parametrize(
    ("text", "vehicles", "message"),
    [
        ("krum", 4, r"aggregation: krum\(hostile=1\) of 4 updates, should be of at least 5"),
        ("krum(hostile=3)", 8, r"krum\(hostile=3\) of 8 updates, should be of at least 9"),
        ("bulyan", 6, r"aggregation: bulyan\(hostile=1\) of 6 updates, should be of at least 7"),
        ("trimmed-mean(share=0.5)", 6, "share: 0.5, should be at least 0 and below 0.5"),
        ("medain", 6, "aggregation: 'medain' is none, did you mean median?"),
        ("krum(2)", 6, r"krum\(2\), arguments should have names"),
        ("mine.py:rule", 6, "aggregation: there is no file mine.py"),
    ],
)
def test_what_is_wrong_is_one_sentence(text, vehicles, message):
    with pytest.raises(LearningError, match=message):
        find_aggregation(text)(fleet(vehicles))


def test_updates_that_do_not_fit_are_refused():
    updates = fleet(9)
    for text in ("clipped", "average", "median"):
        taking = gathering(text, NORM, updates.start)
        taking.check(updates.states[0])
        for wrong in (
            {**updates.start, "b": torch.zeros(3)},
            {"a": updates.start["a"]},
            {**updates.start, "c": torch.ones(1)},
        ):
            with pytest.raises(LearningError, match="state: "):
                taking.check(wrong)
        with pytest.raises(LearningError, match="NaN or infinite"):
            taking.check({**updates.start, "b": updates.start["b"] * np.nan})
    for samples in (0, -3, np.nan, np.inf):
        with pytest.raises(LearningError, match=r"samples: .*, should be finite and above 0"):
            gathering("clipped", NORM, updates.start).add("0", updates.states[0], samples)
    with pytest.raises(LearningError, match="updates: there are none"):
        gathering("median", NORM, updates.start).state()


def test_a_rule_of_ones_own_by_its_path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def first(updates, place=0):\n    return dict(updates.states[place])\nthree = 3\n")
    updates = fleet(3)
    rule = find_aggregation(f"{path}:first(place=2)")
    assert same(rule(updates), updates.states[2])
    assert find_aggregation(f"{path}:first(place=2)") is rule
    taking = gathering(f"{path}:first", NORM, updates.start)
    for one in updates.states:
        taking.add("?", one, 3)
    assert same(taking.state(), updates.states[0])
    with pytest.raises(LearningError, match="three' is no function, should take Updates and give a state dict"):
        find_aggregation(f"{path}:three")
    path.write_text("def first(updates, place=0):\n    return dict(updates.start)\n")
    assert same(find_aggregation(f"{path}:first(place=2)")(updates), updates.start), "a changed file is another rule"
