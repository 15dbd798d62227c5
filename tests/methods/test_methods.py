import pickle
from pathlib import Path

import numpy as np
import pytest

import mpt
from mpt.methods import METHODS, MethodError, Traits, find_method, find_part
from mpt.methods.ccvr import calibrate, class_moments, draw, gaussians, pooled, shrunk
from mpt.methods.drift import drift_weights
from mpt.methods.icarl import Cosine
from mpt.methods.simple import Linear
from mpt.protocol.messages import pack, unpack

from .fleet import CLASSES, RARE, D, Fleet

FLEET = Fleet(drift=0.3)
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_method_answers_with_a_prototype_or_a_readout():
    for name in METHODS:
        outcome, now = FLEET.run(find_method(name))
        if hasattr(outcome, "predict"):
            views = (FLEET.after, FLEET.before)[: getattr(outcome, "views", 1)]
            assert outcome.predict(np.concatenate(views, axis=1)).shape == (300,)
        else:
            assert outcome.shape == (D,)
            assert np.isfinite(outcome).all()
        knows_nothing = name in {"fedavg", "fedavg:live", "fedlc", "oracle", "oracle-train", "live", "frozen"}
        knows_nothing |= name in {"oracle-train:outward", "stop-at-departure"}
        assert (now.cost.bytes_up == 0) == knows_nothing


def test_frozen_remaining_mean_and_references():
    rare = FLEET.labels == RARE
    np.testing.assert_allclose(FLEET.run(find_method("frozen"))[0], FLEET.before[rare].mean(axis=0), rtol=1e-5)
    remaining = FLEET.after[FLEET.remaining_rows].mean(axis=0)
    np.testing.assert_allclose(FLEET.run(find_method("remaining-mean"))[0], remaining, rtol=1e-5)
    np.testing.assert_allclose(FLEET.run(find_method("oracle-train"))[0], FLEET.after[rare].mean(axis=0))


def test_mpt_is_the_cores_reconstruction_to_float32():
    def stats(features, rows):
        return mpt.ClassStatistics.from_features(features[rows], FLEET.labels[rows], CLASSES, watched=RARE)

    staying = FLEET.owner != 3
    deposit = mpt.deposit(stats(FLEET.before, slice(None)), RARE, staying=stats(FLEET.before, staying), ridge=0.2)
    expected = mpt.reconstruct(deposit, stats(FLEET.after, staying))
    outcome, now = FLEET.run(find_method("mpt", ridge=0.2))
    np.testing.assert_allclose(outcome, expected.prototype, rtol=1e-4)
    in_span = FLEET.run(find_method("mpt:in-span", ridge=0.2))[0]
    np.testing.assert_allclose(in_span, expected.in_span, rtol=1e-4)
    measured = FLEET.run(find_method("mpt:measured", ridge=0.2))[0]
    np.testing.assert_allclose(measured, expected.in_span + expected.measured, rtol=1e-4)
    lite, lite_now = FLEET.run(find_method("mpt-lite", ridge=0.2))
    assert np.linalg.norm(lite - expected.prototype) < 0.3 * np.linalg.norm(expected.prototype)
    assert (now.cost.messages, lite_now.cost.messages) == (1, 2)


def test_cost_is_what_was_sent():
    _, now = FLEET.run(find_method("mpt"))
    request = now.request()
    answers = [request.answer(FLEET.after[FLEET.owner == v], FLEET.labels[FLEET.owner == v]) for v in range(3)]
    assert now.cost.bytes_up == sum(map(len, answers))
    assert now.cost.bytes_down == 3 * len(request.to_bytes())


def test_icarl_normalises_averages_and_normalises_again():
    rows = FLEET.remaining_rows
    outcome, _ = FLEET.run(find_method("icarl"))
    unit = FLEET.after[rows] / np.linalg.norm(FLEET.after[rows], axis=1, keepdims=True)
    np.testing.assert_allclose(outcome.prototypes[RARE], unit.mean(axis=0), rtol=1e-5)
    readout = Cosine(np.array([[2.0, 0.0], [0.1, 0.1], [np.nan, np.nan]]))
    assert readout.predict(np.array([[5.0, 1.0], [1.0, 0.9], [0.0, 7.0]])).tolist() == [0, 1, 1]


