"""What every link from raw outputs to a Gaussian must keep."""

import jax
import jax.numpy as jnp
import numpy as np


def check_transformations_and_dtypes(link, mean, raw):
    """Mapped and compiled it is the same; narrow floats stay narrow and near the wide result."""
    wide = link(jnp.asarray(mean), jnp.asarray(raw))
    mapped = jax.jit(jax.vmap(link))(jnp.asarray(mean), jnp.asarray(raw))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), mapped, wide)
    for dtype, tolerance in ((jnp.float32, 1e-5), (jnp.bfloat16, 0.06), (jnp.float16, 0.02)):
        narrow = link(jnp.asarray(mean, dtype), jnp.asarray(raw, dtype))
        assert narrow.mean.dtype == dtype
        assert narrow.log_variance.dtype == dtype
        for actual, expected in zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True):
            np.testing.assert_allclose(
                actual.astype(jnp.float64), expected, rtol=tolerance, atol=tolerance
            )
