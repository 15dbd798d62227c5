"""The server's optimiser: how far the global model goes towards the mean of the vehicles' models."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from mpt.learning.settings import ServerSettings

BETA2, TAU = 0.99, 1e-3
"""FedAdam's: the memory of squares, and what is added to their roots."""


def stepped(
    start: Mapping[str, Tensor],
    mean: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    parameters: Collection[str],
    settings: ServerSettings,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The new global model, and what the optimiser keeps for the next round.

    With g = mean - start: average w + lr g; momentum (Hsu et al. 2019) v = beta v + g, w + lr v; adam (Reddi et al.,
    ICLR 2021) m = beta m + (1 - beta) g, s = .99 s + .01 g^2, w + lr m / (sqrt(s) + 1e-3).

    Args:
        start: the state dict that the round began with.
        mean: the vehicles' averaged one.
        moments: what the last round kept; empty in the first.
        parameters: the names that are optimised; what else is in a state is the mean's.
    """
    if settings.server == "average" and settings.lr == 1:
        return dict(mean), {}
    new, kept = dict(mean), dict[str, Tensor]()
    with torch.no_grad():
        for name in parameters:
            gap = mean[name] - start[name]
            way = gap
            if settings.server != "average":
                share = 1.0 if settings.server == "momentum" else 1 - settings.server_momentum
                way = share * gap
                if name in moments:
                    way = settings.server_momentum * moments[name] + way
                kept[name] = way
            if settings.server == "adam":
                square, past = f"{name}^2", moments.get(f"{name}^2")
                kept[square] = (1 - BETA2) * gap**2 + (0.0 if past is None else BETA2 * past)
                way = way / (kept[square].sqrt() + TAU)
            new[name] = start[name] + settings.lr * way
    return new, kept
