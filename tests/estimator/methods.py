"""Two cheap methods for tests that train."""

from fisher8_jax.training import KLRadius, LearningRate, Method, OutputNaturalGradient

RADIUS = Method(OutputNaturalGradient(), KLRadius(0.3, warm_up=0.2), second_moment=None)
ADAM = Method(OutputNaturalGradient(), LearningRate(0.01))
