"""The curvature of a whole network: the Gram matrix of its outputs and solvers for it."""

from fisher8_jax.curvature._cost import Auto as Auto
from fisher8_jax.curvature._gradient import GradientState as GradientState
from fisher8_jax.curvature._gradient import NetworkGradient as NetworkGradient
from fisher8_jax.curvature._gradient import network_gradient as network_gradient
from fisher8_jax.curvature._gram import LeafRows as LeafRows
from fisher8_jax.curvature._jacobian_rows import jacobian_rows as jacobian_rows
from fisher8_jax.curvature._network_curvature import NetworkCurvature as NetworkCurvature
from fisher8_jax.curvature._network_curvature import network_curvature as network_curvature
from fisher8_jax.curvature._network_curvature import precondition as precondition
from fisher8_jax.curvature._solvers import Blocks as Blocks
from fisher8_jax.curvature._solvers import ConjugateGradients as ConjugateGradients
from fisher8_jax.curvature._solvers import Direct as Direct
