"""The KL radius beside tuned learning rates, on the UCI sets."""
