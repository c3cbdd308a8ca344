"""Candidate sources for Llama-family models as vLLM builds them: its layers, other kernels.

`decoder` runs a decoder layer from pieces: `product` the linear layers, `norms` RMSNorm. The
Triton kernels stand in files of their own, `skinny` and `fused_norm`, which only the choices that
need them carry: vLLM's CPU build has no Triton. Attention and its KV cache stay vLLM's.

The sources import torch, triton and one another, never strop and never vLLM: what they need of a
vLLM module they read off the module, and raise ValueError where it is not as expected.
"""
