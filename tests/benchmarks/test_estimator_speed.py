"""The seconds of the estimator: every item has a program, and what is stored is printed."""

from benchmarks.costs import estimator_speed
from benchmarks.machinery.store import DEFAULT_RESULTS, Store


def test_cold_items_begin_without_programs(monkeypatch):
    """And every item has the seconds of its own program, on a clock that counts calls."""
    calls = []
    programs = {title: lambda title=title: calls.append(title) for title in estimator_speed.IS_COLD}
    monkeypatch.setattr(estimator_speed.time, "process_time", lambda: float(len(calls)))
    monkeypatch.setattr(estimator_speed, "make_programs", lambda: programs)
    monkeypatch.setattr(estimator_speed.jax, "clear_caches", lambda: calls.append("cleared"))
    monkeypatch.setattr(estimator_speed.jax.config, "update", lambda *setting: None)
    seconds = estimator_speed.measure()
    assert seconds == dict.fromkeys(estimator_speed.IS_COLD, 1.0)
    assert list(seconds) == list(estimator_speed.IS_COLD)
    before = dict(zip(calls[1:], calls, strict=False))
    for title, is_cold in estimator_speed.IS_COLD.items():
        assert (before[title] == "cleared") == is_cold


def test_what_is_stored_is_printed():
    found = estimator_speed.section(Store(DEFAULT_RESULTS))
    assert found is not None
    assert [row[0] for row in found.blocks[0].rows] == list(estimator_speed.IS_COLD)
    assert estimator_speed.section(Store(DEFAULT_RESULTS / "nowhere")) is None
