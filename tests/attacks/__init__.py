"""Attacks on files and processes, counted; `python -m tests.attacks` tries all and stores a table.

An attack returns how often each outcome was seen. What must never be seen begins with `BAD`.
"""

BAD = "BAD: "
