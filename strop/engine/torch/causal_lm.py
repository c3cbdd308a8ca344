"""Drives a causal LM: real prefill and chained decode steps over its own KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from strop.core import BASELINE_ID, Tier
from strop.engine.contract import Array, Batch
from strop.engine.torch.buffers import Buffers
from strop.engine.torch.versions import Context, Versions

__all__ = ["CausalLM"]


class CausalLM:
    """Satisfies `strop.engine.driver.Driver` for models with transformers' causal LM interface.

    The KV cache is opaque here: it is whatever the active forward returned, so a version may
    bring its own. Requests of different lengths are padded on the left, as `generate` does.
    """

    def __init__(self, models: Mapping[Tier, nn.Module], context: Context) -> None:
        self.versions = {tier: Versions(model) for tier, model in models.items()}
        self.context = context
        self.cache_name = context.cache_name
        self.active = self.versions[Tier.SLOW]
        self.buffers = Buffers()
        self.last: list[torch.Tensor] = []
        torch.set_num_threads(context.threads)

    def load(self, folder: Path, version: str, tier: Tier, any_precision: bool) -> int:
        """See `Driver.load`."""
        self.activate(BASELINE_ID, tier)
        return self.active.load(folder, version, tier, any_precision, self.context)

    def activate(self, version: str, tier: Tier) -> None:
        """See `Driver.activate`."""
        self.active = self.versions[tier]
        threads = self.active.activate(version).threads
        torch.set_num_threads(threads or self.context.threads)

    def drop(self) -> None:
        """See `Driver.drop`."""
        for versions in self.versions.values():
            versions.drop()
        self.last.clear()
        self.activate(BASELINE_ID, Tier.SLOW)

    @torch.inference_mode()
    def prefill(self, batch: Batch) -> list[Array]:
        """See `Driver.prefill`."""
        self.state = _State(batch.prompts, self.context.device, self.buffers, batch.slot)
        logits = self._step(self.state, self.state.prompt, keep=1)
        self.state.next = logits[:, -1].argmax(-1, keepdim=True)
        return [self.state.next.numpy(force=True)]

    @torch.inference_mode()
    def decode(self, steps: int, first: tuple[int, ...]) -> list[Array]:
        """See `Driver.decode`."""
        state, tokens = self.state, []
        if first:
            state.next = torch.tensor(first, device=self.context.device)[:, None]
        for _ in range(steps):
            logits = self._step(state, state.fed(state.next), keep=1)
            state.next = logits[:, -1].argmax(-1, keepdim=True)
            tokens.append(state.next)
        return [torch.cat(tokens, dim=1).numpy(force=True)]

    @torch.inference_mode()
    def score(self, batch: Batch, whole: bool) -> list[Array]:
        """See `Driver.score`."""
        forced = batch.forced or ((),) * len(batch.prompts)
        if whole:
            joined = tuple(p + f for p, f in zip(batch.prompts, forced, strict=True))
            self.state = state = _State(joined, self.context.device, self.buffers, batch.slot)
            parts = [self._step(state, state.prompt, keep=0)]
        else:
            self.state = state = _State(batch.prompts, self.context.device, self.buffers, batch.slot)
            parts = [self._step(state, state.prompt, keep=0)]
            for column in zip(*forced, strict=True):
                token = torch.tensor(column, device=self.context.device)[:, None]
                parts.append(self._step(state, state.fed(token), keep=1))
        self.last = parts
        return self._rows(batch, forced, parts)

    def reread(self) -> list[Array]:
        """See `Driver.reread`."""
        prompt, pad = self.state.prompt.numpy(force=True), self.state.pad.tolist()
        inputs = [row[skip:] for row, skip in zip(prompt, pad, strict=True)]
        return [*self._rows(self.state_batch, self.state_forced, self.last), *inputs]

    def _rows(
        self, batch: Batch, forced: tuple[tuple[int, ...], ...], parts: list[torch.Tensor]
    ) -> list[Array]:
        """Cut the padding off: per request, logits of (len(prompt) + len(forced), vocab)."""
        self.state_batch, self.state_forced = batch, forced
        logits = torch.cat([part.float() if part.dtype == torch.bfloat16 else part for part in parts], dim=1)
        total = logits.shape[1]
        lengths = [len(p) + len(f) for p, f in zip(batch.prompts, forced, strict=True)]
        return [logits[i, total - n :].numpy(force=True) for i, n in enumerate(lengths)]

    def _step(self, state: _State, tokens: torch.Tensor, keep: int) -> torch.Tensor:
        """Run the active forward on (batch, n) tokens; return its logits."""
        arguments: dict[str, Any] = state.advance(tokens.shape[1])
        out = self.active.model(
            input_ids=tokens,
            use_cache=True,
            logits_to_keep=keep,
            return_dict=True,  # as `generate` does: what is measured is what users call
            **{self.cache_name: state.cache},
            **arguments,
        )
        state.cache = out[self.cache_name]
        logits: torch.Tensor = out.logits
        return logits


class _State:
    """One batch on its way: padded prompt, mask where lengths differ, KV cache, next token."""

    def __init__(
        self, prompts: tuple[tuple[int, ...], ...], device: str, buffers: Buffers, slot: int
    ) -> None:
        longest = max(map(len, prompts))
        self.device = device
        self.ragged = any(len(prompt) != longest for prompt in prompts)
        padded = [(0,) * (longest - len(prompt)) + prompt for prompt in prompts]
        self.buffers, self.slot = buffers, slot
        self.prompt = buffers.put("prompt", torch.tensor(padded, device=device), slot)
        self.pad = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
        self.length = 0
        self.cache: Any = None
        self.next = self.prompt[:, -1:]

    def fed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return one decode step's tokens, (batch, 1), in the buffer that they are read from."""
        return self.buffers.put("token", tokens, self.slot)

    def advance(self, count: int) -> dict[str, torch.Tensor]:
        """Count `count` more tokens in; return mask and positions where padding needs them."""
        start, self.length = self.length, self.length + count
        if not self.ragged:
            return {}
        columns = torch.arange(self.length, device=self.device)[None]
        mask = (columns >= self.pad[:, None]).long()
        positions = (columns[:, start:] - self.pad[:, None]).clamp_min(0)
        return {"attention_mask": mask, "position_ids": positions}
