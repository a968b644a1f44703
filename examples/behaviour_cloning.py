"""Behaviour cloning with a Gaussian policy in Flax Linen.

An expert steers precisely in one half of the states and carelessly in the other. The policy learns
its actions by maximum likelihood. One line is new.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, fisher8


class Policy(nn.Module):
    @nn.compact
    def __call__(self, states):
        hidden = nn.tanh(nn.Dense(64)(nn.tanh(nn.Dense(64)(states))))
        mean, log_std = jnp.split(nn.Dense(4)(hidden), 2, axis=-1)
        return Gaussian.from_log_std(mean, log_std)


def demonstrations(key, rows):
    """States (rows, 4) and two actions of the expert."""
    key_states, key_noise = jax.random.split(key)
    states = jax.random.normal(key_states, (rows, 4))
    wanted = jnp.stack([jnp.sin(2 * states[:, 0]) * states[:, 1], states[:, 2] ** 2 - 1], axis=1)
    std = jnp.where(states[:, 3:] > 0, 0.02, 0.5)
    return states, wanted + std * jax.random.normal(key_noise, (rows, 2))


def main(corrected=True, learning_rate=0.01, steps=500, seed=0):
    """Trains the policy and returns its NLL of held-out actions."""
    states, actions = demonstrations(jax.random.key(0), 2000)
    policy = Policy()
    params = policy.init(jax.random.key(seed + 1), states[:1])
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def predict(params, states) -> Gaussian:
        return policy.apply(params, states)  # type: ignore[return-value]

    def loss(params, rows):
        dist = predict(params, states[rows])
        if corrected:
            dist = fisher8(dist)  # the one new line
        return dist.nll(actions[rows]).mean()

    def train_step(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (128,), 0, 2000)
        updates, state = optimizer.update(jax.grad(loss)(params, rows), state)
        return (optax.apply_updates(params, updates), state), None

    keys = jax.random.split(jax.random.key(seed + 2), steps)
    train = jax.jit(lambda carry: jax.lax.scan(train_step, carry, keys)[0])
    params, _ = train((params, optimizer.init(params)))
    test_states, test_actions = demonstrations(jax.random.key(3), 2000)
    return float(predict(params, test_states).nll(test_actions).mean())


if __name__ == "__main__":
    print(f"NLL: plain {main(corrected=False):.3f}, corrected {main():.3f}")
