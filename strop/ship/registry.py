"""What is live: versions, and the names that point at them."""

from __future__ import annotations

from strop.core import StropError, Version
from strop.journal import Aliases, Event, Journal

__all__ = ["Registry"]


class Registry:
    """Publishes versions and moves the aliases `live` and `previous`."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def publish(self, version: Version) -> None:
        """Record a version; it is not live yet. Publishing again replaces nothing."""
        self.journal.append("published", version, run=version.deployment, key=version.id, once=True)

    def promote(self, deployment: str, id: str, *, expect_epoch: int | None = None) -> Aliases:
        """Make a published version live; what was live becomes `previous`.

        Raises:
            StropError: no such version, or its blob is damaged.
            StaleEpoch: somebody else moved the aliases since `expect_epoch`.
        """
        self._version(deployment, id)
        self.journal.get_candidate(id)
        now = self.journal.aliases(deployment)
        moves = {"live": id, "previous": now.names.get("live")}
        epoch = now.epoch if expect_epoch is None else expect_epoch
        return self.journal.move(deployment, moves, epoch)

    def rollback(self, deployment: str) -> Version | None:
        """Put `previous` back, or the baseline when there is none; return what is live then.

        `previous` is used up: a second rollback goes to the baseline.

        Raises:
            StropError: nothing is live.
        """
        now = self.journal.aliases(deployment)
        if "live" not in now.names:
            raise StropError(f"nothing is live for {deployment!r}: there is nothing to roll back")
        moves = {"live": now.names.get("previous"), "previous": None}
        self.journal.move(deployment, moves, now.epoch)
        return self.live(deployment)

    def live(self, deployment: str) -> Version | None:
        """Return the live version; None is the baseline."""
        id = self.journal.aliases(deployment).names.get("live")
        return self._version(deployment, id) if id else None

    def versions(self, deployment: str) -> list[Version]:
        """Return all published versions, oldest first."""
        events = self.journal.events(run=deployment, kind="published")
        return [event.decode(Version) for event in events]

    def moves(self, deployment: str) -> list[Event]:
        """Return the history of the aliases."""
        return self.journal.events(run=deployment, kind="alias_moved")

    def _version(self, deployment: str, id: str) -> Version:
        for version in self.versions(deployment):
            if version.id == id:
                return version
        raise StropError(f"{deployment!r} has no version {id[:12]}")