def test_sdc_moves_by_the_weighted_mean_drift():
    rows = FLEET.remaining_rows
    prototype = FLEET.before[FLEET.labels == RARE].mean(axis=0)
    z, h = FLEET.before[rows], FLEET.after[rows]
    cosine = z @ prototype / np.linalg.norm(z, axis=1) / np.linalg.norm(prototype)
    weights = np.exp(-(2 - 2 * cosine) / (2 * 0.3**2))
    np.testing.assert_allclose(drift_weights(z, prototype, 0.3), weights, rtol=1e-10)
    expected = prototype + weights @ (h - z) / weights.sum()
    np.testing.assert_allclose(FLEET.run(find_method("sdc"))[0], expected, rtol=1e-4)
    alone = Fleet(remaining=0, drift=0.3)
    kept = alone.before[alone.labels == RARE].mean(axis=0)
    np.testing.assert_allclose(alone.run(find_method("sdc"))[0], kept, rtol=1e-5)
    np.testing.assert_allclose(alone.run(find_method("ldc"))[0], kept, rtol=1e-5)


def test_ldc_from_all_samples_finds_a_linear_drift():
    fleet = Fleet(drift=0.0)
    fleet.after = fleet.before @ (np.eye(D) + 0.5 * np.random.default_rng(1).standard_normal((D, D)))
    truth = fleet.after[fleet.labels == RARE].mean(axis=0)
    found = fleet.run(find_method("ldc:all"))[0]
    assert np.linalg.norm(found - truth) < 0.05 * np.linalg.norm(truth)


def test_mean_shift_follows_a_common_translation():
    fleet = Fleet(drift=0.0)
    fleet.after = fleet.before + np.arange(D)
    truth = fleet.after[fleet.labels == RARE].mean(axis=0)
    found, now = fleet.run(find_method("mean-shift"))
    np.testing.assert_allclose(found, truth, rtol=1e-5)
    assert now.cost.messages == 1
    nobody = Fleet(remaining=0)
    nobody.after = nobody.before + np.arange(D)
    np.testing.assert_allclose(nobody.run(find_method("mean-shift"))[0], truth, rtol=1e-5)


def test_mean_shift_leaves_out_classes_that_are_no_longer_measured():
    fleet, method = Fleet(), find_method("mean-shift")
    state = method.depart(fleet.now(departed=False))
    assert state.classes.tolist() == [0, 1, 3, 4]
    ways = {0: 1.0, 1: 2.0, 3: 6.0, 4: 100.0}
    for c, way in ways.items():
        fleet.after[fleet.labels == c] = fleet.before[fleet.labels == c] + way
    fleet.owner[fleet.labels == 4] = 3
    found = method.track(state, fleet.now(departed=True))[1]
    np.testing.assert_allclose(found, state.prototype + 3, rtol=1e-5)
    fleet.owner[:] = 3
    fleet.owner[fleet.labels == RARE] = 0
    np.testing.assert_array_equal(method.track(state, fleet.now(departed=True))[1], state.prototype)


def ccvr_as_it_was(context, method):
    """CCVR's head without the arguments that were added to it, written out."""
    stats = context.report(context.request(scatter=False))
    origin = stats.overall_mean.astype(np.float32).astype(np.float64)
    told = context.total(method.moments, origin=origin)
    seconds = np.zeros((CLASSES, D, D))
    rows, columns = np.tril_indices(D)
    seconds[:, rows, columns] = seconds[:, columns, rows] = told["seconds"]
    classes = gaussians(stats.counts.astype(np.float64), told["sums"], seconds, origin)
    features = np.concatenate([draw(*classes[c], method.virtual, context.rng) for c in classes])
    labels = np.repeat(np.array(list(classes), dtype=np.int64), method.virtual)
    return calibrate(Linear(*context.head), features, labels, context.rng, method)


def test_ccvr_without_arguments_is_as_it_was_bit_for_bit():
    found = Fleet(drift=0.3).run(find_method("ccvr"))[0]
    fleet = Fleet(drift=0.3)
    fleet.now(departed=False)
    expected = ccvr_as_it_was(fleet.now(departed=True), find_method("ccvr"))
    np.testing.assert_array_equal(found.weight, expected.weight)
    np.testing.assert_array_equal(found.bias, expected.bias)
    other = Fleet(drift=0.3).run(find_method("ccvr(shrink=5)"))[0]
    assert not np.array_equal(other.weight, expected.weight)


