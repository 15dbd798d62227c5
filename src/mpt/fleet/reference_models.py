"""The global models that a method needs again, as "mpt-x" does: which are kept, and who is sent them. No torch."""

import io
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.fleet.checkpoint import Checkpoint, read_part
from mpt.fleet.exchange import Arrays, Ask, fingerprint
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import printable
from mpt.tracking.tracker import More, Tracker

_KEPT = "model of round "


@dataclass
class ReferenceModels:
    """What a server keeps of global models from round to round.

    Attributes:
        kept: the models that the tracker needs, by round: reference models, and the last, which may become one.
        nodes: where each vehicle was reached last.
        resumed: whether vehicles may have lost what they kept: then everybody is sent the models once more.
    """

    kept: dict[int, Arrays] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    resumed: bool = False

    def question(
        self,
        tracker: Tracker,
        model: Arrays,
        nodes: Collection[str],
        round: int | None = None,
        more: More | None = None,
        evaluates: bool = False,
    ) -> Ask:
        """What to report on a new global model; whoever lacks reference models gets them with it.

        Args:
            tracker: as it is before the round is closed.
            model: the new global model.
            nodes: those that are asked.
            round: its number; default: the one after the tracker's last.
            more: a question that follows another in the same round.
            evaluates: whether vehicles are ever asked how they recognise validation samples.
        """
        question = tracker.question(round) if more is None else more
        references = {r: fingerprint(self.kept[r]) for r in tracker.models_needed if r in self.kept}
        lacking = {r for rounds in tracker.lacking.values() for r in rounds}
        models = {r: self.kept[r] for r in sorted(lacking) if r in self.kept}
        wanting = {self.nodes[v] for v in tracker.lacking if v in self.nodes}
        if self.resumed and more is None:
            models, wanting = self.kept, set(nodes)
        return Ask(
            "report",
            question.round,
            model,
            request=question.to_bytes(),
            largest_answer=tracker.largest_answer if more is None else more.largest_answer,
            keep=tracker.settings.asks.cross or tracker.settings.speaks is not None,
            may_follow=tracker.settings.speaks is not None,
            aside=evaluates and tracker.settings.asks.joint,
            references=references,
            models=models,
            wanting=frozenset(wanting & set(nodes)),
        )

    def keep(self, tracker: Tracker, model: Arrays) -> None:
        """After a round was closed: keep its model, or let others go, as the tracker needs them."""
        known = {**self.kept, tracker.round: model}
        self.kept, self.resumed = {r: known[r] for r in tracker.models_needed if r in known}, False

    def payload(self, but: int | None = None) -> dict[str, bytes]:
        """The models as parts of a checkpoint, but for that of a round which is in it already."""
        return {f"{_KEPT}{r}": packed(model) for r, model in self.kept.items() if r != but}


def kept_in(payload: Mapping[str, bytes]) -> dict[int, Arrays]:
    """The models that `ReferenceModels.payload` has put into a checkpoint, by round.

    Raises:
        FleetError: one is wrong.
    """
    return {_round_of(name): unpacked(part) for name, part in payload.items() if name.startswith(_KEPT)}


def models_in(checkpoint: Checkpoint) -> dict[int, Arrays]:
    """The same, of a checkpoint; `StoreError` says which part is wrong."""
    found = dict[int, Arrays]()
    for name in checkpoint.payload:
        if name.startswith(_KEPT):
            found |= read_part(checkpoint, name, partial(_one, name))
    return found


def _one(name: str, part: bytes) -> dict[int, Arrays]:
    return kept_in({name: part})


def model_in(checkpoint: Checkpoint, like: Arrays) -> dict[str, Any]:
    """The global model in a checkpoint; `StoreError` where it cannot be read, or has other arrays than `like`."""

    def read(part: bytes) -> dict[str, Any]:
        model = unpacked(part)
        for name in sorted(like.keys() | model.keys()):
            found, should = (_form(one[name]) if name in one else "none" for one in (model, like))
            if found != should:
                raise FleetError(f"its array {name!r} is {found}, should be {should}")
        return model

    return read_part(checkpoint, "model", read)


def _form(array: NDArray[Any]) -> str:
    return f"{array.dtype.name.rstrip('0123456789')} {array.shape}"


def _round_of(name: str) -> int:
    number = name.removeprefix(_KEPT)
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise FleetError(f"its name is {name!r}, should be {_KEPT!r} and a number")
    return int(number)


def packed(model: Arrays) -> bytes:
    """Arrays as the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict(model))  # type: ignore[arg-type]
    return buffer.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """What `packed` was given.

    Nothing is unpickled, and nothing decompressed: the arrays are no larger than the bytes.

    Raises:
        FleetError: it was given something else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            sizes = [one.file_size for one in file.infolist()]
            squeezed = any(one.compress_type != zipfile.ZIP_STORED for one in file.infolist())
        if squeezed or sum(sizes) > len(data):
            raise FleetError(f"{len(data)} bytes that stand for {sum(sizes)}, should be an .npz without compression")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except FleetError:
        raise
    except Exception as error:  # zipfile, NumPy and its header's tokenizer raise a dozen kinds over wrong bytes
        raise FleetError(f"no .npz file of arrays ({type(error).__name__}: {printable(str(error))[:200]})") from error
    for name, array in found.items():
        if not isinstance(array, np.ndarray) or array.nbytes > len(data):
            raise FleetError(f"an .npz file in which {name!r} is no array")
    return found
