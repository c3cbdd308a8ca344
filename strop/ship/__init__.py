"""Ship: versions, the aliases that say which one is live, and their use from plain Python."""
