"""Each built-in attack changes what it says and nothing else; who lies; attacks of one's own."""

import inspect
from dataclasses import fields, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.bounded import bounded
from mpt.federation.attacks import ATTACKS, HOOKS, AttackError, Scene, find_attacks, lies_about, spec_of
from mpt.tracking.plausible import check_statistics

from ..core.worlds import make_world

RARE, CLASSES, OWNER = 2, 6, 3
LIES_ABOUT = {
    "shift": ("features",),
    "scale": ("features",),
    "outlier": ("features",),
    "swap": ("features",),
    "parting": ("features",),
    "scatter": ("report",),
    "cross": ("cross",),
    "counts": ("features", "report", "cross"),
    "edge": ("features", "report", "cross"),
    "wrong-labels": ("labels",),
    "flip": ("update",),
    "boost": ("update",),
    "zero": ("update",),
    "little": ("update",),
}


def scene(**given):
    about = {"round": 5, "vehicle": 1, "rare": RARE, "num_classes": CLASSES, "gone": True, "leaving": False, "seed": 0}
    return Scene(**{**about, **given})


def attack(text):
    return ATTACKS.find(text)


@pytest.fixture(scope="module")
def world():
    """Features (360, 12) of six classes."""
    return make_world(4, num_classes=CLASSES, rare=RARE)


@pytest.fixture(scope="module")
def spread(world):
    """The same on six vehicles, of which 0 to 4 have some of the rare class: features and labels by vehicle."""
    places = np.arange(len(world.labels)) % 6
    without = np.flatnonzero((places == 5) & (world.labels == RARE))
    places[without] = np.arange(len(without)) % 5
    return {v: (world.features[places == v], world.labels[places == v]) for v in range(6)}


@pytest.fixture
def start():
    torch.manual_seed(0)
    return dict(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict())


def trained(start, seed=1, far=0.1):
    """As a vehicle sends it: weights and statistics have moved, and two more batches were seen."""
    drawn = torch.Generator().manual_seed(seed)
    moved = {
        n: t + far * torch.rand(t.shape, generator=drawn) if t.is_floating_point() else t + 2 for n, t in start.items()
    }
    return moved


def of(features, labels, **options):
    return ClassStatistics.from_features(features, labels, CLASSES, watched=[RARE], **options)


def arrays(thing):
    return {f.name: np.array(getattr(thing, f.name)) for f in fields(thing) if getattr(thing, f.name) is not None}


def changed(before, after):
    """The names of what differs in a report."""
    left, right = arrays(before), arrays(after)
    assert left.keys() == right.keys()
    return {name for name in left if not np.array_equal(left[name], right[name])}


def test_every_attack_is_listed_with_its_numbers_and_lies_about_what_it_says():
    assert set(ATTACKS) == set(LIES_ABOUT)
    for name, hooks in LIES_ABOUT.items():
        assert tuple(hook for hook in HOOKS if lies_about(attack(name), hook)) == hooks
        for parameter in inspect.signature(type(attack(name))).parameters.values():
            assert f"{parameter.name}=" in ATTACKS.about(name), f"{name} does not say what {parameter.name} is"


def nearest(features, labels):
    """(d,): from the rare class's mean to the nearest other one's, in loops."""
    mean = {
        c: np.mean([f for f, label in zip(features, labels, strict=True) if label == c], axis=0) for c in set(labels)
    }
    return min((mean[c] - mean[RARE] for c in mean if c != RARE), key=np.linalg.norm)


@pytest.mark.parametrize(
    ("text", "by", "leaving"), [("shift", 20, False), ("shift(by=2)", 2, False), ("parting", 3, True)]
)
def test_a_shift_moves_the_rare_samples_and_no_others(spread, text, by, leaving):
    features, labels = spread[1]
    before = features.copy(), labels.copy()
    moved, named = attack(text).features(features, labels, scene(leaving=leaving))
    rare = labels == RARE
    np.testing.assert_array_equal(moved[~rare], features[~rare])
    np.testing.assert_array_equal(named, labels)
    np.testing.assert_allclose(moved[rare] - features[rare], np.tile(by * nearest(features, labels), (rare.sum(), 1)))
    np.testing.assert_array_equal(features, before[0])
    np.testing.assert_array_equal(labels, before[1])


def test_a_departing_vehicle_is_honest_until_its_last_round(spread):
    features, labels = spread[1]
    kept, named = attack("parting").features(features, labels, scene(leaving=False))
    assert kept is features
    assert named is labels


