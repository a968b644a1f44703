"""Trainings in which only the number of steps is chosen, on made-up data of known noise."""
