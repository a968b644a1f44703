"""What a notebook shows of a fitted estimator, below scikit-learn's diagram of its parameters."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fisher8_jax._internal.html import table


class ShowsResults(BaseEstimator):
    """Adds what was fitted to the diagram; an estimator that is not fitted looks as usual."""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += results_table(self)
        return bundle

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()
        return diagram + results_table(self)


def results_table(model: Any) -> str:
    """Likelihood, method, steps and held-out NLL of what was kept, and of the other candidates."""
    if "n_iter_" not in vars(model):
        return ""
    members = np.asarray(model.held_out_nll_)
    rows = [
        ["likelihood", model.family_],
        ["method", " + ".join(map(str, model.methods_))],
        ["members", str(members.size)],
        ["features", str(model.n_features_in_)],
        ["gradient steps", f"{model.n_iter_:,}"],
        ["held-out NLL", f"{members.mean():.4g} ({members.min():.4g} to {members.max():.4g})"],
    ]
    others = [
        [f"held-out NLL, {name}", f"{nll:.4g}"]
        for name, nll in sorted(model.candidates_.items(), key=lambda item: item[1])
    ]
    return table(["fitted", ""], rows + (others if len(others) > 1 else []))