@pytest.mark.parametrize("text", ["shift", "counts", "edge", "parting"])
def test_who_has_none_of_the_rare_class_claims_three(spread, text):
    features, labels = spread[5]
    assert not np.any(labels == RARE)
    before = labels.copy()
    honest = {v: of(*spread[v]) for v in range(5)}
    moved, named = attack(text).features(features, labels, scene(vehicle=5, leaving=True, honest=lambda: honest))
    claimed = np.flatnonzero(named != labels)
    assert len(claimed) == 3
    assert set(named[claimed]) == {RARE}
    commonest = np.bincount(labels).max()
    assert {int(np.sum(labels == c)) for c in set(labels[claimed])} == {commonest}
    same = np.setdiff1d(np.arange(len(labels)), claimed)
    np.testing.assert_array_equal(moved[same], features[same])
    assert np.all(np.linalg.norm(moved[claimed] - features[claimed], axis=1) > 0.1)
    np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize("text", ["shift", "counts", "parting"])
def test_where_there_is_no_other_class_there_is_nothing_to_shift_to(text):
    for labels in (np.full(4, RARE), np.zeros(0, dtype=np.int64)):
        features = np.ones((len(labels), 3))
        moved, named = attack(text).features(features, labels, scene(leaving=True))
        np.testing.assert_array_equal(moved, features)
        np.testing.assert_array_equal(named, labels)


def test_all_features_are_longer_or_one_lies_far_off(spread):
    features, labels = spread[1]
    moved, named = attack("scale(by=7)").features(features, labels, scene())
    np.testing.assert_array_equal(moved, 7 * features)
    np.testing.assert_array_equal(named, labels)
    for vehicle, at in ((1, np.flatnonzero(labels == RARE)[0]), (5, 0)):
        features, labels = spread[vehicle]
        moved, named = attack("outlier").features(features, labels, scene())
        assert np.flatnonzero(np.any(moved != features, axis=1)).tolist() == [at]
        assert set(moved[at]) == {1e17}
        np.testing.assert_array_equal(named, labels)


@pytest.mark.parametrize(("rare", "other"), [(2, 3), (CLASSES - 1, 0)])
def test_two_classes_are_swapped(spread, rare, other):
    features, labels = spread[1]
    kept, named = attack("swap").features(features, labels, scene(rare=rare))
    np.testing.assert_array_equal(kept, features)
    expected = [{rare: other, other: rare}.get(label, label) for label in labels.tolist()]
    assert named.tolist() == expected != labels.tolist()


def test_wrong_labels_are_the_next_ones():
    labels = np.arange(CLASSES)
    made = attack("wrong-labels").labels(labels, scene())
    assert made.tolist() == [1, 2, 3, 4, 5, 0]
    assert labels.tolist() == list(range(CLASSES))


def test_a_scatter_with_one_huge_direction_is_one_that_samples_could_give(spread):
    report = of(*spread[1])
    made = attack("scatter").report(report, scene())
    assert changed(report, made) == {"scatter", "squares"}
    check_statistics(made)
    added = np.linalg.eigvalsh(made.scatter - report.scatter)
    assert added[-1] == pytest.approx(np.trace(made.scatter - report.scatter))
    variance = added[-1] / report.counts[report.reference_classes].sum()
    assert variance / 1e6 == pytest.approx(1, rel=0.9)
    assert np.abs(added[:-1]).max() < 1e-6 * added[-1]
    lite = of(*spread[1], scatter=False)
    assert changed(lite, attack("scatter").report(lite, scene())) == {"squares"}
    none = of(np.zeros((0, 12)), np.zeros(0, dtype=int))
    assert changed(none, attack("scatter").report(none, scene())) == set()


def test_samples_that_count_many_times_are_samples_repeated(spread):
    """Statistics and cross moments of every sample five times."""
    features, labels = spread[1]
    earlier = features[:, ::-1] + 1
    many = np.repeat(np.arange(len(labels)), 5)
    liar = attack("counts(by=5, shift=0)")
    kept, named = liar.features(features, labels, scene())
    np.testing.assert_array_equal(kept, features)
    np.testing.assert_array_equal(named, labels)
    for scatter in (True, False):
        made, expected = (
            liar.report(of(features, labels, scatter=scatter), scene()),
            of(features[many], labels[many], scatter=scatter),
        )
        for name, array in arrays(expected).items():
            np.testing.assert_allclose(arrays(made)[name], array, rtol=1e-12, atol=1e-9)
    made = liar.cross(CrossStatistics.from_features(earlier, features, labels, CLASSES), scene())
    expected = CrossStatistics.from_features(earlier[many], features[many], labels[many], CLASSES)
    for name, array in arrays(expected).items():
        np.testing.assert_allclose(arrays(made)[name], array, rtol=1e-12, atol=1e-9)
    moved, _ = attack("counts").features(features, labels, scene())
    rare = labels == RARE
    np.testing.assert_allclose(moved[rare] - features[rare], np.tile(2 * nearest(features, labels), (rare.sum(), 1)))


