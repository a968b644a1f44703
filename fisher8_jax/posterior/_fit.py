"""The posterior of a trained network from its training rows."""

from typing import NamedTuple

import jax
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.checks import check_choice, check_positive
from fisher8_jax._internal.sharding import check_outside_shard_map
from fisher8_jax.posterior._arithmetic import arithmetic, cast, check_dtype, to_host
from fisher8_jax.posterior._build import build
from fisher8_jax.posterior._choose import Sizes, choose_form, last_layer, subset_rows
from fisher8_jax.posterior._network import Network, PredictOne
from fisher8_jax.posterior._posterior import Posterior
from fisher8_jax.posterior._prior import (
    Groups,
    Prior,
    log_precisions,
    resolve,
    squared_distances,
)
from fisher8_jax.posterior._report import Report
from fisher8_jax.posterior._setting import Setting, check_data, examine
from fisher8_jax.posterior._tuning import settle


def fit_posterior(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    targets: Array,
    *,
    prior: Prior | None = None,
    tune: bool | str = True,
    form: str = "auto",
    memory: float = 2e9,
    dtype: str = "float64",
    seed: int = 0,
) -> Posterior:
    """The posterior of a trained network, linearised at its parameters (Laplace approximation).

    Args:
        predict_one: `predict_one(params, example) -> distribution` of one example, no batch axis.
            Running statistics must be frozen.
        params: trained parameters, best those that minimise the sum of NLL and the prior's penalty.
            Where training stopped early, the posterior is still that of the linearised network
            around them.
        inputs: of the training rows, a pytree of arrays whose first axis is the rows.
        targets: of the training rows.
        prior: precisions of the parameters; by default one for each leaf.
        tune: whether the data choose the precisions, from those of `prior` on. 'evidence' ends at
            the maximum of the evidence, the right choice for parameters at the maximum of the
            posterior. True ends at the geometric mean of these precisions and the inverse mean
            squares of the parameters: most parameters of a network that stopped early are where
            they began, not at the prior's mean, and the evidence takes that for a wide prior.
        form: 'dual' factorises one matrix over all outputs of all rows, 'primal' one over all
            parameters; both are exact. 'last_layer' fixes all parameters in which the outputs are
            not affine, 'subset' takes a random part of the rows. 'auto' takes the cheaper exact
            form if it fits into `memory` and into minutes, else the last layer, else a subset.
            `describe()` says which.
        memory: bytes that matrices may take.
        dtype: 'float64', whatever the program around uses, or 'float32', for devices without
            float64; raises where that is not enough.
        seed: decides which rows a subset has.

    Returns:
        A pytree with `predict`, `log_evidence`, samples, covariances; see also `leave_one_out`.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior
        >>> def predict_one(params, x):
        ...     return Gaussian(x @ params["slope"], params["log_variance"])
        >>> x = np.random.default_rng(0).normal(size=(50, 2))
        >>> y = x @ [1.0, 2.0] + np.random.default_rng(1).normal(size=50)
        >>> params = {"slope": np.linalg.lstsq(x, y)[0], "log_variance": np.array(0.1)}
        >>> posterior = fit_posterior(predict_one, params, x, y)
        >>> print(posterior.describe())
        primal, 50 rows, 3 parameters, float64: exact, in the space of parameters; 3 unknowns
        log evidence -70.77
        group         parameters  effective  precision
        log_variance           1        0.3         63
        slope                  2        2.0      0.437

    Reference:
        Khan et al., Approximate inference turns deep networks into Gaussian processes, NeurIPS
        2019. Immer et al., Improving predictions of Bayesian neural nets via local linearization,
        AISTATS 2021.
    """
    check_outside_shard_map("fit_posterior")
    prior = Prior() if prior is None else prior
    _check_arguments(prior, memory, check_dtype(dtype))
    if not isinstance(tune, bool):
        check_choice("tune", tune, ("evidence",))
    with arithmetic(dtype):
        params, inputs, targets = (cast(tree, dtype) for tree in (params, inputs, targets))
        check_data(params, inputs, targets)
        shape = examine(predict_one, params, inputs, targets)
        groups = resolve(prior, params, shape.reached)
        fitting = _Fitting(predict_one, params, inputs, targets, prior, groups, shape, memory)
        chosen = choose_form(form, fitting.sizes, memory)
        if chosen == "last_layer":
            fitting, chosen = _without_others(fitting, is_wanted=form == "last_layer")
        given = len(targets)
        if chosen == "subset":
            fitting = _without_rows(fitting, seed)
        return _fit(fitting, chosen, tune, dtype, given)


