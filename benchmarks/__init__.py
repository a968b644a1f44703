"""Reproduction of the published experiments and measurements of this library's own cost.

`python -m benchmarks` lists the commands. Nothing here is imported by `fisher8_jax`.
"""