@pytest.mark.parametrize("by", [1.0, 3.0])
def test_cross_moments_of_no_map_are_as_long_as_right_ones(spread, by):
    features, labels = spread[1]
    right = CrossStatistics.from_features(features @ np.diag(np.arange(1.0, 13.0)), features, labels, CLASSES)
    made = attack(f"cross(by={by})").cross(right, scene())
    assert changed(right, made) == {"cross"}
    (_, about), (_, noise) = right.within, made.within
    assert np.linalg.norm(noise) == pytest.approx(by * np.linalg.norm(about))
    cosine = np.sum(noise * about) / np.linalg.norm(noise) / np.linalg.norm(about)
    assert abs(cosine) < 0.3


def test_an_edge_is_just_within_what_the_gate_lets_pass(spread):
    """Among the honest reports it is not clipped, twice as far off it is; the honest ones are not."""
    honest = {v: of(*spread[v]) for v in (0, 2, 3, 4, 5)}
    features, labels = spread[1]
    for text, clipped in (("edge", False), ("edge(times=2)", True)):
        liar, told = attack(text), scene(honest=lambda: honest)
        moved, named = liar.features(features, labels, told)
        rare = labels == RARE
        np.testing.assert_array_equal(moved[~rare], features[~rare])
        ways = moved[rare] - features[rare]
        np.testing.assert_allclose(ways, np.tile(ways[0], (len(ways), 1)), atol=1e-9)
        report = liar.report(of(moved, named), told)
        assert changed(report, of(moved, named)) == set()
        clips = bounded([*honest.values(), report], departed=[RARE]).clips
        assert [clip is not None for clip in clips[:-1]] == [False] * 5
        assert (clips[-1] is not None) == clipped


def test_a_drawn_edge_moves_every_class_and_counts_its_rare_samples_up_to_three_times(spread):
    honest = {v: of(*spread[v]) for v in (0, 2, 3, 4, 5)}
    features, labels = spread[1]
    times = set()
    for draw in range(12):
        liar, told = attack(f"edge(draw={draw})"), scene(honest=lambda: honest)
        moved, named = liar.features(features, labels, told)
        assert all(np.any(moved[labels == c] != features[labels == c]) for c in range(CLASSES))
        plain = of(moved, named)
        made = liar.report(plain, told)
        rows = np.arange(CLASSES) != RARE
        times.add(int(made.counts[RARE] / plain.counts[RARE]))
        np.testing.assert_allclose(made.means[RARE], plain.means[RARE], rtol=1e-12)
        np.testing.assert_array_equal(made.sums[rows], plain.sums[rows])
        np.testing.assert_array_equal(made.counts[rows], plain.counts[rows])
        check_statistics(made)
        before = replace(told, gone=False)
        assert changed(plain, liar.report(plain, before)) == set(), "while the owner is there they count once"
    assert times == {1, 2, 3}


@pytest.mark.parametrize(("text", "by"), [("flip", -1), ("flip(by=4)", -4), ("boost", 10), ("boost(by=0.5)", 0.5)])
def test_an_update_goes_backwards_or_further(start, text, by):
    mine = trained(start)
    kept = {name: tensor.clone() for name, tensor in mine.items()}
    made, samples = attack(text).update(start, mine, 17, scene(), {})
    assert samples == 17
    for name, tensor in mine.items():
        first = start[name].double().numpy()
        expected = first + by * (tensor.double().numpy() - first) if tensor.is_floating_point() else tensor.numpy()
        expected = np.maximum(expected, 0) if name.endswith("running_var") else expected
        np.testing.assert_allclose(made[name], expected, rtol=1e-6, atol=1e-7)
        assert made[name].dtype == tensor.dtype
        assert torch.equal(tensor, kept[name])
    far = attack("flip(by=1000)").update(start, mine, 17, scene(), {})[0]
    assert float(far["1.running_var"].min()) == 0, "a variance is not negative"


def test_zero_weights_and_very_many_samples(start):
    made, samples = attack("zero").update(start, trained(start), 17, scene(), {})
    assert samples == 2**31 - 1
    assert made.keys() == start.keys()
    assert all(not tensor.any() and tensor.dtype == start[name].dtype for name, tensor in made.items())
    assert attack("zero(samples=5)").update(start, trained(start), 17, scene(), {})[1] == 5


def test_a_little_is_the_honest_mean_a_deviation_off(start):
    others = {v: trained(start, seed=v) for v in (2, 3, 4)}
    mine = trained(start)
    made, samples = attack("little(z=1.5)").update(start, mine, 17, scene(), others)
    assert samples == 17
    for name, tensor in mine.items():
        honest = np.array([state[name].double().numpy() for state in others.values()])
        expected = honest.mean(axis=0) - 1.5 * honest.std(axis=0, ddof=1) if tensor.is_floating_point() else tensor
        np.testing.assert_allclose(made[name], expected, rtol=1e-6, atol=1e-7)
    few = {2: others[2]}
    assert attack("little").update(start, mine, 17, scene(), few) == (mine, 17), "one is no crowd to hide in"


