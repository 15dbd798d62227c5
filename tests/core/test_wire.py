import copy
import dataclasses
import pickle
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpt

from .worlds import make_world

WORLD = make_world()
ORIGIN = WORLD.features.mean(axis=0)
SPAN = WORLD.stats().means[[0, 1, 3]]
STATISTICS = {
    "full": WORLD.stats(),
    "plain": WORLD.stats(watched=()),
    "lite": WORLD.stats(scatter=False, span=SPAN, origin=ORIGIN),
    "everything": WORLD.stats(span=SPAN, origin=ORIGIN, watched=[1, 2]),
    "empty": mpt.ClassStatistics.from_features(np.zeros((0, 3)), [], 5),
    "few classes": mpt.ClassStatistics.from_features(np.ones((2, 3)), [7, 900], 1000),
}
DEPOSITS = {
    "full": mpt.deposit(STATISTICS["full"], 2),
    "lite": mpt.deposit(STATISTICS["lite"], 2),
}
EVERYTHING = {
    **{f"statistics {k}": v for k, v in STATISTICS.items()},
    **{f"deposit {k}": v for k, v in DEPOSITS.items()},
}


@pytest.fixture(params=EVERYTHING)
def thing(request):
    return EVERYTHING[request.param]


def test_float64_is_lossless(thing):
    message = thing.to_bytes()
    assert type(thing).from_bytes(message) == thing
    assert type(thing).from_bytes(bytearray(message)) == thing
    assert type(thing).from_bytes(memoryview(message)) == thing
    assert thing.nbytes == len(message)


def test_float32_halves_the_reals_and_keeps_seven_digits(thing):
    received = type(thing).from_bytes(thing.to_bytes("float32"))
    assert type(thing).from_bytes(thing.to_bytes(np.float32)) == received
    for name in vars(thing):
        value, got = getattr(thing, name), getattr(received, name)
        if isinstance(value, np.ndarray) and value.dtype == np.float64 and not name.startswith("_"):
            np.testing.assert_allclose(got, value, rtol=1e-7)
        elif isinstance(value, np.ndarray) and value.dtype == np.int64:
            np.testing.assert_array_equal(got, value)


def test_origin_and_span_travel_exactly_in_float32():
    received = mpt.ClassStatistics.from_bytes(STATISTICS["lite"].to_bytes("float32"))
    np.testing.assert_array_equal(received.origin, ORIGIN)
    np.testing.assert_array_equal(received.span, SPAN)
    assert (received + mpt.ClassStatistics.from_bytes(STATISTICS["lite"].to_bytes())).counts.sum() == 720


def test_sizes_are_what_the_format_says():
    c, d, k = 6, 12, 3
    envelope, shape, counts = 16 + 4, 16, 8 * c
    sums = 4 * (c * d + c)
    assert len(STATISTICS["plain"].to_bytes("float32")) == envelope + shape + counts + sums + 4 * d * (d + 1) // 2
    assert len(STATISTICS["lite"].to_bytes("float32")) == envelope + shape + counts + 8 + sums + 8 * (k * d + d)
    assert len(STATISTICS["lite"].to_bytes("float32", frame=False)) == envelope + shape + counts + 8 + sums + 16


def test_lite_carries_no_matrix():
    features, labels = np.random.default_rng(0).standard_normal((50, 512)), np.arange(50) % 10
    full = mpt.ClassStatistics.from_features(features, labels, 10)
    lite = mpt.ClassStatistics.from_features(features, labels, 10, scatter=False, span=full.means)
    assert full.nbytes > 8 * 512 * 513 / 2
    assert lite.nbytes < 8 * 512 * 22 + 200
    assert (
        mpt.deposit(
            mpt.ClassStatistics.from_features(features, labels, 10, scatter=False, span=full.means, watched=3), 3
        ).nbytes
        < 8 * 512 * 12
    )


def test_a_vehicle_with_few_of_many_classes_sends_little():
    assert STATISTICS["few classes"].nbytes < 8 * 1000 + 200


