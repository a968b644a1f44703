"""Jobs whose specification and command follow from what chooses them. Free of JAX."""

from typing import ClassVar


class ChosenJob:
    """One cell of an experiment, chosen by options of its command and a seed.

    A subclass is a frozen dataclass with a field for every choice and a name in the store, `cell`.
    """

    experiment: ClassVar[str]
    """The command, with a flag if it needs one."""
    options: ClassVar[dict[str, str]]
    """The fields that choose the cell, and the options of the command that set them."""
    seed: int

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {name: getattr(self, name) for name in (*self.options, "seed")}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        chosen = [f"--{option} {getattr(self, name)}" for name, option in self.options.items()]
        seed = [f"--seed {self.seed}"] if self.seed else []
        return " ".join(["python -m benchmarks", self.experiment, *chosen, *seed])
