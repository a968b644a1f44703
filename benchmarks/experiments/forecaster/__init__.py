"""A distribution for every step of a series: the forecaster of `examples/` by several losses."""
