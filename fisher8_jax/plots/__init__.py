"""Pictures of predictions and of training; the only part that imports matplotlib."""

from fisher8_jax._internal.extras import needs_extra as _needs_extra

with _needs_extra("plots", package="matplotlib", needed_by="fisher8_jax.plots"):
    from fisher8_jax.plots._fit import plot_fit as plot_fit
    from fisher8_jax.plots._importance import plot_importance as plot_importance
    from fisher8_jax.plots._reliability import plot_intervals as plot_intervals
    from fisher8_jax.plots._reliability import plot_pit as plot_pit
    from fisher8_jax.plots._reliability import plot_reliability as plot_reliability
    from fisher8_jax.plots._reliability import plot_residuals as plot_residuals
