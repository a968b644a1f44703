"""Pictures of the report as PNG, in one style; importing this chooses a windowless backend."""

import contextlib
import io

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

# Okabe and Ito (2008), in an order of falling contrast to white: distinct for readers with any kind
# of colour blindness.
_CODES = "0072B2 D55E00 009E73 CC79A7 E69F00 56B4E9 000000 F0E442"
COLORS = tuple(f"#{code}" for code in _CODES.split())
SEQUENTIAL_MAP = "cividis"  # even in lightness, so that it reads the same in grey


def style() -> contextlib.AbstractContextManager[None]:
    """How the pictures of reports and documentation look, for a `with` around what draws them."""
    return plt.rc_context(
        {
            "axes.prop_cycle": plt.cycler(color=COLORS),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
            "image.cmap": SEQUENTIAL_MAP,
            "legend.frameon": False,
            "legend.fontsize": "small",
            "lines.linewidth": 1.4,
            "savefig.dpi": 130,
        }
    )


def to_png(figure: Figure, dpi: int = 100) -> bytes:
    """The picture as bytes; the figure is closed."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    plt.close(figure)
    return buffer.getvalue()
