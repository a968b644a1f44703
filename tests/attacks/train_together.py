"""One of several processes that train one network, with checkpoints.

python -m tests.attacks.train_together coordinator count index states result pause
"""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from examples.multihost import STEPS, global_batch, initial_params, make_step
from fisher8_jax.artifacts import TrainingCheckpoints, save_artifact

HEARTBEAT = 10  # seconds until the others notice that one is gone


def main(address: str, count: int, index: int, states: str, result: str, pause: float) -> None:
    """Trains; process 0 writes the parameters to `result`, every process prints its steps."""
    jax.distributed.initialize(
        address, num_processes=count, process_id=index, heartbeat_timeout_seconds=HEARTBEAT
    )
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=automatic)
    optimizer, step = make_step(mesh)
    params = initial_params(mesh)
    state = jax.jit(optimizer.init, out_shardings=NamedSharding(mesh, P()))(params)

    def advance(state, number):
        print(json.dumps({"step": number}), flush=True)
        time.sleep(pause)
        return jax.block_until_ready(step(*state, *global_batch(mesh, number)))[:2]

    whole = params, state
    with TrainingCheckpoints(states, every=3) as checkpoints:
        whole, done = checkpoints.restore(whole) or (whole, 0)
        for number in range(done, STEPS):
            whole = advance(whole, number)
            checkpoints.save(number + 1, whole)
    params, _ = whole
    if index == 0:
        local = jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)), params)
        save_artifact(Path(result), {"params": local})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6], float(sys.argv[6]))
