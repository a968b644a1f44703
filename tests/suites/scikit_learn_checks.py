"""scikit-learn's checks of estimators: `python -m tests.suites.scikit_learn_checks`."""

import warnings

import sklearn
from sklearn.utils.estimator_checks import check_estimator

from tests.estimator.test_conventions import SHORT, expected_failures
from tests.suites.small import report


def main() -> None:
    """Runs them all; what is expected to fail is counted apart."""
    warnings.simplefilter("ignore")
    meant = expected_failures(SHORT)
    results = check_estimator(SHORT, on_fail=None, on_skip=None, expected_failed_checks=meant)
    count = dict.fromkeys(("passed", "xfail", "skipped", "failed"), 0)
    for result in results:
        count[result["status"]] += 1
        if result["status"] == "failed":
            print(result["check_name"], repr(result["exception"]))
    ran = count["passed"] + count["failed"]
    note = f", {count['xfail']} fail as documented, {count['skipped']} skipped"
    report(f"scikit-learn {sklearn.__version__}", count["passed"], ran, note)


if __name__ == "__main__":
    main()
