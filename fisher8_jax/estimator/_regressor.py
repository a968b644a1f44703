"""A regressor with scikit-learn's conventions that also says how sure it is."""

import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from fisher8_jax._internal.checks import check_unmasked
from fisher8_jax._internal.programs import keeps_programs
from fisher8_jax.estimator._answers import Predicts
from fisher8_jax.estimator._calibration import calibrate, know
from fisher8_jax.estimator._columns import Encoder
from fisher8_jax.estimator._epistemic import NEVER
from fisher8_jax.estimator._estimator_checks import (
    as_targets,
    check_some_targets,
    check_targets,
)
from fisher8_jax.estimator._families import check_support, choose_likelihoods, find_likelihood
from fisher8_jax.estimator._frames import (
    Table,
    TableColumn,
)
from fisher8_jax.estimator._memory import Memory, check_memory
from fisher8_jax.estimator._saving import load_estimator, write_estimator
from fisher8_jax.estimator._setup import check_setup
from fisher8_jax.estimator._training import (
    Rows,
    best_candidate,
    choose_reference,
    train_candidates,
    train_on,
)
from fisher8_jax.estimator._widths import Calibration


class Fisher8Regressor(RegressorMixin, Predicts):
    """An ensemble of networks that predicts a mean and an honest variance, without tuning.

    Columns are encoded and targets are brought to unit size. Each member is a dense network with
    the head of a likelihood. A part of the rows, another for each member, is held out: training
    stops when their NLL no longer falls, and the best parameters are kept. The members of a method
    train together in one compiled program. The prediction is the members' mixture.

    `X` may be a matrix of numbers or a data frame of pandas or polars with categories, strings,
    booleans and times; nan and None count as missing. Targets that are nan count as missing. `y`
    may have several columns.

    Args:
        family: the likelihood: 'gaussian', another name such as 'student_t', 'gamma', 'poisson',
            'beta' or 'von_mises', a class of `fisher8_jax.families`, or 'auto', which trains all
            whose support fits the targets and keeps the one with the lowest held-out NLL.
        methods: how members are trained: a `fisher8_jax.training.Method`, several, or 'auto', which
            depends on the number of rows (`docs/estimator.md` has the table). Of several the one
            with the lowest held-out NLL is kept, and the members of others that are about as good.
        bins: whether networks see numbers in bins as well, for tables with steps; 'auto' is True
            for methods of your own and tries both otherwise.
        effort: what a fit may cost: 'default'; 'quick', about a fifth of it, with three members of
            a third of the steps; 'best', about ten times as much, with 15 members of three times
            the steps. Only what is 'auto' below depends on it.
        n_members: networks trained by each method, or 'auto'.
        hidden_layer_sizes: the widths of the hidden layers.
        max_steps: gradient steps of each member, or 'auto' for a number that grows with the rows.
        batch_size: rows per step, or 'auto' for 64, and 32 below 600 rows.
        validation_fraction: the part of the rows that each member holds out, at most 2,000 rows.
        patience: training stops after this fraction of `max_steps` without a better held-out NLL,
            and sooner if the best came early; 1 or more makes all steps.
        shrink_variance: True calibrates the mixture by the rows that members held out: their
            variances are multiplied by `variance_factor_`, so that what they disagree about is not
            counted twice, Gaussians get heavier tails if errors have them, and rows that are less
            much less familiar than the training rows get the posterior variance. False leaves
            the plain mixture of a deep ensemble. The factor is for 'gaussian', 'student_t' and
            'laplace', the tails are for 'gaussian' alone.
        random_state: an integer for the same result every time.
        show_progress: True shows progress on a terminal and in a notebook.
        checkpoint_dir: a folder for the unfinished training (extra `checkpoints`): a fit that was
            killed and is called again goes on from there and ends with the same bits. Needs an
            integer `random_state`. A folder of other data or settings is refused; remove it when
            the model is saved.

    Attributes:
        n_features_in_: the number of columns of `X`.
        feature_names_in_: their names, if `X` had names.
        family_: the name of the likelihood that was chosen.
        methods_: the methods whose members were kept, the best among them.
        n_iter_: gradient steps of the ensemble that was kept.
        held_out_nll_: each member's best held-out NLL, in the units of the data.
        candidates_: the mean held-out NLL of every pair of likelihood and method that was tried.
        variance_factor_: what the members' variances are multiplied by where all is known, one
            number per target.
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
        family: Any = "gaussian",
        methods: Any = "auto",
        bins: Any = "auto",
        effort: str = "default",
        n_members: Any = "auto",
        hidden_layer_sizes: Any = (64, 64, 64),
        max_steps: Any = "auto",
        batch_size: Any = "auto",
        validation_fraction: float = 0.1,
        patience: float = 0.3,
        shrink_variance: bool = True,
        random_state: Any = None,
        show_progress: bool = True,
        checkpoint_dir: Any = None,
    ):
        self.family = family
        self.methods = methods
        self.bins = bins
        self.effort = effort
        self.n_members = n_members
        self.hidden_layer_sizes = hidden_layer_sizes
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.shrink_variance = shrink_variance
        self.random_state = random_state
        self.show_progress = show_progress
        self.checkpoint_dir = checkpoint_dir

    @keeps_programs
    def fit(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the ensemble.

        Args:
            X: a matrix of numbers, or a data frame; shape (rows, features).
            y: targets, shape (rows,) or (rows, targets); nan where missing.
            sample_weight: the importance of each row; only ratios matter.

        Returns:
            The fitted estimator.
        """
        # On a copy, and taken over in one step: a fit that fails or is interrupted changes nothing.
        fresh = type(self)(**self.get_params(deep=False))
        fresh._fit(X, y, sample_weight)
        return self._become(fresh)

    def partial_fit(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Goes on training with more rows; the first call is `fit`.

        Scales, levels of categories, likelihood and method stay what they are. Nothing is
        forgotten: the members train on the new rows and on up to 20,000 of the old ones, which the
        estimator remembers. Every member goes on holding out the rows that it held out before, and
        a part of the new ones.

        Args:
            X: see `fit`; the same columns.
            y: see `fit`.
            sample_weight: see `fit`.

        Returns:
            The fitted estimator.
        """
        if not hasattr(self, "params_"):
            return self.fit(X, y, sample_weight)
        fresh = copy.copy(self)
        fresh._fit_on(X, y, sample_weight)
        return self._become(fresh)

    def _become(self, fresh: Self) -> Self:
        """Takes over what was fitted, all at once; what others attached to the object stays."""
        attached = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = vars(fresh) | attached
        return self

    def _fit(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        columns, targets, is_present, weights = self._present(X, y, sample_weight, reset=True)
        setup = check_setup(self, len(targets))
        likelihoods = choose_likelihoods(self.family, targets, is_present)
        self.encoder_ = Encoder.fit(columns)
        rows = Rows(self.encoder_.transform(columns), targets, is_present, weights)
        seed = check_random_state(self.random_state).randint(2**31)
        candidates = train_candidates(rows, self.encoder_.is_bin(), likelihoods, setup, seed)
        best, self.reference_params_ = best_candidate(candidates), choose_reference(candidates)
        self.target_shape_ = targets.shape[1:]
        self.family_, self.methods_, self.scaler_ = best.family, best.methods, best.scaler
        self._keep(best.params, Memory(rows, self.encoder_.outside(columns), best.held_out), seed)
        self.held_out_nll_ = best.held_out_nll
        self.candidates_ = {one.name: float(np.mean(one.held_out_nll)) for one in candidates}
        self.n_iter_ = best.steps

    def _fit_on(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        columns, targets, is_present, weights = self._present(X, y, sample_weight, reset=False)
        self._check_target_shape(targets)
        network, likelihood = self._network(), find_likelihood(self.family_, self.family)
        check_support(self.family_, likelihood, targets, is_present)
        rows = Rows(self.encoder_.transform(columns), targets, is_present, weights)
        seed = check_random_state(self.random_state).randint(2**31)
        memory = check_memory(self.memory_).joined(
            rows, self.encoder_.outside(columns), self.validation_fraction, seed
        )
        members = len(self.held_out_nll_)
        setup = check_setup(self, len(memory.rows.targets), new_rows=len(targets))
        setup = setup._replace(members=members)
        held_out = np.tile(memory.held_out, (members // len(memory.held_out), 1))
        params, steps, nll = train_on(
            memory.rows,
            self.encoder_.is_bin(),
            network,
            self.scaler_,
            self.params_,
            self.methods_[0],
            setup,
            seed,
            held_out,
        )
        self._keep(params, memory, seed)
        self.held_out_nll_ = nll
        self.n_iter_ += steps

    def save(self, path: str | Path, *, with_rows: bool = False) -> None:
        """Writes the fitted estimator to one file, without pickle.

        Args:
            path: replaced in one step when the file is complete.
            with_rows: whether the file also holds the training rows, which `partial_fit` needs.
                Without them it has the encoded inputs of up to 128 rows, and no targets.
        """
        check_is_fitted(self)
        write_estimator(self, path, with_rows=with_rows)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote; raises `ArtifactError` for anything else."""
        return load_estimator(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _present(
        self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[list[TableColumn], np.ndarray, np.ndarray, np.ndarray]:
        """Checked columns, targets, which of these are there, and weights of mean 1.

        Rows without a target or without weight are left out.
        """
        columns, targets, weights = self._check_data(X, y, sample_weight, reset=reset)
        is_present = ~np.isnan(targets) & (as_targets(weights, targets) > 0)
        check_some_targets(is_present)
        kept = is_present.reshape(len(targets), -1).any(axis=1)
        columns = [column._replace(values=column.values[kept]) for column in columns]
        weights = weights[kept] / weights.max()  # first, because the sum of large ones overflows
        return columns, targets[kept], is_present[kept], weights / weights.mean()

    def _check_data(
        self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[list[TableColumn], np.ndarray, np.ndarray]:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        columns = self._columns(X, reset=reset)
        targets = check_targets(y)
        check_consistent_length(columns[0].values, targets)
        check_unmasked("sample_weight", sample_weight)
        weights = _check_sample_weight(
            sample_weight, columns[0].values[:, None], dtype=np.float64, ensure_non_negative=True
        )
        return columns, targets, weights

    def _keep(self, params: Any, memory: Memory, seed: int) -> None:
        """Trained members, how wide their mixture is, what they know, and their rows."""
        network, likelihood = self._network(), find_likelihood(self.family_, self.family)
        known = knowledge, self.known_variance_ = know(network, self.reference_params_, memory.rows)
        if self.shrink_variance:
            found = calibrate(network, likelihood, params, memory, self.scaler_, known)
        else:
            found = Calibration.none(len(self.known_variance_))
            knowledge = knowledge._replace(level=np.full_like(knowledge.level, NEVER))
        self.params_, self.calibration_ = params, found
        self.knowledge_, self.memory_ = knowledge, memory.limited(seed)
        self.conformal_ = None
