"""The natural gradient in parameter space beside first-order methods at equal processor time."""
