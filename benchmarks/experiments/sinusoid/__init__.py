"""The one-dimensional sinusoid over training."""
