"""Likelihoods in unconstrained coordinates, one file each; `_gaussian.py` is the one to imitate."""

from fisher8_jax._internal.numerics import Scaled as Scaled
from fisher8_jax.families._bernoulli import Bernoulli as Bernoulli
from fisher8_jax.families._beta import Beta as Beta
from fisher8_jax.families._categorical import Categorical as Categorical
from fisher8_jax.families._censoring import censored_nll as censored_nll
from fisher8_jax.families._contract import Family as Family
from fisher8_jax.families._contract import ScalarFamily as ScalarFamily
from fisher8_jax.families._contract import family as family
from fisher8_jax.families._contract import static_field as static_field
from fisher8_jax.families._declared import declare_family as declare_family
from fisher8_jax.families._gamma import Gamma as Gamma
from fisher8_jax.families._gaussian import Gaussian as Gaussian
from fisher8_jax.families._gaussian_mixture import GaussianMixture as GaussianMixture
from fisher8_jax.families._laplace import Laplace as Laplace
from fisher8_jax.families._location_scale import LocationScale as LocationScale
from fisher8_jax.families._log_normal import LogNormal as LogNormal
from fisher8_jax.families._low_rank_gaussian import LowRankGaussian as LowRankGaussian
from fisher8_jax.families._multivariate_gaussian import (
    MultivariateGaussian as MultivariateGaussian,
)
from fisher8_jax.families._negative_binomial import NegativeBinomial as NegativeBinomial
from fisher8_jax.families._poisson import Poisson as Poisson
from fisher8_jax.families._predictive import Predictive as Predictive
from fisher8_jax.families._quadrature import quadrature_nodes as quadrature_nodes
from fisher8_jax.families._student_t import StudentT as StudentT
from fisher8_jax.families._student_t_learned_df import StudentTLearnedDf as StudentTLearnedDf
from fisher8_jax.families._von_mises import VonMises as VonMises
from fisher8_jax.families._weibull import Weibull as Weibull
from fisher8_jax.families._zero_inflated_poisson import (
    ZeroInflatedPoisson as ZeroInflatedPoisson,
)
