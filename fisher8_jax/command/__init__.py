"""The command line: a model from a CSV file, a report on it, and predictions."""

from fisher8_jax.command._arguments import main as main
