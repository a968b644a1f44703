"""An estimator with scikit-learn's conventions; needs scikit-learn, the extra `estimator`."""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "`fisher8_jax.estimator` needs scikit-learn. Install it with "
        "`pip install 'fisher8_jax[estimator]'`."
    ) from error

from fisher8_jax.estimator._regressor import Fisher8Regressor as Fisher8Regressor
