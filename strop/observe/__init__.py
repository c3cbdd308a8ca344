"""Observe: what is the engine asked? Traces in, a workload of weighted clusters out."""
