"""Counts of what a readout recognises: made, sent, refused, merged, and read as recall with an interval."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from mpt.core import NearestClassMean, StatisticsError
from mpt.protocol.evaluation import EvaluationRequest, Evidence, validation_split, wilson

C, D = 4, 3


@pytest.fixture
def request_():
    """Of three classes with prototypes and one without."""
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(C, D))
    prototypes[2] = np.nan
    return EvaluationRequest(7, *NearestClassMean(prototypes).to_linear())


@pytest.fixture
def samples():
    rng = np.random.default_rng(1)
    return rng.normal(size=(50, D)), rng.integers(0, C, 50)


def altered(message, at, layout, *values):
    """The message with other numbers at a place of its body, its checksum right."""
    body = bytearray(message[:-4])
    struct.pack_into("<" + layout, body, 16 + at, *values)
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


def test_what_is_counted_is_what_a_loop_counts(request_, samples):
    features, labels = samples
    told = request_.read(request_.answer(features, labels))
    expected = np.zeros((C, C), dtype=int)
    for h, label in zip(features, labels, strict=True):
        scores = [request_.weight[c] @ h + request_.bias[c] for c in range(C)]
        expected[label, int(np.argmax(scores))] += 1
    np.testing.assert_array_equal(told.counts, expected)
    assert told.counts[:, 2].sum() == 0
    assert (told.round, told.vehicles, told.counts.dtype) == (7, 1, np.int64)
    assert told.recall(2)[:2] == (0, int((labels == 2).sum()))
    np.testing.assert_array_equal(told.samples, np.bincount(labels, minlength=C))


def test_round_trips(request_, samples):
    assert EvaluationRequest.from_bytes(request_.to_bytes()) == request_
    told = request_.count(*samples)
    assert Evidence.from_bytes(told.to_bytes(), C) == told
    nothing = request_.read(request_.answer(np.zeros((0, D)), np.zeros(0, dtype=int)))
    assert nothing.recalls() == ((0, 0, 0.0, 1.0),) * C


def test_classes_of_few_samples_are_left_out(request_, samples):
    features, labels = samples
    there = np.bincount(labels, minlength=C)
    told = request_.count(features, labels, min_samples=int(there.max()))
    np.testing.assert_array_equal(told.samples, np.where(there == there.max(), there, 0))


def test_vehicles_are_added_up(request_, samples):
    features, labels = samples
    halves = [request_.count(features[half], labels[half]) for half in (slice(20), slice(20, None))]
    both = halves[0].merge(halves[1])
    np.testing.assert_array_equal(both.counts, request_.count(features, labels).counts)
    assert both.vehicles == 2
    with pytest.raises(StatisticsError, match="evidence of round 8 with 4 classes, should be of round 7"):
        both.merge(Evidence(8, both.counts))


def evidence_bytes(counts, number=7, vehicles=1):
    return Evidence(number, np.array(counts), vehicles).to_bytes()


WHOLE = evidence_bytes(np.eye(C, dtype=int) * 3)
HOSTILE = {
    "no bytes": (None, "should be bytes"),
    "nothing": (b"", "truncated"),
    "nonsense": (b"x" * 100, "do not begin"),
    "cut": (WHOLE[:-9], "truncated"),
    "altered": (WHOLE[:-8] + b"12345678", "altered"),
    "too long": (b"MPTE" + bytes(10_000), "should be at most"),
    "another kind": (EvaluationRequest(7, np.ones((C, 1)), np.ones(C)).to_bytes(), "these are EvaluationRequest bytes"),
    "more classes": (evidence_bytes(np.eye(C + 1, dtype=int)), "5 classes, asked for 4"),
    "as many classes as there can be": (altered(WHOLE, 4, "I", 2**32 - 1), "4294967295 classes"),
    "more cells than it has": (altered(WHOLE, 12, "I", 2**32 - 1), "a field is longer than the message"),
    "fewer cells than it has": (altered(WHOLE, 12, "I", 1), "left over"),
    "a cell beyond": (altered(WHOLE, 16 + 24, "q", C * C), "cells should be from 0 to 15"),
    "a cell before": (altered(WHOLE, 16, "q", -1), "cells should be from 0 to 15"),
    "a cell twice": (altered(WHOLE, 16 + 8, "q", 0), "in order, each once"),
    "a negative count": (altered(WHOLE, 16 + 32, "q", -5), "a cell of -5 samples"),
    "a large count": (altered(WHOLE, 16 + 32, "q", 2**40), "should be at most 100000000"),
    "a huge count": (altered(WHOLE, 16 + 32, "q", 2**63 - 1), "should be from 0 to"),
    "another round": (evidence_bytes(np.eye(C, dtype=int), 6), "made for round 6, this is round 7"),
    "of many": (evidence_bytes(np.eye(C, dtype=int), vehicles=5), "of 5 vehicles, should be of one"),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_what_no_vehicle_could_have_counted_is_refused(request_, which):
    answer, message = HOSTILE[which]
    with pytest.raises(StatisticsError, match=message):
        request_.read(answer)


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data):
    request_ = EvaluationRequest(7, np.ones((C, 1)), np.ones(C))
    body = WHOLE[:8] + struct.pack("<Q", 20 + len(data)) + data
    with pytest.raises(StatisticsError):
        request_.read(body + struct.pack("<I", zlib.crc32(body)))


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (np.full((C, D), np.nan), np.zeros(C), "weight: nan"),
        (np.ones((C, D)), np.zeros(C + 1), "bias: shape is"),
        (np.ones((C, D)), np.full(C, -np.inf), "bias: should be finite for one class or more"),
        (np.ones((C, D)), np.array([0, np.inf, 0, 0]), "bias: should be finite"),
        (np.ones((C, D)), np.array([0, np.nan, 0, 0]), "bias: should be finite"),
        (np.ones((0, D)), np.zeros(0), "should have one row a class"),
    ],
)
def test_a_readout_that_is_none_is_not_sent(weight, bias, message):
    with pytest.raises(StatisticsError, match=message):
        EvaluationRequest(7, weight, bias)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_scipys(seen):
    right, samples = seen
    expected = binomtest(right, samples).proportion_ci(0.95, method="wilson")
    assert wilson(right, samples) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_interval_in_the_evidence():
    found = Evidence(1, np.array([[3, 4], [0, 9]]))
    expected = binomtest(3, 7).proportion_ci(0.95, method="wilson")
    assert found.recall(0) == pytest.approx((3, 7, expected.low, expected.high))
    assert found.recall(1)[3] == 1.0


@given(st.lists(st.integers(0, 5), max_size=120), st.floats(0, 0.9), st.integers(0, 9))
def test_a_share_of_every_class_is_set_aside(labels, share, seed):
    given_labels = np.array(labels, dtype=np.int64)
    train, aside = validation_split(given_labels, share, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate([train, aside])), np.arange(len(labels)))
    for c in range(6):
        there, taken = np.sum(given_labels == c), np.sum(given_labels[aside] == c)
        assert abs(taken - share * there) < 1
    again = validation_split(given_labels, share, np.random.default_rng(seed))
    np.testing.assert_array_equal(aside, again[1])
    fewer = validation_split(given_labels, share / 2, np.random.default_rng(seed))[1]
    assert set(fewer.tolist()) <= set(aside.tolist())


def test_of_a_class_that_many_hold_one_sample_of_the_share_is_set_aside():
    taken = [len(validation_split([0], 0.2, np.random.default_rng(seed))[1]) for seed in range(2000)]
    assert np.mean(taken) == pytest.approx(0.2, abs=0.03)
    with pytest.raises(StatisticsError, match=r"share: 1\.0, should be from 0 to below 1"):
        validation_split([0], 1.0, np.random.default_rng(0))
