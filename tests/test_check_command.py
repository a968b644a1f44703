"""`python -m fisher8_jax check`: exact gradients are found, others are named."""

import jax
import jax.numpy as jnp
import pytest

from fisher8_jax.command import _check, main


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def test_the_check_command_finds_exact_gradients(capsys):
    assert main(["check", "--rows", "16", "--width", "4"]) == 0
    lines = capsys.readouterr().out
    for words in ("jaxlib", "device 0: cpu", "fisher8  ", "network_gradient", "times a step"):
        assert words in lines


def test_the_check_command_sees_what_is_not_exact(capsys, monkeypatch):
    """One part in a hundred, as in matrix products of bfloat16."""
    exact = _check.network_gradient

    def coarse(*args, **kwargs):
        step = exact(*args, **kwargs)
        rounded = jax.tree.map(lambda g: g.astype(jnp.bfloat16).astype(g.dtype), step.gradient)
        return step._replace(gradient=rounded)

    monkeypatch.setattr(_check, "network_gradient", coarse)
    assert main(["check", "--rows", "16", "--width", "4"]) == 1
    assert "NOT EXACT" in capsys.readouterr().out
    assert main(["check", "--rows", "1"]) == 1
    assert "--rows" in capsys.readouterr().err
