"""Images as the networks take them: normalised, and shifted and mirrored at random."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Epoch:
    """Everything random in one pass over a vehicle's N samples.

    Attributes:
        order: (N,) int64, the sample at each position.
        flip: (N,) bool, whether the image at each position is mirrored; None: none is.
        shift: (N, 2) int64, how many rows and columns it is shifted; None: not at all.
    """

    order: Tensor
    flip: Tensor | None = None
    shift: Tensor | None = None


def draw_epoch(n: int, image_size: int, augment: str, generator: torch.Generator, device: torch.device) -> Epoch:
    """One epoch, drawn where the generator lives and then moved to `device`, on which the draws do not depend.

    The order is drawn first, then the flips, then the shifts.
    """
    where = generator.device
    order = torch.randperm(n, generator=generator, device=where).to(device)
    flip = shift = None
    if augment in ("flip", "crop-flip"):
        flip = (torch.rand(n, generator=generator, device=where) < 0.5).to(device)
    if augment == "crop-flip":
        reach = image_size // 8
        shift = torch.randint(-reach, reach + 1, (n, 2), generator=generator, device=where).to(device)
    return Epoch(order, flip, shift)


def take(images: Tensor, epoch: Epoch, positions: slice) -> Tensor:
    """The images (N, C, H, W) at some positions of the epoch, shifted and mirrored: (B, C, H, W), the same dtype."""
    samples = epoch.order[positions]
    if epoch.flip is None and epoch.shift is None:
        return images[samples]
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device).expand(len(samples), -1)
    columns = torch.arange(width, device=images.device).expand(len(samples), -1)
    if epoch.flip is not None:
        columns = torch.where(epoch.flip[positions, None], width - 1 - columns, columns)
    if epoch.shift is not None:
        rows = (rows + epoch.shift[positions, :1]).clamp(0, height - 1)
        columns = (columns + epoch.shift[positions, 1:]).clamp(0, width - 1)
    picked = images[samples[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()


def normalise(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 images as (x / 255 - 0.5) / 0.25: fixed numbers, so that no vehicle's data statistics are shared.

    Series and vectors, which are real numbers, are taken as they are.
    """
    if images.is_floating_point():
        return images.to(dtype)
    return images.to(dtype).div_(255 * 0.25).sub_(2.0)
