"""One of several processes that compute Fisher8 gradients of a batch spread over all of them."""

import json
import sys

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def main(address: str, count: int, index: int, paths: list[str]) -> None:
    jax.distributed.initialize(address, num_processes=count, process_id=index)
    from tests.problem import gradient, make_problem

    params, x, y = make_problem()
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, replicated = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def spread(array, sharding):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])

    params = jax.tree.map(lambda p: spread(p, replicated), params)

    def all_gradients(params, x, y):
        return {path: gradient(path, params, x, y) for path in paths}

    step = jax.jit(all_gradients, out_shardings=replicated)
    result = step(params, spread(x, rows), spread(y, rows))
    local = jax.tree.map(lambda g: np.asarray(g.addressable_data(0)).tolist(), result)
    print(json.dumps({"devices": jax.device_count(), "gradients": local}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
