"""ramsey: the `loss` of a neural process without a latent variable."""

from ramsey import NP

from fisher8_jax import Gaussian


def apply(loss):
    def process_loss(self, x_context, y_context, x_target, y_target):
        normal = self(x_context, y_context, x_target)
        return loss(Gaussian.from_std(normal.mean, normal.scale), y_target).mean()

    NP.loss = process_loss
