"""What a fitted estimator answers: distributions, intervals, both kinds of uncertainty."""

from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from fisher8_jax._internal.checks import check_choice, check_unmasked
from fisher8_jax._internal.programs import keeps_programs
from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.estimator._columns import Encoder
from fisher8_jax.estimator._conformal import (
    Conformal,
    calibrated,
    check_groups,
    conformal_ends,
    conformal_of,
)
from fisher8_jax.estimator._display import ShowsResults
from fisher8_jax.estimator._epistemic import Knowledge
from fisher8_jax.estimator._estimator_checks import (
    check_hidden,
    check_setting,
    check_targets,
    numbers_expected,
)
from fisher8_jax.estimator._families import find_likelihood
from fisher8_jax.estimator._frames import (
    Table,
    TableColumn,
    columns_of_array,
    columns_of_frame,
    is_frame,
)
from fisher8_jax.estimator._network import DenseNetwork, link_of
from fisher8_jax.estimator._prediction import (
    Prediction,
    in_blocks,
    mixture_in_blocks,
    predict_information,
    predict_moments,
    predict_nll,
    predict_quantiles,
    predict_variance,
)
from fisher8_jax.estimator._widths import Calibration, Ensemble


class Predicts(ShowsResults):
    """The answers of a fitted estimator; `fit` is elsewhere."""

    family: Any
    hidden_layer_sizes: Any
    encoder_: Encoder
    family_: str
    scaler_: TargetScaler
    target_shape_: tuple[int, ...]
    params_: Any
    reference_params_: Any
    knowledge_: Knowledge
    known_variance_: np.ndarray
    calibration_: Calibration
    conformal_: Conformal | None

    @property
    def variance_factor_(self) -> np.ndarray:
        """What the members' variances are multiplied by where all is known, one per target."""
        check_is_fitted(self)
        return self.calibration_.factor.astype(np.float64).reshape(self.target_shape_)

    @overload
    def predict(self, X: Table, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, X: Table, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    def predict(self, X: Table, return_std: bool = False) -> object:
        """The mean (where a family has none, the median), and with `return_std` its spread too."""
        mean, std, _, _ = self._run(predict_moments, X)
        mean = self._to_units(mean)
        mean = find_likelihood(self.family_, self.family).wrap(mean)
        return (mean, std * np.asarray(self.scaler_.scale)) if return_std else mean

    def predict_interval(
        self,
        X: Table,
        coverage: float = 0.9,
        *,
        method: str = "model",
        groups: ArrayLike | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """An interval that holds a new target with probability `coverage`.

        Args:
            X: inputs, shape (rows, features).
            coverage: between 0 and 1.
            method: 'model' is the central interval of the predicted distribution. 'conformal' is
                wide enough for the errors on held-out rows, whatever their distribution; see
                `calibrate`.
            groups: the labels of the rows, if `calibrate` was given groups.

        Returns:
            Lower and upper ends, each of the shape of the targets.
        """
        check_setting("coverage", coverage, above=0, below=1)
        check_choice("method", method, ("model", "conformal"))
        if method == "model":
            if groups is not None:
                raise ValueError("`groups` belong to `method='conformal'`.")
            tail = 0.5 * (1 - coverage)
            low, high = self.predict_quantile(X, (tail, 1 - tail))
            return low, high
        rows, conformal = self._check_inputs(X), conformal_of(self)
        numbers = check_groups(groups, len(rows[0]), conformal.labels)
        support = find_likelihood(self.family_, self.family).support
        ends = conformal_ends(
            self._network(), self._ensemble(), rows, conformal, numbers, coverage, support
        )
        return self._to_units(ends[0]), self._to_units(ends[1])

    def calibrate(self, X: Table, y: ArrayLike, *, groups: ArrayLike | None = None) -> Self:
        """Bases conformal intervals on rows that the estimator was not fitted to.

        If these rows and a new one are exchangeable, the interval of the new one holds its target
        with at least the given probability, exactly, for any number of rows; with `groups` in each
        group by itself. Without this call `predict_interval(method='conformal')` uses the rows that
        the members held out (CV+), by which they also stopped.

        Args:
            X: inputs, as in `fit`.
            y: targets, as in `fit`.
            groups: one label for each row; `predict_interval` then wants those of its rows.

        Returns:
            The estimator.
        """
        inputs = self._check_inputs(X)
        self.conformal_ = calibrated(self, inputs, self._scaled_targets(inputs[0], y), groups)
        return self

    def predict_quantile(self, X: Table, probabilities: Sequence[float]) -> tuple[np.ndarray, ...]:
        """The values that new targets stay below with given probabilities.

        Args:
            X: inputs, shape (rows, features).
            probabilities: between 0 and 1.

        Returns:
            One array of the shape of the targets for each probability.
        """
        for probability in probabilities:
            check_setting("probabilities", probability, above=0, below=1)
        levels = jnp.asarray(probabilities, jnp.float32)
        return tuple(map(self._to_units, self._run(predict_quantiles, X, extra=(levels,))))

    def predict_uncertainty(self, X: Table) -> tuple[np.ndarray, np.ndarray]:
        """The two parts of the variance: noise in the data, and disagreement of the members.

        Returns:
            Aleatoric and epistemic variance, in squared units of the targets; their sum is the
            square of the standard deviation that `predict` returns.
        """
        _, _, *parts = self._run(predict_moments, X)
        aleatoric, epistemic = (part * np.asarray(self.scaler_.scale) ** 2 for part in parts)
        return aleatoric, epistemic

    def predict_familiarity(self, X: Table) -> np.ndarray:
        """How familiar rows are, from 0 to 1: the share of training rows that are no more so.

        A row is the less familiar, the larger the posterior variance of its predicted mean. It is
        compared with training rows, each left out. Were a row drawn as they were, its familiarity
        would be below 0.05 with a probability of about 0.05. No targets are used.

        Args:
            X: inputs, shape (rows, features).

        Returns:
            One number per row; with several targets the smallest.
        """
        (variance,) = self._run(predict_variance, X)
        shares = []
        for column, known in zip(variance.T, self.known_variance_, strict=True):
            rows = known[np.isfinite(known)]
            larger = len(rows) - np.searchsorted(rows, column.astype(np.float32), side="left")
            shares.append((1 + larger) / (len(rows) + 1))
        return np.min(shares, axis=0)

    def predict_information(self, X: Table) -> np.ndarray:
        """How many nats the target of each row would say about the model, to choose rows to label.

        Half the logarithm of total over aleatoric variance, `log(1 + epistemic F) / 2` with `F` the
        Fisher information of the predicted location: little where the model knows enough, and
        little where noise would hide the answer. Summed over the targets.

        Args:
            X: candidates, shape (rows, features).

        Returns:
            One number per row.

        Example:
            >>> import numpy as np
            >>> from fisher8_jax.estimator import Fisher8Regressor
            >>> X = np.random.default_rng(0).uniform(-1, 1, (100, 1))
            >>> model = Fisher8Regressor(n_members=2, max_steps=300, random_state=0)
            >>> pool = np.array([[0.0], [3.0]])  # among the data, and far from them
            >>> information = model.fit(X, X[:, 0]).predict_information(pool)
            >>> int(np.argmax(information))
            1
        """
        (values,) = self._run(predict_information, X)
        return values

    @keeps_programs
    def predict_distribution(self, X: Table) -> Prediction:
        """The predictive distribution in the units of the targets."""
        mixture = mixture_in_blocks(self._network(), self._ensemble(), *self._check_inputs(X))
        return Prediction(mixture, self.scaler_)

    def nll(self, X: Table, y: ArrayLike) -> np.ndarray:
        """The negative log-likelihood of each target, nan where it is missing.

        Args:
            X: inputs.
            y: targets, as in `fit`.

        Returns:
            One value per target, in the units of the data and with its constant.
        """
        inputs, outside = self._check_inputs(X)
        scaled = self._scaled_targets(inputs, y)
        (values,) = in_blocks(
            predict_nll, self._network(), self._ensemble(), inputs, outside, np.nan_to_num(scaled)
        )
        return np.where(np.isnan(scaled), np.nan, values + np.log(self.scaler_.scale))

    def _scaled_targets(self, inputs: np.ndarray, y: ArrayLike) -> np.ndarray:
        """Checked targets in the units of training, in float32."""
        targets = check_targets(y)
        check_consistent_length(inputs, targets)
        self._check_target_shape(targets)
        scaled = (targets - self.scaler_.shift) / self.scaler_.scale
        return scaled.astype(np.float32)

    def _check_target_shape(self, targets: np.ndarray) -> None:
        if targets.shape[1:] != self.target_shape_:
            raise ValueError(
                f"`y` must have rows of shape {self.target_shape_} as in `fit`, got "
                f"{targets.shape[1:]}."
            )

    def _check_inputs(self, X: Table) -> tuple[np.ndarray, np.ndarray]:
        """Encoded rows, and how far each lies outside the data."""
        check_is_fitted(self)
        columns = self._columns(X, reset=False)
        return self.encoder_.transform(columns), self.encoder_.outside(columns)

    def _columns(self, X: Table, *, reset: bool) -> list[TableColumn]:
        """The checked columns of a table."""
        check_unmasked("X", X)
        smallest = 2 if reset else 1
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) < smallest:
                raise ValueError(f"`X` must have at least {smallest} rows, got {len(X)}.")
            return columns_of_frame(X)
        with numbers_expected("X", "Words are read from a data frame (pandas, polars, pyarrow)."):
            array = validate_data(
                self,
                X,
                reset=reset,
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                ensure_min_samples=smallest,
            )
        return columns_of_array(array)

    def _ensemble(self) -> Ensemble:
        return Ensemble(self.params_, self.reference_params_, self.knowledge_, self.calibration_)

    def _moments_of(self, columns: list[TableColumn]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation for columns that are checked already."""
        rows = self.encoder_.transform(columns), self.encoder_.outside(columns)
        mean, std, _, _ = in_blocks(predict_moments, self._network(), self._ensemble(), *rows)
        return self._to_units(mean), std * np.asarray(self.scaler_.scale)

    def _network(self) -> DenseNetwork:
        link = link_of(find_likelihood(self.family_, self.family))
        return DenseNetwork(check_hidden(self.hidden_layer_sizes), link, self.target_shape_)

    @keeps_programs
    def _run(self, program: Any, X: Table, extra: tuple = ()) -> list[np.ndarray]:
        rows = self._check_inputs(X)
        return in_blocks(program, self._network(), self._ensemble(), *rows, extra=extra)

    def _to_units(self, values: np.ndarray) -> np.ndarray:
        return values * np.asarray(self.scaler_.scale) + np.asarray(self.scaler_.shift)
