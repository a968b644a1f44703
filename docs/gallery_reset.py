"""What is done between two programs of the gallery, which all run in the process of Sphinx."""

import contextlib
import ctypes
import gc

import jax
import matplotlib.pyplot as plt


def forget_programs(gallery_conf: object, name: object) -> None:
    """Frees compiled programs: one after the other, they would fill 2 GB."""
    del gallery_conf, name
    plt.close("all")
    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library other than GNU's
        ctypes.CDLL("libc.so.6").malloc_trim(0)
