"""The methods side by side, as data: what each back-propagates to the mean and to the scale.

The two update columns are Python expressions, so the printed table can be checked against the
gradients that the code makes. Descent takes the negative of what is printed.
"""

from typing import NamedTuple

LEGEND = (
    "`y` target, `s` log-variance, `std = exp(s/2)`, `z = (y - mean)/std`, "
    "`norm` the L2 norm over the batch."
)


class Row(NamedTuple):
    """One method; `loss` is its name in `objective.LOSSES`."""

    method: str
    loss: str
    coordinates: str
    mean_update: str
    scale_update: str
    kl_control: str
    extra: str


ROWS: tuple[Row, ...] = (
    Row(
        "Unit variance",
        "unit_variance",
        "mean, s",
        "mean - y",
        "0",
        "none",
        "none",
    ),
    Row(
        "Gaussian NLL",
        "nll",
        "mean, s",
        "exp(-s) * (mean - y)",
        "(1 - z**2) / 2",
        "none",
        "none",
    ),
    Row(
        "NLL with soft bounds",
        "nll",
        "mean, raw",
        "exp(-s) * (mean - y)",
        "(1 - z**2) / 2 * sigmoid(high - raw) * sigmoid(below - low)",
        "none; the variance is bounded",
        "weight of the penalty on the learned `low`, `high`",
    ),
    Row(
        "Beta-NLL",
        "beta_nll",
        "mean, s",
        "exp((beta - 1) * s) * (mean - y)",
        "exp(beta * s) * (1 - z**2) / 2",
        "none",
        "`beta`",
    ),
    Row(
        "Faithful",
        "faithful",
        "mean, s",
        "mean - y",
        "(1 - z**2) / 2",
        "none",
        "none; stop-gradient trunk",
    ),
    Row(
        "Natural NLL",
        "nll",
        "eta1, eta2",
        "mean - y",
        "mean**2 + std**2 - y**2",
        "none",
        "none",
    ),
    Row(
        "Trustable",
        "trustable",
        "mean, s",
        "2 * (mean - mean_goal)",
        "(std - std_goal) * std",
        "trust region per point (W2), stored references",
        "`step_size`, `mean_bound`, `scale_bound`",
    ),
    Row(
        "Collier",
        "collier",
        "mean, s",
        "(mean - y) / (std**2 + tau**2)",
        "std**2 / (std**2 + tau**2) * (1 - (y - mean)**2 / (std**2 + tau**2)) / 2",
        "none",
        "`temperature` tau, `num_samples`",
    ),
    Row(
        "Wong-Toi",
        "wong_toi",
        "mean, s",
        "2 * rho * exp(-s) * (mean - y)",
        "rho * (1 - z**2)",
        "none; weight decay per network",
        "`gamma`, with `rho = 1 - gamma`",
    ),
    Row(
        "Natural gradient",
        "natural_gradient",
        "mean, s",
        "mean - y",
        "1 - z**2",
        "none",
        "none",
    ),
    Row(
        "Fisher8",
        "fisher8",
        "mean, s",
        "(mean - y) / norm(mean - y)",
        "(1 - z**2) / norm(1 - z**2)",
        "unit norm over the batch; exact with the KL radius",
        "none; `max_kl` with the radius",
    ),
)


def summary_table() -> str:
    """The table of all methods in Markdown, one row each.

    Example:
        >>> print(summary_table().splitlines()[2])
        | Unit variance | `unit_variance` | mean, s | `mean - y` | `0` | none | none |
    """
    header = (
        "Method",
        "Loss",
        "Coordinates",
        "Mean update",
        "Scale update",
        "KL control",
        "Extra hyper-parameter",
    )
    lines = [_line(header), _line(("---",) * len(header))]
    for row in ROWS:
        code = {name: f"`{getattr(row, name)}`" for name in ("loss", "mean_update", "scale_update")}
        lines.append(_line(row._replace(**code)))
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
