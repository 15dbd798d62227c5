"""The statistics of many vehicles at once, where their features are: a few large products, not many small ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.equations import span_basis
from mpt.core.rounding import projection_rounding
from mpt.core.validation import Floats
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.request import StatisticsRequest

ENTRIES = 2**26
"""Of the largest array that is made at a time, half a gigabyte in float64; more vehicles are taken in several goes."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Some vehicles' samples, one vehicle after the other.

    Attributes:
        vehicles: their ids.
        labels: (N,), on the device.
        members: (V C, N) float64, 1 where a sample is of the vehicle and the class.
        padded: (V, n) where each vehicle's samples are, N where there are no more.
    """

    vehicles: tuple[int, ...]
    labels: Tensor
    members: Tensor
    padded: Tensor


def chunks(vehicles: Sequence[int], samples: Sequence[int], num_classes: int, dim: int) -> list[list[int]]:
    """The vehicles in order, in lists that keep the arrays of `statistics` below `ENTRIES`.

    Example:
        >>> chunks([3, 4, 5], [2**20, 2**20, 2**20], num_classes=10, dim=64)
        [[3], [4], [5]]
    """
    made: list[list[int]] = []
    longest = total = 0
    for vehicle, count in zip(vehicles, samples, strict=True):
        many = len(made[-1]) + 1 if made else 1
        longest, total = max(longest, count), total + count
        if not made or max(many * longest * dim, many * num_classes * total, many * dim * dim) > ENTRIES:
            made.append([])
            longest = total = count
        made[-1].append(vehicle)
    return made


def group(vehicles: Sequence[int], labels: Sequence[Tensor], num_classes: int) -> Groups:
    """The vehicles of one chunk, given their labels (n,) each."""
    device, sizes = labels[0].device, [len(mine) for mine in labels]
    joined = torch.cat(list(labels))
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=device), torch.tensor(sizes, device=device))
    members = torch.zeros(len(sizes) * num_classes, len(joined), dtype=torch.float64, device=device)
    members[owner * num_classes + joined, torch.arange(len(joined), device=device)] = 1
    padded = torch.full((len(sizes), max(sizes)), len(joined))
    start = 0
    for row, size in zip(padded, sizes, strict=True):
        row[:size] = torch.arange(start, start + size)
        start += size
    return Groups(tuple(vehicles), joined, members, padded.to(device))


def statistics(features: Tensor, groups: Groups, request: StatisticsRequest) -> dict[int, ClassStatistics]:
    """`ClassStatistics.from_features` for every vehicle, of features (N, d) float64, in float64 on the device."""
    device, d, vehicles = features.device, features.shape[1], len(groups.vehicles)
    h = features
    if request.unit:
        lengths = h.norm(dim=1, keepdim=True)
        h = h / torch.where(lengths > 0, lengths, 1.0)
    if request.origin is not None:
        h = h - torch.from_numpy(np.array(request.origin)).to(device)
    outside = h
    if request.span is not None:
        basis = torch.from_numpy(np.ascontiguousarray(span_basis(request.span))).to(device)
        outside = h - (h @ basis) @ basis.T
    sizes = torch.stack([(x * x).sum(dim=1) for x in (outside, h)], dim=1)
    columns = [groups.members.sum(dim=1, keepdim=True), groups.members @ sizes, groups.members @ h]
    parts = [torch.cat(columns, dim=1).reshape(vehicles, -1)]
    if request.scatter:
        watched = torch.isin(groups.labels, torch.tensor(request.watched, dtype=torch.int64, device=device))
        kept = torch.cat([h * ~watched[:, None], h.new_zeros(1, d)])[groups.padded]
        products = kept.mT @ kept
        parts.append(((products + products.mT) / 2).reshape(vehicles, -1))
    rows = torch.cat(parts, dim=1).cpu().numpy()
    origin = np.zeros(d) if request.origin is None else request.origin
    made = {}
    for vehicle, row in zip(groups.vehicles, rows, strict=True):
        table = row[: request.num_classes * (d + 3)].reshape(request.num_classes, d + 3)
        scatter = row[table.size :].reshape(d, d) if request.scatter else None
        counts, squares = table[:, 0].round().astype(np.int64), table[:, 1]
        if request.span is not None:
            squares = projection_rounding(squares, table[:, 2])
        made[vehicle] = ClassStatistics(counts, table[:, 3:], squares, scatter, request.watched, request.span, origin)
    return made


def cross_statistics(
    earlier: Tensor, features: Tensor, groups: Groups, request: CrossRequest
) -> dict[int, CrossStatistics]:
    """`CrossStatistics.from_features` for every vehicle, of features (N, d) twice, in float64 on the device."""
    d, vehicles, num_classes = features.shape[1], len(groups.vehicles), len(request.weights)

    def there(array: Floats) -> Tensor:
        return torch.from_numpy(np.array(array)).to(features.device)

    z, h = earlier - there(request.earlier_origin), features - there(request.origin)
    roots = there(request.weights).sqrt()[groups.labels][:, None]
    old, new = (torch.cat([x * roots, x.new_zeros(1, d)])[groups.padded] for x in (z, h))
    gram = old.mT @ old
    parts = [
        torch.cat([groups.members.sum(dim=1, keepdim=True), groups.members @ z, groups.members @ h], dim=1),
        ((gram + gram.mT) / 2),
        old.mT @ new,
    ]
    rows = torch.cat([part.reshape(vehicles, -1) for part in parts], dim=1).cpu().numpy()
    made = {}
    for vehicle, row in zip(groups.vehicles, rows, strict=True):
        table, gram_row, cross_row = np.split(row, [num_classes * (2 * d + 1), num_classes * (2 * d + 1) + d * d])
        table = table.reshape(num_classes, 2 * d + 1)
        made[vehicle] = CrossStatistics(
            table[:, 0].round().astype(np.int64),
            table[:, 1 : d + 1],
            table[:, d + 1 :],
            gram_row.reshape(d, d),
            cross_row.reshape(d, d),
            request.weights,
            request.earlier_origin,
            request.origin,
        )
    return made
