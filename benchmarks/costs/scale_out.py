"""What data-parallel training communicates, from the compiled program, and what that would cost.

The first table is read from the program that XLA compiled for eight devices. The others are models:
they compute times from the bytes of the first table, for the parameter-space gradient from those of
`scale_out_network`, and from the rates that the options name. They are no measurements.
"""

import argparse
import math

from rich.table import Table

from benchmarks.costs.scale_out_network import WIDTHS, Hardware, model_rows
from benchmarks.machinery.console import console

DEVICES = (8, 16, 64, 256, 1024, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The network of the first table, the hardware of the second."""
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument(
        "--parameters", type=float, default=25e6, help="of the network in the model"
    )
    parser.add_argument("--step-ms", type=float, default=100.0, help="computation of one step")
    parser.add_argument(
        "--gigabytes", type=float, default=50.0, help="link bandwidth, GB/s each way"
    )
    parser.add_argument("--latency-us", type=float, default=5.0, help="of one hop between devices")
    parser.add_argument("--teraflops", type=float, default=20.0, help="of one device in float32")


def run(args: argparse.Namespace) -> int:
    """Prints the tables."""
    import jax

    jax.config.update("jax_num_cpu_devices", 8)
    from benchmarks.costs.scale_out_programs import PROGRAMS, collectives_of

    found = {name: collectives_of(name, tuple(args.hidden)) for name in PROGRAMS}
    table = Table("program", "arrays sent", "bytes besides the gradients", "bytes in all")
    for name, collectives in found.items():
        small = sum(c.bytes for c in collectives if c.elements <= 8)
        total = sum(c.bytes for c in collectives)
        table.add_row(name, str(len(collectives)), str(small), str(total))
    console.print(table)
    extra = len(found["Fisher8, KL radius"]) - len(found["plain NLL"])
    console.print(_model_table(args, max(extra, 0)))
    console.print(_network_table(Hardware.of(args)))
    return 0


def _network_table(hardware: Hardware) -> Table:
    title = f"Model: parameter-space gradient of a network of {WIDTHS}, ms a step"
    table = Table("devices", "rows", "plain NLL", "Direct", "Blocks(64)", title=title)
    table.add_column("of Direct, factorisation")
    table.add_column("MB gathered by Direct")
    for row in model_rows(hardware):
        table.add_row(*row)
    return table


def _model_table(args: argparse.Namespace, extra_collectives: int) -> Table:
    title = f"Model: {args.parameters:.3g} float32 parameters, {args.step_ms:g} ms of computation"
    table = Table("devices", "gradients ms", "extra of Fisher8 ms", "efficiency", title=title)
    for devices in DEVICES:
        cost = step_cost(
            devices,
            gradient_bytes=4 * args.parameters,
            extra_collectives=extra_collectives,
            bandwidth=1e9 * args.gigabytes,
            latency=1e-6 * args.latency_us,
        )
        total = 1e-3 * args.step_ms + sum(cost)
        table.add_row(
            str(devices),
            f"{1e3 * cost[0]:.2f}",
            f"{1e3 * cost[1]:.3f}",
            f"{100e-3 * args.step_ms / total:.1f} %",
        )
    return table


def step_cost(
    devices: int, *, gradient_bytes: float, extra_collectives: int, bandwidth: float, latency: float
) -> tuple[float, float]:
    """Seconds of one step for the gradients and for what Fisher8 adds.

    The gradients are reduced along a ring, `2 (n-1)/n bytes / bandwidth`, with a tree's latency,
    `2 log2(n)` hops, which is what current libraries choose between. The scalars of Fisher8 cost
    their latency alone.

    Example:
        >>> gradients, extra = step_cost(
        ...     8, gradient_bytes=1e8, extra_collectives=3, bandwidth=5e10, latency=5e-6
        ... )
        >>> print(f"{1e3 * gradients:.2f} ms and {1e3 * extra:.2f} ms")
        3.53 ms and 0.09 ms
    """

    hops = 2 * math.ceil(math.log2(devices))
    gradients = 2 * (devices - 1) / devices * gradient_bytes / bandwidth + hops * latency
    return gradients, extra_collectives * hops * latency
