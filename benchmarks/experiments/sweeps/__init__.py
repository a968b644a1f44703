"""Sweeps of published methods with settings of their own, chosen on held-out rows."""
