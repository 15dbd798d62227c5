"""A backbone's weights from a file: what of it is taken, what is passed over, and what does not fit."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mpt.learning.settings import LearningError
from mpt.learning.weights_file import read

_WRAPPED = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.", "backbone.", "model.")
_HEADS = ("fc", "classifier", "head", "heads")
_DEPTH = 3
"""So many wrappings, and so many prefixes, are taken off."""


def load_weights(backbone: nn.Module, path: str, name: str) -> tuple[str, ...]:
    """Put the weights of a file into a backbone, all of them or none; gives notes on what was passed over.

    The file holds a state dict of the backbone itself, of a classifier or a wrapper around it, or the one model of a
    round of `mpt run`. A head is passed over. Numbers are converted to the backbone's dtypes.

    Args:
        backbone: what they are put into.
        path: of the file.
        name: what the backbone is called in sentences.

    Raises:
        LearningError: the file cannot be read or does not fit.
    """
    whole = backbone.state_dict()
    wanted = {entry: tensor for entry, tensor in whole.items() if isinstance(tensor, Tensor)}
    there = _nearest(_tensors(path, read(path)), wanted)
    _check_names(path, name, there, wanted)
    taken = {entry: _fitting(path, name, entry, there[entry], wanted[entry]) for entry in wanted if entry in there}
    try:
        backbone.load_state_dict({**whole, **taken})
    except Exception as error:  # a user's backbone may load in its own way
        raise LearningError(
            f"weights: {path} cannot be put into {name} ({' '.join(str(error).split())[:160]})"
        ) from None
    heads = dict.fromkeys(_top(entry) for entry in there if entry not in wanted)
    return tuple(f"weights: {top}.* of {path} is passed over, the head begins as the seed says" for top in heads)


def _tensors(path: str, content: Any) -> dict[str, Tensor]:
    """The tensors by name, without what they are wrapped in."""
    for _ in range(_DEPTH):
        if isinstance(content, Mapping) and "models" in content and "trainings" in content:
            content = _only_model(path, content)
        inner = [content[key] for key in _WRAPPED if isinstance(content, Mapping) and key in content]
        content = next((one for one in inner if isinstance(one, Mapping)), content)
    if not isinstance(content, Mapping):
        raise LearningError(
            f"weights: {path} holds a {type(content).__name__}, should be a state dict: tensors by name"
        )
    for entry, tensor in content.items():
        if not isinstance(entry, str) or not isinstance(tensor, Tensor):
            raise LearningError(
                f"weights: {path} has an entry {str(entry)[:80]!r} of type {type(tensor).__name__}, should be a state "
                "dict: tensors by name"
            )
    if not content:
        raise LearningError(f"weights: {path} is empty, should have the backbone's tensors")
    return {entry: tensor.detach() for entry, tensor in content.items()}


def _only_model(path: str, content: Mapping[Any, Any]) -> Any:
    """The model of a file in `DIR/models` of a run."""
    models, trainings = content["models"], content["trainings"]
    if not isinstance(models, list) or len(models) != 1:
        names = ", ".join(map(str, trainings)) if isinstance(trainings, Mapping) else "several trainings"
        raise LearningError(
            f"weights: {path} holds the models of several trainings ({names[:160]}), should hold one, as those of mpt "
            "run --methods fedavg do"
        )
    return models[0]


def _nearest(state: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under their names, or without the prefixes that leave most names that the backbone has."""
    last, all_of_them = [state], [state]
    for _ in range(_DEPTH):
        last = [
            {entry: tensor for entry, tensor in one.items() if not entry.startswith(prefix)}
            | {entry.removeprefix(prefix): tensor for entry, tensor in one.items() if entry.startswith(prefix)}
            for one in last
            for prefix in _PREFIXES
            if any(entry.startswith(prefix) for entry in one)
        ]
        all_of_them += last
    return max(all_of_them, key=lambda one: len(one.keys() & wanted.keys()))


def _check_names(path: str, name: str, there: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    missing = [entry for entry in wanted if entry not in there and not entry.endswith("num_batches_tracked")]
    others = [entry for entry in there if entry not in wanted and _top(entry) not in _HEADS]
    if missing and not there.keys() & wanted.keys():
        raise LearningError(
            f"weights: {path} has {next(iter(there))[:80]} and nothing of {name}, should be of the same backbone "
            f"({next(iter(wanted))}, ...)"
        )
    if missing:
        raise LearningError(f"weights: {path} lacks {missing[0]}, should have all tensors of {name}")
    if others:
        raise LearningError(
            f"weights: {path} has {others[0][:80]}, which {name} does not have; should be of the same backbone"
        )


def _fitting(path: str, name: str, entry: str, tensor: Tensor, wanted: Tensor) -> Tensor:
    """The tensor in the dtype that the backbone has, if its shape, kind and numbers are right."""
    if tensor.shape != wanted.shape:
        raise LearningError(
            f"weights: {entry} of {path} has shape {tuple(tensor.shape)}, should have {tuple(wanted.shape)} for {name}"
        )
    if tensor.layout != torch.strided or tensor.is_floating_point() != wanted.is_floating_point():
        what = tensor.layout if tensor.layout != torch.strided else tensor.dtype
        raise LearningError(f"weights: {entry} of {path} is {what}, should be {wanted.dtype} or converted to it")
    made = tensor.to(wanted.dtype)
    if not bool(made.isfinite().all()):
        raise LearningError(f"weights: {entry} of {path} has entries that are NaN or infinite, all should be finite")
    if entry.endswith("running_var") and bool((made < 0).any()):
        raise LearningError(f"weights: {entry} of {path} has negative entries, a variance should not")
    return made


def _top(entry: str) -> str:
    return entry.partition(".")[0]
