"""What the devices measure, and the small network that they train together: NumPy alone.

A device listens to the vibration of the machine that it is screwed to. Each sample is a window of 128 values, made here
rather than recorded: a few tones that wander, and noise.
"""

import io

import numpy as np

TONES = {  # cycles in a window, and how loud
    "idle": ((3, 1.0), (6, 0.5)),
    "milling": ((3, 0.8), (11, 0.9)),
    "drilling": ((5, 0.8), (16, 0.9)),
    "grinding": ((8, 0.9), (24, 0.8)),
    "polishing": ((11, 0.7), (24, 0.8), (40, 0.4)),
    "bearing fault": ((6, 0.7), (16, 0.6), (40, 0.7)),
}
WINDOW, HIDDEN, DIM = 128, 48, 16


def record(label, count, rng):
    """Windows of one kind, as the logarithm of their spectra: (count, 65)."""
    time = np.arange(WINDOW) / WINDOW
    signal = 0.9 * rng.standard_normal((count, WINDOW))
    for cycles, loudness in TONES[label]:
        pitch = cycles * (1 + 0.06 * rng.standard_normal((count, 1)))
        phase = 2 * np.pi * rng.random((count, 1))
        signal += loudness * rng.lognormal(0, 0.3, (count, 1)) * np.sin(2 * np.pi * pitch * time + phase)
    return np.log1p(np.abs(np.fft.rfft(signal)))[:, :65] - 2


def holdings(number, seed):
    """What device `number` has recorded: samples (N, 65) and labels (N,).

    Nearly all bearing faults are device 0's, nearly all polishing is device 1's; the others have two windows of each.
    """
    rng = np.random.default_rng((seed, number))
    rare = {"bearing fault": 0, "polishing": 1}
    counts = {label: 160 if rare.get(label) == number else 2 if label in rare else 40 for label in TONES}
    samples = np.concatenate([record(label, count, rng) for label, count in counts.items()])
    return samples, np.repeat(list(counts), list(counts.values()))


def new_model(seed):
    """The network before any training; its head gets a row for every label once there are any."""
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((65, HIDDEN)) / 8, rng.standard_normal((HIDDEN, DIM)) / 5
    return {"w1": first, "b1": np.zeros(HIDDEN), "w2": second, "b2": np.zeros(DIM), "head": np.zeros((0, DIM + 1))}


def embed(model, samples):
    """Features (N, 16): what the network's head sees."""
    return np.maximum(np.maximum(samples @ model["w1"] + model["b1"], 0) @ model["w2"] + model["b2"], 0)


def train(model, samples, classes, rng, epochs=2, rate=0.08, batch=16):
    """The model after some epochs of stochastic gradient descent on softmax cross-entropy."""
    model = {name: array.copy() for name, array in model.items()}
    for _ in range(epochs):
        order = rng.permutation(len(samples))
        for at in range(0, len(order), batch):
            x, y = samples[order[at : at + batch]], classes[order[at : at + batch]]
            hidden = np.maximum(x @ model["w1"] + model["b1"], 0)
            features = np.maximum(hidden @ model["w2"] + model["b2"], 0)
            rows = np.column_stack([features, np.ones(len(x))])
            scores = rows @ model["head"].T
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            error = chances / chances.sum(axis=1, keepdims=True)
            error[np.arange(len(y)), y] -= 1
            error *= rate / len(x)
            back = (error @ model["head"][:, :-1]) * (features > 0)
            deep = (back @ model["w2"].T) * (hidden > 0)
            steps = {"head": error.T @ rows, "w2": hidden.T @ back, "w1": x.T @ deep}
            steps |= {"b2": back.sum(axis=0), "b1": deep.sum(axis=0)}
            for name, step in steps.items():
                model[name] -= step
    return model


def averaged(updates):
    """FedAvg: the mean of the models, weighted by how many samples each was trained on."""
    total = sum(samples for _, samples in updates)
    return {name: sum(model[name] * (samples / total) for model, samples in updates) for name in updates[0][0]}


def with_rows(model, rows):
    """The model with so many rows in its head: those that are new are zero."""
    more = np.zeros((rows - len(model["head"]), DIM + 1))
    return {**model, "head": np.concatenate([model["head"], more])}


def pack(**parts):
    """Arrays and bytes as one message; no pickle."""
    file = io.BytesIO()
    arrays = {k: np.frombuffer(v, np.uint8) if isinstance(v, bytes) else np.asarray(v) for k, v in parts.items()}
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(data):
    """What `pack` was given; bytes are arrays of uint8."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return dict(file)
