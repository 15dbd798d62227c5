"""The model, the data and the training, as in Flower's PyTorch quickstart; on digits, which need no download."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_CLASSES, DIM, RARE = 10, 64, 9


class Net(nn.Module):
    """A small convolutional network; `features` is all of it but the last layer."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()
        )
        self.hidden = nn.Linear(32 * 4 * 4, DIM)
        self.head = nn.Linear(DIM, NUM_CLASSES)

    def features(self, images):
        """(N, 1, 8, 8) -> (N, DIM)."""
        return torch.relu(self.hidden(self.convolutions(images).flatten(1)))

    def forward(self, images):
        """(N, 1, 8, 8) -> (N, NUM_CLASSES)."""
        return self.head(self.features(images))


@cache
def load_data(partition_id, num_partitions):
    """One vehicle's training samples. Vehicle 0 has all samples of the rare class but a few."""
    images, labels = _digits()[0]
    owner = np.arange(len(labels)) % num_partitions
    rare = np.flatnonzero(labels == RARE)
    owner[rare[2 * num_partitions :]] = 0
    mine = torch.from_numpy(owner == partition_id)
    return images[mine], labels[mine]


def load_test_data():
    """The server's test samples."""
    return _digits()[1]


@cache
def _digits():
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    classes = torch.tensor(labels, dtype=torch.int64)
    test = torch.from_numpy(np.random.default_rng(0).random(len(labels)) < 0.3)
    return (pixels[~test], classes[~test]), (pixels[test], classes[test])


def train(net, images, labels, epochs, lr):
    """Train `net` in place; the mean loss."""
    net.train()
    optimizer, total = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9), 0.0
    batches = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    for _ in range(epochs):
        for batch, expected in batches:
            loss = nn.functional.cross_entropy(net(batch), expected)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
    return total / (epochs * len(batches))
