# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both make a virtual environment in .venv first. PYTHON chooses the interpreter (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export JAX_PLATFORMS ?= cpu
# Tests start dozens of processes; without stored bytecode each would compile all imports again.
unexport PYTHONDONTWRITEBYTECODE
MINIMUM_TESTS := tests/test_fisher8.py tests/test_optax.py tests/test_microbatches.py tests/families \
	tests/losses tests/metrics tests/optimizers tests/curvature

.PHONY: demo test test-library test-benchmarks test-minimum test-slow test-optimized suites lint docs links package clean

# It needs less than the tests do, so it installs less.
demo: $(VENV)/.demo
	$(BIN)/python -m benchmarks engel

# Everything that a change can break, in one run, so that both processes stay busy to the end.
test: lint
	$(BIN)/python -m pytest

# The two halves of it.
test-library: $(VENV)/.installed
	$(BIN)/python -m pytest --ignore=tests/benchmarks

test-benchmarks: $(VENV)/.installed
	$(BIN)/python -m pytest tests/benchmarks

# The core on the oldest versions that pyproject.toml promises.
test-minimum:
	$(PYTHON) -m venv .venv-minimum
	.venv-minimum/bin/python -m pip install --quiet $$($(PYTHON) -m tests.minimum_versions) -e '.[minimum]'
	.venv-minimum/bin/python -m pytest $(MINIMUM_TESTS)

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow

# The checks of scikit-learn, skpro, MAPIE and crepes, in an environment of their own.
suites: $(VENV)/.python
	$(BIN)/python -m tests.suites .venv-suites

# The fast tests, with programs compiled as users compile them; see conftest.py.
test-optimized: $(VENV)/.installed
	XLA_FLAGS= JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

links: $(VENV)/.installed
	$(BIN)/sphinx-build -q -b linkcheck docs docs/_build/links

# Wheel and sdist; the wheel must pass the tests of the sdist, in a folder without the sources.
package: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m tests.installed_wheel dist

$(VENV)/.python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[benchmarks]'
	touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-minimum .venv-suites build dist *.egg-info docs/_build .jax_cache
