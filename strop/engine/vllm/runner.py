"""Runs batches through vLLM's own worker: its input preparation, model, sampler and KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from strop.engine.vllm.requests import Blocks, Request, ended, scheduled, shares

__all__ = ["Runner"]

_LOGITS_ROWS = 512
"""Rows of logits computed at once: more would take memory that vLLM has given to the KV cache."""


class Runner:
    """Steps of one worker while the door is closed. Satisfies both model runners, V1 and V2."""

    def __init__(self, worker: Any) -> None:
        from vllm import SamplingParams

        self.worker = worker
        self.runner = worker.model_runner
        config = worker.vllm_config
        cache = self.runner.kv_cache_config
        sizes = [group.kv_cache_spec.block_size for group in cache.kv_cache_groups]
        self.blocks = Blocks(sizes, cache.num_blocks, config.model_config.max_model_len)
        self.most = config.scheduler_config.max_num_batched_tokens
        # Long and never ended by a token: the judge alone decides how many steps there are.
        self.params = SamplingParams(temperature=0.0, max_tokens=self.blocks.longest, ignore_eos=True)
        self.requests: list[Request] = []

    def begin(
        self, tokens: Sequence[tuple[int, ...]], room: int, seed: int, computed: Sequence[int] = ()
    ) -> None:
        """Replace the requests by new ones, with KV blocks for `room` more tokens each.

        With `computed`, the requests take over the blocks of those before them, in which so
        many tokens of each are already: what vLLM does for a prompt whose prefix is cached.
        """
        if computed:
            blocks = [request.blocks for request in self.requests]
        else:
            lengths = [min(len(row) + room, self.blocks.longest) for row in tokens]
            lengths = [max(have, len(row)) for have, row in zip(lengths, tokens, strict=True)]
            blocks = self.blocks.share_out(lengths, seed)
        self.forget()
        done = computed or [0] * len(tokens)
        self.requests = [Request(*one) for one in zip(tokens, blocks, done, strict=True)]

    def forget(self) -> None:
        """Have the runner drop its requests."""
        if any(request.told for request in self.requests):
            self.worker.execute_model(ended(self.requests))
        self.requests = []

    def prefill(self) -> list[int]:
        """Compute every prompt; return the first token of each request."""
        found: dict[str, int] = {}
        missing = [len(request.tokens) - request.computed for request in self.requests]
        for counts in shares(missing, self.most):
            found |= _tokens(self._step(counts))
        return [found[request.name] for request in self.requests]

    def decode(self, steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Chain greedy steps; return the tokens, int64 of shape (batch, steps).

        Tokens are read from the device after the last step where the runner can chain without.
        """
        handles = [self._step([1] * len(self.requests)) for _ in range(steps)]
        found = [_tokens(handle) for handle in handles]
        rows = [[step[request.name] for step in found] for request in self.requests]
        return np.array(rows, dtype=np.int64).reshape(len(rows), steps)

    @torch.inference_mode()
    def logits(self, counts: Sequence[int]) -> list[torch.Tensor]:
        """Compute so many further tokens of each request; return their logits, (count, vocab).

        Empty on ranks that do not gather the logits.
        """
        parts: list[list[torch.Tensor]] = [[] for _ in self.requests]
        for step in shares(counts, self.most):
            for part, rows in zip(parts, self._hidden(step), strict=True):
                part.extend(self._rows(rows))
        return [torch.cat(part) for part in parts if part]

    def held_tokens(self, counts: Sequence[int]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
        """Return the first tokens of each request as the runner holds them, int64."""
        states = getattr(self.runner, "req_states", None)
        if states is not None:
            rows, index = states.all_token_ids.gpu, states.req_id_to_index
        else:
            rows, index = self.runner.input_batch.token_ids_cpu, self.runner.input_batch.req_id_to_index
        found = [
            rows[index[request.name], :count] for request, count in zip(self.requests, counts, strict=True)
        ]
        return [np.asarray(row.cpu() if hasattr(row, "cpu") else row).astype(np.int64) for row in found]

    def _step(self, counts: Sequence[int]) -> Any:
        output = scheduled(self.requests, counts, self.params)
        self.worker.execute_model(output)
        return self.worker.sample_tokens(None)

    def _hidden(self, counts: Sequence[int]) -> list[torch.Tensor]:
        """Run one step; return each request's hidden states, (count, hidden size)."""
        self.worker.execute_model(scheduled(self.requests, counts, self.params))
        state = self.runner.execute_model_state
        order = getattr(state, "input_batch", self.runner.__dict__.get("input_batch")).req_ids
        by_name = dict(zip((r.name for r in self.requests), counts, strict=True))
        sizes = [by_name[name] for name in order]
        hidden = state.hidden_states[: sum(sizes)]
        found = dict(zip(order, hidden.split(sizes), strict=True))
        # Sampling overwrites the buffers of a graph, and has to follow every step.
        kept = [found[r.name].clone() if r.name in found else hidden[:0] for r in self.requests]
        self.worker.sample_tokens(None)
        return kept

    def _rows(self, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
        for start in range(0, len(hidden), _LOGITS_ROWS):
            logits = self.runner.model.compute_logits(hidden[start : start + _LOGITS_ROWS])
            if logits is not None:
                yield logits.float().cpu()


def _tokens(handle: Any) -> dict[str, int]:
    """Return the sampled token of each request that has one."""
    output = handle.get_output() if hasattr(handle, "get_output") else handle
    sampled = output.sampled_token_ids
    rows = sampled.tolist() if hasattr(sampled, "tolist") else sampled
    return {name: int(row[-1]) for name, row in zip(output.req_ids, rows, strict=True) if row}
