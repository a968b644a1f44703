"""The UCI sweep and the sinusoid step in plain PyTorch, the way one would write them first.

A script for an environment that has PyTorch and NumPy; it imports nothing of this project:

    python benchmarks/costs/torch_reference.py --data-dir DATA --splits 2

It trains a sample of the SGD sweep, one training after the other, and prints a JSON record with the
seconds of loading, training and scoring.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SETS = {  # folder: (number of features, target column)
    "yacht": (6, 6),
    "concrete": (8, 8),
    "energy": (8, 8),
    "bostonHousing": (13, 13),
    "kin8nm": (8, 8),
    "naval-propulsion-plant": (16, 17),
    "power-plant": (4, 4),
    "wine-quality-red": (11, 11),
}
METHODS = ("unit_variance", "nll", "beta_nll", "faithful", "fisher8")
STEPS, BATCH = 100, 32


class MeanVariance(nn.Module):
    """A shared trunk with a mean and a scale output."""

    def __init__(self, features, width, activation, stop_gradient=False):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(features, width), activation(), nn.Linear(width, width), activation()
        )
        self.mean = nn.Linear(width, 1)
        self.scale = nn.Linear(width, 1)
        self.stop_gradient = stop_gradient

    def forward(self, x):
        hidden = self.trunk(x)
        below = hidden.detach() if self.stop_gradient else hidden
        return self.mean(hidden).squeeze(-1), self.scale(below).squeeze(-1)


class Fisher8(torch.autograd.Function):
    """Identity forwards; natural gradients of unit norm over the batch backwards."""

    @staticmethod
    def forward(ctx, mean, log_variance):
        ctx.save_for_backward(log_variance)
        return mean.clone(), log_variance.clone()

    @staticmethod
    def backward(ctx, mean, log_variance):
        (s,) = ctx.saved_tensors
        return functional.normalize(s.exp() * mean, dim=0), functional.normalize(
            2 * log_variance, dim=0
        )


def loss_of(method, mean, raw, y):
    if method == "unit_variance":
        return 0.5 * (y - mean).square().mean()
    if method == "beta_nll":
        variance = functional.softplus(raw)
        nll = 0.5 * (variance.log() + (y - mean).square() / variance)
        return (variance.detach().sqrt() * nll).mean()
    log_variance = 2 * functional.softplus(raw).log()
    if method == "faithful":
        nll = 0.5 * (log_variance + (y - mean.detach()).square() * (-log_variance).exp())
        return (0.5 * (y - mean).square() + nll).mean()
    if method == "fisher8":
        mean, log_variance = Fisher8.apply(mean, log_variance)
    return 0.5 * (log_variance + (y - mean).square() * (-log_variance).exp()).mean()


def log_variance_of(method, raw):
    if method == "unit_variance":
        return torch.zeros_like(raw)
    sigma = functional.softplus(raw)
    return sigma.log() if method == "beta_nll" else 2 * sigma.log()


def load_split(folder, features, target, split):
    data = np.loadtxt(folder / "data.txt")
    parts = []
    for part in ("train", "test"):
        rows = np.loadtxt(folder / f"index_{part}_{split}.txt").astype(int)
        parts += [data[rows, :features], data[rows, target]]
    x, y, test_x, test_y = parts
    scale = np.where(x.std(0) == 0, 1, x.std(0))
    x, test_x, shift = (x - x.mean(0)) / scale, (test_x - x.mean(0)) / scale, y.mean()
    to_tensor = (x, (y - shift) / y.std(), test_x, test_y)
    return *(torch.tensor(a, dtype=torch.float32) for a in to_tensor), shift, y.std()


def batches(rows, steps):
    """Shuffled epochs without their partial batch."""
    while True:
        order = torch.randperm(rows)
        for first in range(0, rows - BATCH + 1, BATCH):
            if steps == 0:
                return
            steps -= 1
            yield order[first : first + BATCH]


def train(method, rate, x, y):
    model = MeanVariance(x.shape[1], 50, nn.ELU, stop_gradient=method == "faithful")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for rows in batches(len(x), STEPS):
        optimizer.zero_grad()
        mean, raw = model(x[rows])
        loss_of(method, mean, raw, y[rows]).backward()
        optimizer.step()
    return model


@torch.no_grad()
def score(model, method, x, y, shift, scale):
    mean, raw = model(x)
    log_variance = log_variance_of(method, raw) + 2 * math.log(scale)
    error = y - (mean * scale + shift)
    sigma = (0.5 * log_variance).exp()
    pit = torch.special.ndtr(error / sigma)
    counts = torch.histc(pit, 10, 0, 1)
    ece = (counts / len(y) - 0.1)[counts > 0].abs().mean()
    nll = (0.5 * (log_variance + (error / sigma).square())).mean()
    return [float(error.square().mean().sqrt()), float(nll), float(ece)]


def sinusoid_step_seconds(steps=1000):
    """Seconds of one SGD step on the network of the sinusoid experiment."""
    x = torch.linspace(0, 12, 1000)[:, None]
    y = 0.4 * torch.sin(2 * math.pi * x[:, 0]) + 0.01 * torch.randn(1000)
    model = MeanVariance(1, 150, nn.Tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    for rows in batches(len(x), steps):
        optimizer.zero_grad()
        mean, log_variance = Fisher8.apply(*model(x[rows]))
        nll = 0.5 * (log_variance + (y[rows] - mean).square() * (-log_variance).exp())
        nll.mean().backward()
        optimizer.step()
    return (time.perf_counter() - began) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=1, help="splits of every set and method")
    parser.add_argument("--first-split", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.005)
    parser.add_argument("--threads", type=int, default=None, help="default: PyTorch's own choice")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    seconds = {"load": 0.0, "train": 0.0, "score": 0.0}
    results: dict[str, list] = {}
    for folder, (features, target) in SETS.items():
        for split in range(args.first_split, args.first_split + args.splits):
            began = time.perf_counter()
            *parts, shift, scale = load_split(
                args.data_dir / "uci" / folder, features, target, split
            )
            seconds["load"] += time.perf_counter() - began
            for method in METHODS:
                began = time.perf_counter()
                model = train(method, args.rate, *parts[:2])
                seconds["train"] += time.perf_counter() - began
                began = time.perf_counter()
                scores = score(model, method, *parts[2:], shift, scale)
                seconds["score"] += time.perf_counter() - began
                results.setdefault(f"{folder}/{method}", []).append(scores)
    record = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "trainings": len(SETS) * args.splits * len(METHODS),
        "loads": len(SETS) * args.splits,
        "steps_per_training": STEPS,
        "seconds": seconds,
        "sinusoid_step_seconds": sinusoid_step_seconds(),
        "results": results,
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
