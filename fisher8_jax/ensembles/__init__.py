"""Ensembles: stacked members, and the mixture that they predict together."""

from fisher8_jax.ensembles._members import init_members as init_members
from fisher8_jax.ensembles._members import predict_members as predict_members
from fisher8_jax.ensembles._members import stack_members as stack_members
from fisher8_jax.ensembles._members import take_member as take_member
from fisher8_jax.ensembles._mixture import Mixture as Mixture
