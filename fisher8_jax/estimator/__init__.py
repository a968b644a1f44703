"""An estimator with scikit-learn's conventions; needs scikit-learn, the extra `estimator`."""

from fisher8_jax._internal.extras import needs_extra as _needs_extra

with _needs_extra("estimator", package="sklearn", needed_by="fisher8_jax.estimator"):
    from fisher8_jax.estimator._importance import Importance as Importance
    from fisher8_jax.estimator._importance import permutation_importance as permutation_importance
    from fisher8_jax.estimator._prediction import Prediction as Prediction
    from fisher8_jax.estimator._regressor import Fisher8Regressor as Fisher8Regressor
    from fisher8_jax.estimator._scorers import SCORERS as SCORERS
    from fisher8_jax.estimator._scorers import last_step as last_step
