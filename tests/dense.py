"""The Fisher8 rule written a second time, in NumPy with dense matrices, for comparison only."""

import numpy as np


def gaussian_gradient(mean, log_variance, targets):
    """Gradient of the NLL, hand-derived, as float64 arrays (d_mean, d_log_variance)."""
    precision = np.exp(-log_variance)
    residual = mean - targets
    return precision * residual, 0.5 - 0.5 * precision * residual**2


def dense_natural(mean, log_variance, d_mean, d_log_variance):
    """Solves `F n = g` with the Fisher matrix of the whole batch written out, no closed form."""
    size = mean.size
    fisher = np.zeros((2 * size, 2 * size))
    fisher[:size, :size] = np.diag(np.exp(-log_variance.ravel()))
    fisher[size:, size:] = 0.5 * np.eye(size)
    gradient = np.concatenate([d_mean.ravel(), d_log_variance.ravel()])
    natural = np.linalg.solve(fisher, gradient)
    return natural[:size].reshape(mean.shape), natural[size:].reshape(mean.shape)


def dense_fisher8(mean, log_variance, targets, axis=0):
    """The cotangents of the paper's rule for the Gaussian NLL."""
    gradient = gaussian_gradient(mean, log_variance, targets)
    natural = dense_natural(mean, log_variance, *gradient)
    norms = [np.sqrt(np.sum(n**2, axis=axis, keepdims=True)) for n in natural]
    return tuple(
        np.divide(n, norm, out=np.zeros_like(n), where=norm > 0)
        for n, norm in zip(natural, norms, strict=True)
    )
