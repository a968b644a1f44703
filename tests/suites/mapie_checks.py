"""MAPIE's own tests with this library's regressor in the place of scikit-learn's linear one.

`python -m tests.suites.mapie_checks` reads those of its installed tests that ask a regressor for
nothing but scikit-learn's conventions, and then looks at the coverage of each kind of interval.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.dummy
import sklearn.linear_model

from tests.suites.small import SmallRegressor, assert_covers, make_data, report

sklearn.linear_model.LinearRegression = sklearn.dummy.DummyRegressor = SmallRegressor

import mapie  # after the line above, because it imports the names
from mapie import regression
from mapie.conformity_scores import ResidualNormalisedScore

FILES = ("test_common.py", "test_conformity_scores_property.py")
CONFIDENCE = 0.9


class Count:
    """A plugin: how many tests passed, and how many there were."""

    passed = total = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Every test has one report of its call, or a failed set-up."""
        if report.when == "call" or report.failed:
            self.total += 1
            self.passed += report.passed


def _split(score: object = "absolute") -> tuple[np.ndarray, ...]:
    method = regression.SplitConformalRegressor(
        SmallRegressor(), confidence_level=CONFIDENCE, conformity_score=score, prefit=False
    )
    method.fit(*make_data(0)).conformalize(*make_data(1))
    return method.predict_interval(make_data(2)[0])


def _cross() -> tuple[np.ndarray, ...]:
    method = regression.CrossConformalRegressor(SmallRegressor(), confidence_level=CONFIDENCE)
    return method.fit_conformalize(*make_data(0)).predict_interval(make_data(2)[0])


def _jackknife() -> tuple[np.ndarray, ...]:
    method = regression.JackknifeAfterBootstrapRegressor(
        SmallRegressor(), confidence_level=CONFIDENCE, resampling=10
    )
    return method.fit_conformalize(*make_data(0)).predict_interval(make_data(2)[0])


def _normalised() -> tuple[np.ndarray, ...]:
    return _split(ResidualNormalisedScore(residual_estimator=SmallRegressor(), random_state=0))


@pytest.mark.parametrize("intervals", [_split, _cross, _jackknife, _normalised])
def test_coverage(intervals):
    _, bounds = intervals()
    assert_covers(bounds[:, 0, 0], bounds[:, 1, 0], make_data(2)[1], CONFIDENCE)


def main() -> None:
    """Runs MAPIE's files and the test of this one."""
    folder, count = Path(mapie.__file__).with_name("tests"), Count()
    # Not those of classifiers, and without this repository's settings.
    options = ["-q", "-k", "not lassif", "-W", "ignore", "-c", os.devnull, "--noconftest"]
    options += ["-p", "no:cacheprovider"]
    pytest.main([*options, *(str(folder / name) for name in FILES), __file__], plugins=[count])
    report(f"MAPIE {mapie.__version__}", count.passed, count.total)


if __name__ == "__main__":
    sys.exit(main())