def test_ccvr_shrinks_towards_the_pooled_covariance_by_counts():
    rng = np.random.default_rng(0)
    samples = {0: rng.standard_normal((200, 4)), 1: rng.standard_normal((4, 4)) * 3}
    counts = np.array([200.0, 4.0, 0.0])
    classes = {c: (x.mean(axis=0), np.cov(x.T)) for c, x in samples.items()}
    around = np.concatenate([x - x.mean(axis=0) for x in samples.values()])
    common = around.T @ around / (204 - 2)
    np.testing.assert_allclose(pooled(classes, counts), common, rtol=1e-12)
    made = shrunk(classes, counts, 12.0)
    np.testing.assert_allclose(made[1][1], 0.25 * classes[1][1] + 0.75 * common, rtol=1e-12)
    np.testing.assert_allclose(made[0][1], 200 / 212 * classes[0][1] + 12 / 212 * common, rtol=1e-12)
    np.testing.assert_array_equal(made[1][0], classes[1][0])
    for wrong in ("-1", "'few'"):
        with pytest.raises(MethodError, match="should be a number of samples, at least 0"):
            find_method(f"ccvr(shrink={wrong})")


@pytest.mark.parametrize("arguments", ["rectify=True", "standardise=True", "fresh=True"])
def test_ccvr_trains_on_what_its_arguments_say(arguments, monkeypatch):
    """What is handed to the calibration, and what becomes of what it gives."""
    seen = {}

    def noted(head, features, labels, rng, method):
        seen.update(head=head, features=features)
        return head

    monkeypatch.setattr("mpt.methods.ccvr.calibrate", noted)
    Fleet(drift=0.3).run(find_method("ccvr"))
    plain = dict(seen)
    found, now = Fleet(drift=0.3).run(find_method(f"ccvr({arguments})"))
    weight, bias = now.head
    assert plain["features"].min() < 0
    if "rectify" in arguments:
        np.testing.assert_array_equal(seen["features"], plain["features"].clip(min=0))
    if "standardise" in arguments:
        fleet = Fleet(drift=0.3)
        there = fleet.owner != 3
        around = [fleet.after[there & (fleet.labels == c)] for c in range(CLASSES)]
        around = np.concatenate([x - x.mean(axis=0) for x in around])
        scale = np.sqrt(np.sum(around**2, axis=0) / (there.sum() - CLASSES))
        np.testing.assert_allclose(seen["features"] * scale, plain["features"], rtol=1e-4)
        np.testing.assert_allclose(seen["head"].weight, weight * scale, rtol=1e-4)
    expected = (np.zeros_like(weight), np.zeros_like(bias)) if "fresh" in arguments else (weight, bias)
    np.testing.assert_allclose(found.weight, expected[0], rtol=1e-12)
    np.testing.assert_array_equal(found.bias, expected[1])


def test_ccvr_pools_covariances_exactly():
    """Vehicles of very different sizes, one of a single sample, against numpy.cov of all samples together."""
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((n, 4)) + 1000 for n in (490, 5, 1, 4)]
    origin = np.full(4, 999.0)
    moments = [class_moments(p, np.zeros(len(p), dtype=int), 2, origin) for p in parts]
    classes = gaussians(*(np.sum(m, axis=0) for m in zip(*moments, strict=True)), origin)
    assert list(classes) == [0]
    everything = np.concatenate(parts)
    np.testing.assert_allclose(classes[0][0], everything.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(classes[0][1], np.cov(everything.T), rtol=1e-10, atol=1e-10)


def test_ccvr_draws_and_calibrates():
    rng = np.random.default_rng(0)
    covariance = np.diag([4.0, 1.0, 0.0])
    drawn = draw(np.array([1.0, 2.0, 3.0]), covariance, 20_000, rng)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.15)
    assert np.abs(drawn[:, 2] - 3).max() < 1e-9
    biased = Linear(np.zeros((2, 3)), np.array([0.0, 50.0]))
    features, labels = np.concatenate([drawn, -drawn]), np.repeat([0, 1], 20_000)
    better = calibrate(biased, features, labels, rng, find_method("ccvr"))
    assert np.mean(biased.predict(features) == labels) == 0.5
    assert np.mean(better.predict(features) == labels) > 0.95


