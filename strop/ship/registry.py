"""What is live: published versions, and the aliases that point at them."""

from __future__ import annotations

from dataclasses import dataclass

from strop.core import StropError, Version
from strop.journal import Aliases, Event, Journal, Moved

__all__ = ["Move", "Registry"]


@dataclass(frozen=True, slots=True)
class Move:
    """One line of a deployment's history: when, why, and where its aliases pointed then."""

    at: str
    why: str
    aliases: Aliases


class Registry:
    """Publishes versions and moves their aliases; every move is one transaction."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def publish(self, version: Version) -> None:
        """Record a version; it is not live yet.

        The same candidate may be published with another proof (other weights, another machine,
        wider guards): the newest proof counts. Publishing that one again records nothing.

        Raises:
            StropError: the candidate is not in the journal, or damaged.
            Duplicate: another process published this candidate at the same moment.
        """
        self.journal.get_candidate(version.candidate)
        known = [proof for proof in self._proofs(version.deployment) if proof.id == version.id]
        if known and known[-1] == version:
            return
        key = f"{version.id}:{len(known)}"
        self.journal.append("published", version, run=version.deployment, key=key)

    def promote(self, deployment: str, id: str, *, expect_epoch: int | None = None) -> int:
        """Make a published version live and what was live `previous`; return the new epoch.

        Promoting what is live already keeps `previous`. Of two promotions at once, one wins: the
        other is told that it decided on an old state.

        Args:
            deployment: its name.
            id: of the version.
            expect_epoch: the epoch that the decision was based on; by default what is read now.

        Raises:
            StropError: no such version, or its blob is damaged.
            StaleEpoch: somebody moved the aliases since that epoch; nothing changed.
        """
        now = self.journal.aliases(deployment)
        self._version(deployment, id)
        self.journal.get_candidate(id)
        names: dict[str, str | None] = {"live": id}
        if now.names.get("live") != id:
            names["previous"] = now.names.get("live")
        if now.names.get("canary") == id:
            names["canary"] = None
        epoch = now.epoch if expect_epoch is None else expect_epoch
        return self.journal.move(deployment, names, epoch, why="promote")

    def rollback(self, deployment: str) -> Version | None:
        """Put `previous` back and return what is live now; None is the baseline.

        `previous` is used up, so a second rollback in a row goes to the baseline, and a third is
        refused. A `previous` whose blob is damaged is passed over for the baseline: a rollback
        never ends on something unverified, and never leaves the bad version live.

        Raises:
            StropError: the baseline is live already.
            StaleEpoch: somebody moved the aliases meanwhile; nothing changed.
        """
        now = self.journal.aliases(deployment)
        if "live" not in now.names:
            raise StropError(f"nothing to roll back: no version of {deployment!r} is live, the baseline is")
        back, why = now.names.get("previous"), "rollback"
        version = None
        if back is not None:
            try:
                self.journal.get_candidate(back)
                version = self._version(deployment, back)
            except StropError as error:
                back, why = None, f"rollback to the baseline, passing over previous: {error}"
        self.journal.move(deployment, {"live": back, "previous": None}, now.epoch, why=why)
        return version

    def live(self, deployment: str) -> Version | None:
        """Return the live version; None is the baseline."""
        id = self.journal.aliases(deployment).names.get("live")
        return None if id is None else self._version(deployment, id)

    def versions(self, deployment: str) -> list[Version]:
        """Return the published versions, oldest proof first; of each the newest proof."""
        newest: dict[str, Version] = {}
        for version in self._proofs(deployment):
            newest.pop(version.id, None)
            newest[version.id] = version
        return list(newest.values())

    def moves(self, deployment: str) -> list[Event]:
        """Return the events of a deployment's moves, oldest first."""
        return self.journal.events(run=deployment, kind="alias_moved")

    def history(self, deployment: str) -> list[Move]:
        """Return when and why the aliases moved, and where they pointed then; oldest first."""
        moves = [(event.at, event.decode(Moved)) for event in self.moves(deployment)]
        return [Move(at, moved.why, moved.aliases) for at, moved in moves]

    def _proofs(self, deployment: str) -> list[Version]:
        events = self.journal.events(run=deployment, kind="published")
        return [event.decode(Version) for event in events]

    def _version(self, deployment: str, id: str) -> Version:
        for version in self.versions(deployment):
            if version.id == id:
                return version
        raise StropError(f"{deployment!r} has no version {id[:12]}; `strop status` lists them")
