"""`python -m fisher8_jax fit data.csv --target y --model model.f8` and `predict`."""

import sys

from fisher8_jax.command import main

if __name__ == "__main__":
    sys.exit(main())
