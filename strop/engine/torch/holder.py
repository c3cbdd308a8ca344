"""The torch engine's holder: loads the model, seals its weights, makes drivers in workers."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from strop import config
from strop.core import Fingerprint, StropError, Tier
from strop.engine import jail
from strop.engine.contract import Batch, Description, Kind
from strop.engine.driver import Driver
from strop.engine.torch.causal_lm import CausalLM
from strop.engine.torch.first_layers import decoder_layers, first_layers, pick_k
from strop.engine.torch.module import Module
from strop.engine.torch.source import Source, find
from strop.engine.torch.versions import Context, cache_name
from strop.engine.torch.weights import attach, digest, seal

__all__ = ["TorchHolder", "hold"]

_SMALL = 1_000_000_000
"""Up to so many parameters the reference runs in float64."""


def hold(settings: config.Engine, progress: Callable[[str], None]) -> TorchHolder:
    """Load the deployment's model and keep it.

    Raises:
        StropError: unknown model, device or dtype.
    """
    # One thread until after the fork: OpenMP's pool does not survive it.
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    if settings.device != "cpu":
        raise StropError(f"engine.device {settings.device!r}: this release runs on cpu")
    source = find(settings.model, settings.dtype, progress)
    progress("sealing the weights")
    return TorchHolder(source, settings)


class TorchHolder:
    """Satisfies `strop.engine.driver.Holder`."""

    def __init__(self, source: Source, settings: config.Engine) -> None:
        self.source = source
        self.model = source.model.requires_grad_(False)
        self.threads = settings.threads or os.cpu_count() or 1
        self.causal = hasattr(self.model, "config") and hasattr(self.model, "generate")
        self.sealed = seal(self.model)
        attach(self.model, self.sealed)
        found = decoder_layers(self.model) if self.causal else None
        layers = len(found[1]) if found else 0
        k = pick_k(layers, settings.fast_layers)
        fast = first_layers(self.model, k) if found else self.model
        self.models = {Tier.FAST: fast, Tier.SLOW: self.model}
        self.description = self._describe(settings, layers, k)

    def driver(self, role: str, private: bool) -> Driver:
        """See `Holder.driver`."""
        if private:
            attach(self.model, self.sealed, private=True)
        context = self._context()
        if role == "reference" and self.description.parameters <= _SMALL:
            # The two models share every tensor object, so both become float64.
            self.model.double()
        if self.causal:
            return CausalLM(self.models, context)
        return Module(self.model, context)

    def sample(self, seed: int) -> Batch:
        """See `Holder.sample`."""
        if self.source.sampler is None:
            return Batch()
        made = self.source.sampler(seed)
        inputs = made if isinstance(made, tuple) else (made,)
        return Batch(inputs=tuple(tensor.numpy(force=True) for tensor in inputs))

    def _context(self) -> Context:
        d = self.description
        return Context(
            tier=Tier.SLOW,
            device="cpu",
            dtype=d.fingerprint.dtype,
            threads=self.threads,
            max_context=d.max_context,
            precision="same",
            cache_name=cache_name(self.model) if self.causal else "",
        )

    def _describe(self, settings: config.Engine, layers: int, k: int) -> Description:
        model, text_config = self.model, getattr(self.model, "config", None)
        if not self.causal and self.source.sampler is None:
            raise StropError(
                f"model {settings.model!r} is no causal LM: its factory must return "
                "(module, sampler), sampler(seed) giving the tuple of input tensors"
            )
        return Description(
            kind=Kind.CAUSAL_LM if self.causal else Kind.MODULE,
            model=settings.model,
            architecture=type(model).__name__,
            layers=layers,
            fast_layers=k if layers else 0,
            parameters=sum(p.numel() for p in model.parameters()),
            weight_bytes=_bytes(model),
            decode_bytes={tier: _step_bytes(m) for tier, m in self.models.items()},
            vocab=getattr(text_config, "vocab_size", 0) if self.causal else 0,
            max_context=getattr(text_config, "max_position_embeddings", 0) if self.causal else 0,
            tokenizer=self.source.tokenizer,
            fingerprint=self._fingerprint(settings),
            jail=jail.probe(),
            source=self.source.code,
            memory_bytes=self.sealed.size,
        )

    def _fingerprint(self, settings: config.Engine) -> Fingerprint:
        return Fingerprint(
            engine="torch",
            device=_cpu_name(),
            cores=os.cpu_count() or 1,
            threads=self.threads,
            dtype=str(next(self.model.parameters()).dtype).removeprefix("torch."),
            model_hash=digest(self.model),
            versions={
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "transformers": transformers.__version__,
            },
            flags={"cpu_capability": torch.backends.cpu.get_cpu_capability()},
        )


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def _step_bytes(model: nn.Module) -> int:
    """Bytes of weights one decode step, or one call of a module, must read.

    Not read as a whole: embeddings that are only looked up, and the experts that a token skips.
    """
    named: Any = model
    head = named.get_output_embeddings().weight if hasattr(model, "get_output_embeddings") else None
    tables = {id(m.weight) for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}
    tables.discard(id(head))
    settings = getattr(model, "config", None)
    experts = getattr(settings, "num_local_experts", 0) or getattr(settings, "num_experts", 0) or 1
    share = min(1.0, getattr(settings, "num_experts_per_tok", experts) / experts)
    total = 0.0
    for name, p in model.named_parameters():
        if id(p) not in tables:
            total += p.numel() * p.element_size() * (share if ".experts." in name else 1.0)
    return int(total)


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
