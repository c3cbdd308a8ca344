"""A KV cache that appends in place, and that transformers takes for its own."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

_STEP = 256
"""Capacities are multiples of so many positions."""


class PreallocatedLayer(DynamicLayer):
    """A `DynamicLayer` whose keys and values are views of buffers that grow by doubling.

    `keys` and `values` are (batch, kv_heads, length, head_dim) as everywhere in transformers, so
    crop, reorder and the rest are inherited: they leave views or tensors of their own behind, and
    the next update takes those over.
    """

    keys: Any
    values: Any

    def __init__(self) -> None:
        """Hold nothing yet."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (batch, kv_heads, n, head_dim) and return all keys and all values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, count = self.get_seq_length(), key_states.shape[-2]
        keys, values = self._lengthen(count, key_states, value_states)
        keys.narrow(2, start, count).copy_(key_states)
        values.narrow(2, start, count).copy_(value_states)
        return self.keys, self.values

    def extend(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Lengthen a filled layer by `count` positions that the caller writes; return the buffers.

        The buffers are (batch, kv_heads, capacity, head_dim), contiguous.
        """
        return self._lengthen(count, self.keys, self.values)

    def _lengthen(
        self, count: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Make room for `count` more positions of tensors like `keys` and `values`."""
        start = self.get_seq_length()
        if self.buffers is None or not self._still_ours(self.buffers, start + count, keys):
            self.buffers = self._grown(start, count, keys, values)
        self.keys = self.buffers[0].narrow(2, 0, start + count)
        self.values = self.buffers[1].narrow(2, 0, start + count)
        return self.buffers

    def _grown(
        self, start: int, count: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size = -(-max(2 * start, start + count + _STEP // 2) // _STEP) * _STEP
        new = [like.new_empty((*like.shape[:2], size, like.shape[-1])) for like in (keys, values)]
        if start:
            new[0].narrow(2, 0, start).copy_(self.keys)
            new[1].narrow(2, 0, start).copy_(self.values)
        return new[0], new[1]

    def _still_ours(
        self, buffers: tuple[torch.Tensor, torch.Tensor], length: int, like: torch.Tensor
    ) -> bool:
        """Say whether the buffers hold what `keys` and `values` show, and may be written."""
        keys, values = buffers
        if keys.shape[0] != like.shape[0] or keys.shape[2] < length or keys.dtype != like.dtype:
            return False
        if keys.is_inference() and not torch.is_inference_mode_enabled():
            return False
        if self.get_seq_length() == 0:
            return True
        same_place = self.keys.data_ptr() == keys.data_ptr() and (self.values.data_ptr() == values.data_ptr())
        return same_place and bool(self.keys.stride() == keys.stride())


def adopt(cache: Cache | None, layers: int) -> Cache | None:
    """Return `cache` with every layer preallocating (a new one for None), content kept.

    Returns None when the cache is of another kind (static, quantised, sliding, offloaded): then
    the original forward pass has to run.
    """
    if cache is None:
        cache = DynamicCache()
    if type(cache) is not DynamicCache or cache.offloading:
        return None
    if any(type(layer) not in (DynamicLayer, PreallocatedLayer) for layer in cache.layers):
        return None
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = _taken_over(layer)
    cache.layers.extend(PreallocatedLayer() for _ in range(layers - len(cache.layers)))
    return cache


def _taken_over(layer: Any) -> PreallocatedLayer:
    new = PreallocatedLayer()
    if layer.is_initialized and layer.get_seq_length():
        new.lazy_initialization(layer.keys, layer.values)
        new.keys, new.values = layer.keys, layer.values
    return new
