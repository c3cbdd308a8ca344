"""Candidate sources for Llama-family causal LMs: the pieces that the built-in search composes.

One file is one idea with a few ways to carry it out. `space` declares the options and which files
each needs; `strop.propose.compose` copies those files into a candidate and writes its forward.py.
The sources import torch, transformers and one another, never strop: a candidate stands alone.

`llama` is the whole forward pass without the framework around it; `modules` replaces single
modules and leaves the rest; `flags` changes nothing but the framework's own settings.
"""