def test_a_reply_need_not_echo_span_and_origin():
    lite = STATISTICS["lite"]
    message = lite.to_bytes(frame=False)
    assert len(message) < lite.nbytes
    assert mpt.ClassStatistics.from_bytes(message, span=SPAN, origin=ORIGIN) == lite
    for wrong, which in (({"origin": ORIGIN}, "span"), ({"span": SPAN}, "origin"), ({"span": SPAN + 1e-9}, "span")):
        with pytest.raises(mpt.StatisticsError, match=f"made with another {which} than given"):
            mpt.ClassStatistics.from_bytes(message, **wrong)
    with pytest.raises(mpt.StatisticsError, match="another origin than given to from_bytes; none was given"):
        mpt.ClassStatistics.from_bytes(message, span=SPAN)
    assert mpt.ClassStatistics.from_bytes(lite.to_bytes(), span=SPAN, origin=ORIGIN) == lite
    with pytest.raises(mpt.StatisticsError, match="made with another origin"):
        mpt.ClassStatistics.from_bytes(lite.to_bytes(), origin=ORIGIN + 1)
    plain = STATISTICS["plain"]
    assert mpt.ClassStatistics.from_bytes(plain.to_bytes(frame=False)) == plain


@given(data=st.data(), name=st.sampled_from(sorted(EVERYTHING)))
def test_truncated_or_altered_bytes_are_refused(data, name):
    thing = EVERYTHING[name]
    message = thing.to_bytes("float32")
    at = data.draw(st.integers(0, len(message) - 1))
    flipped = data.draw(st.integers(1, 255))
    altered = message[:at] + bytes([message[at] ^ flipped]) + message[at + 1 :]
    for wrong in (message[:at], altered, message + b"\0", message[at:] + message[:at] if at else b""):
        with pytest.raises(mpt.StatisticsError, match=f"{type(thing).__name__} bytes: "):
            type(thing).from_bytes(wrong)


@given(junk=st.binary(max_size=200))
def test_junk_is_refused(junk):
    for kind in (mpt.ClassStatistics, mpt.Deposit):
        with pytest.raises(mpt.StatisticsError):
            kind.from_bytes(junk)


def resealed(message):
    """`message` with a checksum that fits, as a careless or hostile sender would make it."""
    return message[:-4] + struct.pack("<I", zlib.crc32(message[:-4]))


def changed(message, offset, layout, *values):
    body = bytearray(message)
    struct.pack_into("<" + layout, body, offset, *values)
    return resealed(bytes(body))


@given(data=st.data(), name=st.sampled_from(sorted(EVERYTHING)))
def test_a_forged_message_is_refused_or_read_but_never_breaks(data, name):
    thing = EVERYTHING[name]
    message = thing.to_bytes()
    at = data.draw(st.integers(16, len(message) - 5))
    forged = changed(message, at, "B", data.draw(st.integers(0, 255)))
    try:
        read = type(thing).from_bytes(forged)
    except mpt.StatisticsError:
        return
    assert type(thing).from_bytes(read.to_bytes()) == read


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda m: b"PK\3\4" + m[4:], "do not begin with 'MPT'"),
        (
            lambda m: changed(m, 4, "H", 7),
            "version 7 of the protocol, this release of mpt reads 1 and 2; update the receiver",
        ),
        (lambda m: changed(m, 20, "I", 100), "longer than the message"),
        (lambda m: changed(m, 32, "q", -3), "class 0 has -3 samples"),
        (lambda m: changed(m, 32 + 6 * 8 + 8, "d", np.nan), r"sums: nan at \[0, 0\]"),
        (lambda m: changed(m, 32 + 6 * 8, "q", 77), "watched: class 77, but there are 6 classes"),
        (lambda m: resealed(m[:8] + struct.pack("<Q", len(m) + 8) + m[16:-4] + b"\0" * 12), "8 bytes left over"),
        (lambda m: DEPOSITS["full"].to_bytes(), "these are Deposit bytes"),
        (lambda m: m.decode("latin1"), "got str, should be bytes"),
        (lambda m: None, "got NoneType, should be bytes"),
        (lambda m: np.zeros(40, "M8[s]"), "got ndarray, should be bytes"),
    ],
)
def test_what_is_wrong_with_the_bytes_is_said(forge, message):
    with pytest.raises(mpt.StatisticsError, match=message):
        mpt.ClassStatistics.from_bytes(forge(STATISTICS["full"].to_bytes()))


