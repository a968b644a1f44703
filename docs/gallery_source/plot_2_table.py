"""
From a table to a report
========================

A table of numbers, an estimator with ``fit`` and ``predict``, and a report with intervals. No
learning rate, no number of epochs, no scaling.
"""

# %%
# A table
# -------
#
# Five columns, of which three matter; the noise depends on the fourth.

import matplotlib.pyplot as plt
import numpy as np

from fisher8_jax import evaluate
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.plots import plot_fit, plot_reliability

rng = np.random.default_rng(0)
table = rng.normal(size=(600, 5)).astype(np.float32)
signal = 10 * np.sin(table[:, 0]) + 5 * table[:, 1] * table[:, 2]
targets = (signal + np.exp(0.7 * table[:, 3]) * rng.normal(size=600)).astype(np.float32)
train, test = slice(0, 450), slice(450, 600)

# %%
# Fit and report
# --------------

model = Fisher8Regressor(max_steps=300, random_state=0).fit(table[train], targets[train])
dist = model.predict_distribution(table[test])
print(evaluate(dist, targets[test]))

# %%
# With several columns, every row has an interval of its own, drawn along the predicted mean. On the
# right the share of targets below each predicted quantile.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
plot_fit(dist, table[test], targets[test], levels=(0.9,), ax=left)
plot_reliability(dist, targets[test], ax=right)
plt.show()
