"""Runs its code on import, and has nothing to build."""

# refused as: not_admitted
# caught by: admission

FORWARDS = {}
