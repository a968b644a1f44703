"""The estimator beside gradient boosting on tables."""
