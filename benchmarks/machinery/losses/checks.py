"""Argument checks of these losses."""

from fisher8_jax.families import Family, Gaussian


def check_gaussian(name: str, dist: Family, method: str) -> None:
    """Rejects anything but a Gaussian, for methods whose formulas know only that likelihood."""
    if not isinstance(dist, Gaussian):
        raise TypeError(f"`{name}` must be a `Gaussian` for `{method}`, got {type(dist).__name__}.")


def check_reference(reference: Gaussian, dist: Gaussian) -> None:
    """Rejects references that are no Gaussian of the shape of the predictions."""
    check_gaussian("reference", reference, "trustable")
    if reference.batch_shape != dist.batch_shape:
        raise ValueError(
            f"`reference` must have the shape of the predictions, {dist.batch_shape}, got "
            f"{reference.batch_shape}. Take those of the batch: `references[indices]`."
        )
