"""rl-blox: PETS whole, on a pendulum: planning with the dynamics that it learns meanwhile."""

from typing import Any

import gymnasium
from rl_blox.algorithm import pets
from rl_blox.algorithm.pets_reward_models import pendulum_reward

from benchmarks.experiments.adoption.changes import rl_blox as change
from benchmarks.experiments.adoption.loops import loss_of
from benchmarks.experiments.adoption.programs.rl_blox import HIDDEN, MEMBERS

# With plain NLL and the first seed this is enough to swing up and stay there.
LENGTH, EPOCHS = 200, (200, 50)
PLAN = {"plan_horizon": 20, "n_particles": 5, "n_samples": 100, "n_opt_iter": 3}


class Adopted:
    """One method; see `train.py`. The first episode is random, the others are planned."""

    def __init__(self, job: dict[str, Any]):
        self.steps = job["steps"]
        self.looks = list(range(1, self.steps // LENGTH + 1))
        loss = loss_of(job["method"])
        if loss is not None:
            change.apply(loss)

    def run(self, rate: float, seed: int) -> dict[str, list]:
        """The return of every episode."""
        env = Rewards(gymnasium.make("Pendulum-v1"))
        model = pets.create_pets_state(
            env, seed, n_ensemble=MEMBERS, hidden_nodes=HIDDEN, learning_rate=rate
        )
        pets.train_pets(
            env,
            pendulum_reward,
            model,
            **PLAN,
            seed=seed,
            total_timesteps=self.steps,
            learning_starts=LENGTH,
            learning_starts_gradient_steps=EPOCHS[0],
            n_steps_per_iteration=LENGTH,
            gradient_steps=EPOCHS[1],
            progress_bar=False,
        )
        return {"return": [round(sum(episode), 2) for episode in env.episodes if episode]}


class Rewards(gymnasium.Wrapper):
    """An environment that keeps the rewards of every episode."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.episodes: list[list[float]] = []

    def reset(self, **options):
        """A new episode, unless nothing happened in the last one."""
        if not self.episodes or self.episodes[-1]:
            self.episodes.append([])
        return self.env.reset(**options)

    def step(self, action):
        """As the environment's."""
        answer = self.env.step(action)
        self.episodes[-1].append(float(answer[1]))
        return answer
