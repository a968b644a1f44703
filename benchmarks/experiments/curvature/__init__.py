"""The whole network: its natural gradient beside first-order methods at equal processor time."""
