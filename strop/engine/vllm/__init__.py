"""The pieces that strop adds to the user's own `vllm serve`; none imports vllm or torch when imported."""
