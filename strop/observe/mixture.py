"""A Gaussian mixture over log lengths, its size chosen by BIC.

Lengths spread over orders of magnitude, and a step's cost goes by ratios of lengths, so the
mixture lives in (ln ISL, ln OSL). The number of components minimises the Bayesian information
criterion (G. Schwarz, "Estimating the dimension of a model", Annals of Statistics 6, 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

__all__ = ["LEAST_VARIANCE", "MOST_FITTED", "Component", "Points", "distances", "fit", "log_joint"]

LEAST_VARIANCE = 1e-3
"""Least variance of a log length: lengths within about 3 % of each other cost the same, and
without it a few repeated lengths would each become a component."""
MOST_FITTED = 20_000
"""A mixture of 8 is well settled by so many points; more only take time."""

Floats = npt.NDArray[np.float64]
Points = npt.NDArray[np.float64]
"""float64, shape (requests, 2): ln ISL and ln OSL."""


@dataclass(frozen=True, slots=True)
class Component:
    """One Gaussian of the mixture, over (ln ISL, ln OSL)."""

    mean: tuple[float, float]
    covariance: tuple[float, float, float]
    """Variance of ln ISL, covariance, variance of ln OSL."""
    weight: float


def fit(points: Points, max_components: int, seed: int) -> list[Component]:
    """Return the mixture of 1 to `max_components` Gaussians that BIC prefers."""
    sample = points
    if len(points) > MOST_FITTED:
        rows = np.random.default_rng(seed).choice(len(points), MOST_FITTED, replace=False)
        sample = points[np.sort(rows)]
    most = min(max_components, len(np.unique(sample, axis=0)))
    if most == 1:
        # One point has no covariance to estimate.
        centre = sample.mean(axis=0)
        covariance = np.cov(sample.T, bias=True) if len(sample) > 1 else np.zeros((2, 2))
        return [_component(centre, covariance + np.eye(2) * LEAST_VARIANCE, 1.0)]
    best = min((_fitted(sample, n, seed) for n in range(1, most + 1)), key=lambda m: m.bic(sample))
    parts = zip(best.means_, best.covariances_, best.weights_, strict=True)
    return [_component(mean, covariance, weight) for mean, covariance, weight in parts]


def _fitted(points: Points, components: int, seed: int) -> GaussianMixture:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(components, reg_covar=LEAST_VARIANCE, random_state=seed, max_iter=200, n_init=1)
    with warnings.catch_warnings():
        # Mixtures of a few repeated lengths hover around their optimum; any of them will do.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(points)


def _component(mean: Any, covariance: Any, weight: float) -> Component:
    return Component(
        (float(mean[0]), float(mean[1])),
        (float(covariance[0][0]), float(covariance[0][1]), float(covariance[1][1])),
        float(weight),
    )


def distances(points: Points, component: Component) -> Floats:
    """Return the squared Mahalanobis distance of each point, shape (points,)."""
    xx, xy, yy = component.covariance
    x, y = (points - np.array(component.mean)).T
    return np.asarray((yy * x * x - 2 * xy * x * y + xx * y * y) / (xx * yy - xy * xy))


def log_joint(points: Points, components: Sequence[Component]) -> Floats:
    """Return ln(weight * density) up to a constant, shape (points, components)."""
    columns = []
    for component in components:
        xx, xy, yy = component.covariance
        scale = np.log(component.weight) - 0.5 * np.log(xx * yy - xy * xy)
        columns.append(scale - 0.5 * distances(points, component))
    return np.stack(columns, axis=1)
