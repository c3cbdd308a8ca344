"""The built-in agent: searches compositions of rewrites with Optuna. Needs no key and no model.

Optuna keeps no state of its own between runs: trials are replayed from the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.core import Candidate, Param, Status, Verdict

if TYPE_CHECKING:
    import optuna

__all__ = ["Choices", "Search", "score"]

Choices = Mapping[str, Sequence[Param]]
"""Option name to the values it may take."""


class Search:
    """Asks a tree-structured Parzen estimator (Bergstra et al. 2011) for the next composition.

    Satisfies `strop.loop.Searcher`.
    """

    def __init__(
        self,
        name: str,
        choices: Choices,
        compose: Callable[[Mapping[str, Any]], Candidate],
        *,
        first: Sequence[Mapping[str, Param]] = (),
        seed: int = 0,
    ) -> None:
        """Make a search.

        Args:
            name: under which its trials are recorded.
            choices: the space.
            compose: turns choices into a candidate.
            first: compositions to try before the estimator chooses.
            seed: of the estimator.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.trusted = True  # it composes nothing but strop's own rewrites
        self.compose = compose
        self.space: dict[str, optuna.distributions.BaseDistribution] = {
            key: optuna.distributions.CategoricalDistribution(tuple(values))
            for key, values in choices.items()
        }
        # Startup trials are random; the replay after a restart must not repeat their draws.
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=8, multivariate=True)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        for params in first:
            self.study.enqueue_trial(dict(params), skip_if_exists=True)
        self.open: list[tuple[dict[str, Param], optuna.Trial]] = []

    def ask(self) -> tuple[dict[str, Param], Candidate] | None:
        """See `Searcher.ask`."""
        trial = self.study.ask(self.space)
        params = dict(trial.params)
        self.open.append((params, trial))
        return params, self.compose(params)

    def tell(self, params: dict[str, Param], verdict: Verdict) -> None:
        """See `Searcher.tell`."""
        import optuna

        for index, (asked, trial) in enumerate(self.open):
            if asked == params:
                self.study.tell(trial, score(verdict))
                del self.open[index]
                return
        if params.keys() != self.space.keys():
            return  # recorded under another version of the space
        self.study.add_trial(
            optuna.trial.create_trial(params=params, distributions=self.space, value=score(verdict))
        )


def score(verdict: Verdict) -> float:
    """Return what a verdict is worth to the search: the ratio on the best tier it reached.

    A refused candidate is worth nothing, unless it was merely not faster: its ratio then says
    which way is better.
    """
    measured = verdict.slow or verdict.fast
    if measured is None:
        return 0.0
    return measured.overall.ratio if verdict.status is Status.PASSED else measured.overall.ratio * 0.9
