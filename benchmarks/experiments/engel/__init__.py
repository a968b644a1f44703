"""Plain NLL beside Fisher8 on a small real data set."""
