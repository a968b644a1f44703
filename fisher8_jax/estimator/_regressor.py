"""A regressor with scikit-learn's conventions that also says how sure it is."""

from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fisher8_jax._checks import check_unmasked
from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator._checks import (
    check_between,
    check_hidden,
    check_integer,
    check_some_targets,
)
from fisher8_jax.estimator._network import Network
from fisher8_jax.estimator._plan import (
    Settings,
    make_folds,
    make_plan,
    number_of_chunks,
    steps_in_round,
)
from fisher8_jax.estimator._progress import progress
from fisher8_jax.estimator._saving import load_estimator, write_estimator
from fisher8_jax.estimator._scaling import in_front, input_moments, scaled, unscaled
from fisher8_jax.estimator._training import (
    Folds,
    Member,
    Rows,
    Schedule,
    has_stopped,
    predict_mixture,
    start_members,
    train_chunk,
)

# Predictions are made in blocks of one shape: one compiled program, and a row's prediction does not
# depend on the rows beside it.
_BLOCK = 256


class Fisher8Regressor(RegressorMixin, BaseEstimator):
    """An ensemble of networks that predicts a mean and an honest variance, without tuning.

    Inputs and targets are standardised. Each member is a dense network with a Gaussian head,
    trained by the Fisher8 rule with momentum and steps of a KL radius, so there is no learning
    rate. A part of the rows, another for each member, is held out: training stops when their NLL no
    longer falls, and the best parameters are kept. All members train together in one compiled
    program. The prediction is the members' mixture.

    Targets that are nan count as missing. `y` may have several columns.

    Args:
        n_members: networks in the ensemble.
        hidden_layer_sizes: the widths of the hidden layers.
        max_kl: how far the longest step moves the predictions, in nats. Steps grow to it over the
            first fifth of the training and then shrink to 0.
        max_steps: gradient steps of each member, or 'auto' for a number that grows with the rows.
        batch_size: rows per step.
        validation_fraction: the part of the rows that each member holds out.
        patience: training stops after this fraction of `max_steps` without a better held-out NLL.
        random_state: an integer for the same result every time.
        show_progress: True draws a progress bar, if the output is a terminal and rich is installed.

    Attributes:
        n_features_in_: the number of inputs.
        feature_names_in_: their names, if `X` had names.
        n_iter_: gradient steps of the member that trained longest.
        held_out_nll_: each member's best held-out NLL, in standardised units.
        scaler_: the `TargetScaler` of the targets.

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.estimator import Fisher8Regressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 1))
        >>> y = X[:, 0] + (0.1 + 0.2 * (X[:, 0] > 0)) * rng.normal(size=200)
        >>> model = Fisher8Regressor(n_members=2, max_steps=2000, random_state=0).fit(X, y)
        >>> mean, std = model.predict([[-0.5], [0.5]], return_std=True)
        >>> bool(std[0] < 0.2 < std[1])
        True
    """

    def __init__(
        self,
        *,
        n_members: int = 5,
        hidden_layer_sizes: Any = (50, 50),
        max_kl: float = 0.3,
        max_steps: Any = "auto",
        batch_size: int = 32,
        validation_fraction: float = 0.2,
        patience: float = 0.3,
        random_state: Any = None,
        show_progress: bool = True,
    ):
        self.n_members = n_members
        self.hidden_layer_sizes = hidden_layer_sizes
        self.max_kl = max_kl
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.show_progress = show_progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Trains the ensemble.

        Args:
            X: inputs, shape (rows, features).
            y: targets, shape (rows,) or (rows, targets); nan where missing.
            sample_weight: the importance of each row.

        Returns:
            The fitted estimator.
        """
        settings = self._check_settings(len(X) if hasattr(X, "__len__") else 1)
        inputs, targets, weights = self._check_data(X, y, sample_weight)
        is_present = ~np.isnan(targets) & (in_front(weights, targets) > 0)
        check_some_targets(is_present)
        self.input_shift_, self.input_scale_ = input_moments(inputs, weights)
        self.scaler_ = TargetScaler.fit(targets, where=is_present, weights=weights)
        self.target_shape_ = targets.shape[1:]
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        data = Rows(
            jnp.asarray(self._standardize(inputs)),
            jnp.asarray(np.where(is_present, scaled(self.scaler_, targets), 0), jnp.float32),
            jnp.asarray(is_present),
            jnp.asarray(weights / weights.mean(), jnp.float32),
        )
        members = self._train(settings, data, make_folds(rng, len(inputs), settings), rng)
        self.params_ = jax.tree.map(np.asarray, members.best)
        self.held_out_nll_ = np.asarray(members.best_nll)
        self.n_iter_ = int(members.step.max())
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """The mean of the prediction, and with `return_std` its standard deviation too."""
        mean, std = self._in_blocks(X, lambda mixture: (mixture.mean, mixture.std))
        mean = unscaled(self.scaler_, mean)
        return (mean, std * np.asarray(self.scaler_.scale)) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
        """The central interval that holds a new target with probability `coverage`.

        Args:
            X: inputs, shape (rows, features).
            coverage: between 0 and 1.

        Returns:
            Lower and upper ends, each of the shape of the targets.
        """
        check_between("coverage", coverage, 0, 1)
        tail = 0.5 * (1 - coverage)

        def ends(mixture: Mixture) -> tuple[Array, Array]:
            return mixture.quantile(tail), mixture.quantile(1 - tail)  # type: ignore[arg-type]

        low, high = self._in_blocks(X, ends)
        return unscaled(self.scaler_, low), unscaled(self.scaler_, high)

    def predict_uncertainty(self, X: Any) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
        """The two parts of the variance: noise in the data, and disagreement of the members.

        Returns:
            Aleatoric and epistemic variance, in squared units of the targets; their sum is the
            square of the standard deviation that `predict` returns.
        """
        parts = self._in_blocks(X, lambda mixture: (mixture.aleatoric, mixture.epistemic))
        aleatoric, epistemic = (part * np.asarray(self.scaler_.scale) ** 2 for part in parts)
        return aleatoric, epistemic

    def predict_distribution(self, X: Any) -> Mixture:  # noqa: N803
        """The predictive mixture in the units of the targets, for metrics and plots."""
        inputs = jnp.asarray(self._check_inputs(X))
        return self.scaler_.unscale(predict_mixture(self._network(), self.params_, inputs))

    def nll(self, X: Any, y: Any) -> np.ndarray:  # noqa: N803
        """The negative log-likelihood of each target, nan where it is missing.

        Args:
            X: inputs.
            y: targets, as in `fit`.

        Returns:
            One value per target, in the units of the data and with its constant.
        """
        inputs = self._check_inputs(X)
        check_unmasked("y", y)
        targets = check_array(
            y, ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y"
        )
        check_consistent_length(inputs, targets)
        if targets.shape[1:] != self.target_shape_:
            raise ValueError(
                f"`y` must have rows of shape {self.target_shape_} as in `fit`, got "
                f"{targets.shape[1:]}."
            )
        mixture = predict_mixture(self._network(), self.params_, jnp.asarray(inputs))
        values = mixture.nll(jnp.asarray(np.nan_to_num(scaled(self.scaler_, targets)), jnp.float32))
        values = np.asarray(values, np.float64) + np.log(np.asarray(self.scaler_.scale))
        return np.where(np.isnan(targets), np.nan, values)

    def save(self, path: str | Path) -> None:
        """Writes the fitted estimator to one file without pickle; `load` reads it."""
        check_is_fitted(self)
        write_estimator(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote; it predicts the same numbers."""
        return load_estimator(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _train(
        self, settings: Settings, data: Rows, folds: Folds, rng: np.random.Generator
    ) -> Member:
        train_rows = folds.train.shape[1]
        plan = make_plan(settings, self.target_shape_, train_rows)
        steps = steps_in_round(plan, train_rows)
        patience = max(1, round(settings.patience * settings.max_steps / steps))
        schedule = Schedule(
            jnp.float32(settings.max_kl), jnp.float32(settings.max_steps), jnp.int32(patience)
        )
        # Folded in, not split: a member must not depend on how many there are.
        key = jax.random.key(rng.integers(2**31))
        keys = jax.vmap(lambda m: jax.random.fold_in(key, m))(jnp.arange(settings.members))
        members = start_members(plan, schedule, data.inputs[:1], keys)
        folds = Folds(*(jnp.asarray(rows) for rows in folds))
        with progress("Fisher8Regressor", settings.max_steps, self.show_progress) as advance:
            for _ in range(number_of_chunks(plan, train_rows, settings.max_steps)):
                members, nll = train_chunk(plan, schedule, members, data, folds)
                advance(steps * plan.rounds, f"held-out NLL {float(jnp.mean(nll[:, -1])):.3f}")
                if bool(jnp.all(has_stopped(schedule, members))):
                    break
        return members

    def _check_settings(self, rows: int) -> Settings:
        batch = check_integer("batch_size", self.batch_size)
        steps = self.max_steps
        if isinstance(steps, str) and steps == "auto":
            steps = max(5000, 50 * rows // batch)
        elif isinstance(steps, str):
            raise ValueError(f"`max_steps` must be a positive integer or 'auto', got {steps!r}.")
        return Settings(
            members=check_integer("n_members", self.n_members),
            hidden=check_hidden(self.hidden_layer_sizes),
            max_kl=check_between("max_kl", self.max_kl, 0, float("inf")),
            max_steps=check_integer("max_steps", steps),
            batch=batch,
            validation_fraction=check_between(
                "validation_fraction", self.validation_fraction, 0, 1
            ),
            patience=check_between("patience", self.patience, 0, float("inf")),
        )

    def _check_data(self, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, ...]:  # noqa: N803
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        for name, value in (("X", X), ("y", y), ("sample_weight", sample_weight)):
            check_unmasked(name, value)
        inputs = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        targets = check_array(
            y, ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y"
        )
        check_consistent_length(inputs, targets)
        weights = _check_sample_weight(
            sample_weight, inputs, dtype=np.float64, ensure_non_negative=True
        )
        return inputs, targets, weights

    def _check_inputs(self, X: Any) -> np.ndarray:  # noqa: N803
        check_is_fitted(self)
        check_unmasked("X", X)
        return self._standardize(validate_data(self, X, dtype=np.float64, reset=False))

    def _standardize(self, inputs: np.ndarray) -> np.ndarray:
        return ((inputs - self.input_shift_) / self.input_scale_).astype(np.float32)

    def _network(self) -> Network:
        return Network(check_hidden(self.hidden_layer_sizes), self.target_shape_)

    def _in_blocks(self, X: Any, readout: Any) -> list[np.ndarray]:  # noqa: N803
        """Applies `readout` to the predicted mixture block by block; float64 results."""
        inputs = self._check_inputs(X)
        network = self._network()
        parts = []
        for first in range(0, len(inputs), _BLOCK):
            block = inputs[first : first + _BLOCK]
            padded = np.pad(block, ((0, _BLOCK - len(block)), (0, 0)))
            values = readout(predict_mixture(network, self.params_, padded))
            parts.append([np.asarray(value, np.float64)[: len(block)] for value in values])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]