def test_messages_are_arrays_in_the_envelope():
    arrays = np.arange(6.0).reshape(2, 3), np.array(7.0), np.zeros(0)
    for sent, got in zip(arrays, unpack(pack(*arrays)), strict=True):
        np.testing.assert_array_equal(sent, got)
    tiny = np.array([1e-40, 1e-44])
    np.testing.assert_array_equal(unpack(pack(tiny))[0], tiny)
    with pytest.raises(mpt.StatisticsError, match="altered"):
        unpack(pack(np.ones(2))[:-1] + b"\0")


def test_methods_are_found_by_name_or_path(tmp_path):
    with pytest.raises(MethodError, match=r"'mtp' is none, did you mean mpt\?"):
        find_method("mtp")
    with pytest.raises(MethodError, match=r"there is no file nowhere\.py"):
        find_method("nowhere.py:Mine")
    mine = tmp_path / "mine.py"
    mine.write_text("class Mine:\n    name = 'mine'\n    training = 'held-out'\n")
    with pytest.raises(MethodError, match="has no depart, track"):
        find_method(f"{mine}:Mine")
    with pytest.raises(MethodError, match="has no 'Other', should be"):
        find_method(f"{mine}:Other")
    whole = "class Mine:\n    name, training, depart, track = 'mine', 'held-out', print, print\n"
    for version in ("0", "'2'", "True", "1.5"):
        mine.write_text(f"{whole}    version = {version}\n")
        with pytest.raises(MethodError, match=f"has the version {version}, should be an int of at least 1"):
            find_method(f"{mine}:Mine")
    mine.write_text(whole)
    assert Traits.of(find_method(f"{mine}:Mine")).version == 1
    mine.write_text(f"{whole}    version = 2\n")
    assert Traits.of(find_method(f"{mine}:Mine")).version == 2
    mine.write_text(f"{whole}    slow = 'yes'\n")
    with pytest.raises(mpt.StatisticsError, match="slow: 'yes', should be True or False"):
        Traits.of(find_method(f"{mine}:Mine"))
    mine.write_text("raise RuntimeError('no')")
    with pytest.raises(MethodError, match=r"does not import \(RuntimeError: no\)"):
        find_method(f"{mine}:Mine")


def test_the_example_moves_the_prototype_as_the_other_classes_moved():
    fleet = Fleet(drift=0.0)
    fleet.after = fleet.before + np.arange(D)
    outcome, now = fleet.run(find_method(f"{EXAMPLES}/my_method.py:MyMethod"))
    np.testing.assert_allclose(outcome, fleet.after[fleet.labels == RARE].mean(axis=0), rtol=1e-4)
    assert now.notes["moved"] == pytest.approx(np.linalg.norm(np.arange(D)), rel=1e-4)


def test_a_users_file_is_imported_once_and_again_when_it_has_changed(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("class Mine:\n    name, training = 'mine', 'held-out'\n    depart = track = None\n")
    first = find_method(f"{mine}:Mine")
    assert type(find_method(f"{mine}:Mine")) is type(first)
    assert type(pickle.loads(pickle.dumps(first))) is type(first)
    mine.write_text(mine.read_text().replace("'mine'", "'other'"))
    assert find_method(f"{mine}:Mine").name == "other"


def test_a_users_file_is_found_where_apps_are_bundled(tmp_path, monkeypatch):
    (tmp_path / "bundled.py").write_text(
        "class Mine:\n    name, training = 'mine', 'held-out'\n"
        "    def depart(self, context): ...\n    def track(self, state, context): ...\n"
    )
    with pytest.raises(MethodError, match="there is no file"):
        find_method("bundled.py:Mine")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_method("bundled.py:Mine").name == "mine"


def test_a_vehicle_finds_parts_in_what_is_installed_and_in_its_own_file_alone(tmp_path):
    assert find_part("ldc:all", "products").earlier
    path = tmp_path / "other.py"
    path.write_text("raise SystemExit('imported')\n")
    with pytest.raises(MethodError, match="neither installed on this vehicle nor bundled"):
        find_part(f"{path}:Mine", "products", "my.py:Mine")
    for inside in (f"{path}:gentle", "subprocess:run(['true'])"):
        with pytest.raises(MethodError, match="neither installed on this vehicle nor bundled"):
            find_part(f"ldc:all(training={inside!r})", "products", "my.py:Mine")
    with pytest.raises(MethodError, match="has no part 'depart'"):
        find_part("ldc:all", "depart")
