import pytest

from benchmarks.costs.speed import section, summarize, words
from benchmarks.machinery.store import Store


def make_round(ours: float, torch: float) -> dict:
    """Times in which every figure of a side scales with one number."""
    return {
        "ours": {
            "sweep_seconds": 10 * ours,
            "uci_step_seconds": 2e-5 * ours,
            "sinusoid_step_seconds": 1e-4 * ours,
            "matmul_flop_per_second": 1e11 / ours,
        },
        "torch": {
            "torch": "2",
            "threads": 1,
            "trainings": 40,
            "loads": 8,
            "steps_per_training": 100,
            "seconds": {"load": 0.8 * torch, "train": 2.0 * torch, "score": 0.4 * torch},
            "sinusoid_step_seconds": 1e-3 * torch,
        },
    }


def test_ratios_are_those_of_the_best_round_of_each_side():
    figures = summarize([make_round(1, 9), make_round(5, 1)])
    # 160 loads of 0.1 s, and 4800 trainings of 2.4 s / 40
    assert figures["torch_sweep_seconds_extrapolated"] == pytest.approx(160 * 0.1 + 4800 * 0.06)
    assert figures["sweep_ratio"] == pytest.approx(304 / 10)
    # 2 s for 40 trainings of 100 steps are 500 us a step
    assert figures["step_ratio"] == pytest.approx(500 / 20)
    assert figures["sinusoid_ratio"] == pytest.approx(10)
    # 480,000 steps of 3 products on 32 rows, 16-50-50-2, at two floating-point operations each
    assert figures["gigaflop"] == pytest.approx(480_000 * 3 * 2 * 32 * 3400 / 1e9)
    assert figures["loop_over_least"] == pytest.approx(2e-5 * 1e11 / (6 * 32 * 3400))


def test_the_report_says_on_what_it_was_measured(tmp_path):
    rounds = [make_round(1, 1)]
    store = Store(tmp_path)
    assert section(store) is None
    machine = {"cores": 2, "processor": "a chip", "load": 0.5}
    result = {"summary": summarize(rounds), "rounds": rounds, "machine": machine}
    store.write("speed/uci-sgd", spec={}, result=result, provenance={})
    text = section(store).blocks[0].text
    assert text.startswith("On 2 cores of a chip (load average 0.5 at the end), PyTorch 2 with")
    assert words(summarize(rounds)) in text
