"""Compiled programs stay in a folder of our own, and nobody's settings change."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from fisher8_jax._internal.programs import VARIABLE, keeps_programs

NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@keeps_programs
def compiled(number):
    """A program that no other test compiles."""
    return float(jax.jit(lambda x: jnp.sin(x * number) + number)(jnp.ones(3)).sum())


@pytest.fixture
def no_cache():
    """JAX without a persistent cache, as users have it; the suite's own comes back."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield {name: getattr(jax.config, name) for name in NAMES}
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_programs_are_kept_and_settings_restored(tmp_path, monkeypatch, no_cache):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    compiled(1.25)
    assert files(tmp_path)
    assert {name: getattr(jax.config, name) for name in NAMES} == no_cache
    kept = files(tmp_path)
    jax.jit(lambda x: jnp.cos(x * 2.75))(jnp.ones(3)).block_until_ready()
    assert files(tmp_path) == kept  # what the user compiles is not ours to keep


@pytest.mark.parametrize("value", ["", "0"])
def test_the_variable_turns_it_off(value, tmp_path, monkeypatch, no_cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, value)
    compiled(1.375)
    assert not files(tmp_path)


def test_it_is_in_the_cache_folder_and_errors_restore(tmp_path, monkeypatch, no_cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)

    @keeps_programs
    def fails():
        compiled(1.4375)
        raise KeyError("wanted")

    with pytest.raises(KeyError, match="wanted"):
        fails()
    assert files(tmp_path / "fisher8_jax")
    assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch, no_cache):
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    assert compiled(1.5) == compiled(1.5)


def test_a_cache_of_the_user_is_left_alone(tmp_path, monkeypatch, no_cache):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    jax.config.update("jax_compilation_cache_dir", str(theirs))
    monkeypatch.setenv(VARIABLE, str(ours))
    compiled(1.625)
    assert jax.config.jax_compilation_cache_dir == str(theirs)
    assert not ours.exists() or not files(ours)


PROGRAM = """
import jax, jax.numpy as jnp
from fisher8_jax._internal.programs import keeps_programs
print(keeps_programs(lambda: float(jax.jit(lambda x: jnp.sin(x * 1.75).sum())(jnp.ones(3))))())
"""


def test_two_processes_may_write_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    command = [sys.executable, "-c", PROGRAM]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1] == subprocess.check_output(command, text=True)
    assert files(tmp_path)
