import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import LearningError, derive_seed, generator, numpy_generator
from mpt.learning.randomness import isolated


def draws(*args, **options):
    return tuple(torch.randint(1 << 30, (4,), generator=generator(*args, **options)).tolist())


def test_the_four_alone_make_the_generator():
    torch.manual_seed(1)
    first = draws(0, "training", 3, "bus-7")
    torch.manual_seed(2)
    torch.rand(10)
    assert draws(0, "training", round=3, vehicle="bus-7") == first
    a, b = numpy_generator(0, "partition", 3, 5), numpy_generator(0, "partition", 3, 5)
    assert np.array_equal(a.random(8), b.random(8))


def test_each_of_the_four_matters():
    keys = [
        *((seed, "training", 0, 0) for seed in range(-2, 50)),
        *((0, purpose, 0, 0) for purpose in ("order", "training1", "training 1", "a", "b")),
        *((0, "training", r, 0) for r in range(1, 100)),
        *((0, "training", 0, v) for v in range(1, 100)),
        *((0, "training", 0, f"v{v}") for v in range(100)),
        *((0, "training", 1, 1), (1, "training", 1, 0), (1, "training", 0, 1)),
    ]
    assert len({draws(*key) for key in keys}) == len(keys)
    assert len({numpy_generator(*key).integers(1 << 62) for key in keys}) == len(keys)


def test_the_same_number_in_every_process():
    """As the shell has it: printf '[3, "training", 2, "bus"]' | sha256sum, the first 16 hex digits, halved."""
    assert derive_seed(3, "training", 2, "bus") == 3016450575491158949


def test_an_id_is_the_same_vehicle_as_a_number_or_as_text():
    assert derive_seed(0, "x", 0, 7) == derive_seed(0, "x", 0, "7") == derive_seed(0, "x", 0, np.int64(7))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0.5, "x"), "seed: 0.5, should be an integer"),
        ((0, ""), "purpose: '', should be a word"),
        ((0, 3), "purpose: 3, should be a word"),
        ((0, "x", "late"), "round: 'late', should be an integer"),
        ((0, "x", 0, 1.0), "vehicle: 1.0, should be an integer"),
    ],
)
def test_wrong_parts_are_refused(args, message):
    with pytest.raises(LearningError, match=message):
        generator(*args)


def test_isolated_restores_the_global_generator_even_after_an_error():
    before = torch.get_rng_state()

    def inside():
        with isolated(5):
            return torch.rand(3)

    first = inside()
    torch.rand(2)
    torch.set_rng_state(before)
    assert torch.equal(inside(), first)
    with pytest.raises(RuntimeError), isolated(5):
        torch.rand(1) @ torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)
