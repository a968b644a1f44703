"""scikit-learn's own list of checks."""

import jax
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from fisher8_jax.estimator import Fisher8Regressor

SHORT = Fisher8Regressor(n_members=1, hidden_layer_sizes=(8,), max_steps=200)
FAST = (
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_fit2d_1sample",
    "check_get_params_invariance",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_supervised_y_no_nan",
    "check_valid_tag_types",
)


def expected_failures(estimator):
    """Weights are not multiplicities for a learner of random batches.

    The checks fit with integer weights and with rows repeated that often, and want the same
    predictions. Repeated rows are another number of rows, so folds and batches are others.
    """
    reason = "batches and folds are drawn from the rows, so repeating a row is not weighting it"
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def name_of(check):
    return getattr(check, "func", check).__name__


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@parametrize_with_checks([SHORT], expected_failed_checks=expected_failures)
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [check for _, check in estimator_checks_generator(SHORT) if name_of(check) in FAST],
    ids=name_of,
)
@pytest.mark.filterwarnings("default")
def test_quick_checks_of_scikit_learn(check):
    check(clone(SHORT))
