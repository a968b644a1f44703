"""Baselines that run in environments of their own. What is imported there is NumPy and theirs."""
