"""The one training loop: folds, batches, looks at held-out data, averaging, the best parameters.

`fit` trains a network on arrays in one call. Below it everything is a pure function that other
loops use: `update` is one step, `train_on_batches` makes many of them in one compiled
program, `train_lanes` is a training from its first step to its last.
"""

from fisher8_jax.training._data import Data as Data
from fisher8_jax.training._data import Feed as Feed
from fisher8_jax.training._fit import Fitted as Fitted
from fisher8_jax.training._fit import fit as fit
from fisher8_jax.training._fit import fit_lanes as fit_lanes
from fisher8_jax.training._fit import fit_network as fit_network
from fisher8_jax.training._loop import TrainState as TrainState
from fisher8_jax.training._loop import start as start
from fisher8_jax.training._loop import train_on_batches as train_on_batches
from fisher8_jax.training._networks import nnx_network as nnx_network
from fisher8_jax.training._networks import plain_network as plain_network
from fisher8_jax.training._plan import Plan as Plan
from fisher8_jax.training._progress import progress_bar as progress_bar
from fisher8_jax.training._record import DOCTOR_READOUTS as DOCTOR_READOUTS
from fisher8_jax.training._rows import Folds as Folds
from fisher8_jax.training._rows import make_folds as make_folds
from fisher8_jax.training._runner import TrainedLanes as TrainedLanes
from fisher8_jax.training._runner import train_lanes as train_lanes
from fisher8_jax.training._step import Apply as Apply
from fisher8_jax.training._step import Batch as Batch
from fisher8_jax.training._step import Lane as Lane
from fisher8_jax.training._step import Leaves as Leaves
from fisher8_jax.training._step import Task as Task
from fisher8_jax.training._step import update as update
