"""Truth on disk: append-only events in one database, blobs beside it, aliases with an epoch.

State is a replay of events. SQLite by default, PostgreSQL for teams, through the same tables.
The reasons are in docs/decisions/0002-journal.md.
"""

from __future__ import annotations

from strop.journal.journal import Journal
from strop.journal.records import ALIASES, Aliases, Duplicate, Event, Moved, StaleEpoch

__all__ = ["ALIASES", "Aliases", "Duplicate", "Event", "Journal", "Moved", "StaleEpoch"]
