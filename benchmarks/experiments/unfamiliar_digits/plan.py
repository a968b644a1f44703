"""What the study of unfamiliar digits consists of. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import ClassVar

from benchmarks.machinery.jobs import ChosenJob

IMAGES = ("mnist", "digits")
SEEDS = (0, 1, 2)
CLASSES = range(6)  # those of training; the others are unfamiliar
LARGEST_ANGLE = 45.0
NOISE = 10.0  # of the targets, degrees
# As many images of the 8 x 8 digits as there are, of MNIST what an exact posterior takes seconds
# for.
ROWS, TEST_ROWS = 1500, 1000
WIDTHS, STEPS, BATCH, MEMBERS = (64, 64), 1000, 64, 5

UNFAMILIAR = {
    "angles": "angles of 60 to 90 degrees",
    "far_angles": "angles of 90 to 180 degrees",
    "classes": "other digits",
    "shuffled": "pixels in another order",
    "noise": "pixels of noise",
}
SCORES = {
    "posterior": "epistemic variance, one posterior",
    "five_posteriors": "epistemic variance and disagreement, five posteriors",
    "disagreement": "disagreement of five networks",
    "predicted": "predicted variance, one network",
    "predicted_of_five": "predicted variance, mean of five",
}


@dataclasses.dataclass(frozen=True)
class Job(ChosenJob):
    """One seed on one kind of images."""

    experiment = "unfamiliar_digits"
    options: ClassVar[dict[str, str]] = {"images": "images"}

    images: str
    seed: int
    data: Path | None
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"unfamiliar_digits/{self.images}-{self.seed}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        size = {"rows": ROWS, "steps": STEPS, "widths": WIDTHS, "members": MEMBERS}
        return super().spec | size | {"batch": BATCH, "largest_angle": LARGEST_ANGLE}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        return f"python -m benchmarks {self.experiment} --images {self.images} --seeds {self.seed}"
