"""Measure: interleaved pairs of baseline and candidate."""
