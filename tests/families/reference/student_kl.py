"""Divergences of Student-t's: `python -m tests.families.reference.student_kl`

adds to the tables of both families the parameters `other_...` of another member and the divergence
`kl` from it, an integral with 20 digits.
"""

import math
import sys

import mpmath as mp
import numpy as np

from tests.families.reference import exact, files
from tests.families.reference.elementary import STEPS, single

NAMES = ("StudentT", "StudentTLearnedDf")
# An integral takes seconds, so only some rows have one.
EVERY = 4


def columns(name: str, table: files.Table) -> files.Table:
    """Another member for every row, closer or farther, and the divergence from it."""
    rng, found = np.random.default_rng(28), []
    is_fixed = name == "StudentT"
    rows = zip(*(table[f"parameter_{i}"] for i in range(3)), strict=True)
    for index, (location, log_scale, last) in enumerate(rows):
        log_df = float(np.log(last)) if is_fixed else last
        # With few degrees of freedom the density bends at their square root.
        width = float(np.exp(log_scale + 0.5 * min(log_df, 0)))
        step = rng.choice(STEPS) * rng.normal(size=3)
        other = [single(location + step[0] * width), single(log_scale + step[1])]
        other.append(last if is_fixed else single(log_df + step[2]))
        p, q = ([mp.mpf(x) for x in row] for row in ((location, log_scale, last), other))
        if is_fixed:
            p[2], q[2] = mp.log(p[2]), mp.log(q[2])
        is_asked = index % EVERY == 0
        found.append([*other, float(exact.student_divergence(p, q)) if is_asked else math.nan])
    names = ("other_0", "other_1", "other_2", "kl")
    return {key: [row[i] for row in found] for i, key in enumerate(names)}


if __name__ == "__main__":
    for table_name in sys.argv[1:] or NAMES:
        content = files.read(table_name)
        files.write(table_name, content | columns(table_name, content))
