"""The one table of benchmarks: where each is run, what it is for, and who writes its report.

A command is a module with `add_arguments(parser)` and `run(args) -> int`, the exit code. A report
is a module with `section(store) -> Section | None`; None of it means that nothing is stored yet.
Modules are imported when they are asked for.
"""

import importlib
from types import ModuleType
from typing import NamedTuple


class Benchmark(NamedTuple):
    """One row: two modules below `benchmarks`, a line of help, and whether its cells repeat."""

    command: str
    help: str
    report: str | None = None
    repeats: bool = False
    """Its cells come out the same to the bit: it measures no times. See `machinery/repeat.py`."""

    def load_command(self) -> ModuleType:
        return importlib.import_module(f"benchmarks.{self.command}")

    def load_report(self) -> ModuleType | None:
        return importlib.import_module(f"benchmarks.{self.report}") if self.report else None


def _experiment(name: str, help_text: str) -> Benchmark:
    modules = f"experiments.{name}.command", help_text, f"experiments.{name}.report"
    return Benchmark(*modules, repeats=True)


# In the order of the report.
BENCHMARKS = {
    "uci": _experiment("uci", "The UCI tables: 8 sets, 20 splits, 9 tables."),
    "sinusoid": _experiment("sinusoid", "The one-dimensional sinusoid over training."),
    "speed": Benchmark(
        "costs.speed", "The UCI sweep against PyTorch and the hardware.", "costs.speed"
    ),
    "radius": _experiment("radius", "The KL radius beside tuned learning rates."),
    "collapse": _experiment("collapse", "Does any training with all defaults collapse?"),
    "curvature": _experiment("curvature", "The natural gradient in parameter space at equal time."),
    "comparison": _experiment("comparison", "Fisher8 under several optimisers; their angles."),
    "damping": Benchmark(
        "experiments.damping.command",
        "Fixed damping beside Levenberg and Marquardt's.",
        "experiments.damping.command",
        repeats=True,
    ),
    "sweeps": _experiment("sweeps", "Collier, Trustable, Wong-Toi, post-hoc variances: settings."),
    "rotated_mnist": _experiment("rotated_mnist", "The angle of a rotated digit."),
    "weak_lensing": _experiment("weak_lensing", "Two cosmological parameters from maps."),
    "families": _experiment("families", "Recovery of every family beside tuned Adam."),
    "doctor": _experiment("doctor", "False alarms and hits of the doctor."),
    "dense": _experiment("dense", "Disparity of every pixel of a stereo pair."),
    "tables": _experiment("tables", "The estimator beside boosted trees on 23 tables."),
    "gaps": _experiment("gaps", "Between the data: posteriors beside ensembles and others."),
    "one_default": _experiment(
        "one_default", "Nothing chosen but the number of steps, on data of known noise."
    ),
    "unfamiliar_digits": _experiment(
        "unfamiliar_digits", "Does uncertainty tell digits that a network was not trained for?"
    ),
    "leave_one_out": _experiment(
        "leave_one_out", "Leave-one-out in closed form beside refits and folds."
    ),
    "uses": Benchmark(
        "experiments.uses.command",
        "The estimator in use: intervals, labels to ask for, new rows.",
        "experiments.uses.report",
    ),
    "estimator_speed": Benchmark(
        "costs.estimator_speed",
        "Processor seconds of the estimator from the first call on.",
        "costs.estimator_speed",
    ),
    "recipes": _experiment("recipes", "One new line in three kinds of other code."),
    "adoption": _experiment("adoption", "One changed line in programs of other authors."),
    "forecaster": _experiment("forecaster", "A distribution for every step, by several losses."),
    "norm_ratio": _experiment("norm_ratio", "The norm of the log-variance beside the mean's."),
    "overhead": Benchmark(
        "costs.overhead", "Cost of Fisher8 in a compiled training step.", "costs.overhead"
    ),
    "family_costs": Benchmark(
        "costs.family_costs", "Cost of the families beside another checkout."
    ),
    "family_accuracy": Benchmark(
        "costs.family_accuracy", "What the families get wrong in float32, beside another checkout."
    ),
    "network_cost": Benchmark(
        "costs.network_cost", "Cost of the natural gradient.", "costs.network_cost"
    ),
    "measured_radius": Benchmark(
        "costs.measured_radius",
        "How far steps go if the radius is measured seldom.",
        "costs.measured_radius",
        repeats=True,
    ),
    "posterior_cost": Benchmark(
        "costs.posterior_cost",
        "Time and memory of a posterior by rows and widths.",
        "costs.posterior_cost",
    ),
    "scale_out": Benchmark("costs.scale_out", "What many devices send each other."),
    "engel": Benchmark(
        "experiments.engel.command", "Plain NLL beside Fisher8 on a small real data set."
    ),
    "repeat": Benchmark("machinery.repeat", "Random stored cells computed again and compared."),
    "report": Benchmark("machinery.report", "Committed results beside the published figures."),
}
