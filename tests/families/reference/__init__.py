"""Reference values for the families over wide ranges of their parameters."""
