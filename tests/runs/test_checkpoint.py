import itertools

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.federation.state import FederationState, Handle, Model
from mpt.runs.checkpoint import CheckpointError, RunCheckpoint, load, save
from mpt.runs.tables import Tables


def checkpoint(number, key="key", seed=0, kept=None):
    tensors = {"weight": torch.full((2, 3), float(number)), "steps": torch.tensor(number)}
    model = Model(Handle(number, 1), tensors)
    state = FederationState(number, {"held-out": model, "continued": model}, {"held-out": model}, {"mine": kept})
    return RunCheckpoint(key, 0, None).then(seed, state, Tables(metrics=({"round": number},)))


def test_the_two_latest_are_kept_and_the_latest_is_read(tmp_path):
    folder = tmp_path / "checkpoint"
    for seed, number in ((0, 9), (0, 10), (1, 2)):
        save(folder, checkpoint(number, seed=seed))
    assert [p.name for p in sorted(folder.iterdir())] == ["0000-000010.checkpoint", "0001-000002.checkpoint"]
    found = load(folder, "key", device="cpu", say=pytest.fail)
    assert (found.seed, found.round, found.tables.metrics) == (1, 2, ({"round": 2},))
    assert torch.equal(found.state.models["held-out"].tensors["weight"], torch.full((2, 3), 2.0))
    assert found.state.models["held-out"] is found.state.models["continued"] is found.state.earlier["held-out"]
    assert found.state.models["held-out"].handle == (2, 1)


def test_what_was_measured_is_packed_once_and_comes_back_in_order():
    last, packed = RunCheckpoint("key", 0, None), []
    for number in range(1, 5):
        last = last.then(0, None, Tables(metrics=({"round": number},), confusion=({"count": number},) * (number % 2)))
        packed.append(last.measured)
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(packed))
    assert all(a is b for a, b in zip(packed[0], packed[-1], strict=False))
    assert last.tables == Tables(
        metrics=tuple({"round": n} for n in range(1, 5)), confusion=({"count": 1}, {"count": 3})
    )
    assert last.then(0, None, Tables()).measured == last.measured, "a round without a readout adds nothing"


def test_other_runs_checkpoints_are_not_read(tmp_path):
    folder = tmp_path / "checkpoint"
    assert load(folder, "key", device="cpu", say=pytest.fail) is None
    save(folder, checkpoint(1))
    save(folder, checkpoint(2, key="other"))
    assert load(folder, "key", device="cpu", say=pytest.fail).round == 1
    assert load(folder, "third", device="cpu", say=pytest.fail) is None


def test_one_of_another_format_is_said_and_not_used(tmp_path):
    folder, said = tmp_path / "checkpoint", []
    save(folder, checkpoint(1))
    save(folder, checkpoint(2))
    path = folder / "0000-000002.checkpoint"
    path.write_bytes(path.read_bytes().replace(b"MPT checkpoint 5\n", b"MPT checkpoint 4\n", 1))
    assert load(folder, "key", device="cpu", say=said.append).round == 1
    assert said == [f"{path} cannot be used (it has format 4, should be 5), so the run resumes from before it"]


def test_what_cannot_be_pickled_leaves_the_last_one_there(tmp_path):
    folder = tmp_path / "checkpoint"
    save(folder, checkpoint(1))
    with pytest.raises(CheckpointError, match="what a method keeps cannot be pickled"):
        save(folder, checkpoint(2, kept=lambda: 0))
    assert load(folder, "key", device="cpu", say=pytest.fail).round == 1


def test_a_class_that_is_gone_is_a_damaged_checkpoint(tmp_path):
    class Gone:
        pass

    globals()["Gone"], Gone.__qualname__ = Gone, "Gone"
    folder, said = tmp_path / "checkpoint", []
    save(folder, checkpoint(1))
    save(folder, checkpoint(2, kept=Gone()))
    del globals()["Gone"]
    assert load(folder, "key", device="cpu", say=said.append).round == 1
    assert len(said) == 1
    assert "0000-000002.checkpoint cannot be used (AttributeError" in said[0]
