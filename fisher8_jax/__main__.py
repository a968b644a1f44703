"""`python -m fisher8_jax fit data.csv --target y --model file`, `predict` and `check`."""

import sys

from fisher8_jax.command import main

if __name__ == "__main__":
    sys.exit(main())
