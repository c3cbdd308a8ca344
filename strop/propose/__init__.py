"""Propose: where candidates come from."""
