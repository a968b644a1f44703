"""Flax heads: from the features of any network to a predicted distribution of any family.

`nnx.DistributionHead` and `linen.DistributionHead` take the same arguments and compute the same
numbers. A `Link` says which raw outputs there are and what distribution they make.
"""

from fisher8_jax.heads import linen as linen
from fisher8_jax.heads import nnx as nnx
from fisher8_jax.heads._links import Link as Link
from fisher8_jax.heads._links import family_link as family_link
from fisher8_jax.heads._links import initial_outputs as initial_outputs
