"""What crepes does with a regressor: `python -m tests.suites.crepes_checks`.

Its package has no tests, so every method of `WrapRegressor` is called here, and coverage compared
with what is promised.
"""

import crepes
import numpy as np
from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator, MondrianCategorizer

from tests.suites.small import SmallRegressor, assert_covers, make_data, run

X, Y = make_data(2)


def _wrapped() -> WrapRegressor:
    wrapped = WrapRegressor(SmallRegressor())
    wrapped.fit(*make_data(0))
    return wrapped


def _std(wrapped: WrapRegressor) -> DifficultyEstimator:
    """The predicted standard deviation says how difficult a row is."""
    difficulty = DifficultyEstimator()
    difficulty.fit(f=lambda x: wrapped.learner.predict(x, return_std=True)[1])
    return difficulty


def _intervals(wrapped: WrapRegressor, **options: object) -> None:
    wrapped.calibrate(*make_data(1), seed=0, **options)
    for confidence in (0.8, 0.95):
        low, high = wrapped.predict_int(X, confidence=confidence, seed=0).T
        assert_covers(low, high, Y, confidence)


def plain() -> None:
    """Split conformal intervals of one width."""
    _intervals(_wrapped())


def normalised() -> None:
    """Intervals as wide as the predicted standard deviation says: narrower on average here."""
    wrapped = _wrapped()
    _intervals(wrapped, de=_std(wrapped))
    assert np.ptp(np.diff(wrapped.predict_int(X), axis=1)) > 0.1


def by_category() -> None:
    """A calibration for each of three ranges of the predicted mean."""
    wrapped, categories = _wrapped(), MondrianCategorizer()
    categories.fit(make_data(1)[0], f=wrapped.learner.predict, no_bins=3)
    _intervals(wrapped, mc=categories)


def predictive_systems() -> None:
    """Whole distributions: intervals, percentiles in order, p-values that are uniform."""
    wrapped = _wrapped()
    _intervals(wrapped, cps=True, de=_std(wrapped))
    quartiles = wrapped.predict_percentiles(X, lower_percentiles=[25, 50, 75])
    assert np.all(np.diff(quartiles, axis=1) >= 0)
    assert np.asarray(wrapped.predict_cpds(X[:5])).shape[0] == 5
    p_values = wrapped.predict_p(X, Y, seed=0)
    # Four standard errors of a mean over the rows and over as many that calibrated.
    assert abs(np.mean(p_values) - 0.5) < 4 * np.sqrt(2 / 12 / len(Y))


def p_values() -> None:
    """Those of the targets themselves are uniform."""
    wrapped = _wrapped()
    wrapped.calibrate(*make_data(1), seed=0)
    assert abs(np.mean(wrapped.predict_p(X, Y, seed=0)) - 0.5) < 4 * np.sqrt(2 / 12 / len(Y))


def online() -> None:
    """Calibrated by each row that was predicted, without those set aside."""
    wrapped = _wrapped()
    wrapped.calibrate(*make_data(1), seed=0)
    low, high = wrapped.predict_int(X, Y, confidence=0.8, online=True, warm_start=False, seed=0).T
    assert_covers(low[50:], high[50:], Y[50:], 0.8)


def evaluation() -> None:
    """Its own measures are finite, and the error is what was asked for."""
    wrapped = _wrapped()
    wrapped.calibrate(*make_data(1), seed=0)
    found = wrapped.evaluate(X, Y, confidence=0.9)
    assert all(np.isfinite(value) for value in found.values())
    assert abs(found["error"] - 0.1) < 4 * np.sqrt(2 * 0.09 / len(Y))


if __name__ == "__main__":
    checks = (plain, normalised, by_category, predictive_systems, p_values, online, evaluation)
    run(f"crepes {crepes.__version__}", {check.__name__: check for check in checks})
