"""Values as notebooks show them."""

from xml.etree import ElementTree

import numpy as np
import pytest

import mpt
from mpt.base.notebook import shown, table
from mpt.tracking import Tracker


def cells(html):
    return [[cell.text or "" for cell in row] for row in ElementTree.fromstring(html).iter("tr")]


def test_a_table_is_html_whatever_is_in_it():
    made = table("<b>", ("name", "a & b"), [("<i>", 1 / 3), ("x", None)])
    assert cells(made) == [["name", "a & b"], ["<i>", "0.3333"], ["x", "\N{EN DASH}"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.array([np.nan, 2.0]), "2, from 2 to 2"), (np.zeros((0, 3)), "0 x 3"), ((1, 2), "1, 2"), (True, "True")],
)
def test_values_are_short(value, text):
    assert shown(value) == text


def fleet():
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    return rng.normal(size=(90, 4)) + labels[:, None], labels


def test_the_cores_values_show_their_fields():
    features, labels = fleet()
    stats = mpt.ClassStatistics.from_features(features, labels, 3, watched=[2])
    deposit = mpt.deposit(stats, 2)
    for value in (stats, deposit, mpt.reconstruct(deposit, stats), mpt.NearestClassMean(stats.means)):
        html = value._repr_html_()
        assert len(html) < 4000
        assert ElementTree.fromstring(html).find("caption").text in repr(value)
    assert ["prototype", shown(deposit.prototype)] in cells(deposit._repr_html_())


def test_a_tracker_shows_its_classes():
    features, labels = fleet()
    tracker = Tracker(num_classes=4, dim=4, watch=(2,))
    assert repr(tracker) == "<Tracker: round 0, 0 vehicles present, 0 departed>"
    for leaving in ((), (), ("owner",), ()):
        question = tracker.question()
        parts = dict.fromkeys("abcd", labels < 2) | ({} if tracker.roster.gone("owner") else {"owner": labels == 2})
        answers = {v: question.answer(features[mine], labels[mine]) for v, mine in parts.items()}
        tracker.close(answers, leaving)
    assert repr(tracker) == "<Tracker: round 4, 4 vehicles present, 1 departed, 1 of 4 classes kept alive>"
    rows = {row[0]: row[1:4] for row in cells(tracker._repr_html_())[1:]}
    assert rows == {
        "0": ["measured", "120", "4"],
        "1": ["measured", "120", "4"],
        "2": ["departed", "0", "0"],
        "3": ["unknown", "0", "0"],
    }
