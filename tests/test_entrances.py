"""Unusual arrays at every public entrance: the right result, or a refusal that names the argument.

NumPy's masked arrays lose their mask in most conversions; big-endian, object and strided arrays are
where code that looks at memory goes wrong. The numbers are exact in float16.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

from fisher8_jax import Gaussian, evaluate, fisher8, fisher8_nll, losses, metrics
from fisher8_jax.artifacts import TargetScaler, load_artifact, save_artifact
from fisher8_jax.calibration import IsotonicPIT, SplitConformal, VarianceScaling
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.plots import plot_fit
from fisher8_jax.training import Data
from fisher8_jax.training._data import check_data

ROWS = 24
VALUES = (np.random.default_rng(0).integers(1, 32, ROWS) / 8).astype(np.float32)
MASK = VALUES > 1


def strided(array):
    wide = np.zeros((len(array), 3), array.dtype)
    wide[::-1, 1] = array
    return wide[::-1, 1]


KINDS = {
    "masked": lambda a: np.ma.masked_array(a, np.arange(len(a)) % 3 == 0),
    "object": lambda a: a.astype(object),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "strided": strided,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype),
    "float16": lambda a: a.astype(np.float16),
    "text": lambda a: a.astype(str),
}
REFUSED = {"masked", "text"}  # everywhere: half of what they say would be lost, or guessed
ACCEPTED = {"strided", "read-only", "float16"}  # everywhere


def dist(mean=None, log_variance=None):
    return Gaussian(
        jnp.ones(ROWS, jnp.float32) if mean is None else mean,
        jnp.zeros(ROWS, jnp.float32) if log_variance is None else log_variance,
    )


def feed(**parts):
    data = {"inputs": np.ones((ROWS, 1), np.float32), "targets": VALUES} | parts
    return check_data("data", Data(**data))


def drawn(inputs):
    axes = plot_fit(dist(), inputs, jnp.asarray(VALUES))
    lines = [line.get_xydata() for line in np.ravel(axes)[0].lines]
    plt.close("all")
    return lines


# Name of the argument, and what is computed from it.
ENTRANCES = {
    "Gaussian, mean": ("mean", lambda a: dist(a).nll(VALUES)),
    "Gaussian, log_variance": ("log_variance", lambda a: dist(log_variance=a).nll(VALUES)),
    "Gaussian.nll": ("targets", lambda a: dist().nll(a)),
    "Gaussian.cdf": ("targets", lambda a: dist().cdf(a)),
    "fisher8": ("mean", lambda a: fisher8(dist(a)).mean),
    "fisher8_nll, targets": ("targets", lambda a: fisher8_nll(dist(), a)),
    "fisher8_nll, weights": ("weights", lambda a: fisher8_nll(dist(), VALUES, weights=a)),
    "evaluate": ("targets", lambda a: evaluate(dist(), a)),
    **{
        f"metrics.{name}": ("targets", lambda a, name=name: getattr(metrics, name)(dist(), a))
        for name in ("nll", "rmse", "ece")
    },
    **{
        f"losses.{name}": ("targets", lambda a, name=name: getattr(losses, name)(dist(), a))
        for name in ("nll", "beta_nll", "unit_variance", "faithful")
    },
    "VarianceScaling.fit": ("targets", lambda a: VarianceScaling.fit(dist(), a)),
    "IsotonicPIT.fit": ("targets", lambda a: IsotonicPIT.fit(dist(), a)),
    "SplitConformal.fit": ("targets", lambda a: SplitConformal.fit(dist(), a)),
    "TargetScaler.fit": ("targets", TargetScaler.fit),
    "TargetScaler.fit, weights": ("weights", lambda a: TargetScaler.fit(VALUES, weights=a)),
    "TargetScaler.transform": ("targets", lambda a: TargetScaler(1.0, 2.0).transform(a)),
    "training, inputs": ("inputs", lambda a: feed(inputs=a).inputs),
    "training, targets": ("targets", lambda a: feed(targets=a).targets),
    "training, weights": ("weights", lambda a: feed(weights=a).weights),
    "TrainingRecord": ("losses", lambda a: TrainingRecord(losses=a).series("losses")),
    "plot_fit": ("inputs", drawn),
}  # fmt: skip


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def check(function, argument, values, kind):
    """The result of plain values, or an error that names the argument."""
    unusual = KINDS[kind](values)
    refusal = None
    try:
        result = function(unusual)
    except (TypeError, ValueError) as error:
        refusal = error
    if refusal is not None:
        assert argument in str(refusal)
        assert kind not in ACCEPTED, refusal
        return
    assert kind not in REFUSED
    expected = function(values)
    tolerance = 2e-2 if kind == "float16" else 1e-6
    for ours, theirs in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(
            np.asarray(ours, float), np.asarray(theirs, float), rtol=tolerance, atol=tolerance
        )


# These compile for seconds; what they refuse, they refuse before.
LONG = {"Gaussian.cdf", "metrics.ece", "IsotonicPIT.fit", "SplitConformal.fit"}
CASES = [
    pytest.param(
        entrance, kind, marks=[pytest.mark.slow] if entrance in LONG and kind in ACCEPTED else []
    )
    for entrance in ENTRANCES
    for kind in KINDS
]


@pytest.mark.parametrize(("entrance", "kind"), CASES)
def test_numbers(entrance, kind):
    argument, function = ENTRANCES[entrance]
    check(function, argument, VALUES, kind)


@pytest.mark.parametrize("kind", ["masked", "object", "strided", "read-only", "text"])
@pytest.mark.parametrize(
    "function",
    [
        lambda a: fisher8_nll(dist(), VALUES, where=a),
        lambda a: metrics.nll(dist(), VALUES, where=a),
        lambda a: VarianceScaling.fit(dist(), VALUES, where=a),
        lambda a: TargetScaler.fit(VALUES, where=a),
        lambda a: feed(where=a).where,
    ],
    ids=["fisher8_nll", "metrics", "calibration", "TargetScaler", "training"],
)
def test_masks(function, kind):
    check(function, "where", MASK, kind)


def test_artifacts_hold_what_they_were_given(tmp_path):
    def round_trip(array):
        save_artifact(tmp_path / "a", {"leaf": array})
        return load_artifact(tmp_path / "a").trees["leaf"]

    for kind in KINDS:
        check(round_trip, "leaf", VALUES, kind)


def model():
    return Fisher8Regressor(n_members=1, max_steps=50, hidden_layer_sizes=(4,), random_state=0)


def test_the_estimator_refuses_masked_arrays():
    inputs, masked = VALUES[:, None], KINDS["masked"](VALUES)
    with pytest.raises(TypeError, match="`X` is a masked array"):
        model().fit(masked[:, None], VALUES)
    with pytest.raises(TypeError, match="`y` is a masked array"):
        model().fit(inputs, masked)
    with pytest.raises(TypeError, match="`sample_weight` is a masked array"):
        model().fit(inputs, VALUES, sample_weight=masked)


@pytest.mark.slow
def test_the_estimator():
    """Objects and text that hold numbers are converted, as everywhere in scikit-learn."""
    inputs = VALUES[:, None]
    fitted = model().fit(inputs, VALUES)
    for kind in set(KINDS) - {"text"}:
        check(lambda a: fitted.predict(a[:, None]), "X", VALUES, kind)
        check(lambda a: fitted.nll(inputs, a), "y", VALUES, kind)
        check(lambda a: model().fit(a[:, None], VALUES).predict(inputs), "X", VALUES, kind)
        check(lambda a: model().fit(inputs, a).predict(inputs), "y", VALUES, kind)
        check(
            lambda a: model().fit(inputs, VALUES, sample_weight=a).predict(inputs),
            "sample_weight",
            VALUES,
            kind,
        )