@pytest.mark.parametrize("text", ["scatter", "cross", "edge(draw=1)"])
def test_what_is_drawn_is_the_same_for_a_seed_and_a_round_and_another_for_others(spread, text):
    features, labels = spread[1]
    honest = {v: of(*spread[v]) for v in (0, 2, 3, 4, 5)}

    def lie(**given):
        liar, told = attack(text), scene(honest=lambda: honest, **given)
        if text == "scatter":
            return liar.report(of(features, labels), told).scatter
        if text == "cross":
            return liar.cross(CrossStatistics.from_features(features, features, labels, CLASSES), told).cross
        return liar.features(features, labels, told)[0]

    np.testing.assert_array_equal(lie(), lie())
    for other in ({"seed": 1}, {"round": 6}, {"vehicle": 4}):
        assert not np.array_equal(lie(), lie(**other))


LABELS = {0: np.array([0, 1]), 1: np.array([1, RARE]), 2: np.array([RARE, 0]), OWNER: np.full(9, RARE)}


@pytest.mark.parametrize(
    ("texts", "who"),
    [
        ((), {}),
        (("shift@2",), {2: "Shift"}),
        (("shift",), {1: "Shift"}),
        (("shift@holder",), {1: "Shift"}),
        (("shift@bystander",), {0: "Shift"}),
        (("parting@owner",), {OWNER: "Parting"}),
        (("shift(by=3)@0+2",), {0: "Shift", 2: "Shift"}),
        ((" flip@0 ", "zero@owner", "cross@1"), {0: "Flip", OWNER: "Zero", 1: "Cross"}),
    ],
)
def test_who_lies(texts, who):
    found = find_attacks(texts, LABELS, OWNER, RARE)
    assert {v: type(one).__name__ for v, one in found.items()} == who
    if texts == ("shift(by=3)@0+2",):
        assert {one.by for one in found.values()} == {3}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("shift", "shift"),
        ("shift@3", "shift"),
        ("shift(by=2)@1+2", "shift(by=2)"),
        ("a@b.py:Lie(x='@3')@owner", "a@b.py:Lie(x='@3')"),
        (" zero@0 ", "zero"),
    ],
)
def test_the_text_without_who_lies(text, spec):
    assert spec_of(text) == spec


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("sift@2",), "attack: 'sift' is none, did you mean shift?"),
        (("shift@9",), "attack: shift@9, but there is no vehicle 9, should be from 0 to 3"),
        (("shift@1+9",), "but there is no vehicle 9"),
        (("shift@1", "flip@1"), "attack: vehicle 1 has two attacks, should have one"),
        (("shift@1+1",), "attack: vehicle 1 has two attacks, should have one"),
        (("shift", "flip@holder"), "attack: vehicle 1 has two attacks, should have one"),
        (("shift(bye=3)@1",), "attack: shift has no argument bye; it has by"),
        (("shift(by=x)@1",), "arguments should be literals"),
        (("nowhere.py:Lie@1",), "attack: there is no file nowhere.py"),
    ],
)
def test_what_is_wrong_with_an_attack_is_one_sentence(texts, message):
    with pytest.raises(AttackError) as raised:
        find_attacks(texts, LABELS, OWNER, RARE)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("who", "what"), [("holder", "has"), ("bystander", "is without")])
def test_where_nobody_is_one(who, what):
    everybody = {v: np.array([0] if who == "holder" else [RARE]) for v in range(3)} | {OWNER: np.array([RARE])}
    with pytest.raises(AttackError, match=f"no vehicle {what} remaining samples, should name one: shift@3"):
        find_attacks((f"shift@{who}",), everybody, OWNER, RARE)


def test_an_attack_of_ones_own_by_its_path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Lie:\n    def __init__(self, by=1):\n        self.by = by\n"
                    "    def labels(self, labels, scene):\n        return 0 * labels\n"
                    "class Nothing:\n    update = 3\n")  # fmt: skip
    found = find_attacks((f"{path}:Lie(by=2)@1",), LABELS, OWNER, RARE)
    assert {v: one.by for v, one in found.items()} == {1: 2}
    assert find_attacks((f"{path}:Lie(5)",), LABELS, OWNER, RARE)[1].by == 5
    with pytest.raises(
        AttackError, match="lies about nothing, should have one of labels, update, features, report, cross"
    ):
        find_attacks((f"{path}:Nothing@1",), LABELS, OWNER, RARE)
