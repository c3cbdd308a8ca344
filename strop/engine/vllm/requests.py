"""The judge's batches as vLLM's own scheduler would send them: real requests over real KV blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from strop.core import Fault, Reason

__all__ = ["Blocks", "Request", "ended", "scheduled", "shares"]

_numbers = itertools.count()


@dataclass(slots=True)
class Request:
    """One request that the judge has made up."""

    tokens: tuple[int, ...]
    """The prompt; where tokens are forced, they are its end."""
    blocks: tuple[list[int], ...]
    """Ids of its KV blocks, one list a KV cache group."""
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    told: bool = False
    """Whether the runner knows it."""
    generated: int = 0
    name: str = field(default_factory=lambda: f"strop-{next(_numbers)}")


class Blocks:
    """Hands out the KV blocks, all of which are free while the door is closed.

    Block 0 is vLLM's null block. Two requests never share a block, and a request's blocks are
    in no order: a forward that takes them for neighbours is found out.
    """

    def __init__(self, sizes: Sequence[int], count: int, longest: int) -> None:
        """Remember the cache.

        Args:
            sizes: tokens a block, one for each KV cache group.
            count: blocks of the pool that the groups share.
            longest: tokens of the longest request that vLLM was started for.
        """
        self.sizes = tuple(sizes)
        self.count = count
        self.longest = longest

    def share_out(self, lengths: Sequence[int], seed: int) -> list[tuple[list[int], ...]]:
        """Return blocks for requests of so many tokens each, in an order that follows from the seed.

        Raises:
            Fault: oom, where a request is too long or all of them do not fit.
        """
        if max(lengths) > self.longest:
            raise Fault(Reason.OOM, f"{max(lengths)} tokens, and --max-model-len is {self.longest}")
        needed = sum(-(-length // size) for length in lengths for size in self.sizes)
        if needed >= self.count:
            raise Fault(Reason.OOM, f"the batch needs {needed} KV blocks and vLLM has {self.count - 1}")
        ids = list(range(1, self.count))
        random.Random(seed).shuffle(ids)
        free = iter(ids)
        return [
            tuple(list(itertools.islice(free, -(-length // size))) for size in self.sizes)
            for length in lengths
        ]


def shares(missing: Sequence[int], most: int) -> Iterator[list[int]]:
    """Cut prefills into steps of at most `most` tokens; yield each step's tokens by request.

    As vLLM's chunked prefill: in order, the last one of a step cut where the budget ends.
    """
    left = list(missing)
    while any(left):
        step, budget = [0] * len(left), most
        for index, count in enumerate(left):
            step[index] = min(count, budget)
            budget -= step[index]
        left = [count - took for count, took in zip(left, step, strict=True)]
        yield step


def scheduled(requests: Sequence[Request], counts: Sequence[int], params: Any) -> Any:
    """Return vLLM's `SchedulerOutput` for so many further tokens of each request, and count them.

    Args:
        requests: those with a count of 0 are left out.
        counts: tokens to compute, by request.
        params: vLLM's `SamplingParams`.
    """
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

    output: Any = SchedulerOutput.make_empty()
    output.scheduled_cached_reqs = cached = CachedRequestData.make_empty()
    output.num_common_prefix_blocks = [0] * len(requests[0].blocks)
    for request, count in zip(requests, counts, strict=True):
        if not count:
            continue
        output.num_scheduled_tokens[request.name] = count
        if request.told:
            cached.req_ids.append(request.name)
            cached.new_block_ids.append(None)
            cached.num_computed_tokens.append(request.computed)
            cached.num_output_tokens.append(request.generated)
        else:
            tokens = list(request.tokens)
            new = NewRequestData(
                req_id=request.name,
                prompt_token_ids=tokens,
                mm_features=[],
                sampling_params=params,
                pooling_params=None,
                block_ids=request.blocks,
                num_computed_tokens=request.computed,
                lora_request=None,
                prefill_token_ids=tokens,
            )
            output.scheduled_new_reqs.append(new)
        request.told = True
        request.computed += count
        request.generated += request.computed >= len(request.tokens)
    output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
    return output


def ended(requests: Sequence[Request]) -> Any:
    """Return the `SchedulerOutput` that makes the runner forget these requests."""
    from vllm.v1.core.sched.output import SchedulerOutput

    output: Any = SchedulerOutput.make_empty()
    output.num_common_prefix_blocks = [0] * len(requests[0].blocks) if requests else []
    output.finished_req_ids = {request.name for request in requests if request.told}
    return output
