"""Published losses that only the comparison needs, beside those of the library.

`collier`, `trustable` and `wong_toi` have the signature of the library's losses. They also need
randomness, a state per training point or a penalty, which an `Objective` gives to every loss.
"""
