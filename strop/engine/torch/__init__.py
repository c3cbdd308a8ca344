"""The `torch` engine: any `nn.Module`, causal LMs and others, on the CPU (CUDA follows)."""
