"""The doctor on networks that were really trained: healthy ones, and ones with a known fault."""

import numpy as np
import pytest
from trainings import Setup, train_all

from fisher8_jax.diagnostics import doctor

HEALTHY = {
    **{f"seed {seed}": Setup(seed) for seed in range(6)},
    **{f"higher frequency, seed {seed}": Setup(seed, frequency=4.0) for seed in (10, 11)},
    **{
        f"constant learning rate, seed {seed}": Setup(seed, learning_rate=0.003, decay=0.0)
        for seed in (20, 21)
    },
}

# Name of the fault, how it is made, and the code that must be among the findings.
FAULTY = {
    "too few points": (Setup(1, points=40), "overconfident"),
    "too few points, seen in validation": (Setup(2, points=40), "overfitted"),
    "noisier training targets": (Setup(3, label_noise=0.8), "variance_inflated"),
    "scale head hardly trained": (Setup(4, scale_rate=0.01), "variance_inflated"),
    "variance clipped from below": (Setup(5, lowest_log_variance=-2.3), "variance_saturated"),
    "start outside the clip": (Setup(6, highest_log_variance=-2.2), "variance_saturated"),
    "learning rate 3": (Setup(7, learning_rate=3.0), "learning_rate_too_high"),
    "learning rate 0.5": (Setup(8, learning_rate=0.5), "learning_rate_too_high"),
    "learning rate 1e-4": (Setup(9, learning_rate=1e-4, decay=0.0), "learning_rate_too_low"),
    "stopped early": (Setup(10, learning_rate=0.002, steps=90, decay=0.0), "undertrained"),
    "targets times 100": (Setup(11, target_scale=100.0), "target_scale_off"),
    "targets plus 100": (Setup(12, target_shift=100.0), "target_scale_off"),
    "targets times 1e30": (Setup(13, target_scale=1e30), "non_finite_predictions"),
    "high frequency by NLL": (
        Setup(14, frequency=12.0),
        "mean_worse_than_unit_variance",
    ),
}
REFERENCE = FAULTY["high frequency by NLL"][0]._replace(unit_variance=1.0)


@pytest.fixture(scope="module")
def runs():
    """All trainings, in one compiled program."""
    setups = [*HEALTHY.values(), *(setup for setup, _ in FAULTY.values()), REFERENCE]
    return dict(zip([*HEALTHY, *FAULTY, "reference"], train_all(setups), strict=True))


@pytest.mark.parametrize("name", HEALTHY)
def test_silent_on_healthy_trainings(runs, name):
    dist, targets, record = runs[name]
    diagnosis = doctor(dist, targets, record=record, unit_variance_mean=dist.mean)
    assert not diagnosis, str(diagnosis)
    assert str(diagnosis) == "No fault found."


@pytest.mark.parametrize("name", FAULTY)
def test_names_the_fault(runs, name):
    dist, targets, record = runs[name]
    reference = runs["reference"][0].mean if name == "high frequency by NLL" else None
    diagnosis = doctor(dist, targets, record=record, unit_variance_mean=reference)
    expected = FAULTY[name][1]
    assert expected in diagnosis.codes, str(diagnosis)
    finding = next(f for f in diagnosis.findings if f.code == expected)
    assert finding.figures
    assert finding.advice in str(diagnosis).replace("\n    ", " ")


@pytest.mark.slow
def test_holds_over_many_seeds():
    """Counted here: at most 1 of 40 healthy trainings is accused, 9 of 10 faults are named."""
    healthy = [Setup(100 + seed) for seed in range(40)]
    accused = [bool(doctor(d, y, record=record)) for d, y, record in train_all(healthy)]
    assert sum(accused) <= 1

    faults = [pair for pair in FAULTY.values() if pair[1] != "mean_worse_than_unit_variance"]
    setups = [setup._replace(seed=200 + seed) for setup, _ in faults for seed in range(10)]
    runs = iter(train_all(setups))
    for setup, code in faults:
        found = [
            doctor(d, y, record=record).codes for d, y, record in (next(runs) for _ in range(10))
        ]
        named = sum(code in codes for codes in found)
        assert named >= 9, f"{code} was named in {named} of 10 trainings of {setup}: {found}"


@pytest.mark.slow
def test_sees_the_worse_mean_over_many_seeds():
    seeds = [REFERENCE._replace(seed=seed) for seed in range(200, 210)]
    means = [dist.mean for dist, _, _ in train_all(seeds)]
    runs = train_all([setup._replace(unit_variance=0.0) for setup in seeds])
    named = 0
    for (dist, targets, _), mean in zip(runs, means, strict=True):
        worse = np.mean((targets - dist.mean) ** 2) > 1.05 * np.mean((targets - mean) ** 2)
        codes = doctor(dist, targets, unit_variance_mean=mean).codes
        named += ("mean_worse_than_unit_variance" in codes) == worse
    assert named >= 9