class _Fitting(NamedTuple):
    """Everything that a posterior is made of."""

    predict_one: PredictOne
    params: ArrayTree
    inputs: ArrayTree
    targets: Array
    prior: Prior
    groups: Groups
    shape: Setting
    memory: float

    @property
    def network(self) -> Network:
        return Network(self.params, self.predict_one, self.groups.leaves)

    @property
    def sizes(self) -> Sizes:
        number = sum(self.leaf_sizes)
        rows, groups = len(self.targets), len(self.groups.names)
        return Sizes(rows, self.shape.outputs, number, groups, self.shape.positions)

    @property
    def leaf_sizes(self) -> list[int]:
        every = jax.tree.leaves(self.params)
        return [int(np.size(every[i])) for i in self.groups.leaves]


def _fit(fitting: _Fitting, form: str, tune: bool | str, dtype: str, given: int) -> Posterior:
    chunk = fitting.sizes.chunk(form, fitting.memory)
    groups, data = fitting.groups, (fitting.network, fitting.inputs, fitting.targets)
    system, nll = build(form, data, groups, chunk)
    start = log_precisions(fitting.prior, groups).astype(dtype)
    squares = cast(to_host(squared_distances(fitting.prior, groups, fitting.params)), dtype)
    sizes = groups.add_up(fitting.leaf_sizes)
    raised = sizes.astype(dtype) if tune is True else None
    settled = settle(system, start, nll, squares, groups, data if tune else None, raised)
    notes = () if fitting.shape.dtype == dtype else (_note_of(fitting.shape.dtype),)
    report = Report(
        groups=groups.names,
        sizes=tuple(int(n) for n in sizes),
        form=form,
        unknowns=system.size,
        rows=len(fitting.targets),
        given_rows=given,
        chunk=chunk,
        dtype=dtype,
        notes=notes,
    )
    return Posterior(
        network=data[0],
        system=system,
        factor=settled.factor,
        log_precision=settled.log_precision,
        evidence=settled.evidence,
        nll=np.asarray(nll, dtype),
        inputs=fitting.inputs,
        targets=fitting.targets,
        report=report,
    )


def _note_of(dtype: str) -> str:
    return (
        f"the network computes in {dtype} whatever its parameters are: derivatives are rounded to "
        "that"
    )


def _without_others(fitting: _Fitting, *, is_wanted: bool) -> tuple[_Fitting, str]:
    """The last layer alone is uncertain; a subset of the rows if there is none."""
    chosen = last_layer(fitting.network, fitting.inputs)
    if not chosen:
        if is_wanted:
            raise ValueError(
                "`form='last_layer'` found no parameter in which the outputs are affine. Name the "
                "uncertain leaves: `Prior(groups={'last': ['path/of/the/layer']})`."
            )
        return fitting, "subset"
    groups = fitting.groups
    owners = dict(zip(groups.leaves, groups.of_leaf, strict=True))
    kept = sorted({owners[leaf] for leaf in chosen})
    names = tuple(groups.names[g] for g in kept)
    prior = fitting.prior
    if not isinstance(prior.precision, float | int):
        known = {name: prior.precision[name] for name in names}
        prior = Prior(known, prior.groups, prior.mean)
    of_leaf = tuple(kept.index(owners[leaf]) for leaf in chosen)
    smaller = fitting._replace(groups=Groups(names, chosen, of_leaf), prior=prior)
    if smaller.sizes.bytes_of("primal") > fitting.memory and not is_wanted:
        return fitting, "subset"
    return smaller, "last_layer"


def _without_rows(fitting: _Fitting, seed: int) -> _Fitting:
    rows = subset_rows(fitting.sizes, fitting.memory)
    order = np.random.default_rng(seed).permutation(len(fitting.targets))[:rows]
    inputs, targets = jax.tree.map(lambda x: x[order], (fitting.inputs, fitting.targets))
    return fitting._replace(inputs=inputs, targets=targets)


def _check_arguments(prior: object, memory: float, dtype: str) -> None:
    if not isinstance(prior, Prior):
        raise TypeError(
            f"`prior` must be a `Prior`, got {type(prior).__name__}. For one precision write "
            "`Prior(precision=..., groups='one')`."
        )
    check_positive("memory", memory)
