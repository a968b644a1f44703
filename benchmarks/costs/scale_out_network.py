"""What a step of the parameter-space gradient costs on many devices: a model on paper.

A dense network of widths `d0, d1, ...` and `B` rows over `n` devices, each of which holds all
parameters. With `k` outputs a row the system has `m = k B` unknowns. Under `axis_name`

    Direct  gathers   B sum(d_in) + k B sum(d_out) + m + m^2   numbers
            computes  its rows of the Gram matrix, and all of the factorisation, m^3 / 3
    Blocks  gathers   nothing
            computes  the Gram matrices and factorisations of its own blocks

and both add the gradient up. The counts are checked against compiled programs in
`tests/scale_out`; the times follow from the rates that the options name.
"""

import argparse
import itertools
import math
from typing import NamedTuple

DEVICES = (8, 32, 128, 512)
OUTPUTS = 2  # a mean and a log-variance
BLOCK = 64  # rows
WIDTHS = (64, 1024, 1024, 1024, 2)
FIXED_ROWS, ROWS_PER_DEVICE = 2048, 64
_FLOAT = 4  # bytes


class Step(NamedTuple):
    """One step on every device.

    Attributes:
        gathered: numbers that every device receives from all of them.
        reduced: numbers that are added up over them.
        operations: of matrix products, on each device.
        solve: operations of the factorisation, on each device.
    """

    gathered: float
    reduced: float
    operations: float
    solve: float

    def seconds(self, devices: int, hardware: "Hardware") -> float:
        """Computation, then bytes along a ring, then a tree's latency for each kind."""
        part = (devices - 1) / devices
        numbers = part * self.gathered + 2 * part * self.reduced
        hops = math.ceil(math.log2(devices)) * (2 + (self.gathered > 0))
        bandwidth, latency = hardware.bandwidth, hardware.latency
        sent = _FLOAT * numbers / bandwidth + hops * latency
        return (self.operations + self.solve) / hardware.operations + sent


class Hardware(NamedTuple):
    """Rates of one device: operations and bytes a second, seconds of a hop."""

    operations: float
    bandwidth: float
    latency: float

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Hardware":
        return cls(1e12 * args.teraflops, 1e9 * args.gigabytes, 1e-6 * args.latency_us)


def plain_step(widths: tuple[int, ...], rows: int, devices: int) -> Step:
    """Plain NLL: forward, backward to the activations, backward to the kernels."""
    local = rows / devices
    return Step(0, _parameters(widths), 2 * local * (2 * _kernels(widths) + _behind(widths)), 0)


def direct_step(widths: tuple[int, ...], rows: int, devices: int, outputs: int = OUTPUTS) -> Step:
    """`network_gradient` with `Direct()`."""
    unknowns, local = outputs * rows, rows / devices
    activations, deltas = rows * sum(widths[:-1]), unknowns * sum(widths[1:])
    gathered = activations + deltas + unknowns + unknowns**2
    gram = 2 * local * (activations + outputs * deltas)
    operations = _own(widths, local, outputs) + gram
    return Step(gathered, _parameters(widths), operations, unknowns**3 / 3)


def blocks_step(
    widths: tuple[int, ...], rows: int, devices: int, outputs: int = OUTPUTS, block: int = BLOCK
) -> Step:
    """`network_gradient` with `Blocks(block)`, and the forward-mode derivative of its radius."""
    local = rows / devices
    size = min(block, local)
    gram = 2 * local * size * (sum(widths[:-1]) + outputs**2 * sum(widths[1:]))
    derivative = 2 * local * (_kernels(widths) + _behind(widths))
    operations = _own(widths, local, outputs) + gram + derivative
    solve = local / size * (outputs * size) ** 3 / 3
    return Step(0, _parameters(widths), operations, solve)


def _own(widths: tuple[int, ...], local: float, outputs: int) -> float:
    """Forward pass, one backward pass for each output, and the kernels' gradients."""
    return 2 * local * (2 * _kernels(widths) + outputs * _behind(widths))


def _kernels(widths: tuple[int, ...]) -> int:
    return sum(a * b for a, b in itertools.pairwise(widths))


def _behind(widths: tuple[int, ...]) -> int:
    """Without the first kernel, behind which no delta is needed."""
    return _kernels(widths[1:])


def _parameters(widths: tuple[int, ...]) -> int:
    return _kernels(widths) + sum(widths[1:])


def model_rows(hardware: Hardware) -> list[list[str]]:
    """Milliseconds and gathered megabytes for a batch of fixed size, and for one that grows."""
    lines = []
    for devices, is_fixed in itertools.product(DEVICES, (True, False)):
        rows = FIXED_ROWS if is_fixed else ROWS_PER_DEVICE * devices
        makers = (plain_step, direct_step, blocks_step)
        steps = [make(WIDTHS, rows, devices) for make in makers]
        times = [f"{1e3 * step.seconds(devices, hardware):.2f}" for step in steps]
        megabytes = f"{1e-6 * _FLOAT * steps[1].gathered:,.0f}"
        solve = f"{1e3 * steps[1].solve / hardware.operations:.2f}"
        lines.append((is_fixed, [str(devices), f"{rows:,}", *times, solve, megabytes]))
    return [line for _, line in sorted(lines, key=lambda pair: not pair[0])]
