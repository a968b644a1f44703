"""Pictures of the report as PNG; importing this chooses a backend without a window."""

import io

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def to_png(figure: Figure, dpi: int = 100) -> bytes:
    """The picture as bytes; the figure is closed."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    plt.close(figure)
    return buffer.getvalue()
