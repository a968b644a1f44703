"""Scores of predicted distributions: arrays in, arrays out; `evaluate` gives all of them."""

from fisher8_jax.metrics._bootstrap import Bootstrap as Bootstrap
from fisher8_jax.metrics._calibration_error import ece as ece
from fisher8_jax.metrics._evaluate import evaluate as evaluate
from fisher8_jax.metrics._evaluation import Evaluation as Evaluation
from fisher8_jax.metrics._intervals import Interval as Interval
from fisher8_jax.metrics._scores import nll as nll
from fisher8_jax.metrics._scores import rmse as rmse
