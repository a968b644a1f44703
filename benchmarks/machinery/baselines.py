"""The one registry of methods: what each makes of a network's outputs, and how it is trained.

A row adds a method to every experiment that takes names of methods. An experiment that wants
another link, radius or hyper-parameter derives its own row by `override`; none lists methods anew.
Free of JAX: links and losses are names, which `benchmarks.machinery.training` looks up.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Baseline:
    """One way to train a mean and a variance.

    Args:
        label: its name in tables and figures.
        loss: a name of `benchmarks.machinery.losses.objective.LOSSES`.
        link: a name of `benchmarks.machinery.heads.LINKS`: how outputs become a distribution.
        hyperparameters: of the loss, pairs of names and values.
        stops_trunk: only the first output trains the trunk.
        max_kl: the KL radius at the end of the optimiser, None for none.
        radius_mode: 'cap' bounds the optimiser's step, 'target' replaces the learning rate.
    """

    label: str
    loss: str
    head: str = "softplus_std"
    hyperparameters: tuple[tuple[str, Any], ...] = ()
    stops_trunk: bool = False
    max_kl: float | None = None
    radius_mode: Literal["target", "cap"] = "cap"

    def override(self, **fields: Any) -> "Baseline":
        """The same method with some fields replaced; `hyperparameters` may be a mapping."""
        if isinstance(fields.get("hyperparameters"), Mapping):
            fields["hyperparameters"] = tuple(fields["hyperparameters"].items())
        return dataclasses.replace(self, **fields)


# The first five are the published ones, each with its authors' head.
BASELINES = {
    "unit_variance": Baseline("Unit variance", "unit_variance", "unit_variance"),
    "nll": Baseline("NLL", "nll"),
    "beta_nll": Baseline("beta-NLL 0.5", "beta_nll", "softplus_variance", (("beta", 0.5),)),
    "faithful": Baseline("Faithful", "faithful", stops_trunk=True),
    "fisher8": Baseline("Fisher8", "fisher8"),
    "fisher8_radius": Baseline("Fisher8 + KL radius", "fisher8", max_kl=0.01),
    "beta_nll_1": Baseline("beta-NLL 1.0", "beta_nll", "softplus_variance", (("beta", 1.0),)),
    "natural_nll": Baseline("Natural NLL", "nll", "natural"),
    "natural_gradient": Baseline("Natural gradient", "natural_gradient"),
    "collier": Baseline("Collier, tau 0", "collier", "latent"),
    "trustable": Baseline("Trustable", "trustable", hyperparameters=(("step_size", 0.1),)),
}
# Of Collier's method, in units of standardised targets.
TEMPERATURES = (0.0, 0.1, 0.3, 1.0)
PUBLISHED = tuple(BASELINES)[:5]
WITH_VARIANCE = PUBLISHED[1:]


def choose(names: Iterable[str], **fields: Any) -> dict[str, Baseline]:
    """Rows of the registry by name, all with the same fields replaced.

    Example:
        >>> choose(["nll"], link="log_variance")["nll"].link
        'log_variance'
    """
    return {name: BASELINES[name].override(**fields) for name in names}
