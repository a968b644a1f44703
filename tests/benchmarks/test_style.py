"""The style of the pictures of reports and documentation."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb

from benchmarks.machinery.figures import COLORS, SEQUENTIAL_MAP, style


def test_the_style_holds_inside_its_context_alone():
    before = dict(mpl.rcParams)
    with style():
        assert not mpl.rcParams["axes.spines.right"]
        assert plt.subplots()[0].get_layout_engine() is not None
        plt.close("all")
    assert dict(mpl.rcParams) == before


def test_colours_differ_and_the_map_reads_in_grey():
    assert len({to_rgb(color) for color in COLORS}) == 8
    # The map's lightness must rise all the way, or it could not be read in grey.
    rgb = mpl.colormaps[SEQUENTIAL_MAP](np.linspace(0, 1, 64))[:, :3]
    assert (np.diff(rgb @ [0.2126, 0.7152, 0.0722]) > 0).all()
