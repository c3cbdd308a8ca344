"""What a worker of vLLM holds, as the judge wants to know it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from strop.core import Fingerprint, Tier
from strop.engine.contract import Description, Kind

__all__ = ["describe"]


def describe(worker: Any, driver: Any) -> Description:
    """Return the description of a worker's model; sizes are those of this rank."""
    import vllm

    config, model = worker.vllm_config.model_config, driver.model
    return Description(
        kind=Kind.CAUSAL_LM,
        model=config.model,
        architecture=type(model.whole).__name__,
        layers=model.layers,
        fast_layers=driver.fast,
        parameters=sum(p.numel() for p in model.whole.parameters()),
        weight_bytes=model.weight_bytes(),
        decode_bytes={Tier.FAST: model.step_bytes(driver.fast), Tier.SLOW: model.step_bytes(model.layers)},
        vocab=config.get_vocab_size(),
        max_context=config.max_model_len,
        tokenizer=_tokenizer(config.tokenizer),
        fingerprint=_fingerprint(worker, driver, vllm.__version__),
        jail=(),
        source=model.source(),
        memory_bytes=model.weight_bytes(),
    )


def _fingerprint(worker: Any, driver: Any, version: str) -> Fingerprint:
    config = worker.vllm_config
    parallel, compilation = config.parallel_config, config.compilation_config
    return Fingerprint(
        engine="vllm",
        device=_device_name(worker.device),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        dtype=str(config.model_config.dtype).removeprefix("torch."),
        model_hash=driver.model.digest(),
        versions={"python": platform.python_version(), "torch": str(torch.__version__), "vllm": version},
        flags={
            "tensor_parallel_size": str(parallel.tensor_parallel_size),
            "enforce_eager": str(config.model_config.enforce_eager),
            "compilation_mode": str(compilation.mode),
            "cudagraph_mode": str(compilation.cudagraph_mode),
            "max_num_batched_tokens": str(config.scheduler_config.max_num_batched_tokens),
            "runner": type(worker.model_runner).__module__,
        },
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _tokenizer(name: str) -> str:
    """Return the path of tokenizer.json on this machine; empty where there is none."""
    path = Path(name, "tokenizer.json")
    if path.exists():
        return str(path)
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, "tokenizer.json")
    except ValueError:  # a folder is no name of a repository
        return ""
    return found if isinstance(found, str) else ""