def test_a_header_that_asks_for_absurd_memory_is_refused():
    empty = STATISTICS["empty"].to_bytes()
    with pytest.raises(mpt.StatisticsError, match="more than this reader accepts"):
        mpt.ClassStatistics.from_bytes(changed(empty, 16, "2I", 5, 2**32 - 1))
    with pytest.raises(mpt.StatisticsError, match="more than this reader accepts"):
        mpt.ClassStatistics.from_bytes(changed(empty, 16, "2I", 2**32 - 1, 0))


def test_a_small_message_cannot_ask_for_much_memory():
    empty = STATISTICS["empty"].to_bytes()
    with pytest.raises(mpt.StatisticsError, match="more than this reader accepts"):
        mpt.ClassStatistics.from_bytes(changed(empty, 16, "2I", 5, 2**20))
    many = mpt.ClassStatistics.from_features(np.zeros((0, 1000)), [], 1000)
    assert mpt.ClassStatistics.from_bytes(many.to_bytes()) == many


def test_a_part_that_is_not_known_is_refused():
    with pytest.raises(mpt.StatisticsError, match="a part that version 1 does not know"):
        mpt.ClassStatistics.from_bytes(changed(STATISTICS["full"].to_bytes(), 6, "H", 1 | 64))


def test_values_too_small_for_float32_are_refused():
    small = mpt.ClassStatistics.from_features([[1e-24, 0.0], [2e-24, 1e-25]], [0, 0], 1)
    with pytest.raises(mpt.StatisticsError, match="squares: too small for float32"):
        small.to_bytes("float32")


def test_features_in_the_span_travel_as_float32_whatever_their_rounding():
    prototypes = 0.1 * np.random.default_rng(0).standard_normal((3, 5))
    labels = np.repeat([0, 1, 2], 4)
    lite = mpt.ClassStatistics.from_features(prototypes[labels], labels, 3, scatter=False, span=prototypes)
    assert not lite.squares.any()
    assert not mpt.ClassStatistics.from_bytes(lite.to_bytes("float32")).squares.any()


def test_an_infinite_scale_of_halves_is_refused():
    crossed = mpt.CrossStatistics.from_features(WORLD.features, WORLD.features + 1, WORLD.labels, 6)
    message = crossed.to_bytes(halves=True)
    at = message.index(struct.pack("<d", np.abs(crossed.cross).max()))
    with pytest.raises(mpt.StatisticsError, match="a scale of inf, should be finite"):
        mpt.CrossStatistics.from_bytes(changed(message, at, "d", np.inf))


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_are_equal_read_only_and_without_caches(thing, again):
    if isinstance(thing, mpt.Deposit) and thing.covariance is not None:
        assert thing.covariance_factor is not None
    twin = again(thing)
    assert twin == thing
    assert twin is not thing
    assert set(vars(twin)) == {field.name for field in dataclasses.fields(thing)}
    arrays = [value for value in vars(twin).values() if isinstance(value, np.ndarray)]
    assert not any(array.flags.writeable for array in arrays)


def test_values_too_large_for_float32_are_refused():
    large = mpt.ClassStatistics.from_features([[1e30, 0.0]], [0], 1)
    with pytest.raises(mpt.StatisticsError, match="squares: too large for float32"):
        large.to_bytes("float32")
    with pytest.raises(mpt.StatisticsError, match="dtype: 'float16', should be 'float32' or 'float64'"):
        large.to_bytes("float16")
    for wrong in (7, None, "float17", np.int32):
        with pytest.raises(mpt.StatisticsError, match="should be 'float32' or 'float64'"):
            large.to_bytes(wrong)


@pytest.mark.parametrize("name", ["full", "everything"])
def test_large_matrices_have_the_same_bytes(monkeypatch, name):
    stats = STATISTICS[name]
    small = stats.to_bytes()
    monkeypatch.setattr("mpt.core.wire._MOST_KEPT", stats.dim - 1)
    assert stats.to_bytes() == small
    assert mpt.ClassStatistics.from_bytes(small) == stats
